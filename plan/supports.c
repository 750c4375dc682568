/*
 * What a trainer can run of what our words can say: the rule trainer-supports.
 *
 * A trainer's space is what its own exporter writes without loss, so these are also the gaps of
 * that exporter (tn_gap_trainer in tuner/export/table.c asks for them): a fact about a trainer
 * stands here once. Single keys are columns of the table in trainer.c; what depends on several of
 * them is a function of the trainer below. The sources are those that the exporters name.
 */
#include "plan/legal.h"

#include <math.h>

#include "base/base.h"

static int micro_batches(const struct pl_check *check)
{
    int share = check->l->micro_batch * check->l->dp;

    return share > 0 && check->w->global_batch % share == 0 ? check->w->global_batch / share : 0;
}

/* Sizes of a rank that the bundled trainer's kernels and messages have no room for. */
static void bundled_limits(struct pl_check *check)
{
    const struct pl_model *m = check->m;
    const struct pl_layout *l = check->l;
    int64_t heads = (int64_t)m->heads + m->kv_heads;
    const struct {
        int64_t size;
        int most;
        const char *key;
    } limit[] = {
        {m->head_dim, PL_MAX_HEAD_DIM, "head_dim"},
        {m->hidden, PL_MAX_HIDDEN, "hidden"},
        {(m->vocab + l->tp - 1) / l->tp, PL_MAX_COLUMNS, "vocab"},
        {heads / l->tp * m->head_dim, PL_MAX_COLUMNS, "heads"},
        {m->ffn / l->tp, PL_MAX_FFN, "ffn"},
        {m->moe.expert_ffn / l->etp, PL_MAX_FFN, "expert_ffn"},
        {m->moe.shared_ffn / l->tp, PL_MAX_FFN, "shared_ffn"},
        {m->moe.experts / l->ep, PL_MAX_EXPERTS, "experts"},
        {l->vp, PL_MAX_CHUNKS, "vp"},
        {l->threads, PL_MAX_THREADS, "threads"},
    };

    for (size_t i = 0; i < ARRAY_LEN(limit); i++)
        if (limit[i].size > limit[i].most)
            pl_breaks(check, limit[i].key, "trainer %s does not support %s > %d a rank, here %lld",
                      check->t->name, limit[i].key, limit[i].most, (long long)limit[i].size);
}

void pl_partune_limits(struct pl_check *check)
{
    const struct pl_layout *l = check->l;

    if (l->pp > 1 && l->schedule == PL_ZERO_BUBBLE && l->recompute == PL_RECOMPUTE_FULL)
        pl_breaks(check, "recompute",
                  "trainer partune does not support recompute full with schedule zero-bubble");
    bundled_limits(check);
}

/* Megatron's flags come with conditions of their own. */
void pl_megatron_limits(struct pl_check *check)
{
    const struct pl_layout *l = check->l;
    const char *lacks = NULL;

    if (check->m->positions == PL_ROPE && check->m->rope_theta != floor(check->m->rope_theta))
        pl_breaks(check, "rope_theta",
                  "trainer megatron does not support rope_theta %.10g: it takes a "
                  "whole number",
                  check->m->rope_theta);
    if (l->overlap_p2p && l->vp == 1)
        pl_breaks(
            check, "overlap_p2p",
            "trainer megatron does not support overlap_p2p 1 with vp 1: pipeline sends overlap "
            "only when interleaved");
    if (l->overlap_param_gather && !l->overlap_grad_reduce)
        pl_breaks(check, "overlap_param_gather",
                  "trainer megatron does not support overlap_param_gather 1 without "
                  "overlap_grad_reduce 1");
    if (l->pp > 1 && l->vp == 1)
        lacks = "pp > 1 and vp 1";
    else if (l->recompute == PL_RECOMPUTE_FULL)
        lacks = "recompute full";
    else if (l->precision == PL_FP32)
        lacks = "precision fp32";
    if (l->overlap_moe_a2a && lacks)
        pl_breaks(check, "overlap_moe_a2a",
                  "trainer megatron does not support overlap_moe_a2a 1 with %s", lacks);
}

