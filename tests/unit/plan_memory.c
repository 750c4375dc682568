/* Memory of GPU trainers against published figures and formulas. */
#include "plan/memory_parts.h"
#include "tests/unit/plan_world.h"

#include <math.h>

/* Korthikanti et al. 2022, table 2, for the GPT layer; FlashAttention off. */
static void a_gpt_layer_keeps_what_korthikanti_counts(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-a100", 1, 4, "any");
    struct pl_trainer plain = *x.t;
    double s = x.m.seq, b = 4, h = x.m.hidden, a = x.m.heads, t = 8;
    const struct {
        const char *layout;
        double bytes;
    } row[] = {
        {"{'world':1,'micro_batch':4,'precision':'bf16'}", s * b * h * (34 + 5 * a * s / h)},
        {"{'world':8,'tp':8,'micro_batch':4,'precision':'bf16'}",
         s * b * h * (10 + 24 / t + 5 * a * s / (h * t))},
        {"{'world':8,'tp':8,'sp':1,'micro_batch':4,'precision':'bf16'}",
         s * b * h / t * (34 + 5 * a * s / h)},
        {"{'world':8,'tp':8,'recompute':'selective','micro_batch':4,'precision':'bf16'}",
         s * b * h * (10 + 24 / t)},
        {"{'world':8,'tp':8,'sp':1,'recompute':'selective','micro_batch':4,'precision':'bf16'}",
         34 * s * b * h / t},
        {"{'world':8,'tp':8,'recompute':'full','micro_batch':4,'precision':'bf16'}", 2 * s * b * h},
    };

    (void)state;
    plain.flash = false;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_layout l = layout_of(&x, row[i].layout);
        double got = pl_layer_activation_bytes(problem_with(&x, &plain), &l, false);

        if (fabs(got / row[i].bytes - 1) > 1e-12)
            fail_msg("%s: %.0f, not %.0f", row[i].layout, got, row[i].bytes);
    }
}

/* Korthikanti et al. 2022, figure 1: GiB of activations of the first stage, tensor parallel 8. */
static void activations_of_whole_models_are_within_five_percent_of_those_printed(void **state)
{
    static const struct {
        int layers, hidden, heads, nodes, batch;
        const char *layout;
        double none, sp_selective;
    } row[] = {
        {48, 6144, 64, 1, 4, "{'tp':8,'micro_batch':4,'precision':'bf16'}", 59.25, 9.56},
        {96, 12288, 96, 8, 64, "{'tp':8,'pp':8,'vp':3,'precision':'bf16'}", 66.84, 12.35},
        {105, 20480, 128, 35, 280, "{'tp':8,'pp':35,'vp':3,'precision':'bf16'}", 114.02, 23.08},
        {128, 25600, 160, 64, 512, "{'tp':8,'pp':64,'precision':'bf16'}", 131.25, 26.56},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of("gpt-22B", "dgx-a100", row[i].nodes, row[i].batch, "any");
        struct pl_trainer plain = *x.t;
        struct pl_layout l;
        struct pl_memory a, b;

        plain.flash = false;
        x.m.layers = row[i].layers;
        x.m.hidden = row[i].hidden;
        x.m.ffn = 4 * row[i].hidden;
        x.m.heads = x.m.kv_heads = row[i].heads;
        x.m.head_dim = row[i].hidden / row[i].heads;
        l = layout_of(&x, row[i].layout);
        pl_memory_rank(&a, problem_with(&x, &plain), &l, 0);
        l.sp = 1;
        l.recompute = PL_RECOMPUTE_SELECTIVE;
        pl_memory_rank(&b, problem_with(&x, &plain), &l, 0);
        if (fabs(a.bytes[PL_MEM_ACTIVATIONS] / (1 << 30) / row[i].none - 1) > 0.05 ||
            fabs(b.bytes[PL_MEM_ACTIVATIONS] / (1 << 30) / row[i].sp_selective - 1) > 0.05)
            fail_msg("%d layers: %.2f GiB, not %.2f; %.2f, not %.2f", row[i].layers,
                     a.bytes[PL_MEM_ACTIVATIONS] / (1 << 30), row[i].none,
                     b.bytes[PL_MEM_ACTIVATIONS] / (1 << 30), row[i].sp_selective);
    }
}

