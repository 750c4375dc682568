/*
 * A table of throughputs as a cluster to search on: tests/data/landscapes/, of the format described
 * in docs/measurements/search.md. Rows that the rules of plan/ refuse are dropped; a layout without
 * throughput does not fit.
 */
#ifndef TESTS_BENCH_LANDSCAPE_H
#define TESTS_BENCH_LANDSCAPE_H

#include "base/base.h"
#include "search/search.h"

struct landscape {
    char name[128];
    json_t *campaign; /* without "search" and "budget" */
    bool measured;    /* on a machine */
    struct se_spec spec;
    struct pl_layout *layout; /* (n) */
    double *tokens;           /* (n) tokens/s, or 0: out of memory */
    size_t n;
    double best;
    bool thinned; /* the search has the layouts above, not all of the space */
};

int landscape_load(struct landscape *ret, const char *path, struct err *e);
void landscape_done(struct landscape *l);

/* Multiply every throughput by a smooth seeded factor within 0.5 … 2 over log2 of tp, pp, vp and
 * micro_batch: waves whose frequencies have a standard deviation of FREQUENCY radians a doubling
 * of each key. */
void landscape_warp(struct landscape *l, double frequency, uint64_t seed);

/* Multiply every throughput by a seeded factor of its own, of standard deviation SD in logarithms:
 * what no model foresees. */
void landscape_roughen(struct landscape *l, double sd, uint64_t seed);

/* Leave out a seeded SHARE of the layouts, none that is within 5 % of the best: on one table the
 * campaigns of all seeds take much the same course, on thinned ones they do not. */
void landscape_thin(struct landscape *l, double share, uint64_t seed);

/* tokens/s of a layout, 0: out of memory; -1: not in the table. */
double landscape_at(const struct landscape *l, const struct pl_layout *x);

/* Relative standard deviation of a measurement, and the standard error that it claims to have: the
 * rest is what its own steps do not show. */
struct landscape_noise {
    double sd, claimed;
};

struct race {
    int trials;           /* told, repeats too */
    int hit5, hit3, hit1; /* trial that first was within 5, 3, 1 % of the best; 0: never */
    int wall5, wall1;     /* when hit5 and hit1 had ended, in lengths of a trial; 0: never */
    int wall;             /* when the last trial had */
    int oom5;             /* out of memory up to hit5 (or the end) */
    double log_score;     /* sum of squared errors of P(fits), over npredicted */
    int npredicted;
    int bin_count[10], bin_fit[10];
    double bin_sum[10];
    double lost; /* share by which the layout that it names is slower than the best */
    char reason[16];
};

/* Run one campaign of at most MAX_TRIALS with NOISE, until within 1 % or, if TO_END, until it ends
 * by itself; every trial is told to TRACE unless it is NULL. SPEC.parallel trials run at once, all
 * of one length; one that ends makes room for the next, which is asked for while the others still
 * run. Trials are counted in the order in which they end, which is that in which they were asked
 * for. */
void landscape_race(struct race *ret, const struct landscape *l, const struct se_spec *spec,
                    struct landscape_noise noise, int max_trials, bool to_end, uint64_t noise_seed,
                    FILE *trace);

/* The first TRIALS of a campaign of its own on L, to inform another one: free with
 * landscape_past_done(). */
void landscape_past(struct se_source *ret, const struct landscape *l, struct landscape_noise noise,
                    int trials, uint64_t noise_seed);
void landscape_past_done(struct se_source *x);

#endif
