/*
 * The same losses in every layout.
 *
 * Steps of dense models and of ones with experts, on one rank and then on up to as many ranks as
 * there are: on all in a covering set of the legal layouts (cover.h: plain and drawn models in
 * pairs, others in values), on at most two (plain and drawn: four) in every legal way of sharding
 * (fp32), or with PT_LONG in all; ten of plain and drawn models and with PT_LONG, six of others.
 * Many layouts run inside one mpiexec: the ranks are cut into teams and each team takes the next
 * layout. Every loss, auxiliary loss, z-loss and loss of multi-token prediction must agree with one
 * rank within 1e-4 relative; the norm of the first gradient within 1e-5, later ones, which follow
 * steps of AdamW, within 1e-3. In bf16 all of these within MARGIN times what one rank shows when
 * its sums run in another order (and gradients in bf16 are rounded in another), or 1e-6, as far as
 * sums in fp32 differ, where that is less; with tp and cp also when the sums that they divide do.
 *
 * Where a rounding decides between two experts, the losses jump, and with balance_bias all later
 * ones: so tokens go to the experts that the run on one rank has chosen, and choices of a layout's
 * own are compared with those. In fp32 they may differ only as scores do that are changed by less
 * than the bound of the losses.
 *
 * Load-balancing losses that pool a micro-batch are another objective with another micro-batch:
 * such a model is compared with one rank that has the layout's own.
 *
 * Orders of fp32 summation differ by some 1e-7 to 1e-6 and ten steps of AdamW raise that little:
 * differences seen are below 2e-6. Leaving out the smallest sum there is, that of the norms'
 * gradients over the ranks of sequence parallelism, is seen as 1.6e-4 in the losses. In bf16,
 * rounding the partial sums of tensor parallelism before they are added is seen in every model.
 *
 * "parity async" compares each layout of the covering set, bit for bit, with itself on a backend
 * that runs nothing before kn_wait: every wait that the step, a pass without gradients or the
 * logits of one rank need is there. "parity apart" is the same on one with memory of its own, where
 * only messages go through the host: nothing else looks into it.
 *
 * "parity ramp" is the comparison with one rank where every second step has half the batch, in the
 * buffers of the whole one, and one step is skipped.
 */
#include "base/base.h"
#include "tests/mpi/allocations.h"
#include "tests/mpi/choices.h"
#include "tests/mpi/cover.h"
#include "tests/mpi/draw.h"
#include "tests/mpi/orders.h"
#include "tests/mpi/reorder.h"
#include "tests/unit/async_backend.h"
#include "trainer/balance.h"
#include "trainer/step.h"

#include <float.h>
#include <math.h>

enum { STEPS = CHOICES_STEPS, FEW_STEPS = 6, ASYNC_STEPS = 3, SKIPPED = 4 };

/* Bounds in bf16 over the largest of 24 draws or more, which is about two standard deviations: six
 * are so rare that three thousand comparisons, of two hundred models, should meet none. */
enum { MARGIN = 3 };
static const double FP32_BOUND = 1e-4;

enum { REPORTED = 5 }; /* see report() */

struct curve {
    double loss[STEPS], aux[STEPS], z[STEPS], moe_z[STEPS], mtp[STEPS], norm[STEPS];
    double uneven; /* load of the experts, largest over mean; 0: a dense model */
    /* of an asynchronous run: loss of a pass without gradients; on one rank a hash of the logits */
    double forward;
    uint64_t logits;
};

/* How far apart two curves are, relative: their losses, their norms. */
struct gap {
    double loss, norm;
};

static int world_rank, world_size, test_number, failures;
static int steps;          /* of the model that is run */
static double z_loss_coef; /* of the model that is run */
static bool async, own_memory, ramp;
static bool thorough; /* the long form, and drawn models */

