#include "trainer/graphs.h"

#include <assert.h>

#include "base/base.h"

struct entry {
    struct tr_graph_key key;
    unsigned runs; /* how often it has run by itself */
    struct kn_graph *graph;
};

/* By linear probing; a layer's passes over its slots are few, so it stays small. */
struct tr_graphs {
    struct entry *entry; /* (room), a power of two */
    size_t room, count;
};

enum { FIRST_ROOM = 64 };

struct tr_graphs *tr_graphs_new(const struct tr_rank *rank)
{
    struct tr_graphs *graphs;

    if (rank->layout.cuda_graphs == PL_GRAPHS_NONE || !kn_graphs(rank->pool))
        return NULL;
    graphs = mem_alloc(sizeof(*graphs));
    graphs->room = FIRST_ROOM;
    graphs->entry = mem_alloc(sizeof(*graphs->entry) * graphs->room);
    return graphs;
}

struct tr_graphs *tr_graphs_free(struct tr_graphs *graphs, struct tr_rank *rank)
{
    for (size_t i = 0; graphs && i < graphs->room; i++)
        kn_graph_free(rank->pool, graphs->entry[i].graph);
    if (graphs)
        free(graphs->entry);
    free(graphs);
    return NULL;
}

static struct entry *place_of(const struct tr_graphs *graphs, const struct tr_graph_key *key)
{
    const uintptr_t words[] = {(uintptr_t)key->layer, (uintptr_t)key->slot.acts,
                               (uintptr_t)key->keep, (uintptr_t)key->out, key->pass};
    uint64_t hash = 0;
    size_t at;

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        hash = rng_mix(hash ^ words[i]);
    at = hash & (graphs->room - 1);
    while (graphs->entry[at].key.pass && memcmp(&graphs->entry[at].key, key, sizeof(*key)) != 0)
        at = (at + 1) & (graphs->room - 1);
    return &graphs->entry[at];
}

static void grow(struct tr_graphs *graphs)
{
    struct tr_graphs was = *graphs;

    graphs->room *= 2;
    graphs->entry = mem_alloc(sizeof(*graphs->entry) * graphs->room);
    for (size_t i = 0; i < was.room; i++)
        if (was.entry[i].key.pass)
            *place_of(graphs, &was.entry[i].key) = was.entry[i];
    free(was.entry);
}

static struct entry *entry_of(struct tr_graphs *graphs, const struct tr_graph_key *key)
{
    struct entry *entry = place_of(graphs, key);

    if (entry->key.pass)
        return entry;
    if (2 * graphs->count >= graphs->room) {
        grow(graphs);
        entry = place_of(graphs, key);
    }
    graphs->count++;
    entry->key = *key;
    return entry;
}

bool tr_graph_runs(struct tr_rank *rank, const struct tr_graph_key *key)
{
    struct entry *entry;

    if (!rank->graphs)
        return true;
    entry = entry_of(rank->graphs, key);
    if (entry->graph)
        kn_graph_launch(rank->pool, entry->graph);
    else if (entry->runs == 1)
        kn_graph_begin(rank->pool);
    return !entry->graph;
}

void tr_graph_done(struct tr_rank *rank, const struct tr_graph_key *key)
{
    struct entry *entry;

    if (!rank->graphs)
        return;
    entry = entry_of(rank->graphs, key);
    assert(!entry->graph);
    if (entry->runs++ == 0)
        return;
    entry->graph = kn_graph_end(rank->pool);
    kn_graph_launch(rank->pool, entry->graph);
}
