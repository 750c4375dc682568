/* What a trainer does by itself, whatever a layout says: as a rule, and put into the layout. */
#include "plan/legal.h"

#include "base/base.h"

/* Experts that are not placed are split like every other matrix, placed ones are whole: there is no
 * setting of its own for the experts' tensor parallelism. */
static int experts_tp(const struct pl_layout *layout)
{
    return layout->ep == 1 ? layout->tp : 1;
}

/* Does anything have replicas that reduce gradients or share a sharded state? */
static bool replicated(const struct pl_layout *layout, const struct pl_model *model)
{
    return (int64_t)layout->dp * layout->cp > 1 || (model->moe.experts && layout->edp > 1);
}

/* Does TRAINER overlap the reduction of LAYOUT's gradients, or its gathers, whatever it is told? */
static bool overlaps_reduction(const struct pl_trainer *trainer, const struct pl_layout *layout)
{
    return trainer->always_overlaps || (trainer->fsdp_overlaps && layout->zero >= 2);
}

static bool gathers_ahead(const struct pl_trainer *trainer, const struct pl_layout *layout)
{
    return (trainer->always_overlaps && layout->zero >= 2) ||
           (trainer->fsdp_overlaps && layout->zero >= 3);
}

bool pl_grads_are_half(const struct pl_trainer *trainer, const struct pl_layout *layout)
{
    return trainer->half_replicas && !layout->zero && layout->precision != PL_FP32;
}

void pl_trainer_by_itself(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const struct pl_trainer *trainer = check->problem->trainer;
    bool overlaps = replicated(layout, model);

    if (trainer->experts_follow_tp && model->moe.experts && layout->etp != experts_tp(layout))
        pl_breaks(check, "etp",
                  "trainer %s does not support etp %d with ep %d and tp %d: it uses %d",
                  trainer->name, layout->etp, layout->ep, layout->tp, experts_tp(layout));
    if (overlaps && overlaps_reduction(trainer, layout) && !layout->overlap_grad_reduce)
        pl_breaks(check, "overlap_grad_reduce",
                  "trainer %s does not support overlap_grad_reduce 0: FSDP always overlaps",
                  trainer->name);
    if (overlaps && gathers_ahead(trainer, layout) && !layout->overlap_param_gather)
        pl_breaks(check, "overlap_param_gather",
                  "trainer %s does not support overlap_param_gather 0: FSDP always gathers ahead",
                  trainer->name);
    if (pl_grads_are_half(trainer, layout) && layout->grad_dtype != PL_GRADS_BF16)
        pl_breaks(check, "grad_dtype",
                  "trainer %s does not support grad_dtype fp32 with zero 0: it accumulates in the "
                  "precision of the weights",
                  trainer->name);
    if (trainer->uneven_layers && layout->stages != PL_STAGES_EVEN &&
        pl_stages_are_even(layout, model->layers))
        pl_breaks(check, "stages", "trainer %s does not support stages %s: the same as even here",
                  trainer->name, pl_stages_text(layout->stages));
    if (trainer->pair_overlaps && !layout->overlap_p2p && layout->vp > 1 && layout->pp == 2)
        pl_breaks(
            check, "overlap_p2p",
            "trainer %s does not support overlap_p2p 0 with pp 2 and vp %d: it always overlaps "
            "there",
            trainer->name, layout->vp);
}

void pl_layout_settle(struct pl_layout *layout, const struct pl_problem *problem)
{
    const struct pl_model *model = problem->model;
    const struct pl_trainer *trainer = problem->trainer;

    if (trainer->experts_follow_tp && model->moe.experts)
        layout->etp = experts_tp(layout);
    pl_layout_canonical(layout, model);
    if (overlaps_reduction(trainer, layout))
        layout->overlap_grad_reduce = replicated(layout, model);
    if (trainer->always_overlaps)
        layout->overlap_param_gather = 0;
    if (gathers_ahead(trainer, layout))
        layout->overlap_param_gather = replicated(layout, model);
    if (pl_grads_are_half(trainer, layout))
        layout->grad_dtype = PL_GRADS_BF16;
    if (trainer->pair_overlaps && layout->vp > 1 && layout->pp == 2)
        layout->overlap_p2p = 1;
    if (trainer->uneven_layers && pl_stages_are_even(layout, model->layers))
        layout->stages = PL_STAGES_EVEN;
}

void pl_layout_unsaid(struct pl_layout *layout, const json_t *json,
                      const struct pl_problem *problem)
{
    struct pl_layout settled = *layout;

    pl_layout_settle(&settled, problem);
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        const json_t *said = json_object_get(json, k->name);

        if (k->part != PL_DERIVED && (!said || json_is_null(said)))
            pl_layout_set(layout, k, pl_layout_get(&settled, k));
    }
    pl_layout_derive(layout);
}