static void die(const char *why)
{
    fprintf(stderr, "rank %d: %s\n", world_rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void parse(json_t **ret, const char *text)
{
    json_error_t je;

    *ret = json_loads(text, 0, &je);
    if (!*ret)
        die(je.text);
}

#define TINY "\"layers\":4,\"hidden\":32,\"heads\":4,\"kv_heads\":4,\"vocab\":61,\"seq\":16"
#define SIX "\"layers\":6,\"hidden\":24,\"heads\":6,\"kv_heads\":6,\"vocab\":61,\"seq\":12"

enum { PLAIN = 2 }; /* the first models: dense, and with experts */

/* Powers of two, and numbers that are none. Samples of "packed" models hold several documents;
 * "zloss" models have a z-loss of the output, too. */
static const struct {
    const char *text;
    int batch;
} models[] = {
    {"{\"name\":\"tiny\"," TINY ",\"ffn\":48}", 4},
    {"{\"name\":\"tinymoe\"," TINY ",\"ffn\":48,\"moe\":{\"experts\":4,\"top_k\":2,"
     "\"expert_ffn\":24,\"aux_loss_coef\":0.02}}",
     4},
    {"{\"name\":\"pooled\"," TINY ",\"ffn\":48,\"moe\":{\"experts\":4,\"top_k\":2,"
     "\"expert_ffn\":24,\"aux_loss\":\"huggingface\",\"aux_loss_coef\":0.2}}",
     4},
    {"{\"name\":\"shared\"," TINY ",\"ffn\":48,\"tied\":true,\"moe\":{\"experts\":4,\"top_k\":1,"
     "\"expert_ffn\":24,\"shared_ffn\":16,\"shared_gate\":true,\"every\":2,\"aux_loss\":"
     "\"megatron\"}}",
     4},
    {"{\"name\":\"dealt\"," TINY ",\"ffn\":48,\"moe\":{\"experts\":4,\"top_k\":2,"
     "\"expert_ffn\":24,\"force_balance\":true,\"topk_norm\":false}}",
     4},
    {"{\"name\":\"dealtgroups\"," TINY ",\"ffn\":48,\"moe\":{\"experts\":8,\"top_k\":3,"
     "\"expert_ffn\":24,\"force_balance\":true,\"n_group\":4,\"topk_group\":2}}",
     4},
    {"{\"name\":\"sigmoid\"," TINY ",\"ffn\":48,\"moe\":{\"experts\":8,\"top_k\":3,"
     "\"expert_ffn\":24,\"shared_ffn\":16,\"dense_layers\":1,\"router\":\"sigmoid\","
     "\"balance_bias\":true,\"scaling\":2.5,\"n_group\":4,\"topk_group\":2,"
     "\"aux_loss_coef\":0.001}}",
     4},
    {"{\"name\":\"deepseek\"," TINY ",\"ffn\":48,\"mla\":{\"q_lora_rank\":12,\"kv_lora_rank\":10,"
     "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":7},\"moe\":{\"experts\":8,"
     "\"top_k\":4,\"expert_ffn\":24,\"shared_ffn\":24,\"dense_layers\":1,\"router\":\"sigmoid\","
     "\"balance_bias\":true,\"scaling\":2.5,\"n_group\":4,\"topk_group\":2,"
     "\"aux_loss_coef\":0.001}}",
     4},
    {"{\"name\":\"gpt2\"," TINY ",\"ffn\":48,\"tied\":true,\"mlp\":\"gelu-tanh\","
     "\"norm\":\"layernorm\",\"positions\":\"learned\"}",
     4},
    {"{\"name\":\"neox\"," TINY ",\"ffn\":48,\"mlp\":\"gelu\",\"norm\":\"layernorm\","
     "\"parallel_block\":true,\"partial_rotary_factor\":0.25,\"qk_norm\":\"head\"}",
     4},
    {"{\"name\":\"windows\"," TINY ",\"ffn\":48,\"sliding_window\":5,\"global_every\":3,"
     "\"rope_theta_local\":100,\"attn_scale\":0.5}",
     4},
    {"{\"name\":\"gemma\"," TINY ",\"ffn\":48,\"tied\":true,\"mlp\":\"geglu\",\"post_norms\":true,"
     "\"zero_centered_norm\":true,\"embed_scale\":true,\"qk_norm\":\"head\",\"sliding_window\":5,"
     "\"global_every\":3,\"rope_theta_local\":100,\"attn_softcap\":2,\"logit_softcap\":3}",
     4},
    {"{\"name\":\"six\"," SIX ",\"ffn\":48,\"tied\":true,\"rope_scaling\":{\"kind\":\"yarn\","
     "\"factor\":4,\"original_seq\":8}}",
     6},
    {"{\"name\":\"sixmoe\"," SIX ",\"moe\":{\"experts\":6,\"top_k\":2,\"expert_ffn\":24}}", 6},
    {"{\"name\":\"packed\"," TINY ",\"ffn\":48,\"sliding_window\":9,\"global_every\":3,"
     "\"no_rope_freq\":2}",
     4},
    {"{\"name\":\"packedlatent\"," TINY ",\"ffn\":48,\"tied\":true,\"qkv_bias\":true,\"out_bias\":"
     "true,\"sliding_window\":9,\"global_every\":3,\"mla\":{\"kv_lora_rank\":10,"
     "\"qk_nope_head_dim\":3,\"qk_rope_head_dim\":6,\"v_head_dim\":12},\"rope_scaling\":{"
     "\"kind\":\"yarn\",\"factor\":4,\"original_seq\":8,\"mscale\":0.7,\"mscale_all_dim\":0.9}}",
     4},
    {"{\"name\":\"packedgpt2\"," TINY ",\"ffn\":48,\"tied\":true,\"mlp\":\"gelu-tanh\","
     "\"norm\":\"layernorm\",\"positions\":\"learned\"}",
     4},
    {"{\"name\":\"zloss\"," TINY ",\"ffn\":48,\"tied\":true,\"moe\":{\"experts\":4,\"top_k\":2,"
     "\"expert_ffn\":24,\"every\":2,\"z_loss_coef\":0.05}}",
     4},
    {"{\"name\":\"packedzloss\"," TINY ",\"ffn\":48,\"moe\":{\"experts\":8,\"top_k\":3,"
     "\"expert_ffn\":24,\"dense_layers\":1,\"router\":\"sigmoid\",\"balance_bias\":true,"
     "\"n_group\":4,\"topk_group\":2,\"aux_loss_coef\":0.001,\"z_loss_coef\":0.1}}",
     4},
    {"{\"name\":\"oss\"," TINY ",\"mlp\":\"swiglu-clamped\",\"qkv_bias\":true,\"out_bias\":true,"
     "\"mlp_bias\":true,\"attn_sinks\":true,\"sliding_window\":5,\"global_every\":2,\"moe\":{"
     "\"experts\":4,\"top_k\":2,\"expert_ffn\":24,\"router_bias\":true,\"aux_loss\":"
     "\"huggingface\",\"aux_loss_coef\":0.02}}",
     4},
    {"{\"name\":\"nemotron\"," TINY ",\"ffn\":48,\"mlp\":\"relu2\",\"norm\":\"layernorm\","
     "\"zero_centered_norm\":true,\"partial_rotary_factor\":0.5,\"qkv_bias\":false,"
     "\"out_bias\":false,\"mlp_bias\":false}",
     4},
    {"{\"name\":\"olmoe\"," TINY ",\"qk_norm\":\"full\",\"moe\":{\"experts\":4,\"top_k\":2,"
     "\"expert_ffn\":24,\"topk_norm\":false,\"aux_loss\":\"huggingface\",\"aux_loss_coef\":0.2}}",
     4},
    {"{\"name\":\"nowhere\"," TINY ",\"ffn\":48,\"mlp\":\"relu2\",\"positions\":\"none\","
     "\"qk_norm\":\"full\",\"qkv_bias\":true,\"mlp_bias\":true}",
     4},
    {"{\"name\":\"mtp\"," TINY ",\"ffn\":48,\"mtp\":2,\"mtp_loss_coef\":0.5}", 4},
    {"{\"name\":\"packedmtp\"," TINY ",\"ffn\":48,\"tied\":true,\"mtp\":1,\"mtp_loss_coef\":0.3,"
     "\"mla\":{\"q_lora_rank\":12,\"kv_lora_rank\":10,\"qk_nope_head_dim\":6,"
     "\"qk_rope_head_dim\":4,\"v_head_dim\":7},\"moe\":{\"experts\":8,\"top_k\":4,"
     "\"expert_ffn\":24,\"shared_ffn\":24,\"dense_layers\":1,\"router\":\"sigmoid\","
     "\"balance_bias\":true,\"scaling\":2.5,\"n_group\":4,\"topk_group\":2,"
     "\"aux_loss_coef\":0.001}}",
     4},
    {"{\"name\":\"olmo3\"," TINY ",\"ffn\":48,\"qk_norm\":\"full\",\"pre_norms\":false,"
     "\"post_norms\":true,\"sliding_window\":5,\"global_every\":3,\"rope_theta_local\":10000,"
     "\"rope_scaling\":{\"kind\":\"yarn\",\"factor\":4,\"original_seq\":8}}",
     4},
    {"{\"name\":\"cohere\"," TINY
     ",\"ffn\":48,\"tied\":true,\"norm\":\"layernorm\",\"norm_bias\":false,"
     "\"parallel_block\":true,\"shared_norm\":true,\"qkv_bias\":false,\"out_bias\":false,"
     "\"mlp_bias\":false,\"logit_scale\":0.25,\"sliding_window\":5,\"global_every\":2,\"no_rope_"
     "freq\":2}",
     4},
    {"{\"name\":\"granite\"," TINY ",\"ffn\":48,\"tied\":true,\"qkv_bias\":true,\"out_bias\":true,"
     "\"mlp_bias\":true,\"embedding_multiplier\":3,\"residual_multiplier\":0.22,"
     "\"attn_scale\":0.5,\"logit_scale\":0.25}",
     4},
    {"{\"name\":\"granitemoe\"," TINY ",\"embedding_multiplier\":3,\"residual_multiplier\":0.22,"
     "\"logit_scale\":0.5,\"moe\":{\"experts\":8,\"top_k\":3,\"expert_ffn\":24,\"shared_ffn\":16,"
     "\"aux_loss_coef\":0.01}}",
     4},
};

/* Model KIND of the table, or one drawn from a number beyond it, with what WORKLOAD makes of
 * documents and the output's z-loss; returns its global batch. */
static int model_of(struct pl_model *m, struct pl_workload *workload, double *ret_z_loss_coef,
                    int kind)
{
    int known = ARRAY_LEN(models), batch = kind < known ? models[kind].batch : 0;
    struct err e = {0};
    json_t *v;

    if (kind < known)
        parse(&v, models[kind].text);
    else
        v = draw_model(&batch, (uint64_t)(kind - known));
    if (pl_model_parse(m, v, &e) < 0)
        die(e.text);
    json_decref(v);
    if (kind >= known) {
        *ret_z_loss_coef = draw_z_loss((uint64_t)(kind - known));
        draw_documents(workload, m, (uint64_t)(kind - known));
        return batch;
    }
    *ret_z_loss_coef = strstr(m->name, "zloss") ? 0.05 : 0;
    workload->eod = m->vocab / 3;
    workload->reset_attention_mask = workload->reset_position_ids = workload->eod_mask_loss =
        strncmp(m->name, "packed", 6) == 0;
    return batch;
}

/* A fixed text with structure: token i of sample s. Where documents matter, every fifth token ends
 * one. */
static int32_t token(const struct pl_workload *w, uint64_t s, int i, int vocab)
{
    if ((pl_workload_has_documents(w) || w->eod_mask_loss) &&
        rng_mix(s * 977 + (uint64_t)i) % 5 == 0)
        return w->eod;
    return (int32_t)((rng_mix(s * 31 + (uint64_t)i / 3) + (uint64_t)i) % (uint64_t)vocab);
}

/* SHUFFLE rotates the samples of a global batch. */
static void put_samples(struct tr_rank *r, uint64_t first, uint64_t shuffle)
{
    uint64_t batch = (uint64_t)r->workload.global_batch;

    if (r->model.moe.force_balance) /* experts are dealt by a sample's number */
        shuffle = 0;
    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++) {
            uint64_t s = first + (tr_sample_index(r, mb, k) + shuffle) % batch;

            for (int i = 0; i <= r->workload.seq; i++)
                r->work.sample[i] = token(&r->workload, s, i, r->model.vocab);
            tr_sample_put(r, mb, k, r->work.sample);
        }
}