/* Its mesh: dp_replicate x dp_shard x cp x tp, and dp_shard x cp x tp = efsdp x ep for experts.
 * FSDP shards over dp_shard x cp, and experts over efsdp, whatever zero is called. */
static void torchtitan_mesh(struct pl_check *check)
{
    const struct pl_layout *l = check->l;

    if (!l->zero && l->cp > 1)
        pl_breaks(check, "zero",
                  "trainer torchtitan does not support zero 0 with cp %d: FSDP shards over cp",
                  l->cp);
    if (!l->zero && check->m->moe.experts && l->ep > 1 && l->ep != l->tp)
        pl_breaks(check, "ep",
                  "trainer torchtitan does not support ep %d with zero 0 and tp %d: unsharded "
                  "experts spread over tp",
                  l->ep, l->tp);
}

void pl_torchtitan_limits(struct pl_check *check)
{
    const struct pl_layout *l = check->l;
    int64_t tokens = (int64_t)l->micro_batch * check->w->seq;
    int parts = (l->sp ? l->tp : 1) * (l->cp > 1 ? 2 * l->cp : 1);

    if (check->m->tied && l->pp > 1)
        pl_breaks(check, "tied", "trainer torchtitan does not support tied true with pp %d", l->pp);
    if (check->m->moe.experts && l->precision == PL_FP8)
        pl_breaks(check, "precision",
                  "trainer torchtitan does not support precision fp8 with experts");
    if (tokens % parts)
        pl_breaks(check, "tp",
                  "trainer torchtitan does not support %lld tokens a micro-batch with tp %d and cp "
                  "%d: they are no multiple of %d",
                  (long long)tokens, l->tp, l->cp, parts);
    /* torch.distributed.pipelining since January 2026: of its schedules for one stage a rank, 1F1B
     * asks for as many micro-batches as stages, GPipe no longer. */
    if (l->pp > 1 && l->vp == 1 && l->schedule != PL_GPIPE && micro_batches(check) < l->pp)
        pl_breaks(check, "micro_batch",
                  "trainer torchtitan does not support %d micro-batches with pp %d: schedule 1f1b "
                  "needs as many as stages, gpipe does not",
                  micro_batches(check), l->pp);
    torchtitan_mesh(check);
}

void pl_deepspeed_limits(struct pl_check *check)
{
    const struct pl_model *m = check->m;
    const struct pl_layout *l = check->l;
    bool known = m->mlp == PL_SWIGLU && m->norm == PL_RMSNORM && m->positions == PL_ROPE;

    if (l->overlap_grad_reduce && l->zero == 0)
        pl_breaks(check, "overlap_grad_reduce",
                  "trainer deepspeed does not support overlap_grad_reduce 1 with zero 0");
    if (l->overlap_param_gather && l->zero < 3)
        pl_breaks(check, "overlap_param_gather",
                  "trainer deepspeed does not support overlap_param_gather 1 with zero %d",
                  l->zero);
    if (l->zero == 3 && l->overlap_param_gather != l->overlap_grad_reduce)
        pl_breaks(check, "overlap_param_gather",
                  "trainer deepspeed does not support overlap_param_gather %d with "
                  "overlap_grad_reduce %d: at zero 3 one switch is for both",
                  l->overlap_param_gather, l->overlap_grad_reduce);
    if (l->ep > 1 && !known)
        pl_breaks(check, "ep",
                  "trainer deepspeed does not support ep > 1 for a model of this shape: AutoEP "
                  "knows swiglu, rmsnorm and rope");
    if (l->tp > 1 && l->ep > 1 && l->zero == 3)
        pl_breaks(check, "zero", "trainer deepspeed does not support zero 3 with tp %d and ep %d",
                  l->tp, l->ep);
}

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

