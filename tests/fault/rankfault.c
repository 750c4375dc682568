/*
 * A library for LD_PRELOAD that strikes one rank of a real job: its Nth collective call or its Nth
 * call about a file.
 *
 *     PT_RANK_FAULT="RANK KIND N"    KIND: mpi   kill -9 at an MPI_I... collective
 *                                          wait  stay at it until a signal
 *                                          kill  kill -9 at a file call
 *                                          fail  the file call fails: EIO, ENOSPC, EACCES
 *     PT_RANK_FAULT_DONE=FILE        made when it has struck; else FILE.left holds, at the end of
 *                                    the process, how far N was past the last call
 *
 * Calls about files are those with a relative path, and on descriptors that such an open() gave:
 * MPI's own files are not struck.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { FDS = 256 };

static char kind[8];
static long left = -1;
static bool ours[FDS];

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void read_plan(void)
{
    const char *plan = getenv("PT_RANK_FAULT"), *rank = getenv("PMI_RANK");
    int who;
    long n;

    if (plan && rank && sscanf(plan, "%d %7s %ld", &who, kind, &n) == 3 && who == atoi(rank))
        left = n;
}

__attribute__((destructor)) static void say_left(void)
{
    const char *done = getenv("PT_RANK_FAULT_DONE");
    char path[4096];
    FILE *f;

    if (left <= 0 || !done)
        return;
    snprintf(path, sizeof(path), "%s.left", done);
    f = fopen(path, "w");
    if (!f)
        return;
    fprintf(f, "%ld\n", left);
    fclose(f);
}

/* True if this call, about a FILE or a collective, is to fail; does not return if it is to be the
 * last. */
static bool struck(bool file)
{
    int (*open_file)(const char *, int, ...);
    const char *done = getenv("PT_RANK_FAULT_DONE");
    int fd;

    if (left <= 0 || file != (strcmp(kind, "mpi") && strcmp(kind, "wait")) || --left > 0)
        return false;
    *(void **)&open_file = next("open");
    fd = done ? open_file(done, O_WRONLY | O_CREAT, 0600) : -1;
    if (fd >= 0)
        close(fd);
    if (!strcmp(kind, "wait"))
        pause();
    else if (strcmp(kind, "fail") != 0)
        raise(SIGKILL);
    return true;
}

/* ---- collectives --------------------------------------------------------- */

#define COLLECTIVE(name, parameters, arguments)                                                    \
    int name parameters;                                                                           \
    int name parameters                                                                            \
    {                                                                                              \
        int(*real) parameters;                                                                     \
        *(void **)&real = next(#name);                                                             \
        struck(false);                                                                             \
        return real arguments;                                                                     \
    }

/* MPICH's handles are ints. */
COLLECTIVE(MPI_Iallreduce, (const void *a, void *b, int n, int t, int op, int c, int *q),
           (a, b, n, t, op, c, q))
COLLECTIVE(MPI_Ibcast, (void *a, int n, int t, int root, int c, int *q), (a, n, t, root, c, q))
COLLECTIVE(MPI_Iallgather, (const void *a, int n, int t, void *b, int m, int u, int c, int *q),
           (a, n, t, b, m, u, c, q))
COLLECTIVE(MPI_Igather,
           (const void *a, int n, int t, void *b, int m, int u, int root, int c, int *q),
           (a, n, t, b, m, u, root, c, q))
COLLECTIVE(MPI_Ibarrier, (int c, int *q), (c, q))
COLLECTIVE(MPI_Isend, (const void *a, int n, int t, int to, int tag, int c, int *q),
           (a, n, t, to, tag, c, q))
COLLECTIVE(MPI_Finalize, (void), ())

/* ---- files --------------------------------------------------------------- */

static int open_any(const char *name, const char *path, int flags, mode_t mode)
{
    int (*real)(const char *, int, ...);
    int fd;

    *(void **)&real = next(name);
    if (path[0] != '/' && struck(true)) {
        errno = EACCES;
        return -1;
    }
    fd = real(path, flags, mode);
    if (fd >= 0 && fd < FDS)
        ours[fd] = path[0] != '/';
    return fd;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...);                                                    \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list ap;                                                                                \
        mode_t mode;                                                                               \
        va_start(ap, flags);                                                                       \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                             \
        va_end(ap);                                                                                \
        return open_any(#name, path, flags, mode);                                                 \
    }

OPEN(open)
OPEN(open64)

#define ON_FD(type, name, error, parameters, arguments)                                            \
    type name parameters;                                                                          \
    type name parameters                                                                           \
    {                                                                                              \
        type(*real) parameters;                                                                    \
        *(void **)&real = next(#name);                                                             \
        if (fd >= 0 && fd < FDS && ours[fd] && struck(true)) {                                     \
            errno = error;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        return real arguments;                                                                     \
    }

ON_FD(ssize_t, pwrite, ENOSPC, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
ON_FD(ssize_t, pwrite64, ENOSPC, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
ON_FD(ssize_t, pread, EIO, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
ON_FD(ssize_t, pread64, EIO, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
ON_FD(int, fsync, EIO, (int fd), (fd))
ON_FD(int, ftruncate, ENOSPC, (int fd, off_t n), (fd, n))
ON_FD(int, ftruncate64, ENOSPC, (int fd, off_t n), (fd, n))

#define ON_PATH(name, parameters, arguments)                                                       \
    int name parameters;                                                                           \
    int name parameters                                                                            \
    {                                                                                              \
        int(*real) parameters;                                                                     \
        *(void **)&real = next(#name);                                                             \
        if (path[0] != '/' && struck(true)) {                                                      \
            errno = EACCES;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        return real arguments;                                                                     \
    }

ON_PATH(rename, (const char *path, const char *to), (path, to))
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode))
ON_PATH(access, (const char *path, int mode), (path, mode))
ON_PATH(mkostemp, (char *path, int flags), (path, flags))
ON_PATH(mkostemp64, (char *path, int flags), (path, flags))