static void nothing_pending(const struct tr_rank *r, const char *what)
{
    if (kn_pool_backend(r->pool) == async_backend(own_memory) && async_pending(r->pool))
        die(what);
}

/* On each backend. */
static void phases_add_up(const struct tr_clock *clock, uint64_t begun_ns)
{
    uint64_t sum = 0;

    for (int i = 0; i < TR_PHASES; i++)
        sum += clock->ns[i];
    if (sum != clock->since_ns - begun_ns || clock->wait_ns > sum)
        die("phases do not add up to the step");
    if (!clock->ns[TR_PHASE_FORWARD] || !clock->ns[TR_PHASE_BACKWARD])
        die("a step without a forward or a backward pass");
}

static uint64_t hash_logits(struct tr_rank *r)
{
    uint64_t n = r->d.rows * r->d.vocab, h = 0;
    AUTO_FREE float *logits = mem_alloc(n * sizeof(*logits));

    for (int mb = 0; mb < r->d.microbatches; mb++) {
        tr_step_logits(logits, r, mb);
        nothing_pending(r, "logits are handed out before they are made");
        for (uint64_t i = 0; i < n; i++) {
            uint32_t bits;

            memcpy(&bits, &logits[i], sizeof(bits));
            h = rng_mix(h ^ bits);
        }
    }
    return h;
}

