/*
 * Work for requests on other threads.
 *
 * A few threads of low priority, so that the loop, and requests that only read, come first. Who
 * asks pays: of one caller (the name of its token) one request is in work at a time and a few wait,
 * further ones are refused by 429; callers take turns. Work that may be long is a queue of its own
 * with all threads but one: what is bounded by seconds never waits for it. A request whose client
 * has hung up is unwanted: its work is told so, and ends early or is never begun.
 *
 * The loop's thread adds, and hands back what is done; LOCK guards the lists and what says how far
 * a piece of work is.
 */
#include "web/internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 2, WAITING = 8, NICE = 10 };

struct web_task {
    struct web_task *next;
    struct web_request *rq;
    void (*fn)(struct web_request *rq, void *arg);
    void (*done)(struct web_request *rq, void *arg);
    void *arg;
    int turn;  /* how many of its caller's were before it in its queue when it came */
    bool slow; /* may take long */
    bool running;
};

struct web_work {
    struct web_server *server;
    pthread_mutex_t lock;
    pthread_cond_t more;
    pthread_t thread[THREADS];
    int nthreads;
    struct web_task *tasks;    /* waiting or running, oldest first */
    struct web_task *finished; /* newest first */
    uv_async_t wake;
    bool ending;
};

static bool same_caller(const struct web_task *task, const struct web_request *rq)
{
    return str_eq(task->rq->principal, rq->principal);
}

static bool same_queue(const struct web_task *task, const struct web_task *other)
{
    return task->slow == other->slow && same_caller(task, other->rq);
}

/* How many tasks has RQ's caller? */
static int count_of(const struct web_work *work, const struct web_request *rq)
{
    int n = 0;

    for (const struct web_task *t = work->tasks; t; t = t->next)
        n += same_caller(t, rq);
    return n;
}

/* How many are in TASK's queue? */
static int count_before(const struct web_work *work, const struct web_task *task)
{
    int n = 0;

    for (const struct web_task *t = work->tasks; t; t = t->next)
        n += same_queue(t, task);
    return n;
}

static bool may_run(const struct web_work *work, const struct web_task *task)
{
    int slow = 0;

    for (const struct web_task *t = work->tasks; t; t = t->next) {
        if (t->running && same_queue(t, task))
            return false;
        slow += t->running && t->slow;
    }
    return !task->slow || slow < THREADS - 1;
}

/* What to do next: what is unwanted already, which takes no time, else the next of the caller who
 * has waited for fewest turns and has nothing of that queue in work. */
static struct web_task *choose(const struct web_work *work)
{
    struct web_task *best = NULL;

    for (struct web_task *t = work->tasks; t; t = t->next) {
        if (t->running)
            continue;
        if (atomic_load(&t->rq->unwanted))
            return t;
        if (may_run(work, t) && (!best || t->turn < best->turn))
            best = t;
    }
    return best;
}

static void finish(struct web_work *work, struct web_task *task)
{
    struct web_task **at = &work->tasks;

    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    for (struct web_task *t = work->tasks; t; t = t->next)
        if (t->turn > 0 && same_queue(t, task))
            t->turn--;
    task->next = work->finished;
    work->finished = task;
    uv_async_send(&work->wake);
}

static void *work_thread(void *arg)
{
    struct web_work *w = arg;
    struct web_task *t;

    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* Linux: of this thread */
    pthread_mutex_lock(&w->lock);
    while (!w->ending || w->tasks) {
        t = choose(w);
        if (!t) {
            pthread_cond_wait(&w->more, &w->lock);
            continue;
        }
        t->running = true;
        pthread_mutex_unlock(&w->lock);
        if (!atomic_load(&t->rq->unwanted))
            t->fn(t->rq, t->arg);
        pthread_mutex_lock(&w->lock);
        finish(w, t);
        pthread_cond_broadcast(&w->more); /* its caller's next one may begin */
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void on_wake(uv_async_t *handle)
{
    struct web_work *w = handle->data;
    struct web_task *t, *next;

    pthread_mutex_lock(&w->lock);
    t = TAKE(w->finished);
    pthread_mutex_unlock(&w->lock);
    for (; t; t = next) {
        next = t->next;
        w->server->ntasks--;
        t->done(t->rq, t->arg);
        web_request_unref(t->rq);
        free(t);
    }
}

struct web_work *web_work_new(struct web_server *server)
{
    struct web_work *w = mem_alloc(sizeof(*w));

    w->server = server;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    uv_async_init(server->loop, &w->wake, on_wake);
    w->wake.data = w;
    uv_unref((uv_handle_t *)&w->wake);
    return w;
}

/* Threads take no signals: those are the loop's. Started when there is first something to do. */
static void start_threads(struct web_work *work)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (work->nthreads < THREADS &&
           pthread_create(&work->thread[work->nthreads], NULL, work_thread, work) == 0)
        work->nthreads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (work->nthreads == 0)
        abort(); /* out of memory */
}

static void on_closed(uv_handle_t *handle)
{
    struct web_work *w = handle->data;

    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->more);
    w->server->open_handles--;
    free(w);
}

