/*
 * The writer thread: one queue, one connection.
 *
 * Jobs that are in the queue when the thread wakes share one transaction, each inside a savepoint
 * of its own, so that a job that fails undoes itself alone. A waiting caller gets its result after
 * the commit; if the commit fails, every job of the batch failed. The WAL is checkpointed here,
 * after callers have their results.
 */
#include "db/internal.h"

#include <errno.h>
#include <pthread.h>

enum { BATCH = 256, CHECKPOINT_PAGES = 1000 };

struct job {
    struct job *next;
    db_job_fn *run;
    void *arg;
    void (*free_arg)(void *arg);
    struct err own;
    int result;
    bool waited; /* somebody waits, and owns the struct */
    bool done;
};

struct db_writer {
    struct db *db;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, answered;
    struct job *head, **tail;
    int pending; /* queued or in the batch at hand */
    bool stop;
    struct err failure;
};

static int run_job(struct db *db, struct job *job)
{
    int r;

    if (sqlite3_exec(db->h, "SAVEPOINT job", NULL, NULL, NULL) != SQLITE_OK)
        return db_fail(db, &job->own, "begin");
    r = job->run(db, job->arg, &job->own);
    /* A full disk or an I/O error may have ended the whole transaction: then there is no savepoint
     * to undo. */
    if (r < 0 && !sqlite3_get_autocommit(db->h) &&
        sqlite3_exec(db->h, "ROLLBACK TO job", NULL, NULL, NULL) != SQLITE_OK)
        db_rollback(db); /* half a job must not be committed with the others */
    if (!sqlite3_get_autocommit(db->h))
        sqlite3_exec(db->h, "RELEASE job", NULL, NULL, NULL);
    else if (r >= 0)
        r = err_set(&job->own, -EIO, "%s: the transaction was lost", db->path);
    return r;
}

static void fail_all(struct job *batch, const struct err *error)
{
    for (struct job *j = batch; j; j = j->next)
        if (j->result >= 0) {
            j->own = *error;
            j->result = error->code;
        }
}

static void run_batch(struct db *db, struct job *batch)
{
    struct err e = {0};

    if (db_begin(db, &e) < 0) {
        fail_all(batch, &e);
        return;
    }
    for (struct job *j = batch; j; j = j->next) {
        j->result = run_job(db, j);
        if (sqlite3_get_autocommit(
                db->h)) { /* the transaction is gone, and with it the jobs before */
            err_set(&e, -EIO, "%s", j->own.text);
            e.code = j->result < 0 ? j->result : -EIO;
            fail_all(batch, &e);
            return;
        }
    }
    if (db_commit(db, &e) < 0) {
        db_rollback(db);
        fail_all(batch, &e);
    }
}

/* Answer the waiting, free the others. Called with the lock held. */
static void answer(struct db_writer *wr, struct job *batch)
{
    struct job *next;

    for (struct job *j = batch; j; j = next) {
        next = j->next;
        wr->pending--;
        if (j->waited) {
            j->done = true;
            continue;
        }
        if (j->result < 0 && wr->failure.code == 0)
            wr->failure = j->own;
        if (j->free_arg)
            j->free_arg(j->arg);
        free(j);
    }
    pthread_cond_broadcast(&wr->answered);
}

static struct job *take_batch(struct db_writer *wr)
{
    struct job *batch = wr->head;
    struct job **last = &batch;

    for (int i = 0; i < BATCH && *last; i++)
        last = &(*last)->next;
    wr->head = *last;
    *last = NULL;
    if (!wr->head)
        wr->tail = &wr->head;
    return batch;
}

static int wal_pages(void *pages, sqlite3 *handle, const char *name, int pages_now)
{
    (void)handle;
    (void)name;
    *(int *)pages = pages_now;
    return SQLITE_OK;
}

