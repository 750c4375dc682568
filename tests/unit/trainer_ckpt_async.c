/*
 * Asynchronous checkpoints: the bytes of a synchronous save, although training changes every number
 * while they are written; several under way; errors that all ranks learn.
 */
#include "tests/unit/trainer_world.h"
#include "trainer/ckpt_async.h"

#include <dirent.h>
#include <unistd.h>

/* One rank of a job, with its saves. */
struct seated {
    const struct job *job;
    const struct tr_team *team;
    struct tr_params params;
    struct tr_part *part;
    struct tr_ckpt_what what;
    void *room;
    struct tr_ckpt_async *saves;
};

static void sit(struct seated *s, const struct job *job, const struct tr_team *team)
{
    struct err e = {0};
    size_t bytes = PL_SNAPSHOT_BOUNCE;

    *s = (struct seated){.job = job, .team = team};
    params_make(&s->params, &job->model, &job->layout, team->rank);
    s->what = (struct tr_ckpt_what){.model = &job->model, .state = true};
    s->what.part = s->part = tr_parts(&s->what.count, &s->params, &job->layout, true);
    for (size_t i = 0; i < s->what.count; i++)
        bytes += s->part[i].save ? (size_t)s->part[i].count * sizeof(float) : 0;
    s->room = mem_alloc(bytes);
    world_need(
        tr_ckpt_async_new(&s->saves, job->dir, job->keep, &s->what, s->room, bytes, team, &e) == 0,
        "%s", e.text);
}

static void leave(struct seated *s)
{
    s->saves = tr_ckpt_async_free(s->saves);
    free(s->room);
    free(s->part);
    params_done(&s->params);
}

static struct tr_ckpt_state state_of(int step)
{
    return (struct tr_ckpt_state){
        .step = step, .samples = 8 * (uint64_t)step, .seed = -5, .data = "synthetic", .loss = 2.5};
}

/* The end of step STEP, 0: none with a save; numbers change as soon as the copy is taken. */
static int turn(struct seated *s, int step, int next, struct err *e)
{
    struct tr_ckpt_state state = state_of(step);

    params_fill(&s->params, step);
    tr_ckpt_async_turn(s->saves, step ? &state : NULL, clock_mono_ns(), next);
    params_fill(&s->params, 99);
    return tr_ckpt_async_settle(s->saves, e);
}

static void need_turn(struct seated *s, int step, int next)
{
    struct err e = {0};

    world_need(turn(s, step, next, &e) == 0, "%s", e.text);
}

/* ---- the same bytes ------------------------------------------------------ */

static void save_async(const struct tr_team *team, void *arg)
{
    const struct job *job = arg;
    struct seated s;

    sit(&s, job, team);
    need_turn(&s, 0, job->stamp);
    world_need(tr_ckpt_async_made(s.saves, job->stamp), "it is not made");
    need_turn(&s, job->stamp, 0);
    while (tr_ckpt_async_flying(s.saves))
        need_turn(&s, 0, 0);
    leave(&s);
}

static void same_files(const char *left, const char *right)
{
    DIR *d = opendir(left);
    struct dirent *it;
    int files = 0;

    assert_non_null(d);
    while ((it = readdir(d))) {
        AUTO_FREE char *from = mem_printf("%s/%s", left, it->d_name);
        AUTO_FREE char *to = mem_printf("%s/%s", right, it->d_name);
        AUTO_FREE char *x = NULL, *y = NULL;
        size_t n = 0, m = 0;
        struct err e = {0};

        if (it->d_name[0] == '.')
            continue;
        files++;
        if (file_read_all(&x, &n, from, 1 << 26, &e) < 0 ||
            file_read_all(&y, &m, to, 1 << 26, &e) < 0)
            fail_msg("%s", e.text);
        if (n != m || memcmp(x, y, n) != 0)
            fail_msg("%s differs from %s", to, from);
    }
    closedir(d);
    assert_true(files >= 5);
}

