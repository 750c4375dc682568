#include "tuner/machine/rlimits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    int resource;
    bool bytes;
} known[TN_RLIMITS] = {
    {"core", RLIMIT_CORE, true},      {"data", RLIMIT_DATA, true},    {"fsize", RLIMIT_FSIZE, true},
    {"nofile", RLIMIT_NOFILE, false}, {"nproc", RLIMIT_NPROC, false}, {"cpu", RLIMIT_CPU, false},
};

static int parse_one(struct tn_rlimits *limits, char *word, struct err *error)
{
    char *eq = strchr(word, '=');
    uint64_t v = 0;
    int64_t count = 0;
    int r;

    if (eq)
        *eq = '\0';
    for (int i = 0; i < TN_RLIMITS; i++) {
        if (strcmp(word, known[i].name) != 0)
            continue;
        r = !eq              ? -EINVAL
            : known[i].bytes ? str_to_bytes(&v, eq + 1)
                             : str_to_i64(&count, eq + 1, 0, INT64_MAX);
        if (r < 0)
            return err_set(error, -EINVAL, "limit %s must be %s: %s=N", word,
                           known[i].bytes ? "a size" : "a number", word);
        limits->set[i] = true;
        limits->value[i] = (rlim_t)(known[i].bytes ? v : (uint64_t)count);
        return 0;
    }
    return err_set(error, -EINVAL,
                   "unknown limit \"%.40s\" (core, data, fsize, nofile, nproc, cpu)", word);
}

int tn_rlimits_parse(struct tn_rlimits *ret, const char *text, struct err *error)
{
    AUTO_FREE char *copy = mem_strdup(text ? text : "");
    char *save = NULL;
    int r = 0;

    *ret = (struct tn_rlimits){.set = {true}}; /* core=0 */
    for (char *w = strtok_r(copy, ", ", &save); w && r == 0; w = strtok_r(NULL, ", ", &save))
        r = parse_one(ret, w, error);
    return r;
}

int tn_rlimits_apply(const struct tn_rlimits *limits)
{
    for (int i = 0; i < TN_RLIMITS; i++) {
        struct rlimit now;

        if (!limits->set[i])
            continue;
        if (getrlimit((__rlimit_resource_t)known[i].resource, &now) < 0)
            return -errno;
        if (now.rlim_max == RLIM_INFINITY || limits->value[i] < now.rlim_max)
            now.rlim_max = limits->value[i];
        now.rlim_cur = now.rlim_max;
        if (setrlimit((__rlimit_resource_t)known[i].resource, &now) < 0)
            return -errno;
    }
    return 0;
}

int tn_user_find(struct tn_user *ret, const char *name, struct err *error)
{
    const struct passwd *p;

    errno = 0;
    p = getpwnam(name);
    if (!p)
        return err_set(error, -ENOENT, "unknown user \"%.64s\"", name);
    if (p->pw_uid == 0)
        return err_set(error, -EINVAL, "trials as user \"%.64s\" would be root", name);
    if (geteuid() != 0 && geteuid() != p->pw_uid)
        return err_set(error, -EPERM, "only root can run trials as another user (%.64s)", name);
    *ret = (struct tn_user){p->pw_uid, p->pw_gid, mem_strdup(p->pw_name), mem_strdup(p->pw_dir)};
    return 0;
}

void tn_user_done(struct tn_user *user)
{
    free(user->name);
    free(user->home);
}

int tn_user_become(const struct tn_user *user)
{
    if (geteuid() == 0 && (initgroups(user->name, user->gid) < 0 || setgid(user->gid) < 0))
        return -errno;
    if (setuid(user->uid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    setenv("HOME", user->home, 1);
    setenv("USER", user->name, 1);
    setenv("LOGNAME", user->name, 1);
    /* A saved id of root would be a way back. */
    return user->uid != 0 && setuid(0) == 0 ? -EPERM : 0;
}

int tn_user_give(const struct tn_user *user, const char *folder, struct err *error)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        r = -errno;
        if (fd >= 0)
            close(fd);
        return err_set(error, r, "folder %s: %s", folder, strerror(-r));
    }
    for (struct dirent *x; r == 0 && (x = readdir(d)) != NULL;)
        if (strcmp(x->d_name, "..") != 0 &&
            fchownat(fd, x->d_name, user->uid, user->gid, AT_SYMLINK_NOFOLLOW) < 0)
            r = -errno;
    closedir(d);
    return r < 0 ? err_set(error, r, "give %s to %s: %s", folder, user->name, strerror(-r)) : 0;
}
