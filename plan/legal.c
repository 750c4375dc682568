/*
 * The legality engine. One function for each rule; a rule reports only when it is broken, with the
 * numbers. Rules that divide by dp report nothing where dp could not be derived: world-dense has
 * said why.
 */
#include "plan/legal.h"
#include "plan/offload.h"
#include "plan/parts.h"
#include "plan/precision.h"
#include "plan/space_walk.h"

#include <assert.h>
#include <string.h>

#include "base/base.h"

static void world_dense(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->world % ((int64_t)layout->tp * layout->cp * layout->pp))
        pl_breaks(check, "world", "world %d is not a multiple of tp %d x cp %d x pp %d",
                  layout->world, layout->tp, layout->cp, layout->pp);
}

static void world_expert(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->etp != 1 && layout->etp != layout->tp)
        pl_breaks(check, "etp", "etp %d is neither 1 nor tp %d", layout->etp, layout->tp);
    if (layout->world % ((int64_t)layout->etp * layout->ep * layout->pp))
        pl_breaks(check, "ep", "world %d is not a multiple of etp %d x ep %d x pp %d",
                  layout->world, layout->etp, layout->ep, layout->pp);
}

static void world_fits(struct pl_check *check)
{
    const struct pl_cluster *cluster = check->problem->cluster;
    const struct pl_layout *layout = check->layout;

    if (layout->world > pl_cluster_devices(cluster) && !cluster->oversubscribe)
        pl_breaks(check, "world", "world %d is more than nodes %d x devices_per_node %d",
                  layout->world, cluster->nodes, cluster->devices_per_node);
}

static void heads_tp(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;

    if (model->heads % layout->tp)
        pl_breaks(check, "tp", "heads %d is not a multiple of tp %d", model->heads, layout->tp);
    if (model->linear.num_value_heads && model->linear.num_key_heads % layout->tp)
        pl_breaks(check, "tp", "linear_attention.num_key_heads %d is not a multiple of tp %d",
                  model->linear.num_key_heads, layout->tp);
    if (model->mamba.heads && model->mamba.groups % layout->tp)
        pl_breaks(check, "tp", "mamba.groups %d is not a multiple of tp %d", model->mamba.groups,
                  layout->tp);
}

static void kv_heads_tp(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;

    if (model->kv_heads % layout->tp)
        pl_breaks(check, "tp", "kv_heads %d is not a multiple of tp %d", model->kv_heads,
                  layout->tp);
}

static void ffn_tp(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    bool dense = model->pattern[0]
                     ? strchr(model->pattern, '-') != NULL
                     : !model->moe.experts || model->moe.every > 1 || model->moe.dense_layers > 0;

    if (dense && model->ffn % layout->tp)
        pl_breaks(check, "tp", "ffn %d is not a multiple of tp %d", model->ffn, layout->tp);
    if (model->moe.experts && model->moe.shared_ffn % layout->tp)
        pl_breaks(check, "tp", "shared_ffn %d is not a multiple of tp %d", model->moe.shared_ffn,
                  layout->tp);
    if (model->moe.experts && model->moe.expert_ffn % layout->etp)
        pl_breaks(check, "etp", "expert_ffn %d is not a multiple of etp %d", model->moe.expert_ffn,
                  layout->etp);
}

static void experts_ep(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;

    if (model->moe.experts && model->moe.experts % layout->ep)
        pl_breaks(check, "ep", "experts %d is not a multiple of ep %d", model->moe.experts,
                  layout->ep);
}

static void layers_pp_vp(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    int64_t runs = (int64_t)layout->pp * layout->vp;

    if (layout->stages != PL_STAGES_EVEN)
        return; /* stages-fit */
    if (model->layers < runs)
        pl_breaks(check, "pp", "layers %d is less than pp %d x vp %d", model->layers, layout->pp,
                  layout->vp);
    else if (model->layers % runs && !check->problem->trainer->uneven_layers &&
             !check->problem->cluster->parts)
        pl_breaks(check, "pp", "layers %d is not a multiple of pp %d x vp %d", model->layers,
                  layout->pp, layout->vp);
}

