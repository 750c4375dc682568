/* Which checkpoint a run resumes from: rank 0 decides, damaged ones are passed over and kept, ranks
 * that see something else are named, and a folder belongs to one run at a time. */
#include "tests/unit/trainer_world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { RANKS = 4 };

/* What the ranks of a job do, and what is expected of it. */
struct plan {
    struct job job;
    const char *dir[RANKS]; /* of each rank */
    const char *load;       /* a checkpoint's name: load that one instead of resuming */
    int code;               /* of every rank */
    int step;               /* of a resume that succeeds */
    const char *text[3];    /* in the error of every rank */
    bool aside;             /* rank 0 says that some were set aside */
};

static struct plan plan_of(const char *dir)
{
    struct plan p = {.job = {.model = world_model(NULL), .dir = dir}};

    p.job.layout = world_layout(&p.job.model, RANKS, "'pp':2,'zero':1");
    for (int i = 0; i < RANKS; i++)
        p.dir[i] = dir;
    return p;
}

static void need_outcome(const struct tr_team *team, const struct plan *p, int r,
                         const struct err *e)
{
    world_need(r == p->code, "rank %d: %d, not %d: %s", team->rank, r, p->code, e->text);
    for (size_t i = 0; r < 0 && i < ARRAY_LEN(p->text) && p->text[i]; i++)
        world_need(strstr(e->text, p->text[i]), "rank %d: no %s in: %s", team->rank, p->text[i],
                   e->text);
}

static void resume_rank(const struct tr_team *team, void *arg)
{
    const struct plan *p = arg;
    const char *dir = p->dir[team->rank];
    struct tr_params t;
    struct tr_ckpt_what what = {.model = &p->job.model, .state = true};
    struct tr_ckpt_state state = {.step = -1};
    struct err e = {0};
    AUTO_FREE char *path = NULL, *aside = NULL;
    AUTO_FREE struct tr_part *part = NULL;
    int r;

    params_make(&t, &p->job.model, &p->job.layout, team->rank);
    what.part = part = tr_parts(&what.count, &t, &p->job.layout, true);
    if (p->load) {
        path = mem_printf("%s/%s", dir, p->load);
        r = tr_ckpt_load(&state, path, &what, team, &e);
    } else {
        r = tr_ckpt_resume(&state, &path, &aside, dir, &what, team, &e);
    }
    need_outcome(team, p, r, &e);
    if (r == 0) {
        world_need(state.step == p->step, "step %d, not %d", state.step, p->step);
        world_need(params_wrong(&t, p->step, true) == 0, "rank %d: wrong numbers", team->rank);
        world_need((aside != NULL) == (p->aside && team->rank == 0), "set aside: %s",
                   aside ? aside : "nothing");
    }
    params_done(&t);
}

static void save_rank(const struct tr_team *team, void *arg)
{
    const struct plan *p = arg;
    struct tr_params t;
    struct tr_ckpt_what what = {.model = &p->job.model, .state = true};
    struct tr_ckpt_state state = {.step = p->step, .data = "synthetic"};
    struct err e = {0};
    AUTO_FREE struct tr_part *part = NULL;

    params_make(&t, &p->job.model, &p->job.layout, team->rank);
    params_fill(&t, p->step);
    what.part = part = tr_parts(&what.count, &t, &p->job.layout, true);
    need_outcome(team, p, tr_ckpt_save(NULL, NULL, p->dir[team->rank], 0, &what, &state, team, &e),
                 &e);
    params_done(&t);
}

static void open_rank(const struct tr_team *team, void *arg)
{
    const struct plan *p = arg;
    AUTO(tr_lock) *lock = NULL;
    AUTO_FREE char *warning = NULL;
    struct err e = {0};

    need_outcome(team, p, tr_ckpt_open(&lock, &warning, p->dir[team->rank], team, &e), &e);
}

static void hf_open_rank(const struct tr_team *team, void *arg)
{
    const struct plan *p = arg;
    AUTO_FREE char *folder = mem_printf("%s/model", p->dir[team->rank]), *warning = NULL;
    AUTO(tr_lock) *lock = NULL;
    struct err e = {0};

    need_outcome(team, p, tr_hf_open(&lock, &warning, folder, team, &e), &e);
}

static void saved(struct plan *p, int step)
{
    p->step = step;
    p->code = 0;
    assert_int_equal(world_run(RANKS, save_rank, p), 0);
}

