/* Private to plan/: recomputation of whole layers, and module by module. */
#ifndef PLAN_RECOMPUTE_H
#define PLAN_RECOMPUTE_H

#include "plan/plan.h"
#include "plan/precision.h"

/* Bits of pl_recompute_modules. */
enum {
    PL_RE_MLP = 1,
    PL_RE_MOE = 2,
    PL_RE_MOE_ACT = 4,
    PL_RE_SHARED = 8,
    PL_RE_NORM = 16,
    PL_RE_MLA = 32,
    PL_RE_CORE = 64
};

/* The modules that LAYOUT names; 0 where it names none, and "selective" is of attention's core. */
unsigned pl_recompute_modules(const struct pl_layout *layout);

/* Does KEY, the method's, the layers' or one of the modules', mean something with the keys before
 * it? */
bool pl_recompute_applies(const struct pl_layout *layout, const struct pl_model *model,
                          enum pl_key key);
/* Of a virtual stage with LAYERS layers those that full recomputation repeats; 0 where there is
 * none. */
int pl_recomputed_layers(const struct pl_layout *layout, int layers);

/* What means nothing in LAYOUT is not named by it afterwards. */
void pl_recompute_canonical(struct pl_layout *layout, const struct pl_model *model);

/* Bytes of a token of 2-byte elements that a layer does not keep for them: between the blocks
 * (whole on a tp rank unless sp splits them), inside (the sum over tp), and of one of a token's
 * copies at the experts (the sum over etp). */
struct pl_dropped {
    double outside, inside, copy;
    bool copies; /* nothing of the copies is kept */
};

void pl_dropped_of(struct pl_dropped *ret, const struct pl_model *model, unsigned again,
                   const struct pl_operands *operands, bool moe);

#endif
