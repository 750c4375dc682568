/*
 * Threads: one job at a time, started by the caller, who does the first share itself.
 *
 * A job is published by increasing `epoch`; a worker that sees a new epoch runs its share and
 * decreases `pending`. An idle worker spins for a short time, since a training step starts jobs
 * every few hundred microseconds, and then sleeps on a condition variable. The order of (epoch,
 * sleepers) is sequentially consistent on both sides: either the caller sees the sleeper and wakes
 * it, or the worker, which looks at the epoch once more under the lock after it has counted itself
 * as a sleeper, sees the new epoch.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { SPIN_US = 50 };

struct kn_pool {
    int threads;
    char *scratch; /* threads x KN_SCRATCH_BYTES */

    void (*fn)(void *arg, int thread, int threads); /* the job */
    void *arg;

    void (*poll)(void *arg);
    void *poll_arg;

    const struct kn_backend *backend;
    void *stream; /* the backend's own */
    bool open;

    atomic_uint epoch;
    atomic_int pending, sleepers;
    atomic_uint spin_us;
    atomic_bool quit;
    pthread_mutex_t lock;
    pthread_cond_t wake;

    int started;
    struct worker {
        struct kn_pool *pool;
        pthread_t id;
        int index;
    } * workers; /* threads - 1 */
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Wait until the epoch differs from SEEN; returns the new one. */
static unsigned wait_epoch(struct kn_pool *pool, unsigned seen)
{
    uint64_t limit = (uint64_t)atomic_load(&pool->spin_us) * 1000;
    uint64_t start = limit ? clock_mono_ns() : 0;
    unsigned now;

    for (unsigned i = 1; limit; i++) {
        now = atomic_load_explicit(&pool->epoch, memory_order_acquire);
        if (now != seen)
            return now;
        pause_cpu();
        if (i % 64 == 0 && clock_mono_ns() - start > limit)
            break;
    }

    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while ((now = atomic_load(&pool->epoch)) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
    return now;
}

static void publish(struct kn_pool *pool)
{
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct kn_pool *p = w->pool;
    unsigned seen = 0;

    for (;;) {
        seen = wait_epoch(p, seen);
        if (atomic_load(&p->quit))
            return NULL;
        p->fn(p->arg, w->index, p->threads);
        atomic_fetch_sub_explicit(&p->pending, 1, memory_order_release);
    }
}

void kn_wait_above(atomic_uint *counter, unsigned bound)
{
    for (unsigned i = 1; atomic_load_explicit(counter, memory_order_acquire) <= bound; i++) {
        pause_cpu();
        if (i % 1024 == 0)
            sched_yield();
    }
}

void kn_pool_run(struct kn_pool *pool, void (*fn)(void *, int, int), void *arg)
{
    struct kn_pool *p = kn_pool_acquire(pool);

    assert(atomic_load(&p->pending) == 0); /* one caller at a time */
    p->fn = fn;
    p->arg = arg;
    if (p->threads > 1) {
        atomic_store(&p->pending, p->threads - 1);
        publish(p);
    }
    fn(arg, 0, p->threads);
    /* The shares are equal, so the others are nearly done; but they may not even have a core. */
    for (unsigned i = 1; p->threads > 1 && atomic_load_explicit(&p->pending, memory_order_acquire);
         i++) {
        pause_cpu();
        if (i % 1024 == 0)
            sched_yield();
    }
    kn_pool_release(pool);
}

static char *map_scratch(size_t bytes)
{
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (m == MAP_FAILED)
        return NULL;
    madvise(m, bytes, MADV_HUGEPAGE); /* advice: packed panels span hundreds of small pages */
    return m;
}

struct kn_pool *kn_pool_on(const struct kn_backend *backend, int threads)
{
    struct kn_pool *p;

    assert(threads >= 0);
    p = mem_try_alloc(sizeof(*p));
    if (!p)
        return NULL;
    p->threads = threads;
    atomic_store(&p->spin_us, SPIN_US);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    if (threads > 0)
        p->scratch = map_scratch((size_t)threads * KN_SCRATCH_BYTES);
    p->workers = mem_try_alloc(((size_t)threads + 1) * sizeof(*p->workers));
    if ((threads > 0 && !p->scratch) || !p->workers)
        return kn_pool_free(p);
    for (int i = 0; i < threads - 1; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i + 1};
        if (pthread_create(&p->workers[i].id, NULL, worker_main, &p->workers[i]))
            return kn_pool_free(p);
        p->started++;
    }
    p->backend = backend;
    p->open = !p->backend->open || p->backend->open(p);
    return p->open ? p : kn_pool_free(p);
}