/* What the trainer does by itself, and cannot be told to leave. */
static void by_itself(struct pl_check *check)
{
    const struct pl_layout *l = check->l;
    const struct pl_trainer *t = check->t;
    bool overlaps = t->always_overlaps && replicated(l, check->m);

    if (t->experts_follow_tp && check->m->moe.experts && l->etp != experts_tp(l))
        pl_breaks(check, "etp",
                  "trainer %s does not support etp %d with ep %d and tp %d: it is %d there",
                  t->name, l->etp, l->ep, l->tp, experts_tp(l));
    if (overlaps && !l->overlap_grad_reduce)
        pl_breaks(check, "overlap_grad_reduce",
                  "trainer %s does not support overlap_grad_reduce 0: FSDP always overlaps",
                  t->name);
    if (overlaps && l->zero >= 2 && !l->overlap_param_gather)
        pl_breaks(check, "overlap_param_gather",
                  "trainer %s does not support overlap_param_gather 0: FSDP always gathers ahead",
                  t->name);
    if (t->pair_overlaps && !l->overlap_p2p && l->vp > 1 && l->pp == 2)
        pl_breaks(
            check, "overlap_p2p",
            "trainer %s does not support overlap_p2p 0 with pp 2 and vp %d: it always overlaps "
            "there",
            t->name, l->vp);
}

void pl_layout_settle(struct pl_layout *layout, const struct pl_model *model,
                      const struct pl_trainer *trainer)
{
    if (trainer->experts_follow_tp && model->moe.experts)
        layout->etp = experts_tp(layout);
    pl_layout_canonical(layout, model);
    if (trainer->always_overlaps) {
        layout->overlap_grad_reduce = replicated(layout, model);
        layout->overlap_param_gather = layout->overlap_grad_reduce && layout->zero >= 2;
    }
    if (trainer->pair_overlaps && layout->vp > 1 && layout->pp == 2)
        layout->overlap_p2p = 1;
}

static void of_the_model(struct pl_check *check)
{
    const struct pl_model *m = check->m;
    const struct pl_trainer *t = check->t;
    const struct {
        bool wanted, able;
        const char *key, *what;
    } need[] = {
        {m->mlp == PL_GELU, t->gelu, "mlp", "gelu"},
        {m->norm == PL_LAYERNORM, t->layernorm, "norm", "layernorm"},
        {m->positions == PL_LEARNED, t->learned, "positions", "learned"},
        {m->tied, t->tied, "tied", "true"},
        {m->moe.experts && m->moe.capacity_factor > 0, t->capacity, "capacity_factor", "a number"},
        {m->moe.experts && m->moe.shared_ffn > 0, t->shared_expert, "shared_ffn", "> 0"},
        {m->moe.experts && m->moe.every > 1, t->moe_every, "every", "> 1"},
        {m->moe.experts && m->moe.dense_layers > 0, t->dense_layers, "dense_layers", "> 0"},
    };

    for (size_t i = 0; i < ARRAY_LEN(need); i++)
        if (need[i].wanted && !need[i].able)
            pl_breaks(check, need[i].key, "trainer %s does not support %s %s", t->name, need[i].key,
                      need[i].what);
}

static void unsupported(struct pl_check *check, const struct pl_layout_key *key, int value)
{
    pl_breaks(check, key->name, "trainer %s does not support %s %s", check->t->name, key->name,
              key->names      ? key->names[value]
              : key->max == 1 ? "1"
                              : "> 1");
}

static void of_the_layout(struct pl_check *check)
{
    const struct pl_layout *l = check->l;
    const struct pl_trainer *t = check->t;

    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        int value = pl_layout_get(l, &pl_layout_keys[key]);

        if (pl_trainer_takes(t, key, value))
            continue;
        if (key == PL_KEY_ZERO && value < t->min_zero)
            pl_breaks(check, "zero",
                      "trainer %s does not support zero 1: gradients are sharded, too", t->name);
        /* vp is the interleaved schedule's; zero above all stages is told last. */
        if (key != PL_KEY_VP && key != PL_KEY_ZERO && (key != PL_KEY_SCHEDULE || l->pp > 1))
            unsupported(check, &pl_layout_keys[key], value);
    }
    if (l->zero > t->max_zero)
        pl_breaks(check, "zero", "zero %d: trainer %s supports zero 0 to %d", l->zero, t->name,
                  t->max_zero);
}

void pl_trainer_supports(struct pl_check *check)
{
    of_the_model(check);
    of_the_layout(check);
    by_itself(check);
    if (check->t->limits)
        check->t->limits(check);
}