static void zero_shards_what_its_stage_says(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    double n = (double)pl_model_params(&x.m);
    struct pl_memory z[4];

    (void)state;
    for (int zero = 0; zero < 4; zero++) {
        struct pl_layout l = layout_of(&x, "{'world':8,'precision':'bf16'}");

        l.zero = zero;
        pl_layout_canonical(&l, &x.m);
        pl_memory_worst(&z[zero], problem_of(&x), &l);
    }
    assert_true(fabs(z[0].bytes[PL_MEM_OPTIMIZER] / (8 * n) - 1) < 1e-9);
    assert_true(fabs(z[1].bytes[PL_MEM_OPTIMIZER] / n - 1) < 1e-9);
    assert_true(fabs(z[2].bytes[PL_MEM_GRADS] / (n / 2) - 1) < 1e-9);
    assert_true(z[3].bytes[PL_MEM_WEIGHTS] < z[2].bytes[PL_MEM_WEIGHTS] / 4);
    for (int zero = 1; zero < 4; zero++)
        assert_true(z[zero].total < z[zero - 1].total);
}

/* Where the router's weights meet the hidden rows no copy of an expert's output is kept: top_k rows
 * of the hidden size a token, in each layer. */
static void weighted_rows_keep_no_outputs_of_experts(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 2, 16, "megatron");
    struct pl_layout l = layout_of(&x, "{'world':16,'ep':8,'micro_batch':1,'precision':'bf16'}");
    struct pl_trainer t = *x.t;
    double kept[2];

    (void)state;
    x.m.moe.capacity_factor = 1;
    for (int rows = 0; rows < 2; rows++) {
        struct pl_memory m;

        t.weighs_rows = rows;
        pl_memory_rank(&m, problem_with(&x, &t), &l, 0);
        kept[rows] = m.bytes[PL_MEM_ACTIVATIONS];
    }
    assert_true(fabs((kept[0] - kept[1]) / (2.0 * 32 * x.w.seq * 2 * 4096) - 1) < 1e-9);
}

static void expert_state_is_cut_by_ep_and_etp_and_the_rest_by_tp(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 2, 16, "any");
    struct pl_layout a = layout_of(&x, "{'world':16,'tp':2,'sp':1,'ep':8,'precision':'bf16'}");
    struct pl_layout b =
        layout_of(&x, "{'world':16,'tp':2,'sp':1,'ep':4,'etp':2,'precision':'bf16'}");
    struct pl_layout c =
        layout_of(&x, "{'world':16,'tp':2,'sp':1,'ep':8,'etp':2,'precision':'bf16'}");
    struct pl_held pa, pb, pc;

    (void)state;
    held_on(&pa, &x.m, &a, 0);
    held_on(&pb, &x.m, &b, 0);
    held_on(&pc, &x.m, &c, 0);
    assert_true(pa.dense == pb.dense && pa.expert == pb.expert && pc.expert == pa.expert / 2);
}

static void a_plan_of_all_ranks_holds_every_parameter(void **state)
{
    static const char *const layouts[] = {
        "{'world':16,'tp':2,'sp':1,'pp':2,'ep':4,'precision':'bf16'}",
        "{'world':16,'pp':4,'vp':2,'ep':2,'precision':'bf16'}",
        "{'world':8,'tp':4,'sp':1,'pp':2,'etp':4,'precision':'bf16'}"};
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 2, 16, "any");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        struct pl_layout l = layout_of(&x, layouts[i]);
        double sum = 0, whole = (double)pl_model_params(&x.m);
        /* norms and routers are whole on each tp rank */
        double copied =
            (l.tp - 1) * (2.0 * x.m.hidden + (double)x.m.hidden * x.m.moe.experts) * x.m.layers;

        for (int stage = 0; stage < l.pp; stage++) {
            struct pl_held p;

            held_on(&p, &x.m, &l, stage);
            sum += p.dense * l.tp + p.expert * l.ep * l.etp;
        }
        copied += (l.tp - 1) * (double)x.m.hidden;
        assert_true(fabs(sum - whole - copied) < 1);
    }
}