/* A virtual stage between the ends without a layer would only pass on what it gets. */
static void no_empty_stage(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int layers = check->problem->model->layers;
    int64_t runs = (int64_t)layout->pp * layout->vp;

    for (int run = 0; run < runs; run++) {
        int n = pl_run_layers(NULL, layout, layers, run);

        if (n > 0 || (n == 0 && (run == 0 || run == runs - 1)))
            continue;
        pl_breaks(check, "stages", "stages %s leaves virtual stage %d of %lld without a layer",
                  pl_stages_text(layout->stages), run, (long long)runs);
        return;
    }
}

static void stages_fit(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int layers = check->problem->model->layers, listed, sum;
    int64_t runs = (int64_t)layout->pp * layout->vp;

    if (layout->stages == PL_STAGES_EVEN)
        return;
    listed = pl_stages_total(&sum, layout->stages);
    if (listed && listed != runs)
        pl_breaks(check, "stages", "stages lists %d virtual stages, not pp %d x vp %d", listed,
                  layout->pp, layout->vp);
    else if (listed && sum != layers)
        pl_breaks(check, "stages", "stages lists %d layers, the model has %d", sum, layers);
    else if (layers + 2 < runs)
        pl_breaks(check, "stages", "stages %s: layers %d are too few for pp %d x vp %d",
                  pl_stages_text(layout->stages), layers, layout->pp, layout->vp);
    else
        no_empty_stage(check);
}

static void batch_known(struct pl_check *check)
{
    const struct pl_workload *workload = check->problem->workload;
    int batch = check->layout->global_batch;
    char text[160];

    if (!pl_batch_known(workload, batch))
        pl_breaks(check, "global_batch", "global_batch %d is not %s %s", batch,
                  workload->nbatches ? "one of" : "the workload's",
                  pl_batches_text(text, workload));
}

static void batch_divides(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int batch = pl_batch(check->problem->workload, layout);

    if (layout->dp && batch % ((int64_t)layout->micro_batch * layout->dp))
        pl_breaks(check, "micro_batch",
                  "global_batch %d is not a multiple of micro_batch %d x dp %d", batch,
                  layout->micro_batch, layout->dp);
}

static void interleave_microbatches(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int batch = pl_batch(check->problem->workload, layout);
    int64_t share = (int64_t)layout->micro_batch * layout->dp;

    if (layout->schedule != PL_INTERLEAVED || layout->vp == 1 || !share || batch % share)
        return;
    if (batch / share % layout->pp)
        pl_breaks(
            check, "vp",
            "%lld micro-batches (global_batch %d / (micro_batch %d x dp %d)) are not a multiple "
            "of pp %d",
            (long long)(batch / share), batch, layout->micro_batch, layout->dp, layout->pp);
}

static void vp_needs_pp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->vp > 1 && layout->pp == 1)
        pl_breaks(check, "vp", "vp %d needs pp > 1, pp is 1", layout->vp);
}

static void schedule_vp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    bool interleaved = layout->schedule == PL_INTERLEAVED, v = pl_schedule_is_v(layout->schedule);

    if (layout->pp > 1 && v && layout->vp != 2)
        pl_breaks(check, "schedule", "schedule %s needs vp 2, vp is %d",
                  pl_layout_key_find("schedule")->names[layout->schedule], layout->vp);
    if (layout->pp > 1 && layout->vp > 1 && !interleaved && !v)
        pl_breaks(check, "schedule", "vp %d needs schedule interleaved, not %s", layout->vp,
                  pl_layout_key_find("schedule")->names[layout->schedule]);
    if (layout->pp > 1 && layout->vp == 1 && interleaved)
        pl_breaks(check, "schedule", "schedule interleaved needs vp > 1, vp is 1");
}

