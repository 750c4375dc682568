/* Private to plan/: how a space is walked. */
#ifndef PLAN_SPACE_WALK_H
#define PLAN_SPACE_WALK_H

#include "plan/plan.h"

/* Replace axis KEY by every value that the trainer supports. */
void pl_space_widen(struct pl_space *space, enum pl_key key, const struct pl_problem *problem);

/* The keys in the order of the walk; a derived key follows from those before it. */
enum {
#define KEY(name, field, part, ...) +(PL_##part != PL_DERIVED)
    PL_WALK_KEYS = 0
#include "plan/keys.def"
};
extern const enum pl_key pl_space_order[PL_WALK_KEYS];

/* How many of them a stem has. */
enum {
#define KEY(name, field, part, ...) +(PL_##part == PL_STEM)
    PL_STEM_KEYS = 0
#include "plan/keys.def"
};

/* Is there a choice of KEY in LAYOUT, whose earlier keys are fixed? *RET is what it is if not: its
 * canonical value where it means nothing, and for stages that SPACE does not list what is tried. */
bool pl_space_applies(int *ret, const struct pl_space *space, const struct pl_problem *problem,
                      const struct pl_layout *layout, enum pl_key key);

/* pl_space_enumerate until PATIENCE is over: false if that, or VISIT, ended it. *RET_COUNT (may be
 * NULL) is how many were visited. */
bool pl_space_visit_all(size_t *ret_count, const struct pl_space *space,
                        const struct pl_problem *problem, const struct pl_patience *patience,
                        pl_space_visit *visit, void *arg);

/* Visit every member of the product of the first KEYS keys (0: of all), legal or not, in the order
 * of pl_space_enumerate, until PATIENCE is over: false if that, or VISIT, ended it. *RET_COUNT (may
 * be NULL) is how many were visited. */
bool pl_space_product(size_t *ret_count, const struct pl_space *space,
                      const struct pl_problem *problem, size_t keys,
                      const struct pl_patience *patience, pl_space_visit *visit, void *arg);

/*
 * A walk in two parts. A stem is a layout up to its sp (the degrees, micro_batch and schedule)
 * whose other keys have their defaults; it breaks no rule by itself. Its leaves are the legal
 * layouts that begin so, and come in the order of pl_space_enumerate. Both return false if VISIT,
 * or the end of PATIENCE (may be NULL), ended the walk.
 */
bool pl_space_stems(size_t *ret_count, const struct pl_space *space,
                    const struct pl_problem *problem, const struct pl_patience *patience,
                    pl_space_visit *visit, void *arg);
bool pl_space_leaves(const struct pl_space *space, const struct pl_problem *problem,
                     const struct pl_layout *stem, const struct pl_patience *patience,
                     pl_space_visit *visit, void *arg);

/* Does LAYOUT, whose values are in range and whose derived keys are set, break none of the rules
 * that read stems only, and has the model what the trainer cannot train (STEM), or none of the
 * others? */
bool pl_layout_check_part(const struct pl_problem *problem, const struct pl_layout *layout,
                          bool stem);

/* What a space that does not name stages tries: even, but balanced where even is illegal and no
 * deep pipeline of even stages exists. */
int pl_stages_auto(const struct pl_problem *problem, int pp, int vp);

/* Sequences that are long enough to be split: then cp belongs to what is tried. */
bool pl_long_sequences(const struct pl_problem *problem);

#endif
