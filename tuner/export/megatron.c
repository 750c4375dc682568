/*
 * Megatron-LM: command line arguments, and a launch script around them.
 *
 * Keys and rules: megatron/training/arguments.py and parallel_state.py of the version named below.
 * What differs from our words: the interleaved schedule is chosen by layers per virtual stage (or a
 * whole pipeline layout where stages are uneven), there is no schedule flag, and expert tensor
 * parallelism defaults to tp, so it is always written.
 */
#include "tuner/export/grads.h"
#include "tuner/export/offload.h"
#include "tuner/export/switches.h"

#define MEGATRON_VERSION "Megatron-LM of August 2026 (d98e8a64)"

bool tn_megatron_even(const struct tn_export_in *in)
{
    return pl_stages_equal(in->layout, in->model->layers);
}

bool tn_megatron_counts(bool *ret_embedding, bool *ret_loss, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    bool both = l->stages == PL_STAGES_BALANCED;

    *ret_embedding = both || l->stages == PL_STAGES_BALANCED_EMBEDDING;
    *ret_loss = both || l->stages == PL_STAGES_BALANCED_LOSS;
    if ((*ret_embedding || *ret_loss) &&
        (in->model->layers + *ret_embedding + *ret_loss) % (l->pp * l->vp) == 0)
        return true;
    *ret_embedding = *ret_loss = false;
    return false;
}

/* Flags that Megatron takes only in company; without it they are left out and named as lost
 * (pl_megatron_limits in plan/supports_megatron.c). */
bool tn_megatron_gathers(const struct pl_layout *layout)
{
    return layout->overlap_param_gather && layout->overlap_grad_reduce && layout->zero > 0;
}

bool tn_megatron_overlaps_experts(const struct pl_layout *layout)
{
    return layout->overlap_moe_a2a && layout->ep > 1 && (layout->pp == 1 || layout->vp > 1) &&
           layout->recompute != PL_RECOMPUTE_FULL && layout->precision != PL_FP32 &&
           layout->moe_dispatch != PL_DISPATCH_ALLGATHER;
}

bool tn_megatron_overlaps_p2p(const struct pl_layout *layout)
{
    return layout->vp > 1 && (layout->overlap_p2p || layout->pp == 2);
}

/* Under a pipeline there is the distributed optimizer only: a gap of zero 2 and 3. */
bool tn_megatron_fsdp(const struct pl_layout *layout)
{
    return layout->zero >= 2 && layout->pp == 1;
}

/* Keys whose limits Megatron raises itself, such as experts with biases and etp > 1: such a file
 * would not start. */
const char *const *tn_megatron_raises(const struct pl_model *model)
{
    static const char *const keys[] = {"etp", NULL};
    static const char *const variant[] = {"etp", "cp", "cp_comm", "sp", "precision", NULL};

    return model->dsa.index_topk || model->linear.num_value_heads ? variant : keys;
}

static void megatron_gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    tn_gap_trainer(findings, in, "megatron", tn_megatron_raises(in->model));
}

void tn_megatron_rules(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    const struct pl_model *m = in->model;

    if (m->heads % l->tp)
        tn_finding_add(findings, "tp", "%d heads are not a multiple of tp %d", m->heads, l->tp);
    if (m->kv_heads % l->tp && l->tp % m->kv_heads)
        tn_finding_add(findings, "tp", "%d query groups and tp %d do not divide each other",
                       m->kv_heads, l->tp);
    if (l->world % (l->tp * l->pp * l->cp))
        tn_finding_add(findings, "world", "world %d is not a multiple of tp x pp x cp", l->world);
    if (l->world % (l->etp * l->ep * l->pp))
        tn_finding_add(findings, "ep", "world %d is not a multiple of etp x ep x pp", l->world);
    if (in->workload->global_batch % (l->micro_batch * l->dp))
        tn_finding_add(findings, "micro_batch",
                       "--global-batch-size %d is not a multiple of micro-batch x dp",
                       in->workload->global_batch);
    if (pl_model_is_moe(m) && l->tp > 1 && l->ep > 1 && !l->sp)
        tn_finding_add(findings, "sp", "experts with tp > 1 and ep > 1 need --sequence-parallel");
    if (l->vp > 1 && tn_microbatches(in) % l->pp)
        tn_finding_add(findings, "micro_batch",
                       "interleaving needs microbatches (%d) in multiples of pp %d",
                       tn_microbatches(in), l->pp);
    tn_rule_trainer(findings, in, "megatron", tn_megatron_raises(m));
}