/* 46.7e9 parameters of two bytes on tp 2, before 32 ranks share them. */
static void a_model_that_is_built_whole_must_fit_whole(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 8, 64, "any");
    struct pl_layout l =
        layout_of(&x, "{'world':64,'tp':2,'sp':1,'etp':2,'zero':3,'precision':'bf16'}");
    struct pl_trainer t = *x.t;
    struct pl_memory shared, whole;

    (void)state;
    pl_memory_worst(&shared, problem_with(&x, &t), &l);
    t.whole_start = true;
    pl_memory_worst(&whole, problem_with(&x, &t), &l);
    assert_true(whole.total > shared.total);
    assert_true(fabs(whole.total - whole.bytes[PL_MEM_WORKSPACE] - (double)pl_model_params(&x.m)) <
                0.01 * (double)pl_model_params(&x.m));
    l.zero = 1;
    pl_memory_worst(&shared, problem_of(&x), &l);
    pl_memory_worst(&whole, problem_with(&x, &t), &l);
    assert_true(whole.total == shared.total);
}

/* Per token of llama-8b: its input, queries and attention's output of 2 x 4096 bytes each, and half
 * of what the products put out. */
/* Bytes a parameter of Megatron's documentation: bf16 with fp32 gradients 6 + 12/d, fp16 4 + 16/d;
 * fp32 sums next to half-precision gradients add 4 to the first's 2 + 2, whatever is reduced. And
 * logits of an eager loss three times. */
static void gradients_and_logits_are_kept_as_the_trainer_keeps_them(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-a100", 4, 64, "any");
    struct pl_layout l = layout_of(&x, "{'tp':8,'zero':1,'precision':'bf16'}");
    double params = 0, each[5], d = l.dp;

    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        struct pl_trainer t = *x.t;
        struct pl_memory m;

        t.half_grads = kind == 1 || kind == 2;
        t.summed_grads = kind > 1;
        l.grad_dtype = kind == 4 ? PL_GRADS_BF16 : PL_GRADS_FP32; /* over what the stack does */
        pl_memory_worst(&m, problem_with(&x, &t), &l);
        params = m.bytes[PL_MEM_WEIGHTS] / 2;
        each[kind] = (m.bytes[PL_MEM_WEIGHTS] + m.bytes[PL_MEM_GRADS] + m.bytes[PL_MEM_MASTER] +
                      m.bytes[PL_MEM_OPTIMIZER]) /
                     params;
    }
    assert_true(fabs(each[0] - (6 + 12 / d)) < 1e-9);
    assert_true(fabs(each[1] - (4 + 16 / d)) < 1e-9);
    assert_true(fabs(each[2] - (8 + 12 / d)) < 1e-9 && each[3] == each[2]);
    assert_true(each[4] == each[1]);
    l.grad_dtype = PL_GRADS_FP32;

    struct pl_trainer t = *x.t;
    struct pl_memory once, thrice;

    pl_memory_worst(&once, problem_with(&x, &t), &l);
    t.eager_loss = true;
    pl_memory_worst(&thrice, problem_with(&x, &t), &l);
    assert_true(fabs(thrice.bytes[PL_MEM_LOGITS] - once.bytes[PL_MEM_LOGITS] -
                     8.0 * x.w.seq * x.m.vocab / 8) < 1);
}

/* The bundled trainer's gradients in bf16: two bytes of each, with and without windows, and room to
 * add in fp32, which is at least a piece of what the optimizer reads. */
static void gradients_in_bf16_take_half_the_bytes_and_room_for_sums(void **state)
{
    static const char *const layouts[] = {"{'world':4,'precision':'bf16'}",
                                          "{'world':4,'zero':2,'precision':'bf16'}",
                                          "{'world':4,'tp':2,'zero':3,'precision':'bf16'}"};
    struct world x = world_of("gpt2-xl", "local", 1, 64, "partune");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        struct pl_layout l = layout_of(&x, layouts[i]);
        struct pl_memory wide, half;
        struct pl_dims d;
        double sums;

        pl_memory_worst(&wide, problem_of(&x), &l);
        l.grad_dtype = PL_GRADS_BF16;
        pl_memory_worst(&half, problem_of(&x), &l);
        pl_dims(&d, &x.m, &l, &x.w);
        sums = 4.0 * (double)pl_grad_sum(&d);
        assert_true(pl_grad_sum(&d) >= PL_GRAD_PIECE && pl_grad_sum(&d) >= 2 * d.hidden);
        assert_true(fabs(2 * half.bytes[PL_MEM_GRADS] - wide.bytes[PL_MEM_GRADS]) <= 64);
        assert_true(fabs(half.bytes[PL_MEM_WORKSPACE] - wide.bytes[PL_MEM_WORKSPACE] - sums) < 64);
        assert_true(half.bytes[PL_MEM_OPTIMIZER] == wide.bytes[PL_MEM_OPTIMIZER]);
    }
}

