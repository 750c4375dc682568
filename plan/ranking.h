/* Private to plan/: a ranking while it goes on, and the stems of its space (stems.c). */
#ifndef PLAN_RANKING_H
#define PLAN_RANKING_H

#include "plan/parts_rank.h"
#include "plan/plan.h"
#include "plan/space_walk.h"

struct pl_stem {
    uint64_t hash;
    int value[PL_STEM_KEYS]; /* of the first keys of the walk */
    float rate; /* of its best layout that was tried; 0: none fits, or it was not tried */
};

struct pl_ranking {
    const struct pl_space *space;
    const struct pl_problem *problem;
    const struct pl_patience *patience;
    struct pl_cost_ctx *cost;
    struct pl_memory_ctx *memory;
    struct pl_parts_ctx *parts; /* of a cluster of parts, where those two are not used; or NULL */
    struct pl_plan *plan;       /* NULL: nothing is listed */
    size_t room;                /* of the list */
    bool fold;                  /* a family is one entry */
    double headroom;            /* share of a device's memory that stays free */
    double limit;               /* bytes: what the rest is */
    enum pl_objective objective;
    size_t asked;
    bool over;
    /* stems */
    struct pl_stem *stem;
    size_t n, cap;
    uint64_t bound, number; /* kept while hash <= bound; number of the next one */
    struct pl_space *few;   /* the space with the leaves that stems are tried by, */
    struct pl_space *lean;  /* or where none fits; NULL: no option saves memory */
    bool wide;              /* a stem has too many leaves to be looked at one after the other */
    double climbing;        /* the share of the patience after which climbing over stems ends */
    double best;            /* of the stem that is tried: its best layout's worth, */
    struct pl_layout leaf;  /* and that layout where it is not 0 */
};

/* The share of the patience that is gone; 0 without one. */
double pl_ranking_spent(const struct pl_ranking *ranking);
/* By what layouts are compared: the objective's value. */
double pl_ranking_worth(const struct pl_ranking *ranking, const struct pl_plan_entry *one);
/* Is LEFT listed before RIGHT? One order for all layouts, whatever the order in which they come. */
bool pl_ranking_before(const struct pl_ranking *ranking, const struct pl_plan_entry *left,
                       const struct pl_plan_entry *right);
/* Keep ONE, which fits, if it is the best of its batch, where there are several. */
void pl_ranking_note_batch(struct pl_ranking *ranking, const struct pl_plan_entry *one);
/* Memory of ENTRY's layout. Does it fit? */
bool pl_ranking_fits(struct pl_ranking *ranking, struct pl_plan_entry *entry);
/* Memory and, if it fits, seconds of ENTRY's layout. Does it fit? */
bool pl_ranking_price(struct pl_ranking *ranking, struct pl_plan_entry *entry);

/* The contexts and what stems are tried by; pl_stems_done() frees them, and the stems. */
void pl_stems_begin(struct pl_ranking *ranking);
void pl_stems_done(struct pl_ranking *ranking);
/* Find the stems, an even share of them if they are too many; false if PATIENCE was over before. */
bool pl_stems_find(struct pl_ranking *ranking, const struct pl_patience *patience);
/* Rate the stems, and put the best first; false if there was no time to try all. */
bool pl_stems_try(struct pl_ranking *ranking);
/* Without rates: in an order that is even over the space. */
void pl_stems_shuffle(struct pl_ranking *ranking);
/* Climb from the best stems, or the baselines where there is none, to better ones. */
void pl_stems_climb(struct pl_ranking *ranking);
/* All stems that were found were kept. */
bool pl_stems_are_whole(const struct pl_ranking *ranking);
/* A stem of the walk is no member of those that were kept. */
bool pl_stem_was_left(struct pl_ranking *ranking);
/* The stem as a layout; other keys have their defaults. */
void pl_stem_layout(struct pl_layout *ret, const struct pl_ranking *ranking,
                    const struct pl_stem *stem);
/* *RET = the best leaf of STEM that a climb from the leaves it is tried by finds before the share
 * UNTIL of the patience is gone; false if none of those fits. */
bool pl_stem_best(struct pl_plan_entry *ret, struct pl_ranking *ranking, const struct pl_stem *stem,
                  double until);

#endif