void web_work_end(struct web_work *work)
{
    pthread_mutex_lock(&work->lock);
    work->ending = true;
    for (struct web_task *t = work->tasks; t; t = t->next)
        atomic_store(&t->rq->unwanted, true);
    pthread_cond_broadcast(&work->more);
    pthread_mutex_unlock(&work->lock);
}

void web_work_close(struct web_work *work)
{
    web_work_end(work);
    for (int i = 0; i < work->nthreads; i++)
        pthread_join(work->thread[i], NULL);
    on_wake(&work->wake);
    work->server->open_handles++;
    uv_close((uv_handle_t *)&work->wake, on_closed);
}

static bool hung_up(const struct web_request *rq)
{
    struct pollfd p = {.events = POLLRDHUP};

    if (!rq->mhd || !rq->suspended)
        return !rq->mhd;
    p.fd = rq->conn->fd;
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* libmicrohttpd does not look at a connection that is suspended. */
void web_work_sweep(struct web_work *work)
{
    bool any = false;

    pthread_mutex_lock(&work->lock);
    for (struct web_task *t = work->tasks; t; t = t->next)
        if (!atomic_load(&t->rq->unwanted) && hung_up(t->rq)) {
            atomic_store(&t->rq->unwanted, true);
            any = true;
        }
    if (any)
        pthread_cond_broadcast(&work->more);
    pthread_mutex_unlock(&work->lock);
}

const atomic_bool *web_unwanted(const struct web_request *rq)
{
    return &rq->unwanted;
}

static bool refuse(struct web_request *rq)
{
    struct err e;

    err_set(&e, -EBUSY,
            "%d requests of this token are running or queued; wait until one is answered", WAITING);
    web_reply_header(rq, "Retry-After", "2");
    web_reply_problem(rq, 429, &e, NULL);
    return false;
}

static bool add(struct web_request *rq, struct web_task *owned_task)
{
    struct web_work *w = rq->server->work;
    struct web_task *t = owned_task, **at = &w->tasks;

    t->rq = rq;
    pthread_mutex_lock(&w->lock);
    if (count_of(w, rq) >= WAITING) {
        pthread_mutex_unlock(&w->lock);
        free(t);
        return refuse(rq);
    }
    t->turn = count_before(w, t);
    web_request_ref(rq);
    rq->server->ntasks++;
    while (*at)
        at = &(*at)->next;
    *at = t;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    if (!w->nthreads)
        start_threads(w);
    web_defer(rq);
    return true;
}

static bool offload(struct web_request *rq, void (*work)(struct web_request *rq, void *arg),
                    void (*done)(struct web_request *rq, void *arg), void *arg, bool slow)
{
    struct web_task *t = mem_alloc(sizeof(*t));

    *t = (struct web_task){.fn = work, .done = done, .arg = arg, .slow = slow};
    return add(rq, t);
}

bool web_offload(struct web_request *rq, void (*work)(struct web_request *rq, void *arg),
                 void (*done)(struct web_request *rq, void *arg), void *arg)
{
    return offload(rq, work, done, arg, false);
}

bool web_offload_slow(struct web_request *rq, void (*work)(struct web_request *rq, void *arg),
                      void (*done)(struct web_request *rq, void *arg), void *arg)
{
    return offload(rq, work, done, arg, true);
}