/* Beyond fused kernels: of each norm its row in fp32 and one in half precision, 6h; silu of the
 * gate, 2f. Gathered logits: 12 bytes in fp32, 2 in half precision, and the rank's own share. */
static void eager_operations_and_gathered_logits_keep_more(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    struct pl_layout l = layout_of(&x, "{'world':8,'tp':2,'zero':1,'precision':'bf16'}");
    double tokens = x.w.seq, h = 4096, f = 14336, fused, mlp, all, v = x.m.vocab;
    struct pl_trainer t = *x.t;
    struct pl_memory share, whole;

    (void)state;
    fused = pl_layer_activation_bytes(problem_with(&x, &t), &l, false);
    t.eager_mlp = true;
    mlp = pl_layer_activation_bytes(problem_with(&x, &t), &l, false);
    t.eager = true;
    all = pl_layer_activation_bytes(problem_with(&x, &t), &l, false);
    assert_true(fabs(mlp - fused - tokens * 2 * f / 2) < 1);
    assert_true(fabs(all - mlp - tokens * 2 * 6 * h) < 1);

    t.eager_loss = true;
    pl_memory_worst(&share, problem_with(&x, &t), &l);
    t.whole_logits = true;
    pl_memory_worst(&whole, problem_with(&x, &t), &l);
    assert_true(fabs(whole.bytes[PL_MEM_LOGITS] - share.bytes[PL_MEM_LOGITS] -
                     tokens * v * (12 + 2 + 1 - 6)) < 1);
}

/* Of q, k, v, output, gate, up and down each second is computed again; the attention's output and
 * the logarithm of its sums, one fp32 a head, are kept. */
static void saved_products_are_what_is_kept(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "torchtitan"),
                 plain = world_of("gpt-22B", "dgx-h100", 1, 8, "any");
    struct pl_layout l = layout_of(&x, "{'world':8,'recompute':'selective','precision':'bf16'}"),
                     plain_l = layout_of(&plain, "{'world':8,'recompute':'selective',"
                                                 "'precision':'bf16'}");
    double outputs = 4096 + 1024 + 14336 + 4096;
    double want = x.w.seq * (2 * 4096 + 2 * 4096 + 4 * 32 + 2 * outputs);
    struct pl_trainer t = *plain.t;

    (void)state;
    assert_true(fabs(pl_layer_activation_bytes(problem_of(&x), &l, false) / want - 1) < 1e-12);
    t.selective_share = 0.5; /* q, v, the hidden rows */
    want = plain.w.seq * (2 * 6144 + 2 * 6144 + 4 * 48 + 2 * (6144 + 6144 + 24576.0));
    assert_true(fabs(pl_layer_activation_bytes(problem_with(&plain, &t), &plain_l, false) / want -
                     1) < 1e-12);
}

/* Weights of a rank of FSDP: its shard is the fp32 master; two layers, and what is in none. */
static void fsdp_gathers_layers_and_keeps_all_else_gathered(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    struct pl_layout l = layout_of(&x, "{'world':8,'zero':3,'precision':'bf16'}");
    double layer = 2 * 4096 * 4096.0 + 2 * 4096 * 1024.0 + 3 * 4096 * 14336.0 + 2 * 4096;
    double root = 2.0 * x.m.vocab * 4096 + 4096, all = 32 * layer + root;
    struct pl_trainer t = *x.t;
    struct pl_memory m;

    (void)state;
    pl_memory_worst(&m, problem_with(&x, &t), &l);
    assert_true(fabs(m.bytes[PL_MEM_WEIGHTS] / (2 * (all / 8 + layer)) - 1) < 1e-12);
    l.overlap_param_gather = 1;
    pl_memory_worst(&m, problem_with(&x, &t), &l);
    assert_true(fabs(m.bytes[PL_MEM_WEIGHTS] / (2 * (all / 8 + 2 * layer)) - 1) < 1e-12);
    t.fsdp_units = true;
    pl_memory_worst(&m, problem_with(&x, &t), &l);
    assert_true(fabs(m.bytes[PL_MEM_WEIGHTS] / (2 * (2 * layer + root)) - 1) < 1e-12);
    assert_true(fabs(m.bytes[PL_MEM_MASTER] / (4 * all / 8) - 1) < 1e-12);
}

