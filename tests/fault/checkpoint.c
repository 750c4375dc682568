/*
 * A checkpoint is there or it is not: every system call of a save fails once, and every one is the
 * last before kill -9. Whatever happens, the newest checkpoint that is found afterwards loads
 * whole, is the former one or the new one, and the next save succeeds. The same of asynchronous
 * saves, of which two are under way at a time.
 *
 * The calls are wrapped by the linker. fsync does nothing: the order of calls is under test, not
 * the disk.
 */
#include "tests/unit/trainer_world.h"
#include "trainer/ckpt_async.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>

enum mode { NONE, FAIL, KILL };

static enum mode mode;
static long countdown, calls;
static bool no_exchange; /* as on a file system that cannot */
static bool async;       /* saves are struck in their thread */

/* True if this call is to fail; does not return if it is to be the last. */
static bool struck(void)
{
    calls++;
    if (mode == NONE || --countdown != 0)
        return false;
    if (mode == KILL)
        raise(SIGKILL);
    return true;
}

#define WRAP(type, name, error, parameters, arguments)                                             \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (struck()) {                                                                            \
            errno = error;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }

WRAP(ssize_t, pwrite, EIO, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
WRAP(ssize_t, write, ENOSPC, (int fd, const void *p, size_t n), (fd, p, n))
WRAP(int, ftruncate, ENOSPC, (int fd, off_t n), (fd, n))
WRAP(int, rename, EACCES, (const char *from, const char *to), (from, to))

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (struck() || no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return __real_renameat2(a, from, b, to, flags);
}

WRAP(int, mkdir, ENOSPC, (const char *path, mode_t m), (path, m))

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    if (struck()) {
        errno = EIO;
        return -1;
    }
    return 0;
}

int __real_posix_fallocate(int fd, off_t at, off_t n);
int __wrap_posix_fallocate(int fd, off_t at, off_t n);
int __wrap_posix_fallocate(int fd, off_t at, off_t n)
{
    return struck() ? ENOSPC : __real_posix_fallocate(fd, at, n);
}

WRAP(int, unlink, EIO, (const char *path), (path))

/* Only locks are asked for with a third argument that is an address. */
static bool no_locks;
static long direct; /* writes past the page cache that were asked for */

int __real_fcntl(int fd, int cmd, void *arg);
int __wrap_fcntl(int fd, int cmd, void *arg);
int __wrap_fcntl(int fd, int cmd, void *arg)
{
    if (no_locks && cmd == F_OFD_SETLK) {
        errno = ENOSYS;
        return -1;
    }
    if (cmd == F_SETFL) {
        direct++;
        if (struck()) {
            errno = EINVAL;
            return -1;
        }
    }
    return __real_fcntl(fd, cmd, arg);
}

int __wrap_fcntl64(int fd, int cmd, void *arg);
int __wrap_fcntl64(int fd, int cmd, void *arg)
{
    return __wrap_fcntl(fd, cmd, arg);
}

/* ---- a run of one rank --------------------------------------------------- */

struct one {
    struct pl_model model;
    struct pl_layout layout;
    struct tr_params t;
    struct tr_part *part;
    struct tr_ckpt_what what;
    char *dir;
};

static void begin(struct one *o)
{
    *o = (struct one){.model = world_model(NULL), .dir = unit_folder("fault")};
    o->model.layers = 1;   /* few calls, each of them struck */
    o->model.vocab = 1024; /* and tensors that are worth a direct write */
    o->layout = world_layout(&o->model, 1, "");
    params_make(&o->t, &o->model, &o->layout, 0);
    o->what = (struct tr_ckpt_what){.model = &o->model, .state = true};
    o->what.part = o->part = tr_parts(&o->what.count, &o->t, &o->layout, true);
}

static void end(struct one *o)
{
    file_remove_tree(o->dir, NULL);
    free(o->dir);
    free(o->part);
    params_done(&o->t);
}

enum { SECOND = 4 }; /* stamp of the second of two asynchronous saves */

