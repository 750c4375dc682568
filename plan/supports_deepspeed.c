/* What DeepSpeed can run: its part of supports.c. */
#include "plan/legal.h"
#include "plan/offload.h"

#include "base/base.h"

/* MiCS: groups of consecutive ranks of the job (deepspeed/runtime/zero/mics_utils.py), of zero 3,
 * and not with AutoEP (engine.py). */
static void deepspeed_copies(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const char *lacks = layout->zero < 3 ? "zero below 3" : layout->tp > 1 ? "tp > 1" : NULL;

    if (layout->ep > 1)
        lacks = "ep > 1";
    if (layout->shard && layout->zero && lacks)
        pl_breaks(check, "shard", "trainer deepspeed does not support shard %d with %s: it is MiCS",
                  layout->shard, lacks);
}

/* DeepSpeedCPUAdam; runtime/zero/config.py (offload_ratio_check), mics.py, and
 * module_inject/auto_ep_folding.py. */
static void deepspeed_offload(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    bool folded = layout->tp > 1 && layout->ep > 1, mics = layout->shard && layout->zero;
    bool below = layout->zero < 3 && !pl_alone(check->problem->model, layout);
    const struct pl_unoffloaded limit[] = {
        {check->problem->workload->optimizer != PL_ADAMW, PL_KEY_OFFLOAD_OPT,
         "an optimizer other than adamw"},
        {layout->offload_optimizer < 100 && below, PL_KEY_OFFLOAD_OPT,
         "zero below 3: it is 0 or 100 there"},
        {folded, PL_KEY_OFFLOAD_OPT, "tp > 1 and ep > 1"},
        {mics, PL_KEY_OFFLOAD_OPT, "shard: MiCS"},
        {below, PL_KEY_OFFLOAD_PARAMS, "zero below 3"},
        {folded, PL_KEY_OFFLOAD_PARAMS, "tp > 1 and ep > 1"},
        {mics, PL_KEY_OFFLOAD_PARAMS, "shard: MiCS"},
    };

    pl_limit_offload(check, limit, ARRAY_LEN(limit));
}

void pl_deepspeed_limits(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    bool known =
        model->mlp == PL_SWIGLU && model->norm == PL_RMSNORM && model->positions == PL_ROPE;

    if (layout->overlap_grad_reduce && layout->zero == 0)
        pl_breaks(check, "overlap_grad_reduce",
                  "trainer deepspeed does not support overlap_grad_reduce 1 with zero 0");
    if (layout->overlap_param_gather && layout->zero < 3)
        pl_breaks(check, "overlap_param_gather",
                  "trainer deepspeed does not support overlap_param_gather 1 with zero %d",
                  layout->zero);
    if (layout->zero == 3 && layout->overlap_param_gather != layout->overlap_grad_reduce)
        pl_breaks(check, "overlap_param_gather",
                  "trainer deepspeed does not support overlap_param_gather %d with "
                  "overlap_grad_reduce %d: at zero 3 one switch sets both",
                  layout->overlap_param_gather, layout->overlap_grad_reduce);
    if (layout->ep > 1 && !known)
        pl_breaks(check, "ep",
                  "trainer deepspeed does not support ep > 1 for a model of this shape: AutoEP "
                  "supports swiglu, rmsnorm and rope only");
    if (layout->tp > 1 && layout->ep > 1 && layout->zero == 3)
        pl_breaks(check, "zero", "trainer deepspeed does not support zero 3 with tp %d and ep %d",
                  layout->tp, layout->ep);
    deepspeed_copies(check);
    if (pl_offloads(layout))
        deepspeed_offload(check);
}
