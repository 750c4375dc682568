#include "tuner/machine/proc.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Read a small file of /proc into BUF, NUL-terminated; returns its length or a negative errno. */
static ssize_t slurp(int dirfd, const char *path, char *buf, size_t size)
{
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t r = 0;

    if (fd < 0)
        return -errno;
    while (n + 1 < size && (r = read(fd, buf + n, size - 1 - n)) > 0)
        n += (size_t)r;
    if (r < 0)
        r = -errno;
    close(fd);
    buf[n] = '\0';
    return r < 0 ? r : (ssize_t)n;
}

static void boot_id(char ret[TN_BOOT_TEXT])
{
    ssize_t n = slurp(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret, TN_BOOT_TEXT);

    ret[n < 0 ? 0 : strcspn(ret, "\n")] = '\0';
}

/* Fields after the command's name, which may itself hold blanks and parentheses. */
static int stat_fields(char *ret_state, int *ret_ppid, uint64_t *ret_start, int pid)
{
    char path[64], buf[1024];
    const char *p;
    unsigned long long t = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (slurp(AT_FDCWD, path, buf, sizeof(buf)) < 0 || !(p = strrchr(buf, ')')))
        return -ESRCH;
    if (sscanf(p + 1,
               " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               ret_state, ret_ppid, &t) != 3)
        return -ESRCH;
    *ret_start = t;
    return 0;
}

int tn_proc_of(struct tn_proc *ret, int pid)
{
    struct tn_proc p = {.pid = pid};
    char state;
    int ppid;

    if (stat_fields(&state, &ppid, &p.start, pid) < 0 || state == 'Z' || state == 'X')
        return -ESRCH;
    boot_id(p.boot);
    *ret = p;
    return 0;
}

bool tn_proc_alive(const struct tn_proc *proc)
{
    struct tn_proc now;

    return proc->pid > 0 && tn_proc_of(&now, proc->pid) == 0 && now.start == proc->start &&
           !strcmp(now.boot, proc->boot);
}

int tn_proc_parent(int pid)
{
    uint64_t start;
    char state;
    int ppid;

    return stat_fields(&state, &ppid, &start, pid) < 0 ? -ESRCH : ppid;
}

uint64_t tn_proc_age_ms(const struct tn_proc *proc)
{
    struct timespec t;
    uint64_t now, start = proc->start * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);

    clock_gettime(CLOCK_BOOTTIME, &t);
    now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    return now > start ? now - start : 0;
}

int tn_proc_children(int *ret_pids, int max)
{
    DIR *d = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    while (d && (entry = readdir(d))) {
        int64_t pid;
        uint64_t start;
        char state;
        int ppid;

        if (str_to_i64(&pid, entry->d_name, 1, INT32_MAX) < 0 ||
            stat_fields(&state, &ppid, &start, (int)pid) < 0 || ppid != getpid() || state == 'Z' ||
            state == 'X')
            continue;
        if (n < max)
            ret_pids[n] = (int)pid;
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

/* ---- the mark ------------------------------------------------------------ */

static bool has_mark(int proc, const char *pid, const char *want, size_t len)
{
    char path[64];
    char *env = NULL;
    bool found = false;
    ssize_t n;

    snprintf(path, sizeof(path), "%.20s/environ", pid);
    env = mem_alloc(128 << 10);
    n = slurp(proc, path, env, 128 << 10);
    for (ssize_t at = 0; at < n && !found; at += (ssize_t)strlen(env + at) + 1)
        found = strlen(env + at) == len && !memcmp(env + at, want, len);
    free(env);
    return found;
}

int tn_mark_find(int *ret_pids, int max, const char *mark)
{
    AUTO_FREE char *want = mem_printf("%s=%s", TN_MARK_ENV, mark);
    DIR *d = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    if (!d)
        return 0;
    while ((entry = readdir(d))) {
        int64_t pid;
        struct stat st;

        if (str_to_i64(&pid, entry->d_name, 1, INT32_MAX) < 0 || pid == getpid())
            continue;
        if (fstatat(dirfd(d), entry->d_name, &st, 0) < 0 ||
            (geteuid() != 0 && st.st_uid != geteuid()))
            continue;
        if (!has_mark(dirfd(d), entry->d_name, want, strlen(want)))
            continue;
        if (n < max)
            ret_pids[n] = (int)pid;
        n++;
    }
    closedir(d);
    return n;
}

int tn_mark_signal(const char *mark, int sig)
{
    int pids[1024];
    int n = tn_mark_find(pids, (int)ARRAY_LEN(pids), mark);

    for (int i = 0; i < n && i < (int)ARRAY_LEN(pids); i++)
        kill(pids[i], sig);
    return n;
}

int tn_mark_kill_all(const char *mark, int timeout_ms)
{
    uint64_t until = clock_mono_ns() + (uint64_t)timeout_ms * 1000000;

    assert(timeout_ms > 0);
    while (tn_mark_signal(mark, SIGKILL) > 0) {
        if (clock_mono_ns() > until)
            return -ETIMEDOUT;
        usleep(5000); /* a killed process needs a moment to leave /proc */
    }
    return 0;
}

int64_t tn_oom_kills(void)
{
    char buf[16384];
    const char *p;

    if (slurp(AT_FDCWD, "/proc/vmstat", buf, sizeof(buf)) < 0 || !(p = strstr(buf, "\noom_kill ")))
        return 0;
    return strtoll(p + strlen("\noom_kill "), NULL, 10);
}

/* ---- core lists ---------------------------------------------------------- */

int tn_cpus_parse(int *ret, int max, const char *text)
{
    int n = 0;

    while (*text) {
        char *end;
        long a = strtol(text, &end, 10), b = a;

        if (end == text || a < 0)
            return -EINVAL;
        if (*end == '-') {
            text = end + 1;
            b = strtol(text, &end, 10);
            if (end == text || b < a)
                return -EINVAL;
        }
        for (; a <= b; a++) {
            if (n == max)
                return -EINVAL;
            ret[n++] = (int)a;
        }
        if (*end && *end != ',' && *end != '\n')
            return -EINVAL;
        text = *end ? end + 1 : end;
    }
    return n;
}

char *tn_cpus_text(char *buf, size_t size, const int *cpus, int count)
{
    size_t len = 0;

    assert(size > 0);
    buf[0] = '\0';
    for (int i = 0; i < count && len < size; i++)
        len += (size_t)snprintf(buf + len, size - len, "%s%d", i ? "," : "", cpus[i]);
    return buf;
}

/* ---- files of the supervisor --------------------------------------------- */

/* No link, and nothing that would keep us waiting for somebody who writes. */
static bool is_file(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int tn_run_claim(const char *folder, const struct tn_proc *self, const char *mark,
                 struct err *error)
{
    static const struct tn_proc nobody = {.pid = 0};
    const struct tn_proc *p = self ? self : &nobody;
    AUTO_FREE char *path = mem_printf("%s/%s", folder, TN_RUN_FILE);
    AUTO_FREE char *temporary = mem_printf("%s.%ld", path, (long)getpid());
    AUTO_FREE char *text =
        mem_printf("{\"v\":1,\"pid\":%d,\"start\":%llu,\"boot\":\"%s\",\"mark\":\"%s\"}\n", p->pid,
                   (unsigned long long)p->start, p->boot, mark);
    int fd, r;

    /* A claim that is there needs no room on the disk to be seen. */
    if (file_exists(path))
        return err_set(error, -EEXIST, "claim %s: %s", path, strerror(EEXIST));
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(error, -errno, "create %s: %s", temporary, strerror(errno));
    r = file_write_fd(fd, text, strlen(text));
    close(fd);
    /* link() never replaces: of two claims one fails, and a reader sees the whole file or none. */
    if (r == 0 && link(temporary, path) < 0)
        r = -errno;
    unlink(temporary);
    return r < 0 ? err_set(error, r, "claim %s: %s", path, strerror(-r)) : 0;
}

int tn_run_read(struct tn_proc *ret, const char *folder, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/%s", folder, TN_RUN_FILE);
    AUTO_JSON *v = NULL;
    struct tn_proc p = {.pid = 0};
    const char *boot = "";
    int64_t start = 0;
    int r;

    if (!is_file(path))
        return err_set(error, -ENOENT, "no %s", path);
    r = jx_load(&v, path, 4096, error);
    if (r == 0)
        r = jx_get_int(&p.pid, v, "pid", 0, INT32_MAX, error);
    if (r == 0)
        r = jx_get_i64(&start, v, "start", 0, INT64_MAX, error);
    if (r == 0 && p.pid > 0)
        r = jx_get_str(&boot, v, "boot", TN_BOOT_TEXT - 1, error);
    if (r < 0)
        return err_set(error, -EINVAL, "%s is damaged", path);
    p.start = (uint64_t)start;
    snprintf(p.boot, sizeof(p.boot), "%s", boot);
    *ret = p;
    return 0;
}

int tn_exit_write(const char *folder, const struct tn_exit *outcome, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/%s", folder, TN_EXIT_FILE);
    AUTO_FREE char *temporary = mem_printf("%s.tmp", path);
    AUTO_JSON *v = json_pack("{s:i, s:i, s:i, s:b, s:b, s:i, s:I, s:I, s:I}", "v", 1, "code",
                             outcome->code, "signal", outcome->signal, "stopped", outcome->stopped,
                             "proxy_lost", outcome->proxy_lost, "leftovers", outcome->leftovers,
                             "oom_kills", (json_int_t)outcome->oom_kills, "started",
                             (json_int_t)outcome->started, "ended", (json_int_t)outcome->ended);
    AUTO_FREE char *text = jx_dump(v);
    int fd, r;

    /* The folder may be the trial's user's, who may have put anything there. */
    unlink(temporary);
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(error, -errno, "create %s: %s", temporary, strerror(errno));
    /* Renamed but not synced: the file must outlive processes, not the machine, whose loss ends the
     * trial anyway. */
    r = file_write_fd(fd, text, strlen(text));
    close(fd);
    if (r == 0 && rename(temporary, path) < 0)
        r = -errno;
    return r < 0 ? err_set(error, r, "write %s: %s", path, strerror(-r)) : 0;
}

void tn_exit_read(struct tn_exit *ret, const char *folder)
{
    AUTO_FREE char *path = mem_printf("%s/%s", folder, TN_EXIT_FILE);
    AUTO_JSON *v = NULL;
    struct tn_exit x = {.code = -1};
    struct err e;

    *ret = x;
    if (!is_file(path) || jx_load(&v, path, 4096, &e) < 0)
        return;
    if (jx_get_int(&x.code, v, "code", -1, 255, &e) < 0 ||
        jx_get_int(&x.signal, v, "signal", 0, 128, &e) < 0 ||
        jx_get_bool(&x.stopped, v, "stopped", &e) < 0 ||
        jx_get_bool(&x.proxy_lost, v, "proxy_lost", &e) < 0 ||
        jx_get_int(&x.leftovers, v, "leftovers", 0, INT32_MAX, &e) < 0 ||
        jx_get_i64(&x.oom_kills, v, "oom_kills", 0, INT64_MAX, &e) < 0 ||
        jx_get_i64(&x.started, v, "started", 0, INT64_MAX, &e) < 0 ||
        jx_get_i64(&x.ended, v, "ended", 0, INT64_MAX, &e) < 0)
        return;
    x.known = true;
    *ret = x;
}

/* ---- programs ------------------------------------------------------------ */

static char *sibling(const char *exe, const char *below, const char *name)
{
    char *path = mem_printf("%.*s/%s%s", (int)(strrchr(exe, '/') - exe), exe, below, name);

    if (access(path, X_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static char *in_path(const char *name)
{
    const char *p = getenv("PATH");

    while (p && *p) {
        size_t n = strcspn(p, ":");
        char *path = mem_printf("%.*s/%s", (int)n, p, name);

        if (n > 0 && access(path, X_OK) == 0)
            return path;
        free(path);
        p += n + (p[n] == ':');
    }
    return NULL;
}

char *tn_find_program(const char *given, const char *name)
{
    static const char *const places[] = {"", "../libexec/partune/"};
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    char *found = NULL;

    if (given && strchr(given, '/'))
        return access(given, X_OK) == 0 ? realpath(given, NULL) : NULL;
    if (n > 0) {
        exe[n] = '\0';
        for (size_t i = 0; i < ARRAY_LEN(places) && !found; i++)
            found = sibling(exe, places[i], given ? given : name);
    }
    return found ? found : in_path(given ? given : name);
}
