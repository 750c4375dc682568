/* What is said of a hang: see hang_find.h. */
#include "trainer/hang_find.h"

#include "base/base.h"

#include <assert.h>

enum {
    LINES = 40, /* of a page */
    LIST = 8,   /* runs of ranks that a list names */
    EVENT_RANKS = 64
};

static const char *named(const char *const *names, int count, int index)
{
    return index >= 0 && index < count ? names[index] : "?";
}

/* The lowest member of a group and how many it has, as far as the ranks say. */
static int members(const struct tr_hang_rank *ranks, int count, int kind, int leader)
{
    int n = 0;

    for (int i = 0; i < count; i++)
        n += ranks[i].leader[kind] == leader;
    return n;
}

/* "rank 3", "ranks 0-2, 5": those of WHICH (count). */
static void add_ranks(struct str *out, const bool *which, int count)
{
    int n = 0, runs = 0;

    for (int i = 0; i < count; i++)
        n += which[i];
    str_add(out, n == 1 ? "rank " : "ranks ");
    for (int i = 0, end; i < count; i = end + 1) {
        end = i;
        if (!which[i])
            continue;
        if (runs == LIST) {
            str_add(out, ", ...");
            return;
        }
        while (end + 1 < count && which[end + 1])
            end++;
        str_addf(out, runs++ ? ", %d" : "%d", i);
        if (end > i)
            str_addf(out, end == i + 1 ? ", %d" : "-%d", end);
    }
}

/* "all-reduce 118 of tp (ranks 2, 3)", "recv from rank 4". */
static void add_operation(struct str *out, const struct tr_hang_rank *ranks, int count, int rank)
{
    const struct tr_at *at = &ranks[rank].at;
    AUTO_FREE bool *group = mem_alloc(sizeof(*group) * (size_t)count);

    str_add(out, named(tr_op_names, TR_OPS, at->op));
    if (at->kind < 0 || at->kind >= TR_KINDS || at->op == TR_OP_GPU)
        return;
    if (at->peer >= 0) {
        str_addf(out, " %s rank %d (%s)", at->op == TR_OP_SEND ? "to" : "from", at->peer,
                 tr_kind_names[at->kind]);
        return;
    }
    for (int i = 0; i < count; i++)
        group[i] = ranks[i].leader[at->kind] == ranks[rank].leader[at->kind];
    str_addf(out, " %u of %s", (unsigned)at->seq[at->kind], tr_kind_names[at->kind]);
    if (members(ranks, count, at->kind, ranks[rank].leader[at->kind]) < count) {
        str_add(out, " (");
        add_ranks(out, group, count);
        str_addc(out, ')');
    }
}

/* "step 12 > train > backward > micro-batch 2 > layer 5 > tp": from the outside in. */
static void add_stack(struct str *out, const struct tr_at *at)
{
    str_addf(out, "step %d > %s", at->step, named(tr_section_names, TR_SECTIONS, at->section));
    if (at->pass > TR_PASS_NONE && at->section != TR_AT_SAMPLES) {
        str_addf(out, " > %s > micro-batch %d", named(tr_pass_names, TR_PASSES, at->pass), at->mb);
        if (at->chunk > 0)
            str_addf(out, " > chunk %d", at->chunk);
        if (at->layer >= 0)
            str_addf(out, " > layer %d", at->layer);
    }
    if (at->phase != TR_PHASE_OTHER && at->phase != TR_PHASE_FORWARD &&
        at->phase != TR_PHASE_BACKWARD)
        str_addf(out, " > %s", named(tr_phase_names, TR_PHASES, at->phase));
}

static const char *state_text(const struct tr_hang_rank *rank)
{
    switch (rank->life) {
    case TR_LIFE_STOPPED:
        return rank->state == 'T'   ? "stopped by a signal"
               : rank->state == 't' ? "stopped by a debugger"
                                    : "not running (frozen?)";
    case TR_LIFE_GONE:
        return "ended";
    case TR_LIFE_SILENT:
        return rank->known ? "silent" : "never heard of";
    default:
        break;
    }
    if (rank->at.op != TR_OP_NONE)
        return "waiting";
    return rank->state == 'S' || rank->state == 'D' ? "in a system call" : "computing";
}

/* What a rank does: without its number, so that ranks in the same place have one text. */
static void add_rank(struct str *out, const struct tr_hang_rank *ranks, int count, int rank)
{
    const struct tr_hang_rank *r = &ranks[rank];

    str_add(out, state_text(r));
    if (r->life == TR_LIFE_RUNS && r->at.op == TR_OP_NONE && r->place[0])
        str_addf(out, " (%s)", r->place);
    if (!r->known)
        return;
    str_add(out, r->life == TR_LIFE_SILENT ? ", last seen in " : " in ");
    add_stack(out, &r->at);
    if (r->at.op != TR_OP_NONE) {
        str_add(out, " > ");
        add_operation(out, ranks, count, rank);
    }
}

static void add_host(struct str *out, const struct tr_hang_rank *ranks, const bool *which,
                     int count)
{
    const char *host = NULL;

    for (int i = 0; i < count; i++) {
        if (!which[i] || str_eq(host, ranks[i].host))
            continue;
        str_addf(out, host ? ", %s" : " on %s", ranks[i].host);
        host = ranks[i].host;
    }
}