struct kn_pool *kn_pool_free(struct kn_pool *pool)
{
    if (!pool)
        return NULL;
    if (pool->open && pool->backend->close)
        pool->backend->close(pool);
    atomic_store(&pool->quit, true);
    publish(pool);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].id, NULL);
    if (pool->scratch)
        munmap(pool->scratch, (size_t)pool->threads * KN_SCRATCH_BYTES);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->wake);
    free(pool->workers);
    free(pool);
    return NULL;
}

/* The built-in pool: one thread, whichever calls; its scratch is touched only if it is used. */
static char alone_scratch[KN_SCRATCH_BYTES] __attribute__((aligned(4096)));
static pthread_mutex_t alone_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kn_pool alone = {.threads = 1, .scratch = alone_scratch};

struct kn_pool *kn_pool_acquire(struct kn_pool *pool)
{
    if (pool)
        return pool;
    pthread_mutex_lock(&alone_lock);
    return &alone;
}

void kn_pool_release(struct kn_pool *pool)
{
    if (!pool)
        pthread_mutex_unlock(&alone_lock);
}

int kn_pool_threads(const struct kn_pool *pool)
{
    return pool ? pool->threads : 1;
}

size_t kn_pool_bytes(int threads)
{
    return (size_t)threads * (KN_SCRATCH_BYTES + sizeof(struct worker)) + sizeof(struct kn_pool);
}

void kn_pool_set_spin(struct kn_pool *pool, unsigned microseconds)
{
    atomic_store(&pool->spin_us, microseconds);
}

const struct kn_backend *kn_pool_made_on(const struct kn_pool *pool)
{
    return pool->backend;
}

void kn_pool_set_stream(struct kn_pool *pool, void *stream)
{
    pool->stream = stream;
}

void *kn_pool_stream(const struct kn_pool *pool)
{
    return pool->stream;
}

void kn_pool_set_poll(struct kn_pool *pool, void (*fn)(void *), void *arg)
{
    pool->poll = fn;
    pool->poll_arg = arg;
}

void kn_pool_poll(struct kn_pool *pool, int thread)
{
    if (thread == 0 && pool->poll)
        pool->poll(pool->poll_arg);
}

float *kn_pool_scratch(struct kn_pool *pool, int thread)
{
    assert(thread >= 0 && thread < pool->threads);
    return (float *)(void *)(pool->scratch + (size_t)thread * KN_SCRATCH_BYTES);
}

struct range_job {
    struct kn_pool *pool;
    size_t n, unit, parts;
    void (*fn)(void *, const struct kn_share *);
    void *arg;
};

static void run_range(void *arg, int thread, int threads)
{
    struct range_job *j = arg;
    size_t units = (j->n + j->unit - 1) / j->unit;
    size_t i = (size_t)thread;
    struct kn_share s = {.pool = j->pool, .thread = thread, .threads = (int)j->parts};

    (void)threads;
    if (i >= j->parts)
        return;
    s.lo = kn_min(j->n, units * i / j->parts * j->unit);
    s.hi = kn_min(j->n, units * (i + 1) / j->parts * j->unit);
    s.scratch = kn_pool_scratch(j->pool, thread);
    if (s.lo < s.hi)
        j->fn(j->arg, &s);
}

void kn_parallel(struct kn_pool *pool, size_t count, size_t unit, size_t grain,
                 void (*fn)(void *, const struct kn_share *), void *arg)
{
    struct kn_pool *p = pool ? pool : &alone;
    struct range_job j = {.pool = p, .n = count, .unit = unit, .fn = fn, .arg = arg};

    assert(unit > 0);
    j.parts = kn_max(1, kn_min((size_t)p->threads, count / kn_max(grain, 1)));
    if (count == 0)
        return;
    if (j.parts > 1) {
        kn_pool_run(pool, run_range, &j);
    } else {
        kn_pool_acquire(pool);
        run_range(&j, 0, 1);
        kn_pool_release(pool);
    }
    kn_pool_poll(p, 0);
}