const char *tn_megatron_recompute_method(const struct pl_layout *layout)
{
    return pl_layout_keys[PL_KEY_RE_METHOD].names[layout->recompute_method];
}

const char *tn_megatron_cp_comm(const struct pl_layout *layout)
{
    static const char *const names[] = {"p2p", "all_gather", "a2a", "a2a+p2p"};

    return names[layout->cp_comm];
}

int tn_cp_inner(const struct tn_export_in *in)
{
    return pl_cp_inner(in->layout, in->model, in->cluster);
}

static void flag(struct str *out, const char *name)
{
    str_addf(out, "%s\n", name);
}

static void number(struct str *out, const char *name, int value)
{
    str_addf(out, "%s %d\n", name, value);
}

/* "Ett|tt|tt|tmL": one field for each stage of each chunk, chunk by chunk, as the layers really
 * lie; prediction of further tokens with the loss. */
static void pipeline_layout(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    str_add(out, "--pipeline-model-parallel-layout E");
    for (int run = 0; run < l->pp * l->vp; run++) {
        int first, n = pl_run_layers(&first, l, in->model->layers, run);

        if (run)
            str_addc(out, '|');
        for (int i = 0; i < n; i++)
            str_addc(out, 't');
    }
    for (int i = 0; i < in->model->mtp; i++)
        str_addc(out, 'm');
    str_add(out, "L\n");
}

static void write_stages(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    bool embedding, loss;

    if (tn_megatron_counts(&embedding, &loss, in)) {
        if (embedding)
            flag(out, "--account-for-embedding-in-pipeline-split");
        if (loss)
            flag(out, "--account-for-loss-in-pipeline-split");
        if (l->vp > 1)
            number(out, "--num-virtual-stages-per-pipeline-rank", l->vp);
    } else if (l->pp > 1 && !tn_megatron_even(in)) {
        pipeline_layout(out, in);
    } else if (l->vp > 1) {
        number(out, "--num-layers-per-virtual-pipeline-stage", in->model->layers / (l->pp * l->vp));
    }
}

static void write_parallel(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    number(out, "--tensor-model-parallel-size", l->tp);
    number(out, "--pipeline-model-parallel-size", l->pp);
    write_stages(out, in);
    number(out, "--context-parallel-size", l->cp);
    if (l->cp_comm != PL_CP_P2P)
        str_addf(out, "--cp-comm-type %s\n", tn_megatron_cp_comm(l));
    if (l->cp_comm == PL_CP_A2A_P2P)
        str_addf(out, "--hierarchical-context-parallel-sizes %d %d\n", tn_cp_inner(in),
                 l->cp / tn_cp_inner(in));
    if (pl_model_is_moe(in->model))
        number(out, "--expert-model-parallel-size", l->ep);
    if (pl_model_is_moe(in->model))
        number(out, "--expert-tensor-parallel-size", l->etp);
    tn_megatron_switches(out, l);
    if (l->vp > 1 && !tn_megatron_overlaps_p2p(l))
        flag(out, "--no-overlap-p2p-communication");
    if (tn_megatron_overlaps_experts(l))
        flag(out, "--overlap-moe-expert-parallel-comm");
}

static void write_modules(struct str *out, const struct pl_layout *layout)
{
    str_add(out, "--recompute-granularity selective\n--recompute-modules ");
    tn_megatron_modules(out, layout, " ", "");
    str_addc(out, '\n');
}