static void *writer_main(void *arg)
{
    struct db_writer *wr = arg;
    int pages = 0;

    sqlite3_wal_hook(wr->db->h, wal_pages, &pages);
    pthread_mutex_lock(&wr->lock);
    for (;;) {
        struct job *batch;

        while (!wr->head && !wr->stop)
            pthread_cond_wait(&wr->work, &wr->lock);
        if (!wr->head)
            break;
        batch = take_batch(wr);
        pthread_mutex_unlock(&wr->lock);
        run_batch(wr->db, batch);
        pthread_mutex_lock(&wr->lock);
        answer(wr, batch);
        if (pages >= CHECKPOINT_PAGES && !wr->head) {
            pthread_mutex_unlock(&wr->lock);
            sqlite3_wal_checkpoint_v2(wr->db->h, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
            pages = 0;
            pthread_mutex_lock(&wr->lock);
        }
    }
    pthread_mutex_unlock(&wr->lock);
    return NULL;
}

int db_writer_start(struct db_writer **ret, struct db *owned_w, struct err *error)
{
    struct db_writer *wr = mem_alloc(sizeof(*wr));
    int r;

    wr->db = owned_w;
    wr->tail = &wr->head;
    pthread_mutex_init(&wr->lock, NULL);
    pthread_cond_init(&wr->work, NULL);
    pthread_cond_init(&wr->answered, NULL);
    r = pthread_create(&wr->thread, NULL, writer_main, wr);
    if (r != 0) {
        db_close(owned_w);
        free(wr);
        return err_set(error, -r, "start the writer thread: %s", strerror(r));
    }
    *ret = wr;
    return 0;
}

struct db_writer *db_writer_stop(struct db_writer *wr)
{
    if (!wr)
        return NULL;
    pthread_mutex_lock(&wr->lock);
    wr->stop = true;
    pthread_cond_signal(&wr->work);
    pthread_mutex_unlock(&wr->lock);
    pthread_join(wr->thread, NULL);
    sqlite3_wal_hook(wr->db->h, NULL, NULL);
    sqlite3_wal_checkpoint_v2(wr->db->h, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    db_close(wr->db);
    pthread_mutex_destroy(&wr->lock);
    pthread_cond_destroy(&wr->work);
    pthread_cond_destroy(&wr->answered);
    free(wr);
    return NULL;
}

static void enqueue(struct db_writer *wr, struct job *job)
{
    *wr->tail = job;
    wr->tail = &job->next;
    wr->pending++;
    pthread_cond_signal(&wr->work);
}

int db_writer_call(struct db_writer *wr, db_job_fn *job, void *arg, struct err *error)
{
    struct job j = {.run = job, .arg = arg, .waited = true};

    pthread_mutex_lock(&wr->lock);
    enqueue(wr, &j);
    while (!j.done)
        pthread_cond_wait(&wr->answered, &wr->lock);
    pthread_mutex_unlock(&wr->lock);
    if (j.result < 0 && error)
        *error = j.own;
    return j.result;
}

void db_writer_post(struct db_writer *wr, db_job_fn *job, void *arg, void (*free_arg)(void *arg))
{
    struct job *j = mem_alloc(sizeof(*j));

    *j = (struct job){.run = job, .arg = arg, .free_arg = free_arg};
    pthread_mutex_lock(&wr->lock);
    enqueue(wr, j);
    pthread_mutex_unlock(&wr->lock);
}

int db_writer_failure(struct db_writer *wr, struct err *error)
{
    int r;

    pthread_mutex_lock(&wr->lock);
    r = wr->failure.code;
    if (r < 0 && error)
        *error = wr->failure;
    wr->failure = (struct err){0};
    pthread_mutex_unlock(&wr->lock);
    return r;
}

void db_writer_flush(struct db_writer *wr)
{
    pthread_mutex_lock(&wr->lock);
    while (wr->pending > 0)
        pthread_cond_wait(&wr->answered, &wr->lock);
    pthread_mutex_unlock(&wr->lock);
}