static void dualpipe_microbatches(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int batch = pl_batch(check->problem->workload, layout);
    int64_t share = (int64_t)layout->micro_batch * layout->dp;
    bool both = layout->schedule == PL_DUALPIPE;

    if (!(both || layout->schedule == PL_DUALPIPE_V) || layout->pp == 1 || !share || batch % share)
        return;
    if (batch / share < 2LL * layout->pp || (both && batch / share % 2))
        pl_breaks(
            check, "schedule",
            "schedule %s needs %s2 x pp %d micro-batches, global_batch %d / (micro_batch %d x "
            "dp %d) are %lld",
            pl_layout_key_find("schedule")->names[layout->schedule],
            both ? "an even number, at least " : "", layout->pp, batch, layout->micro_batch,
            layout->dp, (long long)(batch / share));
}

static void dualpipe_pp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->schedule == PL_DUALPIPE && layout->pp > 1 && layout->pp % 2)
        pl_breaks(check, "pp",
                  "schedule dualpipe needs an even pp, whose two halves hold the same stages in "
                  "opposite order, pp is %d",
                  layout->pp);
}

static void sp_needs_tp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->sp && layout->tp == 1)
        pl_breaks(check, "sp", "sp 1 needs tp > 1, tp is 1");
}

/* Both user buffers and asynchronous tensor parallelism are of gathers and scatters: an all-reduce
 * has no pieces that a product could wait for one by one. */
static void tp_overlap_needs_sp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->tp_overlap && layout->tp > 1 && !layout->sp)
        pl_breaks(check, "tp_overlap", "tp_overlap 1 needs sp 1, sp is 0");
}

/* Not of a trainer without sequence parallelism, whose experts do without. */
static void moe_tp_needs_sp(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const struct pl_trainer *trainer = check->problem->trainer;

    if (pl_trainer_takes(trainer, PL_KEY_SP, 1) && model->moe.experts && layout->tp > 1 &&
        !layout->sp)
        pl_breaks(check, "sp", "a model with experts and tp %d needs sp 1", layout->tp);
}

static void seq_sp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_workload *workload = check->problem->workload;

    if (layout->sp && workload->seq % ((int64_t)layout->cp * layout->tp))
        pl_breaks(check, "tp", "seq %d is not a multiple of cp %d x tp %d, as sp needs",
                  workload->seq, layout->cp, layout->tp);
}

static void seq_cp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_workload *workload = check->problem->workload;

    if (layout->cp > 1 && workload->seq % (2 * (int64_t)layout->cp))
        pl_breaks(check, "cp", "seq %d is not a multiple of 2 x cp %d", workload->seq, layout->cp);
}

/* Scales are of whole blocks of the dimensions of a product: its tokens, and its two widths. */
static void scale_blocks(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    int block = pl_scale_block(layout->precision);
    const struct {
        const char *name;
        int64_t size;
    } dims[] = {
        {"tokens per micro-batch",
         (int64_t)layout->micro_batch * check->problem->workload->seq / layout->cp},
        {"hidden", model->hidden},
        {"heads x head_dim / tp", (int64_t)model->heads * model->head_dim / layout->tp},
        {"ffn / tp", model->ffn / layout->tp},
        {"expert_ffn / etp", model->moe.expert_ffn / layout->etp},
        {"shared_ffn / tp", model->moe.shared_ffn / layout->tp},
    };

    for (size_t i = 0; block > 1 && i < ARRAY_LEN(dims); i++)
        if (dims[i].size % block)
            pl_breaks(check, "precision", "%s %lld is not a multiple of %d, as %s needs",
                      dims[i].name, (long long)dims[i].size, block,
                      pl_precision_names[layout->precision]);
}

/* A compiler may widen fp8 to bf16 where devices lack it, as XLA does; the known trainers refuse.
 */
static void fp8_device(struct pl_check *check)
{
    int precision = check->layout->precision;
    const struct pl_device *device = pl_device_without(check->problem->cluster, precision);

    if (device && pl_scale_block(precision) == 1 && check->problem->trainer->by != PL_BY_ALL)
        pl_breaks(check, "precision",
                  "precision %s needs devices that multiply in fp8: %s has no peak_tflops.fp8",
                  pl_precision_names[precision], device->name);
}

