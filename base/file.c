#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static int read_fd(char **ret, size_t *ret_size, int fd, size_t max_bytes)
{
    struct stat st;
    size_t cap = 4096, n = 0;
    char *text;

    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        if ((uint64_t)st.st_size > max_bytes)
            return -EFBIG;
        cap = (size_t)st.st_size + 1;
    }
    text = mem_try_alloc(cap + 1);
    while (text) {
        ssize_t got = read(fd, text + n, cap - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int r = -errno;

            free(text);
            return r;
        }
        if (got == 0) {
            text[n] = '\0';
            *ret = text;
            if (ret_size)
                *ret_size = n;
            return 0;
        }
        n += (size_t)got;
        if (n > max_bytes) {
            free(text);
            return -EFBIG;
        }
        if (n == cap) {
            char *more = mem_try_realloc(text, cap * 2 + 1);

            if (!more) {
                free(text);
                return -ENOMEM;
            }
            text = more;
            cap *= 2;
        }
    }
    return -ENOMEM;
}

int file_read_all(char **ret, size_t *ret_size, const char *path, size_t max_bytes,
                  struct err *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r;

    if (fd < 0)
        return err_set(error, -errno, "open %s: %s", path, strerror(errno));
    r = read_fd(ret, ret_size, fd, max_bytes);
    close(fd);
    if (r == -EFBIG)
        return err_set(error, r, "%s is larger than %zu bytes", path, max_bytes);
    if (r < 0)
        return err_set(error, r, "read %s: %s", path, strerror(-r));
    return 0;
}

int file_write_fd(int fd, const void *bytes, size_t size)
{
    const char *p = bytes;

    while (size) {
        ssize_t put = write(fd, p, size);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        p += put;
        size -= (size_t)put;
    }
    return 0;
}

int file_sync_parent(const char *path)
{
    AUTO_FREE char *dir = mem_strdup(path);
    char *slash = strrchr(dir, '/');
    int fd, r = 0;

    if (slash)
        slash[slash == dir] = '\0';
    fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fsync(fd) < 0)
        r = -errno;
    close(fd);
    return r;
}

int file_write_atomic(const char *path, const void *bytes, size_t size, unsigned mode,
                      struct err *error)
{
    AUTO_FREE char *temporary = mem_printf("%s.tmp.%ld", path, (long)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, (mode_t)mode);
    int r;

    if (fd < 0)
        return err_set(error, -errno, "create %s: %s", path, strerror(errno));
    r = file_write_fd(fd, bytes, size);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(temporary, path) < 0)
        r = -errno;
    if (r == 0)
        r = file_sync_parent(path);
    if (r < 0) {
        unlink(temporary);
        return err_set(error, r, "write %s: %s", path, strerror(-r));
    }
    return 0;
}

int file_mkdirs(const char *path, unsigned mode, struct err *error)
{
    AUTO_FREE char *p = mem_strdup(path);
    struct stat st;

    for (char *s = p + 1; *s; s++) {
        if (*s != '/')
            continue;
        *s = '\0';
        if (mkdir(p, (mode_t)mode) < 0 && errno != EEXIST)
            return err_set(error, -errno, "create folder %s: %s", p, strerror(errno));
        *s = '/';
    }
    if (mkdir(p, (mode_t)mode) < 0 && errno != EEXIST)
        return err_set(error, -errno, "create folder %s: %s", p, strerror(errno));
    if (stat(p, &st) < 0)
        return err_set(error, -errno, "folder %s: %s", p, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(error, -ENOTDIR, "%s is not a folder", p);
    return 0;
}

enum { MAX_DEPTH = 200 }; /* of folders in folders: each level holds a descriptor */

/* Everything below the folder FD, which is closed. By descriptors and without following links, so
 * that somebody who may write there cannot lead the removal elsewhere while it is at work. */
static int remove_below(int fd, int depth)
{
    DIR *d = depth < MAX_DEPTH ? fdopendir(fd) : NULL;
    int first = 0;

    if (!d) {
        first = depth < MAX_DEPTH ? -errno : -ELOOP;
        close(fd);
        return first;
    }
    for (struct dirent *x; (x = readdir(d)) != NULL;) {
        int below, r;

        if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, ".."))
            continue;
        if (unlinkat(fd, x->d_name, 0) == 0 || errno == ENOENT)
            continue;
        below = openat(fd, x->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = below < 0 ? -errno : remove_below(below, depth + 1);
        if (unlinkat(fd, x->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT && r == 0)
            r = -errno;
        if (first == 0)
            first = r;
    }
    closedir(d);
    return first;
}

int file_remove_tree(const char *path, struct err *error)
{
    int fd, r;

    if (unlink(path) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return err_set(error, -errno, "remove %s: %s", path, strerror(errno));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    r = fd < 0 ? -errno : remove_below(fd, 0);
    if (rmdir(path) < 0 && errno != ENOENT && r == 0)
        r = -errno;
    return r < 0 ? err_set(error, r, "remove %s: %s", path, strerror(-r)) : 0;
}

static int64_t bytes_below(int fd, int depth)
{
    DIR *d = depth < MAX_DEPTH ? fdopendir(fd) : NULL;
    int64_t sum = 0;
    struct stat st;

    if (!d) {
        close(fd);
        return 0;
    }
    for (struct dirent *x; (x = readdir(d)) != NULL;) {
        int below;

        if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, "..") ||
            fstatat(fd, x->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        sum += (int64_t)st.st_blocks * 512;
        below = S_ISDIR(st.st_mode)
                    ? openat(fd, x->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                    : -1;
        if (below >= 0)
            sum += bytes_below(below, depth + 1);
    }
    closedir(d);
    return sum;
}

int64_t file_tree_bytes(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? 0 : bytes_below(fd, 0);
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int file_lock(int *ret_fd, const char *path, struct err *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_set(error, -errno, "open %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int r = errno == EWOULDBLOCK ? -EBUSY : -errno;

        close(fd);
        return err_set(error, r, "lock %s: %s", path,
                       r == -EBUSY ? "another process holds it" : strerror(-r));
    }
    *ret_fd = fd;
    return 0;
}

const char *file_network_fs(const char *path)
{
    static const struct {
        unsigned long magic; /* statfs(2), and the file systems' own sources */
        const char *name;
    } known[] = {
        {0x6969, "nfs"},      {0x0bd00bd0, "lustre"}, {0x47504653, "gpfs"}, {0xff534d42, "cifs"},
        {0xfe534d42, "smb2"}, {0x19830326, "beegfs"}, {0x00c36400, "ceph"}, {0x65735546, "fuse"},
    };
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (((unsigned long)fs.f_type & 0xffffffffu) == known[i].magic)
            return known[i].name;
    return NULL;
}