/* A pass without gradients, as validation has it, straight after a step. */
static void evaluate(struct curve *ret, struct tr_rank *r)
{
    struct tr_result t;

    put_samples(r, 1000, 0);
    tr_step_forward(&t, r);
    nothing_pending(r, "a pass ends before its work is done");
    ret->forward = t.loss;
    ret->logits = r->layout.world == 1 ? hash_logits(r) : 0;
}

/* Of step N; both halves of a batch that grows can be divided as it is. */
static int batch_of(const struct pl_workload *w, int n)
{
    return ramp && n % 2 ? w->global_batch / 2 : w->global_batch;
}

static void one_step(struct tr_result *ret, struct tr_rank *r, struct tr_optim *o, int n,
                     uint64_t shuffle)
{
    uint64_t begun_ns;

    tr_clock_reset(&r->clock);
    begun_ns = r->clock.since_ns;
    tr_step_grads(ret, r, 0);
    if (shuffle && r->params.grad_type == KN_BF16)
        ret->norm = reorder_roundings(&r->params, shuffle * STEPS + (uint64_t)n);
    if (ramp && n == SKIPPED) {
        tr_optim_skip(r);
        o->skipped++;
    } else {
        tr_optim_step(r, o, n, ret->norm);
    }
    tr_clock_end(&r->clock);
    phases_add_up(&r->clock, begun_ns);
}