/* A walk that remembers plans by layout tells a gather that overlaps from one that does not. */
static void a_gather_that_overlaps_is_not_remembered_as_one_that_does_not(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    struct pl_layout l = layout_of(&x, "{'world':8,'zero':3,'precision':'bf16'}");
    struct pl_memory_ctx *ctx = pl_memory_ctx_new(problem_of(&x));
    struct pl_memory one, two;

    (void)state;
    pl_memory_at(&one, ctx, &l);
    l.overlap_param_gather = 1;
    pl_memory_at(&two, ctx, &l);
    assert_true(two.total > one.total);
    pl_memory_ctx_free(ctx);
}

/*
 * DeepSpeed, gpt-22B (51200 x 6144 table, feed-forward of 24576), tp 2, pp 2, dp 4, zero 1. In half
 * precision: a bucket of 5e8, the rank's gradients, and the larger of the table's norm in fp64 and
 * 6 bytes for each gradient, less the 4 that the plan has with the gradients. Summed in fp32:
 * a bucket of 5e8 in fp32.
 */
static void deepspeeds_step_allocates_buckets_norms_and_flat_gradients(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-a100", 2, 64, "any");
    struct pl_layout l = layout_of(&x, "{'world':16,'tp':2,'pp':2,'zero':1,'micro_batch':2,"
                                       "'precision':'bf16'}");
    struct pl_trainer t = *x.t;
    double table = (double)x.m.vocab * 6144 / 2, split, rows = 2.0 * x.w.seq * 6144;
    struct pl_memory without, with;

    (void)state;
    t.half_grads = true;
    pl_memory_rank(&without, problem_with(&x, &t), &l, 0);
    split = without.bytes[PL_MEM_MASTER] / 4;
    assert_true(table < split && 8 * table < 6 * split);
    t.flat_step = true;
    pl_memory_rank(&with, problem_with(&x, &t), &l, 0);
    assert_true(fabs(with.total - without.total - (2 * 5e8 + 2 * split + 2 * split)) < 1);

    x.m.vocab *= 8; /* a table whose norm needs more */
    pl_memory_rank(&with, problem_with(&x, &t), &l, 0);
    t.flat_step = false;
    pl_memory_rank(&without, problem_with(&x, &t), &l, 0);
    split = without.bytes[PL_MEM_MASTER] / 4;
    table *= 8;
    assert_true(8 * fmin(table, split) > 6 * split);
    assert_true(fabs(with.total - without.total - (2 * 5e8 - 2 * split + 8 * fmin(table, split))) <
                1);

    t.flat_step = t.summed_grads = true;
    pl_memory_rank(&with, problem_with(&x, &t), &l, 0);
    t.flat_step = false;
    pl_memory_rank(&without, problem_with(&x, &t), &l, 0);
    assert_true(table > 5e8);
    assert_true(fabs(with.total - without.total - 4 * table) < 1);

    t.keeps_outputs = true; /* of both micro-batches in flight */
    pl_memory_rank(&with, problem_with(&x, &t), &l, 0);
    assert_true(fabs(with.total - without.total - 2 * 2 * rows) < 1);
}

/* With sp three copies of a micro-batch's rows are whole while a layer is at work; the buffers of
 * tp_overlap have them. */
