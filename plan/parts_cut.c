/*
 * Layers over stages on devices of two kinds.
 *
 * A stage's time and memory grow with its layers. So for a given limit of the time a walk from the
 * front that gives each stage as many layers as it may have reaches the farthest layer that any
 * division reaches, and one from the back likewise: whether a limit can be kept is known after one
 * walk, and the least such limit by bisection, where each success lowers the limit to the slowest
 * stage of what was found.
 *
 * Between the two walks lie all divisions that keep the limit. Where the parts meet is chosen among
 * those so that all stages together need the least time, which what is inside a part does not
 * change; then the stages of each part are made alike.
 */
#include "plan/parts_rank.h"

#include <math.h>

#include "base/base.h"

struct search {
    struct pl_parts_cut *cut;
    int pp;
    const struct pl_parts_times *times;
    pl_parts_fits *fits;
    void *arg;
};

static int part_of(const struct pl_parts_cut *cut, int stage)
{
    return stage < cut->head_stages ? cut->order : 1 - cut->order;
}

double pl_parts_stage_s(const struct pl_parts_cut *cut, int pp, const struct pl_parts_times *times,
                        int stage, int first, int n)
{
    int part = part_of(cut, stage);

    return times->before[part][first + n] - times->before[part][first] +
           (stage == 0 ? times->head[part] : 0) + (stage == pp - 1 ? times->tail[part] : 0);
}

/* STAGE with N layers from FIRST, or up to it (BACK). */
static double seconds(const struct search *search, int stage, int first, int n, bool back)
{
    return pl_parts_stage_s(search->cut, search->pp, search->times, stage, back ? first - n : first,
                            n);
}

static bool fits(const struct search *search, int stage, int first, int n, bool back)
{
    return !search->fits ||
           search->fits(search->arg, search->cut, stage, back ? first - n : first, n);
}

/* The most layers, up to ROOM, of STAGE from FIRST on, or up to FIRST, within LIMIT seconds. */
static int most(const struct search *search, int stage, int first, int room, double limit,
                bool back)
{
    int low = 0, high = room;

    while (low < high) {
        int n = (low + high + 1) / 2;

        if (seconds(search, stage, first, n, back) <= limit)
            low = n;
        else
            high = n - 1;
    }
    if (!low || fits(search, stage, first, low, back))
        return low;
    for (high = low - 1, low = 0; low < high;) {
        int n = (low + high + 1) / 2;

        if (fits(search, stage, first, n, back))
            low = n;
        else
            high = n - 1;
    }
    return low;
}

/* Into FIRST the walk from the front; is every layer placed, and has every stage one? */
static bool walk(int *first, const struct search *search, double limit)
{
    int layers = search->times->layers, pp = search->pp;

    first[0] = 0;
    for (int s = 0; s < pp; s++) {
        int n = most(search, s, first[s], layers - first[s] - (pp - 1 - s), limit, false);

        if (n < 1)
            return false;
        first[s + 1] = first[s] + n;
    }
    return first[pp] == layers;
}

static double slowest(const struct search *search, const int *first)
{
    double most_s = 0;

    for (int s = 0; s < search->pp; s++)
        most_s = fmax(most_s, seconds(search, s, first[s], first[s + 1] - first[s], false));
    return most_s;
}

/* The least time of a slowest stage; FIRST is a division that keeps it. False: there is none. */
static bool least(double *ret, int *first, const struct search *search)
{
    int trial[PL_MAX_RUNS + 1];
    double low = 0, high;

    if (!walk(first, search, INFINITY))
        return false;
    high = slowest(search, first);
    while (high - low > 1e-10 * high) {
        double limit = low + (high - low) / 2;

        if (!walk(trial, search, limit)) {
            low = limit;
            continue;
        }
        memcpy(first, trial, sizeof(trial[0]) * ((size_t)search->pp + 1));
        high = slowest(search, first);
    }
    *ret = high * (1 + 1e-9);
    return true;
}

/* Stages [FROM, TO) take the layers [first[FROM], first[TO]) in alike times within LIMIT, which
 * some division of them keeps. */
static void spread(const struct search *search, int from, int to, double limit)
{
    int *first = search->cut->first, least_at[PL_MAX_RUNS + 1];

    least_at[to] =
        first[to]; /* where stage s must begin at the least, for the others to have room */
    for (int s = to - 1; s > from; s--) {
        int room = least_at[s + 1] - first[from] - (s - from);

        least_at[s] = least_at[s + 1] - most(search, s, least_at[s + 1], room, limit, true);
    }
    for (int s = from; s < to - 1; s++) {
        int room = first[to] - first[s] - (to - 1 - s), n, top;
        double rest = 0, share;

        for (int k = s; k < to; k++) /* the ends' own time, and all layers' */
            rest += k == s ? seconds(search, k, first[s], first[to] - first[s], false)
                           : seconds(search, k, first[to], 0, false);
        share = rest / (to - s);
        top = most(search, s, first[s], room, limit, false);
        for (n = 1; n < top; n++)
            if (seconds(search, s, first[s], n + 1, false) - share >
                share - seconds(search, s, first[s], n, false) + 1e-9 * share)
                break;
        if (first[s] + n < least_at[s + 1])
            n = least_at[s + 1] - first[s];
        first[s + 1] = first[s] + n;
    }
}

void pl_parts_divide(struct pl_parts_cut *cut, int pp, const struct pl_parts_times *times,
                     pl_parts_fits *fits_of, void *arg)
{
    struct search search = {cut, pp, times, fits_of, arg};
    const double *head = times->before[cut->order], *tail = times->before[1 - cut->order];
    int border = cut->head_stages, layers = times->layers, low = layers, high, best;
    double limit;

    cut->possible = pp <= layers && least(&limit, cut->first, &search);
    if (!cut->possible)
        return;
    walk(cut->first, &search, limit);
    high = best = cut->first[border];
    for (int s = pp - 1; s >= border; s--)
        low -= most(&search, s, low, low - s, limit, true);
    for (int at = low; at <= high; at++)
        if (head[at] - tail[at] < head[best] - tail[best])
            best = at;
    cut->first[border] = best;
    cut->first[pp] = layers;
    spread(&search, 0, border, limit);
    spread(&search, border, pp, limit);
}