/* One turn of the saves under way, between two of training: which changes all numbers. */
static int turn(struct one *o, struct tr_ckpt_async *saves, struct tr_ckpt_state *state, int next,
                struct err *e)
{
    if (state)
        params_fill(&o->t, (int)state->samples);
    tr_ckpt_async_turn(saves, state, clock_mono_ns(), next);
    params_fill(&o->t, 99);
    return tr_ckpt_async_settle(saves, e);
}

/* Save STATE, and one of the step after it, which is put while the first is published. */
static int save_two(struct one *o, struct tr_ckpt_state *state, int keep, struct err *e)
{
    AUTO(tr_ckpt_async) *saves = NULL;
    struct tr_ckpt_state second = *state;
    size_t bytes = PL_SNAPSHOT_BOUNCE;
    int r;

    for (size_t i = 0; i < o->what.count; i++)
        bytes += (size_t)o->part[i].count * sizeof(float);
    AUTO_FREE char *room = mem_alloc(bytes);
    second.step++;
    second.samples = SECOND;
    assert_int_equal(
        tr_ckpt_async_new(&saves, o->dir, keep, &o->what, room, bytes, &tr_team_alone, e), 0);
    r = turn(o, saves, NULL, state->step, e);
    if (r == 0)
        r = turn(o, saves, state, second.step, e);
    if (r == 0)
        r = turn(o, saves, &second, 0, e);
    while (r == 0 && tr_ckpt_async_flying(saves))
        r = turn(o, saves, NULL, 0, e);
    saves = tr_ckpt_async_free(saves); /* before its room */
    return r;
}

static int save(struct one *o, int step, int stamp, int keep)
{
    struct tr_ckpt_state state = {.step = step, .samples = (uint64_t)stamp, .data = "synthetic"};
    struct err e = {0};
    int r;

    params_fill(&o->t, stamp);
    r = async && stamp == 2
            ? save_two(o, &state, keep, &e)
            : tr_ckpt_save(NULL, NULL, o->dir, keep, &o->what, &state, &tr_team_alone, &e);
    if (r < 0 && !e.text[0])
        fail_msg("an error without a text");
    return r;
}

/* Stamp of the newest checkpoint, which must be whole. */
static int newest(struct one *o, const char *when, long n)
{
    AUTO_FREE char *path = NULL;
    struct tr_ckpt_state state;
    struct err e = {0};

    if (tr_ckpt_latest(&path, o->dir, &e) < 0 ||
        tr_ckpt_load(&state, path, &o->what, &tr_team_alone, &e) < 0)
        fail_msg("%s %ld: %s", when, n, e.text);
    if (params_wrong(&o->t, (int)state.samples, true))
        fail_msg("%s %ld: a mixture", when, n);
    return (int)state.samples;
}

/* Strike call number N of a save of STEP; returns false once the save is over before it. */
static bool strike(struct one *o, enum mode how, long n, int step)
{
    int r, got, last = async ? SECOND : 2;
    bool hit = true;

    if (how == FAIL) {
        mode = FAIL;
        countdown = n;
        r = save(o, step, 2, 1);
        hit = countdown <= 0;
        mode = NONE;
        got = newest(o, "call failed", n);
        if (r == 0 && got != last)
            fail_msg(
                "call %ld failed, the save said it went well, and the former checkpoint is there",
                n);
    } else {
        int status;
        pid_t pid = fork();

        if (pid == 0) {
            mode = KILL;
            countdown = n;
            save(o, step, 2, 1);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        hit = WIFSIGNALED(status);
        got = newest(o, "killed at call", n);
        if (!hit && got != last)
            fail_msg("a save that was not killed is not the newest");
    }
    assert_true(got == 1 || got == 2 || got == last);
    return hit;
}

/* From a folder with one checkpoint, stamp 1, strike every call of saving STEP over it. */
static void strike_all(enum mode how, int step)
{
    long n = 1, news = 0;

    for (bool more = true; more; n++) {
        struct one o;

        begin(&o);
        assert_int_equal(save(&o, 1, 1, 1), 0);
        more = strike(&o, how, n, step);
        assert_int_equal(save(&o, step + 2, 3, 1), 0);
        assert_int_equal(newest(&o, "after", n), 3);
        news++;
        end(&o);
    }
    assert_true(news > 60); /* the calls were really counted */
}

static void a_failing_call_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    strike_all(FAIL, 2);
}