/* What products read, and whether weights are kept so. */
static void write_narrow(struct str *out, const struct pl_layout *layout)
{
    static const char *const flags[PL_PRECISIONS] = {
        [PL_FP8] = "--fp8-format hybrid\n", /* its default recipe is the delayed one */
        [PL_FP8_CURRENT] = "--fp8-format hybrid\n--fp8-recipe tensorwise\n",
        [PL_FP8_BLOCKWISE] = "--fp8-format hybrid\n--fp8-recipe blockwise\n",
        [PL_MXFP8] = "--fp8-format e4m3\n--fp8-recipe mxfp8\n",
        [PL_NVFP4] = "--fp4-format e2m1\n--fp4-recipe nvfp4\n",
    };

    if (layout->precision < PL_FP8)
        return;
    str_add(out, flags[layout->precision]);
    if (layout->fp8_param_gather)
        flag(out, layout->precision == PL_NVFP4 ? "--fp4-param-gather" : "--fp8-param-gather");
    if (layout->fp8_param_gather && layout->precision == PL_MXFP8 && layout->zero < 2)
        flag(out, "--reuse-grad-buf-for-mxfp8-param-ag");
}

static void write_graphs(struct str *out, const struct tn_export_in *in)
{
    int graphs = tn_megatron_graphed(in);

    if (graphs == PL_GRAPHS_ITERATION)
        str_add(out, "--cuda-graph-impl full_iteration\n--no-check-for-nan-in-loss-and-grad\n");
    if (graphs != PL_GRAPHS_MODULES)
        return;
    str_add(out, "--cuda-graph-impl transformer_engine\n--cuda-graph-modules ");
    tn_megatron_graphs(out, in, " ", "");
    str_addc(out, '\n');
}

static void write_batch_and_memory(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    number(out, "--micro-batch-size", l->micro_batch);
    number(out, "--global-batch-size", in->workload->global_batch);
    number(out, "--seq-length", in->workload->seq);
    if ((l->zero && !tn_megatron_fsdp(l)) || tn_megatron_offloads_optimizer(in))
        flag(out, "--use-distributed-optimizer");
    if (tn_megatron_fsdp(l)) /* its optimizer is the distributed one, which is not implied */
        str_addf(out,
                 "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n"
                 "--use-distributed-optimizer\n--no-gradient-accumulation-fusion\n"
                 "--init-model-with-meta-device\n--ckpt-format fsdp_dtensor\n",
                 l->zero == 2 ? "optim_grads" : "optim_grads_params");
    if (l->shard)
        number(out, "--num-distributed-optimizer-instances", pl_shard_copies(l));
    if (tn_megatron_gathers(l))
        flag(out, "--overlap-param-gather");
    if (l->recompute == PL_RECOMPUTE_FULL)
        str_addf(out,
                 "--recompute-granularity full\n--recompute-method %s\n"
                 "--recompute-num-layers %d\n",
                 tn_megatron_recompute_method(l), l->recompute_num_layers);
    if (l->recompute == PL_RECOMPUTE_SELECTIVE)
        write_modules(out, l);
    if (l->precision != PL_FP32)
        flag(out, "--bf16");
    tn_megatron_grads(out, l, tn_megatron_fsdp(l));
    write_narrow(out, l);
    write_graphs(out, in);
    tn_megatron_offload(out, in);
}

/* Its seq_aux_loss is ours of a sequence, its aux_loss is the one named after it and the nearest to
 * Hugging Face's, which it lacks; both are divided by top_k and added over the layers. */
const char *tn_megatron_aux_loss(const struct pl_model *model)
{
    return model->moe.aux_loss == PL_AUX_SEQUENCE ? "seq_aux_loss" : "aux_loss";
}

/* Both kernels of the flex dispatcher take probabilities in fp32. */
static void write_dispatch(struct str *out, const struct pl_layout *layout)
{
    const char *backend, *type = tn_megatron_dispatcher(&backend, layout);

    str_addf(out, "--moe-token-dispatcher-type %s\n", type);
    if (backend)
        str_addf(out, "--moe-flex-dispatcher-backend %s\n--moe-router-dtype fp32\n", backend);
}

