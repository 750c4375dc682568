#include "trainer/prefetch.h"

#include "base/base.h"
#include "trainer/thread.h"

#include <assert.h>
#include <pthread.h>

struct request {
    int count;
    uint64_t *index; /* (most) */
};

struct tr_prefetch {
    const struct tr_tokens *tokens;
    int most;
    pthread_t thread;
    struct request mine;  /* the thread's copy */
    int32_t *sample;      /* (seq + 1), the thread's */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool over, fresh; /* the thread has to end; it has not seen `asked` */
    struct request asked;
};

/* Wait for a request and copy it. False: it is over. */
static bool take(struct tr_prefetch *prefetch)
{
    bool over;

    pthread_mutex_lock(&prefetch->lock);
    while (!prefetch->over && !prefetch->fresh)
        pthread_cond_wait(&prefetch->changed, &prefetch->lock);
    over = prefetch->over;
    prefetch->fresh = false;
    prefetch->mine.count = prefetch->asked.count;
    memcpy(prefetch->mine.index, prefetch->asked.index,
           (size_t)prefetch->asked.count * sizeof(*prefetch->asked.index));
    pthread_mutex_unlock(&prefetch->lock);
    return !over;
}

static bool stale(struct tr_prefetch *prefetch)
{
    bool is;

    pthread_mutex_lock(&prefetch->lock);
    is = prefetch->over || prefetch->fresh;
    pthread_mutex_unlock(&prefetch->lock);
    return is;
}

/* The system hears of all samples first, so that their reads overlap. */
static void *fetch(void *arg)
{
    struct tr_prefetch *p = arg;
    const struct request *mine = &p->mine;

    while (take(p)) {
        for (int i = 0; i < mine->count && !stale(p); i++)
            tr_tokens_ahead(p->tokens, TR_SPLIT_TRAIN, mine->index[i]);
        for (int i = 0; i < mine->count && !stale(p); i++)
            (void)tr_tokens_sample(p->sample, p->tokens, TR_SPLIT_TRAIN, mine->index[i], NULL);
    }
    return NULL;
}

static void release(struct tr_prefetch *prefetch)
{
    pthread_mutex_destroy(&prefetch->lock);
    pthread_cond_destroy(&prefetch->changed);
    free(prefetch->mine.index);
    free(prefetch->asked.index);
    free(prefetch->sample);
    free(prefetch);
}

struct tr_prefetch *tr_prefetch_new(const struct tr_tokens *tokens, int seq, int most)
{
    struct tr_prefetch *prefetch;

    assert(seq > 0 && most > 0);
    if (tr_tokens_synthetic(tokens))
        return NULL;
    prefetch = mem_alloc(sizeof(*prefetch));
    prefetch->tokens = tokens;
    prefetch->most = most;
    prefetch->mine.index = mem_alloc((size_t)most * sizeof(*prefetch->mine.index));
    prefetch->asked.index = mem_alloc((size_t)most * sizeof(*prefetch->asked.index));
    prefetch->sample = mem_alloc(((size_t)seq + 1) * sizeof(*prefetch->sample));
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->changed, NULL);
    if (tr_thread_start(&prefetch->thread, fetch, prefetch) == 0)
        return prefetch;
    release(prefetch);
    return NULL;
}

struct tr_prefetch *tr_prefetch_free(struct tr_prefetch *prefetch)
{
    if (!prefetch)
        return NULL;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->over = true;
    pthread_cond_signal(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
    pthread_join(prefetch->thread, NULL);
    release(prefetch);
    return NULL;
}

void tr_prefetch_ask(struct tr_prefetch *prefetch, const uint64_t *index, int count)
{
    if (!prefetch)
        return;
    assert(count >= 0 && count <= prefetch->most);
    pthread_mutex_lock(&prefetch->lock);
    prefetch->asked.count = count;
    memcpy(prefetch->asked.index, index, (size_t)count * sizeof(*index));
    prefetch->fresh = true;
    pthread_cond_signal(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
}