static void sequence_parallel_layers_gather_their_rows(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    struct pl_layout l = layout_of(&x, "{'world':8,'tp':4,'sp':1,'precision':'bf16'}");
    double rows = 2.0 * x.w.seq * 4096;
    struct pl_memory m;

    (void)state;
    pl_memory_worst(&m, problem_of(&x), &l);
    assert_true(m.bytes[PL_MEM_COMM] == 3 * rows);
    l.tp_overlap = 1;
    pl_memory_worst(&m, problem_of(&x), &l);
    assert_true(m.bytes[PL_MEM_COMM] == x.t->tp_buffers * rows);
}

/* Four bytes for each key and value, unless heads share them. */
static void copied_keys_and_values_are_kept_where_no_heads_share_them(void **state)
{
    static const char *const model[] = {"gpt-22B", "llama-8b"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world x = world_of(model[i], "dgx-h100", 1, 8, "any");
        struct pl_layout l = layout_of(&x, "{'world':8,'tp':2,'precision':'bf16'}");
        struct pl_trainer t = *x.t;
        double once = pl_layer_activation_bytes(problem_with(&x, &t), &l, false), twice;

        t.copies_kv = true;
        twice = pl_layer_activation_bytes(problem_with(&x, &t), &l, false);
        assert_true(fabs(twice - once - (i ? 0 : x.w.seq * 4.0 * 6144 / 2)) < 1);
    }
}

/* The driver's reserve is no part of what the allocator reports. */
static void the_allocator_holds_all_but_the_reserve(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    struct pl_layout l = layout_of(&x, "{'world':8,'zero':3,'precision':'bf16'}");
    struct pl_memory m;

    (void)state;
    pl_memory_worst(&m, problem_of(&x), &l);
    assert_true(fabs(m.total - pl_memory_allocator(&m, x.t) - 2 * 0x1p30) < 1);
    x = world_of("llama-8b", "dgx-h100", 1, 8, "partune");
    pl_memory_worst(&m, problem_of(&x), &l);
    assert_true(pl_memory_allocator(&m, x.t) == m.total);
}

/* A GPU trainer's reserve is an estimate of all that the driver holds, so it shrinks by that; the
 * bundled trainer's plan has had none of it. */
static void what_the_driver_holds_is_planned_where_it_was_measured(void **state)
{
    static const char *const trainer[] = {"megatron", "partune"};
    double gib = 0x1p30;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world x = world_of("llama-8b", "dgx-h100", 1, 8, trainer[i]);
        struct pl_layout l = layout_of(&x, "{'world':8,'zero':1,'precision':'bf16'}");
        struct pl_layout one = layout_of(&x, "{'world':1,'precision':'bf16'}");
        struct pl_memory was, m;
        double held = 0.5 + 0.25 + 0.75;

        pl_memory_worst(&was, problem_of(&x), &l);
        x.c.device.context_gib = 0.5;
        x.c.device.library_gib = 0.25;
        x.c.device.nccl_gib = 0.75;
        pl_memory_worst(&m, problem_of(&x), &l);
        assert_true(was.bytes[PL_MEM_CONTEXT] == 0 && m.bytes[PL_MEM_CONTEXT] == 0.5 * gib);
        assert_true(m.bytes[PL_MEM_LIBRARY] == 0.25 * gib && m.bytes[PL_MEM_NCCL] == 0.75 * gib);
        assert_true(pl_memory_driver(problem_of(&x), &l) == held * gib);
        assert_true(fabs(was.bytes[PL_MEM_WORKSPACE] - m.bytes[PL_MEM_WORKSPACE] -
                         (i ? 0 : held * gib)) < 1);
        assert_true(fabs(m.total - was.total - (i ? held * gib : 0)) < 1);
        assert_true(fabs(pl_memory_allocator(&m, x.t) - pl_memory_allocator(&was, x.t)) < 1);
        x.c.device.nccl_gib = 3; /* more than the estimate */
        pl_memory_worst(&m, problem_of(&x), &l);
        assert_true(fabs(m.total - was.total - (i ? 3.75 : 1.75) * gib) < 1);
        assert_true(pl_memory_driver(problem_of(&x), &one) == 0.75 * gib);
        x.c.device.cpu = true;
        assert_true(pl_memory_driver(problem_of(&x), &l) == 0);
    }
}