static int first_of(const bool *which, int count)
{
    int i = 0;

    while (i < count && !which[i])
        i++;
    return i;
}

/* Ranks that wait, besides those that are missing. */
static int waiting(const struct tr_hang_rank *ranks, int count, const bool *missing)
{
    int n = 0;

    for (int i = 0; i < count; i++)
        n += !missing[i] && ranks[i].life == TR_LIFE_RUNS && ranks[i].at.op != TR_OP_NONE;
    return n;
}

void tr_hang_line(struct str *out, const struct tr_hang_rank *ranks, int count,
                  enum tr_verdict verdict, const bool *missing, double seconds)
{
    int first = first_of(missing, count), others = waiting(ranks, count, missing);

    str_addf(out, "no progress for %.1f s: ", seconds);
    if (verdict == TR_HANG_LOST && ranks[0].at.op == TR_OP_GPU) {
        str_add(out,
                "all ranks wait for their GPUs, which have the same operations to do; one does "
                "not end");
        return;
    }
    if (verdict == TR_HANG_LOST) {
        str_add(out, "all ranks wait in the same operation, ");
        add_operation(out, ranks, count, 0);
        str_add(out, "; what it sends does not arrive");
        return;
    }
    add_ranks(out, missing, count);
    add_host(out, ranks, missing, count);
    if (verdict == TR_HANG_CIRCLE)
        str_add(out, ", in different operations, wait for each other; the first");
    str_addc(out, ' ');
    add_rank(out, ranks, count, first);
    if (others)
        str_addf(out, "; %d other rank%s", others, others == 1 ? " waits" : "s wait");
}

/* One line for the ranks in WHICH, which are all in one place. */
static void add_line(struct str *out, const char *prefix, const struct tr_hang_rank *ranks,
                     const bool *which, int count)
{
    int first = first_of(which, count);
    double seconds = ranks[first].seconds;

    for (int i = 0; i < count; i++)
        if (which[i] && ranks[i].seconds > seconds)
            seconds = ranks[i].seconds;
    str_addf(out, "%s  ", prefix);
    add_ranks(out, which, count);
    add_host(out, ranks, which, count);
    str_addc(out, ' ');
    add_rank(out, ranks, count, first);
    str_addf(out, " for %.1f s\n", seconds);
}

void tr_hang_page(struct str *out, const char *prefix, const struct tr_hang_rank *ranks, int count,
                  enum tr_verdict verdict, const bool *missing, double seconds)
{
    AUTO_FREE char **text = mem_alloc(sizeof(*text) * (size_t)count);
    AUTO_FREE bool *said = mem_alloc(sizeof(*said) * (size_t)count);
    AUTO_FREE bool *which = mem_alloc(sizeof(*which) * (size_t)count);
    int lines = 0, left = 0;

    for (int i = 0; i < count; i++) {
        struct str one = {0};

        add_rank(&one, ranks, count, i);
        text[i] = str_take(&one);
    }
    str_add(out, prefix);
    tr_hang_line(out, ranks, count, verdict, missing, seconds);
    str_addc(out, '\n');
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++) {
            if (said[i] || missing[i] == (pass > 0))
                continue;
            for (int k = 0; k < count; k++)
                which[k] = missing[k] == missing[i] && !strcmp(text[k], text[i]);
            for (int k = 0; k < count; k++)
                said[k] |= which[k];
            if (lines++ < LINES)
                add_line(out, prefix, ranks, which, count);
            else
                left++;
        }
    if (left)
        str_addf(out, "%s  ... and %d other places\n", prefix, left);
    for (int i = 0; i < count; i++)
        free(text[i]);
}

void tr_hang_event(struct tr_events *ev, const struct tr_hang_rank *ranks, int count,
                   enum tr_verdict verdict, const bool *missing, double seconds)
{
    static const char *const reasons[] = {[TR_HANG_STOPPED] = "stopped",
                                          [TR_HANG_BUSY] = "busy",
                                          [TR_HANG_SILENT] = "silent",
                                          [TR_HANG_CIRCLE] = "mismatch",
                                          [TR_HANG_LOST] = "lost"};
    struct tr_stuck stuck[EVENT_RANKS];
    AUTO_STR detail = {0};
    struct tr_hang_event hang = {.reason = reasons[verdict],
                                 .seconds = seconds,
                                 .waiting = waiting(ranks, count, missing),
                                 .missing = stuck};

    tr_hang_line(&detail, ranks, count, verdict, missing, seconds);
    hang.detail = detail.text;
    for (int i = 0; i < count && hang.nmissing < EVENT_RANKS; i++) {
        const struct tr_hang_rank *r = &ranks[i];
        bool in = r->known && r->at.op != TR_OP_NONE;

        if (missing[i])
            stuck[hang.nmissing++] = (struct tr_stuck){
                .rank = i,
                .host = r->host,
                .state = state_text(r),
                .phase = r->known ? named(tr_phase_names, TR_PHASES, r->at.phase) : NULL,
                .operation = in ? named(tr_op_names, TR_OPS, r->at.op) : NULL,
                .group = in ? named(tr_kind_names, TR_KINDS, r->at.kind) : NULL,
                .step = r->at.step,
                .seconds = r->seconds};
    }
    tr_event_hang(ev, &hang);
}
