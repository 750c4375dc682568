#include "trainer/lock.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

/* How often to try: for a holder that runs, which may just have been killed, TRIES_LIVE times; for
 * one that is gone, or has not written its record yet, TRIES times. */
enum { TRIES = 20, TRIES_LIVE = 4, TRY_NS = 50000000, RECORD_MAX = 4096 };

struct tr_lock {
    int fd;
};

/* Identifies a process: a pid alone is reused, also after a reboot. */
struct holder {
    char host[128], boot[64], since[CLOCK_TEXT];
    int pid;
    uint64_t start; /* clock ticks after boot: field 22 of /proc/PID/stat */
};

static uint64_t start_of(int pid)
{
    AUTO_FREE char *path = mem_printf("/proc/%d/stat", pid);
    AUTO_FREE char *text = NULL;
    const char *at;
    uint64_t start = 0;

    if (file_read_all(&text, NULL, path, RECORD_MAX, NULL) < 0)
        return 0;
    at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || sscanf(at + 1,
                      " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                      "%*s %*s %*s %" SCNu64,
                      &start) != 1)
        return 0;
    return start;
}

static void boot_id(char *buf, size_t size)
{
    AUTO_FREE char *text = NULL;

    buf[0] = '\0';
    if (file_read_all(&text, NULL, "/proc/sys/kernel/random/boot_id", RECORD_MAX, NULL) == 0)
        snprintf(buf, size, "%.*s", (int)strcspn(text, "\n"), text);
}

static void ourselves(struct holder *holder)
{
    *holder = (struct holder){.pid = (int)getpid(), .start = start_of((int)getpid())};
    (void)gethostname(holder->host, sizeof(holder->host) - 1);
    boot_id(holder->boot, sizeof(holder->boot));
    clock_format(holder->since, clock_wall_ms());
}

static int write_record(int fd, const char *path, struct err *error)
{
    struct holder h;
    AUTO_JSON *o = NULL;
    AUTO_FREE char *text = NULL;
    ssize_t n;

    ourselves(&h);
    o = json_pack("{s:s, s:i, s:s, s:I, s:s}", "host", h.host, "pid", h.pid, "boot", h.boot,
                  "start", (json_int_t)h.start, "since", h.since);
    text = jx_dump(o);
    n = (ssize_t)strlen(text);
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return err_set(error, -EIO, "write %s: %s", path, strerror(errno));
    return 0;
}

/* False if no record has been written, or not completely. */
static bool read_record(struct holder *holder, int fd)
{
    char text[RECORD_MAX];
    ssize_t n = pread(fd, text, sizeof(text), 0);
    AUTO_JSON *o = NULL;
    int64_t start = 0;

    *holder = (struct holder){0};
    if (n <= 0 || jx_parse(&o, text, (size_t)n, NULL) < 0 || !json_is_object(o))
        return false;
    if (jx_copy_str(holder->host, sizeof(holder->host), o, "host", NULL) < 0 ||
        jx_copy_str(holder->boot, sizeof(holder->boot), o, "boot", NULL) < 0 ||
        jx_copy_str(holder->since, sizeof(holder->since), o, "since", NULL) < 0 ||
        jx_get_int(&holder->pid, o, "pid", 1, INT32_MAX, NULL) < 0 ||
        jx_get_i64(&start, o, "start", 0, INT64_MAX, NULL) < 0)
        return false;
    holder->start = (uint64_t)start;
    return holder->pid > 0;
}

/* As far as this host can tell. */
static bool gone(const struct holder *holder)
{
    struct holder us;

    ourselves(&us);
    return str_eq(holder->host, us.host) &&
           (!str_eq(holder->boot, us.boot) || start_of(holder->pid) != holder->start);
}

static int busy(int fd, const char *dir, struct err *error)
{
    struct holder h;

    if (!read_record(&h, fd))
        return err_set(error, -EBUSY,
                       "another run, which left no record of itself, is writing to %s", dir);
    return err_set(
        error, -EBUSY,
        "another run is writing to %s: process %d on host %s, since %s; end it, or give this run "
        "its own folder",
        dir, h.pid, h.host, h.since);
}

/* Without locks: -EBUSY if the record is of a process of this host that runs. */
static int ask_record(char **ret_warning, int fd, const char *dir, struct err *error)
{
    struct holder h, us;

    ourselves(&us);
    if (!read_record(&h, fd)) {
        *ret_warning = mem_printf("the file system of %s does not support locks: a second run on "
                                  "another host would not be kept out",
                                  dir);
        return 0;
    }
    if (!str_eq(h.host, us.host)) {
        *ret_warning =
            mem_printf("the file system of %s does not support locks, and process %d on host %s "
                       "has been writing there since %s: make sure that it is gone",
                       dir, h.pid, h.host, h.since);
        return 0;
    }
    return gone(&h) ? 0 : busy(fd, dir, error);
}

/* -EBUSY: another has it; -ENOLCK: there are no locks here. */
static int try_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return -EBUSY;
    return errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL ? -ENOLCK
                                                                                        : -errno;
}

/* Lock file PATH, open as FD, for WHAT. */
static int set_lock(char **ret_warning, int fd, const char *path, const char *what,
                    struct err *error)
{
    struct holder h;
    int r = try_lock(fd);

    for (int i = 1; i < TRIES && (r == -EBUSY || r == -EINTR); i++) {
        if (i >= TRIES_LIVE && r == -EBUSY && read_record(&h, fd) && !gone(&h))
            break;
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
        r = try_lock(fd);
    }
    if (r == -EBUSY)
        return busy(fd, what, error);
    if (r == -ENOLCK)
        return ask_record(ret_warning, fd, what, error);
    return r < 0 ? err_set(error, r, "lock %s: %s", path, strerror(-r)) : 0;
}

int tr_lock_file(struct tr_lock **ret, char **ret_warning, const char *path, const char *what,
                 struct err *error)
{
    AUTO_FREE char *warning = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644), r;
    struct tr_lock *c;

    if (fd < 0)
        return err_set(error, -errno, "open %s: %s", path, strerror(errno));
    r = set_lock(&warning, fd, path, what, error);
    if (r == 0)
        r = write_record(fd, path, error);
    if (r < 0) {
        close(fd);
        return r;
    }
    c = mem_alloc(sizeof(*c));
    c->fd = fd;
    *ret = c;
    *ret_warning = TAKE(warning);
    return 0;
}

int tr_lock_dir(struct tr_lock **ret, char **ret_warning, const char *dir, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/.lock", dir);

    return tr_lock_file(ret, ret_warning, path, dir, error);
}

struct tr_lock *tr_lock_free(struct tr_lock *lock)
{
    if (!lock)
        return NULL;
    (void)!ftruncate(lock->fd, 0);
    close(lock->fd);
    free(lock);
    return NULL;
}