static void what_the_driver_holds_survives_json(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "megatron");
    AUTO_JSON *v = NULL;
    struct pl_cluster back;

    (void)state;
    x.c.device.context_gib = 0.5;
    x.c.device.nccl_gib = 0.75;
    v = pl_cluster_json(&x.c);
    assert_null(json_object_get(json_object_get(v, "device"), "library_gib")); /* unknown */
    assert_int_equal(pl_cluster_parse(&back, v, NULL, NULL), 0);
    assert_true(back.device.context_gib == 0.5 && back.device.library_gib == 0 &&
                back.device.nccl_gib == 0.75);
}

static double total_of(const struct world *x, struct pl_layout l)
{
    struct pl_memory m;

    pl_layout_canonical(&l, &x->m);
    pl_memory_worst(&m, problem_of(x), &l);
    return m.total;
}

/* However short the stages and few the micro-batches: who computes more again, or shards more,
 * keeps no more. */
/* A copy for each group of `shard` ranks; experts in as many copies. */
static void groups_of_ranks_share_a_copy(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any"),
                 moe = world_of("mixtral-8x7b", "dgx-h100", 2, 16, "any");
    struct pl_layout group = layout_of(&x, "{'world':8,'zero':1,'shard':2,'precision':'bf16'}");
    struct pl_layout all = layout_of(&moe, "{'world':16,'ep':2,'zero':1,'precision':'bf16'}");
    struct pl_layout half = layout_of(&moe, "{'world':16,'ep':2,'zero':1,'shard':8,"
                                            "'precision':'bf16'}");
    struct pl_memory of_group, of_all, of_half;

    (void)state;
    assert_true(pl_layout_check(NULL, problem_of(&x), &group));
    assert_true(pl_layout_check(NULL, problem_of(&moe), &half));
    pl_memory_worst(&of_group, problem_of(&x), &group);
    pl_memory_worst(&of_all, problem_of(&moe), &all);
    pl_memory_worst(&of_half, problem_of(&moe), &half);
    assert_true(fabs(of_group.bytes[PL_MEM_OPTIMIZER] / (4.0 * (double)pl_model_params(&x.m)) - 1) <
                1e-9);
    assert_true(fabs(of_half.bytes[PL_MEM_MASTER] / of_all.bytes[PL_MEM_MASTER] - 2) < 1e-9);
}

static void less_is_kept_with_more_recompute_and_more_sharding(void **state)
{
    static const char *const model[] = {"gpt-22B", "llama-8b", "mixtral-8x7b"};
    static const char *const trainer[] = {"megatron", "torchtitan", "deepspeed", "any"};
    static const char *const layout[] = {
        "{'precision':'bf16'}",
        "{'pp':4,'precision':'bf16','micro_batch':2}",
        "{'tp':2,'sp':1,'pp':4,'precision':'bf16'}",
        "{'tp':4,'pp':2,'vp':2,'precision':'bf16'}",
        "{'tp':2,'sp':1,'pp':4,'ep':2,'precision':'fp32'}",
    };
    size_t n = ARRAY_LEN(model) * ARRAY_LEN(trainer) * ARRAY_LEN(layout) * 2;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct world x = world_of(model[i / 2 % 3], "dgx-h100", 4, 64, trainer[i / 6 % 4]);
        struct pl_layout l = layout_of(&x, layout[i / 24]);
        double kept[3], held[4];

        if (i % 2) { /* one layer a stage, one micro-batch */
            x.m.layers = 4;
            x.w.global_batch = l.dp * l.micro_batch;
        }
        for (l.recompute = 0; l.recompute < 3; l.recompute++)
            kept[l.recompute] = total_of(&x, l);
        if (kept[0] < kept[1] || kept[1] < kept[2])
            fail_msg("%s, %s, %s, %d layers: %.4g %.4g %.4g", x.m.name, x.t->name, layout[i / 24],
                     x.m.layers, kept[0], kept[1], kept[2]);
        l.recompute = PL_RECOMPUTE_NONE;
        for (l.zero = 0; l.zero < 4; l.zero++)
            held[l.zero] = total_of(&x, l);
        assert_true(held[0] > held[1] && held[1] >= held[2]);
        assert_true(i % 2 || held[2] >= held[3]); /* a layer is gathered: few are no gain */
    }
}