static void scale_device(struct pl_check *check)
{
    int precision = check->layout->precision;
    const struct pl_device *device = pl_device_without(check->problem->cluster, precision);

    if (device && pl_scale_block(precision) > 1)
        pl_breaks(check, "precision",
                  "precision %s needs devices that multiply blocks with their scales: %s has no "
                  "peak_tflops.fp4",
                  pl_precision_names[precision], device->name);
}

/* Who exchanges heads for sequence has whole heads afterwards, of keys and values, too. */
static void cp_comm_heads(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    int64_t parts = (int64_t)layout->tp * layout->cp;

    if (layout->cp_comm == PL_CP_A2A && (model->heads % parts || model->kv_heads % parts))
        pl_breaks(check, "cp_comm",
                  "cp_comm a2a needs heads %d and kv_heads %d that are multiples of tp %d x cp %d",
                  model->heads, model->kv_heads, layout->tp, layout->cp);
    if (layout->cp_comm == PL_CP_A2A_P2P && layout->cp > 1 &&
        pl_cp_inner(layout, model, check->problem->cluster) == 1)
        pl_breaks(check, "cp_comm",
                  "cp_comm a2a+p2p needs a proper divisor > 1 of cp %d that, times tp %d, fits in "
                  "a node and divides kv_heads %d",
                  layout->cp, layout->tp, model->kv_heads);
}

/* Something must be sharded: dense state over dp x cp ranks (less the expert replicas when plain),
 * expert state over edp. */
static void zero_needs_dp(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    int64_t dense = (int64_t)layout->dp * layout->cp;

    if (!layout->zero || !layout->dp || !layout->edp)
        return;
    if (layout->zero_scope == PL_SCOPE_PLAIN)
        dense /= pl_layout_expert_replicas(layout);
    if (dense <= 1 && !(model->moe.experts && layout->edp > 1))
        pl_breaks(check, "zero", "zero %d%s has only %lld rank to shard over (dp %d x cp %d)",
                  layout->zero, layout->zero_scope == PL_SCOPE_PLAIN ? " plain" : "",
                  (long long)dense, layout->dp, layout->cp);
}

/* Groups of SHARD ranks hold a copy each, of the dense state and, in as many groups, of the
 * experts'. */
static void shard_divides(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int64_t replicas = (int64_t)layout->dp * layout->cp;

    if (!layout->shard || !layout->zero || !layout->dp || !layout->edp)
        return;
    if (layout->shard == 1)
        pl_breaks(check, "shard", "shard 1 shards nothing: use zero 0");
    else if (replicas % layout->shard)
        pl_breaks(check, "shard", "dp %d x cp %d is not a multiple of shard %d", layout->dp,
                  layout->cp, layout->shard);
    else if (check->problem->model->moe.experts && layout->edp % (replicas / layout->shard))
        pl_breaks(check, "shard", "edp %d is not a multiple of the %lld copies of shard %d",
                  layout->edp, (long long)(replicas / layout->shard), layout->shard);
    if (layout->zero_scope == PL_SCOPE_PLAIN)
        pl_breaks(check, "shard", "shard %d needs zero_scope ep-aware", layout->shard);
}

static void threads_fit(struct pl_check *check)
{
    const struct pl_cluster *cluster = check->problem->cluster;
    const struct pl_layout *layout = check->layout;
    int ranks =
        layout->world < cluster->devices_per_node ? layout->world : cluster->devices_per_node;

    if (!cluster->oversubscribe && (int64_t)ranks * layout->threads > cluster->devices_per_node)
        pl_breaks(check, "threads", "%d ranks per node x threads %d is more than %d cores", ranks,
                  layout->threads, cluster->devices_per_node);
}

