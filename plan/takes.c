/* Which values of single keys a trainer takes, and what it does where nobody says. */
#include "plan/plan.h"

static bool takes_precision(const struct pl_trainer *trainer, int value)
{
    switch (value) {
    case PL_FP32:
        return true;
    case PL_BF16:
        return trainer->bf16;
    case PL_FP8:
        return trainer->fp8;
    case PL_MXFP8:
        return trainer->mxfp8;
    case PL_NVFP4:
        return trainer->nvfp4;
    default:
        return trainer->fp8_recipes;
    }
}

bool pl_trainer_takes(const struct pl_trainer *trainer, enum pl_key key, int value)
{
    const struct pl_layout_key *row = &pl_layout_keys[key];

    if (value == row->standard)
        return true;
    switch (key) {
    case PL_KEY_SCHEDULE:
        return value == PL_INTERLEAVED   ? pl_trainer_takes(trainer, PL_KEY_VP, 2)
               : value == PL_GPIPE       ? trainer->gpipe
               : value == PL_ZERO_BUBBLE ? trainer->zero_bubble
               : value == PL_DUALPIPE    ? trainer->dualpipe
                                         : trainer->v_schedules;
    case PL_KEY_ZERO:
        return value >= trainer->min_zero && value <= trainer->max_zero;
    case PL_KEY_ZERO_SCOPE:
        return value != PL_SCOPE_PLAIN || (row->trainers & trainer->by);
    case PL_KEY_CUDA_GRAPHS: /* torchtitan has no modules, the bundled trainer nothing else */
        return row->trainers & trainer->by &
               ~(unsigned)(value == PL_GRAPHS_MODULES ? PL_BY_TORCHTITAN : PL_BY_PARTUNE);
    case PL_KEY_OFFLOAD_OPT: /* FSDP2 has all of it there, or nothing */
        return row->trainers & trainer->by && (trainer->by != PL_BY_TORCHTITAN || value == 100);
    case PL_KEY_RECOMPUTE:
        return value == PL_RECOMPUTE_FULL ? trainer->full : trainer->selective;
    case PL_KEY_PRECISION:
        return takes_precision(trainer, value);
    default:
        return row->trainers & trainer->by;
    }
}

int pl_usual_zero(const struct pl_trainer *trainer)
{
    return trainer->usual_zero ? trainer->usual_zero : trainer->max_zero;
}