/* Eight layers on four ranks, two replicas: a rank holds the two layers of its stage and the two of
 * the mirrored one, and each stage is held by twice the replicas (DeepSeek-V3, table 2: parameters
 * 2 x, activations pp + 1). */
static void dualpipe_holds_two_stages_and_shards_over_both_ends(void **state)
{
    AUTO_JSON *small = unit_json("{'name':'small','layers':8,'hidden':512,'heads':8,'kv_heads':4,"
                                 "'ffn':1536,'vocab':1000,'seq':128}");
    const double layer = 2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1536 + 2 * 512;
    const double ends = 1000 * 512 + 512 + 1000 * 512; /* embedding; norm and head */
    struct world x = world_of("llama-8b", "dgx-h100", 1, 32, "any");
    struct pl_layout l;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_model_parse(&x.m, small, &e), 0);
    x.w.seq = 128;
    for (int zero = 0; zero < 2; zero++) {
        l = layout_of(&x, zero ? "{'world':8,'pp':4,'schedule':'dualpipe','zero':1,'micro_batch':1,"
                                 "'precision':'bf16'}"
                               : "{'world':8,'pp':4,'schedule':'dualpipe','micro_batch':1,"
                                 "'precision':'bf16'}");
        assert_true(pl_layout_check(NULL, problem_of(&x), &l));
        assert_int_equal(l.dp, 2);
        for (int rank = 0; rank < 8; rank++) {
            int stage = rank / 2, shards = zero ? 2 * 2 : 1;
            double held = 4 * layer + (stage == 0 || stage == 3 ? ends : 0);
            struct pl_memory m;

            pl_memory_rank(&m, problem_of(&x), &l, rank);
            assert_true(m.bytes[PL_MEM_WEIGHTS] == 2 * held);
            assert_true(m.bytes[PL_MEM_GRADS] == 4 * held);
            assert_true(m.bytes[PL_MEM_MASTER] == 4 * held / shards);
            assert_true(m.bytes[PL_MEM_OPTIMIZER] == 8 * held / shards);
            /* two layers of pp + 1 micro-batches */
            assert_true(fabs(m.bytes[PL_MEM_ACTIVATIONS] /
                                 (5 * 2 * pl_layer_activation_bytes(problem_of(&x), &l, false)) -
                             1) < 1e-12);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt_layer_keeps_what_korthikanti_counts),
        cmocka_unit_test(activations_of_whole_models_are_within_five_percent_of_those_printed),
        cmocka_unit_test(zero_shards_what_its_stage_says),
        cmocka_unit_test(groups_of_ranks_share_a_copy),
        cmocka_unit_test(less_is_kept_with_more_recompute_and_more_sharding),
        cmocka_unit_test(weighted_rows_keep_no_outputs_of_experts),
        cmocka_unit_test(expert_state_is_cut_by_ep_and_etp_and_the_rest_by_tp),
        cmocka_unit_test(fsdp_gathers_layers_and_keeps_all_else_gathered),
        cmocka_unit_test(a_gather_that_overlaps_is_not_remembered_as_one_that_does_not),
        cmocka_unit_test(deepspeeds_step_allocates_buckets_norms_and_flat_gradients),
        cmocka_unit_test(sequence_parallel_layers_gather_their_rows),
        cmocka_unit_test(copied_keys_and_values_are_kept_where_no_heads_share_them),
        cmocka_unit_test(the_allocator_holds_all_but_the_reserve),
        cmocka_unit_test(what_the_driver_holds_is_planned_where_it_was_measured),
        cmocka_unit_test(what_the_driver_holds_survives_json),
        cmocka_unit_test(a_model_that_is_built_whole_must_fit_whole),
        cmocka_unit_test(eager_operations_and_gathered_logits_keep_more),
        cmocka_unit_test(saved_products_are_what_is_kept),
        cmocka_unit_test(gradients_in_bf16_take_half_the_bytes_and_room_for_sums),
        cmocka_unit_test(gradients_and_logits_are_kept_as_the_trainer_keeps_them),
        cmocka_unit_test(dualpipe_holds_two_stages_and_shards_over_both_ends),
        cmocka_unit_test(a_plan_of_all_ranks_holds_every_parameter),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