static void offload_needs_device(struct pl_check *check)
{
    static const enum pl_key keys[] = {PL_KEY_OFFLOAD_OPT, PL_KEY_OFFLOAD_PARAMS,
                                       PL_KEY_OFFLOAD_ACT};
    const struct pl_cluster *cluster = check->problem->cluster;

    if (!pl_offloads(check->layout) || !cluster->device.cpu)
        return;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct pl_layout_key *key = &pl_layout_keys[keys[i]];
        int value = pl_layout_get(check->layout, key);

        if (value)
            pl_breaks(check, key->name,
                      "%s %d needs devices with their own memory: those of cluster %s are CPU "
                      "cores",
                      key->name, value, cluster->name);
    }
}

static void offload_needs_zero(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (!pl_offloads(layout) || pl_alone(check->problem->model, layout))
        return;
    if (layout->offload_optimizer && !layout->zero)
        pl_breaks(check, "offload_optimizer",
                  "offload_optimizer %d needs zero >= 1 with dp %d x cp %d replicas, zero is 0",
                  layout->offload_optimizer, layout->dp, layout->cp);
    if (layout->offload_params && layout->zero < 2)
        pl_breaks(check, "offload_params",
                  "offload_params 1 needs zero >= 2 with dp %d x cp %d replicas, zero is %d",
                  layout->dp, layout->cp, layout->zero);
}

static void offload_layers(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int layers = check->problem->model->layers, most = 0;

    if (!layout->offload_activations)
        return;
    for (int stage = 0; stage < layout->pp; stage++) {
        int n = 0;

        for (int chunk = 0; chunk < layout->vp; chunk++)
            n += pl_stage_layers(NULL, layout, layers, stage, chunk);
        most = n > most ? n : most;
    }
    if (layout->offload_activations > most)
        pl_breaks(
            check, "offload_activations",
            "offload_activations %d is more than the %d layers of the fullest of pp %d stages",
            layout->offload_activations, most, layout->pp);
}

/* Asked last, and of layouts that break no other rule: the memory plan knows no others. */
static void offload_fits_host(struct pl_check *check)
{
    const struct pl_cluster *cluster = check->problem->cluster;
    const struct pl_layout *layout = check->layout;
    double gib = 1 << 30;
    struct pl_memory worst;
    const char *key = layout->offload_optimizer ? "offload_optimizer"
                      : layout->offload_params  ? "offload_params"
                                                : "offload_activations";
    int ranks;

    if (!pl_offloads(layout) || check->broken || cluster->host.memory_gib <= 0)
        return;
    ranks = layout->world < cluster->devices_per_node ? layout->world : cluster->devices_per_node;
    pl_memory_worst(&worst, check->problem, layout);
    if (worst.host * ranks > cluster->host.memory_gib * gib)
        pl_breaks(check, key,
                  "%d ranks per node offload %.0f GiB each: more than the node's %.0f GiB of host "
                  "memory",
                  ranks, worst.host / gib, cluster->host.memory_gib);
}

/* Stages of one part follow each other, and each part has as many as it can: what a plan divides
 * layers over (parts_cut.c). */
static void parts_stages(struct pl_check *check)
{
    const struct pl_parts *parts = check->problem->cluster->parts;
    const struct pl_layout *layout = check->layout;
    int ranks = layout->world / layout->pp, first, second;

    if (!parts || ranks < 1 || layout->world % layout->pp)
        return;
    first = pl_parts_stages(parts, 0, ranks);
    second = pl_parts_stages(parts, 1, ranks);
    if (first < 1 || second < 1 || first + second != layout->pp)
        pl_breaks(check, "pp",
                  "pp %d: of stages of tp x cp x dp = %d ranks part 1 (%d devices) holds %d and "
                  "part 2 (%d devices) %d",
                  layout->pp, ranks, pl_cluster_devices(&parts->at[0]), first,
                  pl_cluster_devices(&parts->at[1]), second);
}