/* SHUFFLE other than 0 changes the order of summation and nothing else. */
static void run(struct curve *ret, MPI_Comm comm, const struct pl_model *m,
                const struct pl_layout *l, const struct pl_workload *w, uint64_t shuffle,
                struct watch *watch)
{
    struct tr_optim o = {
        .schedule = {.lr = 3e-3, .min_lr = 1e-4, .warmup_steps = 3, .decay_steps = STEPS},
        .weight_decay = 0.1,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .clip = 1.0};
    struct tr_rank r;
    enum pl_mem_class cls;
    uint64_t first = 0;
    double asked;
    struct err e = {0};

    if (tr_rank_init(&cls, &asked, &r, comm, m, l, w, UINT64_MAX, die, &e) < 0)
        die(e.text);
    r.z_loss_coef = z_loss_coef;
    tr_params_init(&r.params, m, 7);
    if (shuffle)
        reorder_units(&r.params, m, shuffle);
    r.routed = choices_record;
    r.replay = choices_replay;
    r.routed_arg = watch;
    watch->shuffle = m->moe.force_balance ? 0 : shuffle;
    r.moe_counts = true;
    for (int n = 1; n <= steps; n++) {
        struct tr_result t;

        watch->step = n - 1;
        allocations_counted = true;
        tr_rank_batch(&r, batch_of(w, n));
        put_samples(&r, first, shuffle);
        first += (uint64_t)batch_of(w, n);
        one_step(&t, &r, &o, n, shuffle);
        allocations_counted = false;
        nothing_pending(&r, "a step ends before its work is done");
        ret->loss[n - 1] = t.loss;
        ret->aux[n - 1] = t.aux;
        ret->z[n - 1] = t.z;
        ret->moe_z[n - 1] = t.moe_z;
        ret->mtp[n - 1] = t.mtp;
        ret->norm[n - 1] = t.norm;
    }
    if (r.moe_layers) {
        double layers[CHOICES_LAYERS];

        ret->uneven = tr_balance_uneven(layers, &r);
    }
    if (async)
        evaluate(ret, &r);
    tr_rank_done(&r);
}

static double rel(double a, double b)
{
    return fabs(a - b) / fmax(fabs(b), 1e-12);
}

/* Largest relative difference of two curves; NaN counts as infinite. The norm of the first gradient
 * is compared ten times as closely: AdamW forgives a gradient of the wrong size, the norm before
 * the first step does not. */
static struct gap gap_of(const struct curve *a, const struct curve *b)
{
    struct gap g = {0};
    bool whole = true;

    for (int i = 0; i < steps; i++) {
        double loss = rel(a->loss[i], b->loss[i]), norm = rel(a->norm[i], b->norm[i]);

        if (b->aux[i] != 0)
            loss = fmax(loss, rel(a->aux[i], b->aux[i]));
        if (b->z[i] != 0)
            loss = fmax(loss, rel(a->z[i], b->z[i]));
        if (b->moe_z[i] != 0)
            loss = fmax(loss, rel(a->moe_z[i], b->moe_z[i]));
        if (b->mtp[i] != 0)
            loss = fmax(loss, rel(a->mtp[i], b->mtp[i]));
        whole = whole && loss < INFINITY && norm < INFINITY;
        g.loss = fmax(g.loss, loss);
        g.norm = fmax(g.norm, norm * (i == 0 ? 10 : 0.1));
    }
    /* If it is not replayed, a choice that falls another way by a rounding is one of hundreds. */
    if (!(rel(a->uneven, b->uneven) < (ramp ? 0.1 : 1e-9)) && b->uneven > 0)
        whole = false;
    if (async && (a->forward != b->forward || a->logits != b->logits))
        whole = false;
    if (!whole)
        g.norm = INFINITY;
    return g;
}

/* The difference of GAP that is larger in parts of its bound, and that bound. */
static void worst_of(double *ret_difference, double *ret_bound, const struct gap *gap,
                     const struct gap *bound)
{
    bool loss = gap->loss * bound->norm > gap->norm * bound->loss;

    *ret_difference = loss ? gap->loss : gap->norm;
    *ret_bound = loss ? bound->loss : bound->norm;
}

/* D is the difference of the curves and its bound, then how many of the choices of experts differ,
 * of how many, and how many of them are no ties. */
static void report(const struct pl_model *m, const struct pl_layout *l, const double d[REPORTED])
{
    char text[160];
    bool good = d[0] < d[1] && d[4] < 1;

    failures += !good;
    printf("%sok %d - %s %s world %d: largest difference %.2e of %.1e", good ? "" : "not ",
           ++test_number, m->name, pl_layout_text(text, l), l->world, d[0], d[1]);
    if (d[3] > 0)
        printf(", %.0f of %.0f choices of experts differ, %.0f by more than a tie", d[2], d[3],
               d[4]);
    printf("\n");
    fflush(stdout);
}

