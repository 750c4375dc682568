#include "trainer/hang_find.h"

#include <assert.h>
#include <string.h>

static bool waits(const struct tr_hang_rank *rank)
{
    return rank->life == TR_LIFE_RUNS && rank->known && rank->at.op != TR_OP_NONE;
}

/* NCCL has been given less to do there, in a group of both. */
static bool is_behind(const struct tr_hang_rank *rank, const struct tr_hang_rank *other)
{
    for (int k = 0; k < TR_KINDS; k++)
        if (rank->leader[k] == other->leader[k] && other->at.seq[k] < rank->at.seq[k])
            return true;
    return false;
}

bool tr_hang_awaits(const struct tr_hang_rank *ranks, int waiter, int other)
{
    const struct tr_at *at = &ranks[waiter].at, *its = &ranks[other].at;

    if (waiter == other || !waits(&ranks[waiter]))
        return false;
    if (at->op == TR_OP_GPU)
        return !ranks[other].known || !waits(&ranks[other]) ||
               is_behind(&ranks[waiter], &ranks[other]);
    if (at->peer >= 0)
        return at->peer == other;
    assert(at->kind >= 0 && at->kind < TR_KINDS);
    if (ranks[waiter].leader[at->kind] != ranks[other].leader[at->kind])
        return false;
    if (!ranks[other].known || !waits(&ranks[other]))
        return true;
    if (its->seq[at->kind] > at->seq[at->kind])
        return false;
    return its->op != at->op || its->kind != at->kind || its->seq[at->kind] != at->seq[at->kind];
}

static bool awaited(const struct tr_hang_rank *ranks, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (tr_hang_awaits(ranks, i, rank))
            return true;
    return false;
}

/* Whether RANK is missing, if VERDICT is what has happened. */
static bool is_missing(const struct tr_hang_rank *ranks, int count, int rank,
                       enum tr_verdict verdict, bool asked_for)
{
    const struct tr_hang_rank *r = &ranks[rank];
    bool runs = r->life == TR_LIFE_RUNS;

    switch (verdict) {
    case TR_HANG_STOPPED:
        return r->life == TR_LIFE_STOPPED || r->life == TR_LIFE_GONE;
    case TR_HANG_BUSY:
        return runs && !waits(r) && (!asked_for || awaited(ranks, count, rank));
    case TR_HANG_SILENT:
        return r->life == TR_LIFE_SILENT && awaited(ranks, count, rank);
    case TR_HANG_CIRCLE:
        return awaited(ranks, count, rank);
    default:
        return false;
    }
}

enum tr_verdict tr_hang_find(bool *ret_missing, const struct tr_hang_rank *ranks, int count)
{
    static const struct {
        enum tr_verdict verdict;
        bool asked_for;
    } order[] = {{TR_HANG_STOPPED, false},
                 {TR_HANG_BUSY, true},
                 {TR_HANG_BUSY, false},
                 {TR_HANG_SILENT, true},
                 {TR_HANG_CIRCLE, true}};

    assert(count > 0);
    for (size_t k = 0; k < sizeof(order) / sizeof(*order); k++) {
        int n = 0;

        for (int i = 0; i < count; i++)
            n += ret_missing[i] = is_missing(ranks, count, i, order[k].verdict, order[k].asked_for);
        if (n > 0)
            return order[k].verdict;
    }
    return TR_HANG_LOST;
}
