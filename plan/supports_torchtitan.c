/* What torchtitan can run: its part of supports.c. */
#include "plan/legal.h"
#include "plan/offload.h"

#include "base/base.h"

static int micro_batches(const struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int batch = pl_batch(check->problem->workload, layout);
    int share = layout->micro_batch * layout->dp;

    return share > 0 && batch % share == 0 ? batch / share : 0;
}

/* Its mesh: dp_replicate x dp_shard x cp x tp, and dp_shard x cp x tp = efsdp x ep for experts.
 * FSDP shards over dp_shard x cp, and experts over efsdp, whatever zero is called. */
static void torchtitan_mesh(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;

    if (!layout->zero && layout->cp > 1)
        pl_breaks(check, "zero",
                  "trainer torchtitan does not support zero 0 with cp %d: FSDP shards over cp",
                  layout->cp);
    if (!layout->zero && model->moe.experts && layout->ep > 1 && layout->ep != layout->tp)
        pl_breaks(check, "ep",
                  "trainer torchtitan does not support ep %d with zero 0 and tp %d: unsharded "
                  "experts spread over tp",
                  layout->ep, layout->tp);
    if (layout->shard % layout->cp)
        pl_breaks(check, "shard",
                  "trainer torchtitan does not support shard %d with cp %d: FSDP shards over whole "
                  "cp groups",
                  layout->shard, layout->cp);
}

/* Its products in nvfp4 take whole tiles of a rank's rows and columns. */
static void torchtitan_nvfp4(struct pl_check *check)
{
    enum { TILE = 128 };
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const int64_t widths[] = {model->hidden, (int64_t)model->heads * model->head_dim / layout->tp,
                              (int64_t)model->kv_heads * model->head_dim / layout->tp,
                              model->ffn / layout->tp};

    for (size_t i = 0; i < ARRAY_LEN(widths); i++)
        if (widths[i] % TILE) {
            pl_breaks(check, "precision",
                      "trainer torchtitan does not support precision nvfp4 with matrix products "
                      "%lld wide: not a multiple of %d",
                      (long long)widths[i], TILE);
            return;
        }
}

/* One switch of FSDP2 offloads weights, gradients and state. */
static void torchtitan_offload(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_unoffloaded limit[] = {
        {!layout->offload_params, PL_KEY_OFFLOAD_OPT, "offload_params 0: one switch does both"},
        {layout->offload_optimizer < 100, PL_KEY_OFFLOAD_PARAMS,
         "offload_optimizer below 100: one switch does both"},
        {layout->cuda_graphs != PL_GRAPHS_NONE, PL_KEY_OFFLOAD_OPT, "cuda_graphs"},
    };

    pl_limit_offload(check, limit, ARRAY_LEN(limit));
}

/* torch.distributed.pipelining cannot split the backward pass of what torch.compile made, which
 * narrow precisions and asynchronous tensor parallelism need. */
static void torchtitan_v(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const char *schedule = pl_layout_key_find("schedule")->names[layout->schedule];

    if (layout->tp_overlap)
        pl_breaks(check, "tp_overlap",
                  "trainer torchtitan does not support tp_overlap 1 with schedule %s, which cannot "
                  "be compiled",
                  schedule);
    if (layout->precision >= PL_FP8)
        pl_breaks(check, "precision",
                  "trainer torchtitan does not support precision %s with schedule %s, which cannot "
                  "be compiled",
                  pl_precision_names[layout->precision], schedule);
}

void pl_torchtitan_limits(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const struct pl_workload *workload = check->problem->workload;
    int64_t tokens = (int64_t)layout->micro_batch * workload->seq;
    int parts = (layout->sp ? layout->tp : 1) * (layout->cp > 1 ? 2 * layout->cp : 1);

    if (model->tied && layout->pp > 1)
        pl_breaks(check, "tied", "trainer torchtitan does not support tied true with pp %d",
                  layout->pp);
    if (model->moe.experts && layout->precision >= PL_FP8)
        pl_breaks(check, "precision",
                  "trainer torchtitan does not support precision %s with experts",
                  pl_precision_names[layout->precision]);
    if (model->mtp && (layout->pp > 1 || layout->cp > 1))
        pl_breaks(check, layout->pp > 1 ? "pp" : "cp",
                  "trainer torchtitan does not support mtp %d with pp %d and cp %d: multi-token "
                  "prediction needs both to be 1",
                  model->mtp, layout->pp, layout->cp);
    if (model->attn_sinks && layout->cp > 1)
        pl_breaks(check, "cp",
                  "trainer torchtitan does not support cp %d with attn_sinks: its attention is "
                  "VarlenAttention",
                  layout->cp);
    if (layout->precision == PL_NVFP4)
        torchtitan_nvfp4(check);
    if (layout->pp > 1 && pl_schedule_is_v(layout->schedule))
        torchtitan_v(check);
    if (layout->cuda_graphs && (layout->pp > 1 || layout->ep > 1))
        pl_breaks(check, "cuda_graphs",
                  "trainer torchtitan does not support cuda_graphs iteration with pp %d and ep %d",
                  layout->pp, layout->ep);
    if (tokens % parts)
        pl_breaks(check, "tp",
                  "trainer torchtitan does not support %lld tokens a micro-batch with tp %d and cp "
                  "%d: not a multiple of %d",
                  (long long)tokens, layout->tp, layout->cp, parts);
    /* torch.distributed.pipelining since January 2026: of its schedules for one stage a rank, 1F1B
     * asks for as many micro-batches as stages, GPipe no longer. */
    if (layout->pp > 1 && layout->vp == 1 && layout->schedule != PL_GPIPE &&
        micro_batches(check) < layout->pp)
        pl_breaks(check, "micro_batch",
                  "trainer torchtitan does not support %d micro-batches with pp %d: schedule 1f1b "
                  "needs at least one a stage, gpipe does not",
                  micro_batches(check), layout->pp);
    torchtitan_mesh(check);
    if (pl_offloads(layout))
        torchtitan_offload(check);
}