/* Types of weights and gradients. */
enum types { FP32, BF16, BF16_GRADS, TYPES };

static const char *const type_names[TYPES] = {"fp32", "bf16", "bf16, gradients too"};

static enum types types_of(const struct pl_layout *l)
{
    if (l->grad_dtype == PL_GRADS_BF16)
        return BF16_GRADS;
    return l->precision == PL_BF16 ? BF16 : FP32;
}

/* What one rank makes of the model in one of these, and how far others may be from it. */
struct reference {
    struct curve curve;
    struct choices choices;
    struct gap allowed, allowed_divided; /* with tp or cp > 1 */
};

struct job {
    struct pl_model m;
    struct pl_workload w;
    struct cover cover;
    struct reference ref[TYPES][2]; /* by types and micro-batch - 1, which is 1 or 2 */
};

static bool pools(const struct pl_model *m)
{
    return pl_model_is_moe(m) && m->moe.aux_loss != PL_AUX_SEQUENCE;
}

static const struct reference *reference_of(const struct job *j, const struct pl_layout *l)
{
    return &j->ref[types_of(l)][pools(&j->m) ? l->micro_batch - 1 : 0];
}

static const struct gap *allowed(const struct job *j, const struct pl_layout *l)
{
    const struct reference *ref = reference_of(j, l);

    return l->tp > 1 || l->cp > 1 ? &ref->allowed_divided : &ref->allowed;
}

/* D of report() for layout L against one rank; if ASYNC, on that backend against the host's. */
static void compare(double *d, struct job *j, MPI_Comm comm, const struct pl_layout *l)
{
    const struct reference *ref = reference_of(j, l);
    struct watch watch = {.want = &ref->choices,
                          .off = async || ramp,
                          .tie = types_of(l) == FP32 && !async ? FP32_BOUND : 0};
    struct curve got = {0}, host = {0};
    struct gap gap;
    int rank;

    j->w.precision = (enum pl_precision)l->precision;
    if (async) {
        run(&host, comm, &j->m, l, &j->w, 0, &watch);
        kn_backend_use(async_backend(own_memory));
    }
    run(&got, comm, &j->m, l, &j->w, 0, &watch);
    kn_backend_use(kn_backend_host());
    MPI_Comm_rank(comm, &rank);
    gap = gap_of(&got, async ? &host : &ref->curve);
    if (rank == 0) /* the same on every rank */
        worst_of(&d[0], &d[1], &gap, allowed(j, l));
    d[2] = watch.differ;
    d[3] = watch.all;
    d[4] = watch.wrong;
}

/* Layouts of one size: team i of the ranks takes the chosen ones i, i + teams, ... */
static void run_size(struct job *j, int size)
{
    struct tr_progress progress = {.yield = true};
    int teams = world_size / size, team = world_rank / size, n = j->cover.n, turn = 0;
    double *d = mem_alloc(sizeof(double) * REPORTED * (size_t)(n + 1));
    MPI_Request req;
    MPI_Comm comm;

    MPI_Comm_split(MPI_COMM_WORLD, team < teams ? team : MPI_UNDEFINED, world_rank, &comm);
    for (int i = 0; i < n; i++) {
        const struct pl_layout *l = &j->cover.l[i];

        if (j->cover.chosen[i] && l->world == size && turn++ % teams == team &&
            comm != MPI_COMM_NULL)
            compare(d + REPORTED * i, j, comm, l);
    }
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Iallreduce(MPI_IN_PLACE, d, REPORTED * n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &req);
    tr_wait(&progress, (struct tr_op){.name = TR_OP_GATHER}, &req, 1);
    for (int i = 0; world_rank == 0 && i < n; i++)
        if (j->cover.chosen[i] && j->cover.l[i].world == size)
            report(&j->m, &j->cover.l[i], d + REPORTED * i);
    free(d);
}

static struct gap larger(struct gap one, struct gap other)
{
    return (struct gap){fmax(one.loss, other.loss), fmax(one.norm, other.norm)};
}

/* What layouts in bf16 may differ by, of what orders of summation do. */
static struct gap bound_of(struct gap apart)
{
    return (struct gap){fmax(MARGIN * apart.loss, 1e-6), fmax(MARGIN * apart.norm, 1e-6)};
}

/*
 * How far apart runs of one rank are that differ in nothing but the order of summation: over
 * samples and micro-batches (gradients), and inside every product by the order of the units and by
 * the instruction set, whose block sizes differ. Sums in bf16 round wherever they are divided, over
 * micro-batches and over ranks, which one rank does not have: so its gradients get that difference.
 *
 * DIVIDED: also where tensor and context parallelism divide them (orders.h). In small models the
 * other orders change hardly any rounding to bf16, these do.
 */