static void flip_in(const char *dir, const char *file, off_t at)
{
    AUTO_FREE char *path = mem_printf("%s/%s", dir, file);
    int fd = open(path, O_RDWR);
    unsigned char c;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static bool there(const char *dir, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", dir, name);

    return file_exists(path);
}

static void copy_tree(const char *from, const char *to)
{
    AUTO_FREE char *command = mem_printf("cp -r '%s' '%s'", from, to);

    assert_int_equal(system(command), 0);
}

static void a_damaged_checkpoint_is_passed_over_and_kept(void **state)
{
    static const struct {
        const char *file;
        off_t at;
    } damage[] = {{"step-00000008/optimizer.safetensors", 9000},
                  {"step-00000008/trainer.json", 60},
                  {"step-00000008/config.json", 30},
                  {"step-00000008/checksums.bin", 5}};
    AUTO_FREE char *dir = unit_folder("resume");
    struct plan p = plan_of(dir);

    (void)state;
    saved(&p, 4);
    for (size_t i = 0; i < ARRAY_LEN(damage); i++) {
        saved(&p, 8);
        flip_in(dir, damage[i].file, damage[i].at);
        p.step = 4;
        p.aside = true;
        assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
        assert_false(there(dir, "step-00000008"));
        p.aside = false; /* the next start finds nothing to say */
        assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    }
    assert_true(there(dir, "step-00000008.damaged") && there(dir, "step-00000008.damaged.4"));
    file_remove_tree(dir, NULL);
}

static void a_missing_file_is_damage(void **state)
{
    static const char *const files[] = {"trainer.json", "model.safetensors", "checksums.bin"};
    AUTO_FREE char *dir = unit_folder("missing");
    struct plan p = plan_of(dir);

    (void)state;
    saved(&p, 4);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FREE char *file = mem_printf("%s/step-00000008/%s", dir, files[i]);

        saved(&p, 8);
        assert_int_equal(unlink(file), 0);
        p.step = 4;
        p.aside = true;
        assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    }
    file_remove_tree(dir, NULL);
}

static void two_damaged_ones_leave_the_third(void **state)
{
    AUTO_FREE char *dir = unit_folder("two");
    struct plan p = plan_of(dir);

    (void)state;
    for (int step = 2; step <= 6; step += 2)
        saved(&p, step);
    flip_in(dir, "step-00000006/model.safetensors", 5000);
    flip_in(dir, "step-00000004/model.safetensors", 5000);
    p.step = 2;
    p.aside = true;
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    assert_true(there(dir, "step-00000004.damaged") && there(dir, "step-00000006.damaged"));
    file_remove_tree(dir, NULL);
}

static void no_whole_one_is_an_error_and_not_a_fresh_start(void **state)
{
    AUTO_FREE char *dir = unit_folder("none"), *from = NULL, *to = NULL;
    struct plan p = plan_of(dir);

    (void)state;
    p.code = -ENOENT;
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0); /* nothing yet: a fresh start */
    saved(&p, 2);
    saved(&p, 4);
    flip_in(dir, "step-00000004/model.safetensors", 5000);
    flip_in(dir, "step-00000002/model.safetensors", 5000);
    p.code = -EBADMSG;
    p.text[0] = "is whole";
    p.text[1] = "step-00000004";
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    assert_true(there(dir, "step-00000004") && there(dir, "step-00000002"));
    file_remove_tree(dir, NULL);
    saved(&p, 4);
    from = mem_printf("%s/step-00000004", dir);
    to = mem_printf("%s/step-00000004.damaged", dir);
    assert_int_equal(rename(from, to), 0);
    p.code = -EBADMSG; /* the only one was set aside */
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    file_remove_tree(dir, NULL);
}

/* Another model is no damage: the run is told, and nothing is set aside. */
static void another_model_is_not_passed_over(void **state)
{
    AUTO_FREE char *dir = unit_folder("model");
    struct plan p = plan_of(dir);

    (void)state;
    saved(&p, 4);
    p.job.model.rope_theta = 77;
    p.code = -EINVAL;
    p.text[0] = "rope_theta";
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    assert_true(there(dir, "step-00000004"));
    file_remove_tree(dir, NULL);
}

static void ranks_that_see_another_folder_are_named(void **state)
{
    AUTO_FREE char *a = unit_folder("a"), *b = unit_folder("b"), *c = unit_folder("c");
    char host[128] = "";
    struct plan p = plan_of(a), q = plan_of(b);

    (void)state;
    gethostname(host, sizeof(host) - 1);
    saved(&p, 2);
    saved(&p, 4);
    saved(&q, 2);
    p.code = -ESTALE;
    p.text[0] = "rank 2 on host";
    p.text[1] = host;
    p.text[2] = b;
    p.dir[2] = b; /* it has step 2 only */
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    assert_int_equal(world_run(RANKS, open_rank, &p), 0);
    assert_int_equal(world_run(RANKS, hf_open_rank, &p), 0);
    p.step = 6;
    assert_int_equal(world_run(RANKS, save_rank, &p), 0);
    assert_false(there(a, "step-00000006") || there(b, "step-00000006"));
    saved(&q, 4); /* the same step, other numbers: the loss tells */
    flip_in(b, "step-00000004/trainer.json", 1);
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    p.text[2] = c;
    p.dir[2] = c; /* it has nothing */
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    assert_true(there(a, "step-00000004"));
    file_remove_tree(a, NULL);
    file_remove_tree(b, NULL);
    file_remove_tree(c, NULL);
}

