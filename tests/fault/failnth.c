/*
 * A library for LD_PRELOAD that lets the Nth call of one kind fail, counted from when a test arms
 * it.
 *
 * The test shares a page with the program under test: the file that PT_FAIL_PAGE names, mapped by
 * both. struct fail_page in failnth.h is its content. A call of the armed kind counts `left` down;
 * the one that brings it to 0 fails, and with `sticky` all after it. `seen` counts calls of the
 * kind while armed, so that a test knows when N is past the last one.
 *
 * sqlite3_step is a kind of its own: what SQLite's error paths do inside is SQLite's affair (and
 * well tested there); what the program does with a failed step is ours.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fault/failnth.h"

static struct fail_page *page;

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void map_page(void)
{
    const char *path = getenv("PT_FAIL_PAGE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p;

    if (fd < 0)
        return;
    backtrace(&p, 1); /* loads what it needs, now that nothing is counted */
    p = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED && ((struct fail_page *)p)->pid == 0) {
        ((struct fail_page *)p)->pid = getpid(); /* this process, not what it starts */
        page = p;
    }
}

enum { DEPTH = 12, OURS = 2 }; /* frames of a stack; the first of them are this file's */

static unsigned stack_hash(void)
{
    void *frame[DEPTH + OURS];
    int n = backtrace(frame, DEPTH + OURS);
    unsigned h = 2166136261u;

    for (int i = OURS; i < n; i++)
        for (unsigned shift = 0; shift < 48; shift += 8)
            h = (h ^ (unsigned)((unsigned long)frame[i] >> shift & 0xff)) * 16777619u;
    return h ? h : 1;
}

static void record(unsigned hash)
{
    for (unsigned i = 0; i < FAIL_STACKS / 2; i++) {
        volatile unsigned *slot = &page->stack[(hash + i) % FAIL_STACKS];
        unsigned none = 0;

        if (*slot == hash)
            return;
        if (__atomic_compare_exchange_n(slot, &none, hash, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            __atomic_add_fetch(&page->stacks, 1, __ATOMIC_SEQ_CST);
            return;
        }
        if (none == hash)
            return;
    }
}

/* Is a call from this stack one that counts? */
static int is_meant(void)
{
    static __thread int inside;
    unsigned hash;

    if (!page->record && !page->target)
        return 1;
    if (inside || (!page->record && page->left <= 0 && !page->sticky))
        return 0;
    inside = 1;
    hash = stack_hash();
    inside = 0;
    if (page->record)
        record(hash);
    return !page->record && hash == page->target;
}

static int fails(int kind)
{
    int left;

    if (!page || page->kind != kind)
        return 0;
    if (page->pid != getpid() || !is_meant())
        return 0;
    __atomic_add_fetch(&page->seen, 1, __ATOMIC_SEQ_CST);
    left = __atomic_sub_fetch(&page->left, 1, __ATOMIC_SEQ_CST);
    if (left == 0 || (left < 0 && page->sticky)) {
        __atomic_add_fetch(&page->failed, 1, __ATOMIC_SEQ_CST);
        return 1;
    }
    return 0;
}

/* ---- allocation ---------------------------------------------------------- */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    if (fails(FAIL_ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    if (fails(FAIL_ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    if (n && fails(FAIL_ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(p, n);
}

/* ---- files alone: libuv wakes itself through an eventfd, whose write cannot fail ---- */

static int is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static int no_write(int fd)
{
    return page && page->kind == FAIL_WRITE && is_file(fd) && fails(FAIL_WRITE);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    static ssize_t (*real)(int, const void *, size_t);

    if (no_write(fd)) {
        errno = ENOSPC;
        return -1;
    }
    if (!real)
        *(void **)&real = next("write");
    return real(fd, bytes, n);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);

    if (no_write(fd)) {
        errno = ENOSPC;
        return -1;
    }
    if (!real)
        *(void **)&real = next("pwrite64");
    return real(fd, bytes, n, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return pwrite64(fd, bytes, n, at);
}

int ftruncate64(int fd, off64_t n)
{
    static int (*real)(int, off64_t);

    if (no_write(fd)) {
        errno = EIO;
        return -1;
    }
    if (!real)
        *(void **)&real = next("ftruncate64");
    return real(fd, n);
}

int fsync(int fd)
{
    static int (*real)(int);

    if (fails(FAIL_SYNC)) {
        errno = EIO;
        return -1;
    }
    if (!real)
        *(void **)&real = next("fsync");
    return real(fd);
}

int fdatasync(int fd)
{
    static int (*real)(int);

    if (fails(FAIL_SYNC)) {
        errno = EIO;
        return -1;
    }
    if (!real)
        *(void **)&real = next("fdatasync");
    return real(fd);
}

/* ---- SQLite: a step, or a whole sqlite3_exec(), blind to its own failed step ---- */

enum { SQLITE_FULL = 13 };

struct sqlite3;
struct sqlite3_stmt;
typedef int row_fn(void *, int, char **, char **);
int sqlite3_step(struct sqlite3_stmt *st);
int sqlite3_exec(struct sqlite3 *db, const char *sql, row_fn *fn, void *ctx, char **message);

static __thread int inside_exec;

int sqlite3_step(struct sqlite3_stmt *st)
{
    static int (*real)(struct sqlite3_stmt *);

    if (!inside_exec && fails(FAIL_STEP))
        return SQLITE_FULL;
    if (!real)
        *(void **)&real = next("sqlite3_step");
    return real(st);
}

int sqlite3_exec(struct sqlite3 *db, const char *sql, row_fn *fn, void *ctx, char **message)
{
    static int (*real)(struct sqlite3 *, const char *, row_fn *, void *, char **);
    int r;

    if (fails(FAIL_STEP))
        return SQLITE_FULL;
    if (!real)
        *(void **)&real = next("sqlite3_exec");
    inside_exec++;
    r = real(db, sql, fn, ctx, message);
    inside_exec--;
    return r;
}