static void the_files_are_those_of_a_synchronous_save(void **state)
{
    static const struct {
        int world;
        const char *keys;
        bool moe;
    } all[] = {
        {1, "", false},
        {2, "'zero':1", false},
        {2, "'tp':2,'precision':'bf16'", false},
        {4, "'pp':2,'zero':3", false},
        {4, "'tp':2,'sp':1,'zero':2,'precision':'bf16'", false},
        {4, "'ep':2,'zero':1", true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        AUTO_FREE char *sync = unit_folder("sync"), *async = unit_folder("async");
        AUTO_FREE char *left = mem_printf("%s/step-00000007", sync);
        AUTO_FREE char *right = mem_printf("%s/step-00000007", async);
        struct job job = {
            .model = world_model(all[i].moe ? "{'experts':4,'top_k':2,'expert_ffn':24}" : NULL),
            .dir = sync,
            .stamp = 7};

        job.layout = world_layout(&job.model, all[i].world, all[i].keys);
        assert_int_equal(world_run(all[i].world, job_save, &job), 0);
        job.dir = async;
        assert_int_equal(world_run(all[i].world, save_async, &job), 0);
        same_files(left, right);
        file_remove_tree(sync, NULL);
        file_remove_tree(async, NULL);
    }
}

/* ---- several under way --------------------------------------------------- */

/* What DIR/latest names, as a step; 0: there is none. */
static int latest(const char *dir)
{
    AUTO_FREE char *path = NULL;
    int64_t step = 0;

    if (tr_ckpt_latest(&path, dir, NULL) == 0)
        (void)str_to_i64(&step, strrchr(path, '-') + 1, 0, 1000);
    return (int)step;
}

static void save_each(const struct tr_team *team, void *arg)
{
    enum { STEPS = 6, BEHIND = 1 }; /* put in one turn, published in the next */
    const struct job *job = arg;
    struct tr_ckpt_done done;
    struct seated s;

    sit(&s, job, team);
    need_turn(&s, 0, 1);
    for (int step = 1; step <= STEPS + BEHIND; step++) {
        int there = step > BEHIND ? step - BEHIND : 0;

        need_turn(&s, step <= STEPS ? step : 0, step < STEPS ? step + 1 : 0);
        world_need(tr_ckpt_async_done(&done, s.saves) == (there > 0), "published at %d", step);
        world_need(!there || (done.step == there && done.ms >= done.held_ms && done.bytes > 0),
                   "step %d, not %d", done.step, there);
        world_need(!tr_ckpt_async_done(&done, s.saves), "said twice");
        world_need(team->rank != 0 || latest(job->dir) == there, "latest is %d, not %d",
                   latest(job->dir), there);
    }
    need_turn(&s, 0, 0);
    world_need(!tr_ckpt_async_flying(s.saves), "something is left");
    leave(&s);
}

static void checkpoints_of_every_step_appear_in_order(void **state)
{
    AUTO_FREE char *dir = unit_folder("each");
    AUTO_FREE char *kept = mem_printf("%s/step-00000005", dir);
    AUTO_FREE char *gone = mem_printf("%s/step-00000004", dir);
    struct job job = {.model = world_model(NULL), .dir = dir, .stamp = 6, .keep = 2};

    (void)state;
    job.layout = world_layout(&job.model, 2, "'zero':1");
    assert_int_equal(world_run(2, save_each, &job), 0);
    assert_true(file_exists(kept) && !file_exists(gone));
    assert_int_equal(world_run(2, job_load, &job), 0);
    file_remove_tree(dir, NULL);
}

/* Folders that are being filled, or were. */
static int fillings(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *it;
    int n = 0;

    while (d && (it = readdir(d)))
        n += str_starts(it->d_name, ".saving");
    if (d)
        closedir(d);
    return n;
}

static void what_was_made_and_not_needed_is_removed_by_the_next_save(void **state)
{
    AUTO_FREE char *dir = unit_folder("unneeded");
    struct job job = {.model = world_model(NULL), .dir = dir, .stamp = 3};
    struct seated s;

    (void)state;
    job.layout = world_layout(&job.model, 1, "");
    sit(&s, &job, &tr_team_alone);
    need_turn(&s, 0, 3);
    need_turn(&s, 0, 0);
    leave(&s);
    assert_int_equal(fillings(dir), 1);
    assert_int_equal(latest(dir), 0);
    job_save(&tr_team_alone, &job);
    assert_int_equal(fillings(dir), 0);
    assert_int_equal(latest(dir), 3);
    file_remove_tree(dir, NULL);
}

/* ---- errors -------------------------------------------------------------- */

/* The folder goes away, which only rank 1 meets: rank 0 has its files open. */
static void lose_the_folder(const struct tr_team *team, void *arg)
{
    const struct job *job = arg;
    struct seated s;
    struct err e = {0};
    char command[400];

    sit(&s, job, team);
    need_turn(&s, 0, 2);
    snprintf(command, sizeof(command), "rm -rf '%s'/.saving.*", job->dir);
    if (team->rank == 0)
        world_need(system(command) == 0, "%s", command);
    world_need(tr_team_agree(team, 0, NULL) == 0, "they agree");
    world_need(turn(&s, 2, 0, &e) == -ESTALE, "error %d: %s", e.code, e.text);
    world_need(strstr(e.text, "save ") && strstr(e.text, "step-00000002: rank 1 on host "), "%s",
               e.text);
    world_need(team->rank != 1 || tr_ckpt_async_writer(s.saves) == TR_WRITER_FAILED, "it failed");
    leave(&s);
}

static void an_error_of_one_writer_is_known_to_all(void **state)
{
    AUTO_FREE char *dir = unit_folder("lost");
    struct job job = {.model = world_model(NULL), .dir = dir, .stamp = 1};

    (void)state;
    job.layout = world_layout(&job.model, 2, "'zero':1");
    assert_int_equal(world_run(2, job_save, &job), 0);
    assert_int_equal(world_run(2, lose_the_folder, &job), 0);
    assert_int_equal(latest(dir), 1);
    assert_int_equal(world_run(2, job_load, &job), 0);
    file_remove_tree(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_files_are_those_of_a_synchronous_save),
        cmocka_unit_test(checkpoints_of_every_step_appear_in_order),
        cmocka_unit_test(what_was_made_and_not_needed_is_removed_by_the_next_save),
        cmocka_unit_test(an_error_of_one_writer_is_known_to_all),
    };

    return cmocka_run_group_tests_name("asynchronous checkpoints", tests, NULL, NULL);
}