static struct gap spread(const struct reference *ref, const struct pl_model *m,
                         const struct pl_layout *one, const struct pl_workload *w, bool divided)
{
    struct tr_progress progress = {.yield = true};
    enum kn_isa best = kn_isa();
    /* of two micro-batches and the machine's two best instruction sets, below which sums take
     * several times as long; in fp32 the bound does not depend on it */
    int sets = best == KN_REF ? 1 : 2;
    int runs = 6 * (thorough ? 8 : one->precision == PL_FP32 ? 1 : 4);
    struct gap most = {0};
    MPI_Request req;

    for (int i = world_rank; i < runs; i += world_size) {
        struct pl_layout l = *one;
        struct curve got;

        kn_isa_set((enum kn_isa)((int)best - i % sets));
        if (!pools(m))
            l.micro_batch = i / sets % 2 ? batch_of(w, 1) : 1;
        if (divided)
            kn_backend_use(orders_backend((uint64_t)i));
        /* whole micro-batches change places */
        run(&got, MPI_COMM_SELF, m, &l, w, (uint64_t)(i + 1) * (uint64_t)one->micro_batch,
            &(struct watch){.want = &ref->choices, .off = ramp});
        kn_backend_use(kn_backend_host());
        most = larger(gap_of(&got, &ref->curve), most);
    }
    kn_isa_set(best);
    MPI_Iallreduce(MPI_IN_PLACE, &most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &req);
    tr_wait(&progress, (struct tr_op){.name = TR_OP_GATHER}, &req, 1);
    return most;
}

/* Dealt choices: a token's are as many experts, of its topk_group groups, and each expert has its
 * share. Without groups a step deals one expert after the other, so none has two more than another;
 * with groups, that and a choice in its group. */
static void check_dealt(const struct job *j, const struct reference *ref)
{
    const struct pl_moe *moe = &j->m.moe;
    int each = moe->experts / moe->n_group, wrong = 0, last = j->w.seq - 1;
    int choices = j->w.global_batch * j->w.seq * moe->top_k, rest = choices % moe->experts;
    double most = choices / moe->experts + (rest > 0) + (rest && moe->n_group > 1);
    double allowed = most * moe->experts / choices;

    for (int s = 0; s < j->w.global_batch; s++)
        for (int t = 0; t <= last; t++) {
            const int32_t *idx = ref->choices.expert[0][j->m.layers - 1][s][t];
            unsigned experts = 0, groups = 0;

            for (int k = 0; k < moe->top_k; k++) {
                experts |= 1U << idx[k];
                groups |= 1U << idx[k] / each;
            }
            wrong += __builtin_popcount(experts) != moe->top_k;
            wrong += moe->n_group > 1 && __builtin_popcount(groups) != moe->topk_group;
        }
    wrong += !(ref->curve.uneven <= allowed + 1e-9);
    failures += wrong > 0;
    printf("%sok %d - %s: dealt to different experts, evenly: %d wrong, the largest load %.4f\n",
           wrong ? "not " : "", ++test_number, j->m.name, wrong, ref->curve.uneven);
}

static bool divides(const struct cover *cover)
{
    for (int i = 0; i < cover->n; i++)
        if (cover->chosen[i] && (cover->l[i].tp > 1 || cover->l[i].cp > 1))
            return true;
    return false;
}

static void reference(struct job *j, enum types types, int micro_batch)
{
    struct reference *ref = &j->ref[types][micro_batch - 1];
    struct tr_progress progress = {.yield = true};
    struct pl_layout one;
    MPI_Request req;
    struct gap apart;
    double difference, bound;

    j->w.precision = types == FP32 ? PL_FP32 : PL_BF16;
    pl_layout_replicas(&one, 1);
    one.precision = (int)j->w.precision;
    one.grad_dtype = types == BF16_GRADS ? PL_GRADS_BF16 : PL_GRADS_FP32;
    one.micro_batch = micro_batch;
    if (world_rank == 0)
        run(&ref->curve, MPI_COMM_SELF, &j->m, &one, &j->w, 0,
            &(struct watch){.out = &ref->choices, .off = ramp});
    MPI_Ibcast(ref, sizeof(*ref), MPI_BYTE, 0, MPI_COMM_WORLD, &req);
    tr_wait(&progress, (struct tr_op){.name = TR_OP_GATHER}, &req, 1);
    apart = spread(ref, &j->m, &one, &j->w, false);
    ref->allowed = ref->allowed_divided =
        types != FP32 ? bound_of(apart) : (struct gap){FP32_BOUND, FP32_BOUND};
    if (types != FP32 && divides(&j->cover)) {
        apart = larger(spread(ref, &j->m, &one, &j->w, true), apart);
        ref->allowed_divided = bound_of(apart);
    }
    worst_of(&difference, &bound, &apart, &ref->allowed);
    if (world_rank == 0 && types == FP32) {
        failures += !(difference < bound);
        printf("%sok %d - %s: units in another order are the same model%s: %.2e of %.1e\n",
               difference < bound ? "" : "not ", ++test_number, j->m.name,
               micro_batch == 2 ? ", micro-batch 2" : "", difference, bound);
    }
    if (world_rank == 0 && j->m.moe.force_balance && !ramp)
        check_dealt(j, ref);
    if (world_rank == 0)
        printf("# %s %s: loss %.6f -> %.6f, aux %.6f -> %.6f, z %.4f -> %.4f, of routers %.4f -> "
               "%.4f, mtp %.4f -> %.4f, norm %.4f -> %.4f\n",
               j->m.name, type_names[types], ref->curve.loss[0], ref->curve.loss[steps - 1],
               ref->curve.aux[0], ref->curve.aux[steps - 1], ref->curve.z[0],
               ref->curve.z[steps - 1], ref->curve.moe_z[0], ref->curve.moe_z[steps - 1],
               ref->curve.mtp[0], ref->curve.mtp[steps - 1], ref->curve.norm[0],
               ref->curve.norm[steps - 1]);
}

