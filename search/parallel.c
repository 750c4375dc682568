/* Threads for as long as a pass over many layouts takes. */
#include "search/parallel.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>

enum { MOST = 8 };

struct part {
    pthread_t thread;
    void (*fn)(void *context, size_t from, size_t to);
    void *context;
    size_t from, to;
};

static size_t processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
}

static void *part_main(void *arg)
{
    struct part *p = arg;

    p->fn(p->context, p->from, p->to);
    return NULL;
}

void se_parallel(size_t count, size_t least, void (*fn)(void *context, size_t from, size_t to),
                 void *context)
{
    size_t parts = count / least, most = parts > 1 ? processors() : 1, started;
    struct part part[MOST];

    assert(least > 0);
    if (most > MOST)
        most = MOST;
    parts = parts < 1 ? 1 : parts > most ? most : parts;
    for (size_t i = 0; i < parts; i++)
        part[i] = (struct part){
            .fn = fn, .context = context, .from = count * i / parts, .to = count * (i + 1) / parts};
    for (started = 1; started < parts; started++)
        if (pthread_create(&part[started].thread, NULL, part_main, &part[started]) != 0)
            break;
    for (size_t i = started; i < parts; i++) /* no more threads to be had */
        part_main(&part[i]);
    part_main(&part[0]);
    for (size_t i = 1; i < started; i++)
        pthread_join(part[i].thread, NULL);
}