static void write_moe(struct str *out, const struct pl_model *model, const struct pl_layout *layout)
{
    number(out, "--num-experts", model->moe.experts);
    number(out, "--moe-router-topk", model->moe.top_k);
    number(out, "--moe-ffn-hidden-size", model->moe.expert_ffn);
    str_addf(out, "--moe-router-load-balancing-type %s\n--moe-aux-loss-coeff %.10g\n",
             tn_megatron_aux_loss(model), pl_aux_loss_coef(model, PL_AUX_MEGATRON));
    if (model->moe.z_loss_coef > 0)
        str_addf(out, "--moe-z-loss-coeff %.10g\n", model->moe.z_loss_coef);
    write_dispatch(out, layout);
    if (layout->precision != PL_FP32) /* its kernels know no fp32 */
        flag(out, "--moe-grouped-gemm");
    if (model->moe.capacity_factor > 0)
        str_addf(out, "--moe-expert-capacity-factor %.10g\n", model->moe.capacity_factor);
    if (model->moe.shared_ffn)
        number(out, "--moe-shared-expert-intermediate-size", model->moe.shared_ffn);
    if (model->moe.every > 1 || model->moe.dense_layers) {
        str_add(out, "--moe-layer-freq [");
        for (int i = 0; i < model->layers; i++)
            str_addf(out, "%s%d", i ? "," : "", pl_layer_is_moe(model, i));
        str_add(out, "]\n");
    }
}

static void write_model(struct str *out, const struct tn_export_in *in)
{
    const struct pl_model *m = in->model;
    int seq = in->workload->seq;

    number(out, "--num-layers", m->layers);
    number(out, "--hidden-size", m->hidden);
    number(out, "--ffn-hidden-size", m->ffn);
    number(out, "--num-attention-heads", m->heads);
    number(out, "--kv-channels", m->head_dim);
    if (m->kv_heads != m->heads)
        str_addf(out, "--group-query-attention\n--num-query-groups %d\n", m->kv_heads);
    /* Learned positions are weights: as many as the model has, however short the sequences are. */
    number(out, "--max-position-embeddings", seq > m->seq ? seq : m->seq);
    if (m->mlp == PL_SWIGLU)
        flag(out, "--swiglu");
    str_addf(out, "--normalization %s\n", m->norm == PL_RMSNORM ? "RMSNorm" : "LayerNorm");
    str_addf(out, "--norm-epsilon %.10g\n", m->norm_eps);
    if (m->positions == PL_ROPE)
        str_addf(out, "--position-embedding-type %s\n--rotary-base %.0f\n",
                 m->rope_scaling.kind == PL_ROPE_YARN && !pl_model_is_mla(m) ? "yarn" : "rope",
                 m->rope_theta);
    else
        str_addf(out, "--position-embedding-type %s\n",
                 m->positions == PL_LEARNED ? "learned_absolute" : "none");
    tn_megatron_model(out, m);
    if (!m->tied)
        flag(out, "--untie-embeddings-and-output-weights");
    /* Megatron's default is 0.1 for both; our models have none, and masks cost time and memory. */
    str_add(out, "--attention-dropout 0\n--hidden-dropout 0\n");
    str_addf(out, "--init-method-std %.10g\n", m->init_std);
    number(out, "--make-vocab-size-divisible-by", 1);
    if (pl_model_is_moe(m))
        write_moe(out, m, in->layout);
}

bool tn_megatron_one_connection(const struct tn_export_in *in)
{
    return (in->layout->tp > 1 || in->layout->cp > 1) && !tn_megatron_fsdp(in->layout);
}

static void write_arguments(struct str *out, const struct tn_export_in *in)
{
    write_parallel(out, in);
    write_batch_and_memory(out, in);
    write_model(out, in);
}