static void run_model(int kind, bool all)
{
    static struct job job; /* zeroed: its choices are large */
    struct job *j = &job;
    bool pairs = thorough || async || ramp || kind < PLAIN;
    int batch, missing;

    *j = (struct job){.w = {.data = "synthetic"}};
    steps = async ? ASYNC_STEPS : thorough || kind < PLAIN ? STEPS : FEW_STEPS;
    batch = j->w.global_batch = model_of(&j->m, &j->w, &z_loss_coef, kind);
    j->w.seq = j->m.seq;
    for (int grads = PL_GRADS_FP32; grads <= PL_GRADS_BF16; grads++)
        for (int size = 1; size <= world_size; size++)
            if (batch % size == 0 || size % batch == 0)
                cover_enumerate(&j->cover, &j->m, &j->w, size, all || !pairs ? 2 : 16,
                                (enum pl_grad_dtype)grads);
    j->w.global_batch = ramp ? 2 * batch : batch;
    cover_choose(&j->cover, pairs);
    if (!async && !ramp)
        cover_choose_each(&j->cover, thorough || kind < PLAIN ? 4 : 2);
    missing = cover_missing(&j->cover);
    for (int i = 0; all && i < j->cover.n; i++)
        j->cover.chosen[i] = true;
    if (world_rank == 0) {
        failures += missing != 0;
        printf("%sok %d - %s: every %s is met\n", missing ? "not " : "", ++test_number, j->m.name,
               pairs ? "mesh and every pair of choices" : "small mesh and every choice");
    }
    if (async) {
        for (int i = 0; i < 2 * TYPES; i++)
            j->ref[i / 2][i % 2].allowed = j->ref[i / 2][i % 2].allowed_divided =
                (struct gap){DBL_MIN, DBL_MIN};
    } else {
        for (int i = 1; i <= (pools(&j->m) && batch % 2 == 0 ? 2 : 1); i++) {
            for (int types = 0; types < TYPES; types++)
                reference(j, (enum types)types, i);
        }
    }
    for (int size = 1; size <= world_size; size++)
        run_size(j, size);
    cover_done(&j->cover);
}

static int number(int argc, char **argv, int i, int otherwise)
{
    return argc > i ? (int)strtol(argv[i], NULL, 10) : otherwise;
}

/* parity [async | apart | ramp] [number of a model; -1: all] [count; 0: all that follow], or parity
 * drawn SEED COUNT: models drawn from SEED and the following numbers. With PT_LONG in the
 * environment: every legal layout. */
int main(int argc, char **argv)
{
    int known = ARRAY_LEN(models), from = 0, to = known;

    own_memory = argc > 1 && strcmp(argv[1], "apart") == 0;
    async = own_memory || (argc > 1 && strcmp(argv[1], "async") == 0);
    ramp = argc > 1 && strcmp(argv[1], "ramp") == 0;
    if (argc > 1 && strcmp(argv[1], "drawn") == 0) {
        from = known + number(argc, argv, 2, 0);
        to = from + number(argc, argv, 3, 1);
    } else if (number(argc, argv, 1 + (async || ramp), -1) >= 0) {
        int count = number(argc, argv, 2 + (async || ramp), 1);

        from = number(argc, argv, 1 + (async || ramp), 0);
        to = count ? from + count : known;
    }
    thorough = getenv("PT_LONG") || from >= known;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (int i = from; i < to; i++)
        run_model(i, getenv("PT_LONG") != NULL);
    if (world_rank == 0) {
        failures += allocations != 0;
        printf("%sok %d - the step loop allocates nothing: %ld times\n", allocations ? "not " : "",
               ++test_number, allocations);
        printf("1..%d\n", test_number);
    }
    MPI_Finalize();
    return failures != 0;
}