/* --resume-from a copy that each host has of its own: what it holds counts, not where it is. */
static void equal_copies_of_a_checkpoint_are_one(void **state)
{
    AUTO_FREE char *a = unit_folder("copy"), *b = mem_printf("%s.of", a);
    struct plan p = plan_of(a), q = plan_of(b);

    (void)state;
    saved(&p, 4);
    copy_tree(a, b);
    p.dir[1] = b;
    p.load = "step-00000004";
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    file_remove_tree(b, NULL);
    saved(&q, 4);
    q.job.stamp = 1;
    flip_in(b, "step-00000004/trainer.json", 1);
    p.code = -ESTALE;
    p.text[0] = "rank 1 on host";
    assert_int_equal(world_run(RANKS, resume_rank, &p), 0);
    file_remove_tree(a, NULL);
    file_remove_tree(b, NULL);
}

/* What a killed save of a host with another view left is not written to. */
static void a_left_over_folder_is_not_filled(void **state)
{
    AUTO_FREE char *a = unit_folder("left"), *b = unit_folder("over"), *old = NULL;
    struct plan p = plan_of(a);

    (void)state;
    saved(&p, 4);
    old = mem_printf("%s/step-00000004", a);
    AUTO_FREE char *saving = mem_printf("%s/.saving", b), *left = mem_printf("%s/.saving.1", a);
    copy_tree(old, saving);
    copy_tree(old, left);
    p.dir[1] = b;
    p.step = 6;
    p.code = -ESTALE;
    assert_int_equal(world_run(RANKS, save_rank, &p), 0);
    p.dir[1] = a;
    saved(&p, 6);
    assert_false(there(a, ".saving.1"));
    file_remove_tree(a, NULL);
    file_remove_tree(b, NULL);
}

/* ---- locks -------------------------------------------------------------- */

static void claim_and_wait(const char *dir, int say)
{
    AUTO(tr_lock) *c = NULL;
    AUTO_FREE char *warning = NULL;
    struct err e = {0};
    char r = tr_lock_dir(&c, &warning, dir, &e) == 0;

    if (write(say, &r, 1) == 1)
        pause();
    _exit(0);
}

static void a_folder_belongs_to_one_run(void **state)
{
    AUTO_FREE char *dir = unit_folder("claim"), *warning = NULL, *pid_text = NULL;
    char host[128] = "", taken = 0;
    struct err e = {0};
    struct tr_lock *c = NULL;
    int say[2];
    pid_t pid;

    (void)state;
    gethostname(host, sizeof(host) - 1);
    assert_int_equal(pipe(say), 0);
    pid = fork();
    if (pid == 0)
        claim_and_wait(dir, say[1]);
    assert_int_equal(read(say[0], &taken, 1), 1);
    assert_int_equal(taken, 1);
    pid_text = mem_printf("process %d ", (int)pid);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(tr_lock_dir(&c, &warning, dir, &e), -EBUSY);
        assert_non_null(strstr(e.text, host));
        assert_non_null(strstr(e.text, pid_text));
        assert_non_null(strstr(e.text, "since 20"));
    }
    kill(pid, SIGKILL); /* not waited for: it may still be dying when the next run comes */
    assert_int_equal(tr_lock_dir(&c, &warning, dir, &e), 0);
    assert_null(warning);
    waitpid(pid, NULL, 0);
    tr_lock_free(c);
    assert_int_equal(tr_lock_dir(&c, &warning, dir, &e), 0);
    tr_lock_free(c);
    close(say[0]);
    close(say[1]);
    file_remove_tree(dir, NULL);
}

static void weights_belong_to_one_run_however_their_folder_is_written(void **state)
{
    AUTO_FREE char *dir = unit_folder("claimhf"), *warning = NULL, *lock = NULL;
    AUTO_FREE char *folder = mem_printf("%s/model", dir), *slash = mem_printf("%s/model/", dir);
    AUTO_FREE char *other = mem_printf("%s/other", dir);
    struct tr_lock *first = NULL, *second = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(tr_hf_open(&first, &warning, folder, &tr_team_alone, &e), 0);
    assert_null(warning);
    lock = mem_printf("%s/.model.lock", dir);
    assert_true(file_exists(lock));
    assert_int_equal(tr_hf_open(&second, &warning, slash, &tr_team_alone, &e), -EBUSY);
    assert_non_null(strstr(e.text, folder));
    assert_non_null(strstr(e.text, "since 20"));
    assert_int_equal(tr_hf_open(&second, &warning, other, &tr_team_alone, &e), 0);
    tr_lock_free(second);
    tr_lock_free(first);
    assert_int_equal(tr_hf_open(&first, &warning, slash, &tr_team_alone, &e), 0);
    tr_lock_free(first);
    file_remove_tree(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_checkpoint_is_passed_over_and_kept),
        cmocka_unit_test(a_missing_file_is_damage),
        cmocka_unit_test(two_damaged_ones_leave_the_third),
        cmocka_unit_test(no_whole_one_is_an_error_and_not_a_fresh_start),
        cmocka_unit_test(another_model_is_not_passed_over),
        cmocka_unit_test(ranks_that_see_another_folder_are_named),
        cmocka_unit_test(equal_copies_of_a_checkpoint_are_one),
        cmocka_unit_test(a_left_over_folder_is_not_filled),
        cmocka_unit_test(a_folder_belongs_to_one_run),
        cmocka_unit_test(weights_belong_to_one_run_however_their_folder_is_written),
    };

    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