static void parts_schedule(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_trainer *trainer = check->problem->trainer;

    if (!check->problem->cluster->parts)
        return;
    if (layout->vp > 1 || (layout->schedule != PL_1F1B && layout->schedule != PL_GPIPE))
        pl_breaks(check, "schedule",
                  "stages on different devices need schedule 1f1b or gpipe with vp 1, not %s with "
                  "vp %d",
                  pl_layout_key_find("schedule")->names[layout->schedule], layout->vp);
    if (!pl_trainer_takes(trainer, PL_KEY_STAGES, PL_STAGES_WORDS))
        pl_breaks(check, "stages",
                  "trainer %s does not support a list of stages, which different devices need",
                  trainer->name);
}

static void parts_options(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (!check->problem->cluster->parts)
        return;
    if (pl_offloads(layout))
        pl_breaks(check,
                  layout->offload_optimizer ? "offload_optimizer"
                  : layout->offload_params  ? "offload_params"
                                            : "offload_activations",
                  "a plan of stages on different devices does not support offloading");
    if (layout->recompute_method == PL_RECOMPUTE_BLOCK)
        pl_breaks(check, "recompute_method",
                  "a plan of stages on different devices does not support recompute_method block");
}

/* sp with tp = 1, and a schedule that contradicts vp, have rules of their own. */
static void canonical(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    struct pl_layout form = *check->layout;

    if (!layout->dp || !layout->edp)
        return;
    pl_layout_canonical(&form, model);
    form.dp = layout->dp;
    form.edp = layout->edp;
    if (pl_layout_equal(&form, layout))
        return;
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int got = pl_layout_get(layout, key), want = pl_layout_get(&form, key);
        char is[16], should[16];
        bool spoken = key->offset == offsetof(struct pl_layout, sp) ||
                      (key->offset == offsetof(struct pl_layout, schedule) && layout->pp > 1);

        if (got == want || spoken || key->part == PL_DERIVED)
            continue;
        pl_breaks(check, key->name, "%s %s is not canonical here: use %s", key->name,
                  pl_layout_value_text(is, key, got), pl_layout_value_text(should, key, want));
    }
}

static const struct {
    const char *name;
    void (*run)(struct pl_check *check);
    bool stem;
    const char *required;
} rules[] = {
#define RULE(name, run, stem, required) {name, run, stem, required},
#include "plan/rules.def"
};

const char *pl_rule_requires(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (str_eq(rules[i].name, name))
            return rules[i].required;
    return NULL;
}

const char *const *pl_rule_names(void)
{
    static const char *const names[] = {
#define RULE(name, ...) name,
#include "plan/rules.def"
        NULL,
    };

    return names;
}

/* A layout made in C may hold anything: no rule is asked to divide by zero. */
static bool in_range(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    check->rule = "canonical";
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int value = pl_layout_get(layout, key);

        if (key->part != PL_DERIVED && (value < key->min || value > key->max))
            pl_breaks(check, key->name, "%s %d is outside %d..%d", key->name, value, key->min,
                      key->max);
    }
    if (!check->broken && !pl_stages_known(layout->stages))
        pl_breaks(check, "stages", "invalid stages %d", layout->stages);
    return !check->broken;
}

bool pl_layout_check(struct pl_verdict *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout)
{
    struct pl_layout derived = *layout;
    struct pl_check k = {.problem = problem, .layout = &derived, .verdict = ret};

    assert(problem->model && problem->cluster && problem->workload && problem->trainer);
    if (ret)
        ret->count = 0;
    if (!in_range(&k))
        return false;
    pl_layout_derive(&derived);
    for (size_t i = 0; i < ARRAY_LEN(rules) && (ret || !k.broken); i++) {
        k.rule = rules[i].name;
        rules[i].run(&k);
    }
    return !k.broken;
}

bool pl_layout_check_part(const struct pl_problem *problem, const struct pl_layout *layout,
                          bool stem)
{
    struct pl_check k = {.problem = problem, .layout = layout, .model_known = true};

    for (size_t i = 0; i < ARRAY_LEN(rules) && !k.broken; i++)
        if (rules[i].stem == stem)
            rules[i].run(&k);
    if (stem && !k.broken)
        pl_trainer_trains(&k);
    return !k.broken;
}