static void write_args(struct str *out, const struct tn_export_in *in,
                       const struct tn_findings *lost)
{
    (void)lost;
    if (tn_megatron_one_connection(in))
        str_add(out, "# environment before Blackwell: CUDA_DEVICE_MAX_CONNECTIONS=1\n");
    write_arguments(out, in);
}

static void line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    if (tn_megatron_one_connection(in))
        str_add(out, "env CUDA_DEVICE_MAX_CONNECTIONS=1 ");
    tn_torchrun(out, in);
    str_addf(out, "\"${MEGATRON:?}/pretrain_gpt.py\" $(grep -v \"^#\" %s) ${DATA_ARGS:-}",
             at->file);
}

const struct tn_exporter tn_export_megatron = {
    .name = "megatron",
    .title = "Megatron-LM arguments, one a line",
    .version = MEGATRON_VERSION,
    .media_type = "text/plain; charset=utf-8",
    .extension = "txt",
    .comment = "#",
    .trainer = "megatron",
    .says_layers = true,
    .says_batch = true,
    .gaps = megatron_gaps,
    .rules = tn_megatron_rules,
    .write = write_args,
    .line = line,
};

static void write_script(struct str *out, const struct tn_export_in *in,
                         const struct tn_findings *lost)
{
    AUTO_STR args = {0};

    str_add(
        out,
        "#\n# Set MEGATRON to the folder of Megatron-LM, DATA_ARGS to your data, and on several "
        "nodes NODE_RANK and\n"
        "# MASTER_ADDR. Arguments after the script's name are appended: --train-iters, "
        "--lr-decay-iters, --lr, --save "
        "and the like.\nset -euo pipefail\n\n");
    (void)lost;
    if (tn_megatron_one_connection(in))
        str_add(out, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n");
    str_add(out, ": \"${MEGATRON:?set it to the folder of Megatron-LM}\"\n");
    str_addf(out,
             ": \"${DATA_ARGS:=--mock-data --tokenizer-type NullTokenizer --vocab-size %d}\"\n\n",
             in->model->vocab);
    write_arguments(&args, in);
    str_add(out, "args=(\n");
    for (char *line = args.text, *end; line && *line; line = end) {
        int name = (int)strcspn(line, " \n");

        end = strchr(line, '\n');
        /* Quoted: bars and brackets of a pipeline layout or a layer list mean something to a shell.
         */
        bool several =
            str_starts(line, "--recompute-modules") || str_starts(line, "--cuda-graph-modules");

        if (line[name] == ' ' && !several)
            str_addf(out, "    %.*s '%.*s'\n", name, line, (int)(end - line) - name - 1,
                     line + name + 1);
        else
            str_addf(out, "    %.*s\n", several ? (int)(end - line) : name, line);
        end++;
    }
    str_add(out, ")\n\n");
    str_addf(out,
             "# shellcheck disable=SC2086\n"
             "exec torchrun --nproc-per-node %d --nnodes %d --node-rank \"${NODE_RANK:-0}\" \\\n"
             "    --master-addr \"${MASTER_ADDR:-127.0.0.1}\" --master-port "
             "\"${MASTER_PORT:-29500}\" \\\n"
             "    \"$MEGATRON/pretrain_gpt.py\" \"${args[@]}\" $DATA_ARGS \"$@\"\n",
             tn_ranks_per_node(in), tn_nodes(in));
}

static void script_line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    (void)in;
    str_addf(out, "bash %s", at->file);
}

const struct tn_exporter tn_export_megatron_script = {
    .name = "megatron-script",
    .title = "Megatron-LM launch script",
    .version = MEGATRON_VERSION,
    .media_type = "text/x-shellscript; charset=utf-8",
    .extension = "sh",
    .comment = "#",
    .even_nodes = true,
    .trainer = "megatron",
    .says_layers = true,
    .says_batch = true,
    .gaps = megatron_gaps,
    .rules = tn_megatron_rules,
    .write = write_script,
    .line = script_line,
};