static void a_failing_call_leaves_a_whole_checkpoint_of_the_same_step(void **state)
{
    (void)state;
    strike_all(FAIL, 1);
}

static void a_kill_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    strike_all(KILL, 2);
}

static void a_kill_leaves_a_whole_checkpoint_of_the_same_step(void **state)
{
    (void)state;
    strike_all(KILL, 1);
}

static void the_same_where_names_cannot_be_exchanged(void **state)
{
    (void)state;
    no_exchange = true;
    strike_all(FAIL, 1);
    strike_all(KILL, 1);
    no_exchange = false;
}

static void the_same_of_asynchronous_saves(void **state)
{
    (void)state;
    async = true;
    direct = 0;
    strike_all(FAIL, 2);
    assert_true(direct > 0);
    strike_all(KILL, 1);
    async = false;
}

/* ---- a file system without locks ----------------------------------------- */

static void put_record(const char *dir, const char *host, const char *boot, int pid, long start)
{
    AUTO_FREE char *path = mem_printf("%s/.lock", dir);
    AUTO_FREE char *text = mem_printf("{\"host\":\"%s\",\"pid\":%d,\"boot\":\"%s\",\"start\":%ld,"
                                      "\"since\":\"2026-01-01T00:00:00.000Z\"}",
                                      host, pid, boot, start);
    struct err e = {0};

    assert_int_equal(file_write_atomic(path, text, strlen(text), 0644, &e), 0);
}

/* -EBUSY or 0, and whether there was a warning. */
static int take(const char *dir, bool *ret_warned, struct err *e)
{
    AUTO(tr_lock) *c = NULL;
    AUTO_FREE char *warning = NULL;
    int r = tr_lock_dir(&c, &warning, dir, e);

    *ret_warned = warning != NULL;
    return r;
}

static void without_locks_the_record_decides(void **state)
{
    AUTO_FREE char *dir = unit_folder("nolock"), *warning = NULL;
    AUTO(tr_lock) *ours = NULL;
    char host[128] = "";
    struct err e = {0};
    bool warned;
    int status;
    pid_t pid;

    (void)state;
    no_locks = true;
    gethostname(host, sizeof(host) - 1);
    assert_int_equal(tr_lock_dir(&ours, &warning, dir, &e), 0);
    assert_non_null(warning); /* that another host's run would not be kept out */
    pid = fork();
    if (pid == 0)
        _exit(take(dir, &warned, &e) == -EBUSY && strstr(e.text, host) ? 0 : 1);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    ours = tr_lock_free(ours);
    put_record(dir, host, "another boot", (int)getpid(), 1);
    assert_int_equal(take(dir, &warned, &e), 0);
    put_record(dir, host, "another boot", 1, 1);
    assert_int_equal(take(dir, &warned, &e), 0);
    put_record(dir, "elsewhere", "another boot", 1, 1);
    assert_int_equal(take(dir, &warned, &e), 0);
    assert_true(warned);
    no_locks = false;
    file_remove_tree(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_call_leaves_a_whole_checkpoint),
        cmocka_unit_test(a_failing_call_leaves_a_whole_checkpoint_of_the_same_step),
        cmocka_unit_test(a_kill_leaves_a_whole_checkpoint),
        cmocka_unit_test(a_kill_leaves_a_whole_checkpoint_of_the_same_step),
        cmocka_unit_test(the_same_where_names_cannot_be_exchanged),
        cmocka_unit_test(the_same_of_asynchronous_saves),
        cmocka_unit_test(without_locks_the_record_decides),
    };

    return cmocka_run_group_tests_name("checkpoint faults", tests, NULL, NULL);
}
