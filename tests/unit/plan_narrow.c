/* Seconds of the narrow precisions: rates and bytes of products, attention, experts, the head. */
#include "plan/cost_parts.h"
#include "plan/precision.h"
#include "tests/unit/plan_world.h"

#include <math.h>

/* A world whose trainer may be changed. */
struct narrow {
    struct world x;
    struct pl_trainer trainer;
};

static void narrow_of(struct narrow *ret, const char *model, const char *cluster)
{
    ret->x = world_of(model, cluster, 1, 64, "megatron");
    ret->trainer = *ret->x.t;
    ret->x.t = &ret->trainer;
    ret->x.m.moe.force_balance = ret->x.m.moe.experts > 0;
}

static struct pl_cost cost_of(const struct narrow *n, const char *layout)
{
    struct pl_layout l = layout_of(&n->x, layout);
    struct pl_cost c;

    pl_cost(&c, problem_of(&n->x), &l);
    return c;
}

static struct pl_rates rates_of(const struct narrow *n, int precision)
{
    struct pl_rates rates;

    pl_rates_of(&rates, &pl_default_constants, problem_of(&n->x), precision, 1);
    return rates;
}

static bool near(double got, double want)
{
    return fabs(got / want - 1) < 1e-12;
}

/* Not known, it follows from the one in bf16 by the peaks; fp4 follows from the one in fp8. */
static void a_measured_fp8_product_sets_the_rate(void **state)
{
    struct narrow n;
    struct pl_device *device = &n.x.c.device;
    double bf16, fp8, fp4;

    (void)state;
    narrow_of(&n, "llama-8b", "dgx-b200");
    assert_true(device->gemm_tflops_fp8 > 0);
    bf16 = rates_of(&n, PL_BF16).flops;
    fp8 = rates_of(&n, PL_FP8).flops;
    fp4 = rates_of(&n, PL_NVFP4).flops;
    assert_true(near(fp8 / bf16, device->gemm_tflops_fp8 / device->gemm_tflops));
    assert_true(near(fp4 / fp8, device->tflops_fp4 / device->tflops_fp8));
    assert_true(near(rates_of(&n, PL_MXFP8).flops, fp8));
    assert_true(near(rates_of(&n, PL_FP8).half_flops, bf16));
    device->gemm_tflops_fp8 = 0;
    assert_true(near(rates_of(&n, PL_FP8).flops / bf16, device->tflops_fp8 / device->tflops_bf16));
    assert_true(near(rates_of(&n, PL_BF16).flops, bf16));
}

/* What products read is narrow in every trainer, what waits for the backward pass only where the
 * cast operand is kept. */
static void products_read_what_was_cast(void **state)
{
    static const struct {
        int precision;
        double bytes;
    } want[] = {{PL_FP32, 4},
                {PL_BF16, 2},
                {PL_FP8, 1},
                {PL_FP8_CURRENT, 1},
                {PL_MXFP8, 33.0 / 32},
                {PL_FP8_BLOCKWISE, 1 + 1.0 / 32},
                {PL_NVFP4, 1.0 / 2 + 1.0 / 16}};

    (void)state;
    for (int engine = 0; engine < 2; engine++)
        for (size_t i = 0; i < ARRAY_LEN(want); i++) {
            struct narrow n;
            struct pl_operands operands;
            bool kept = engine && want[i].precision >= PL_FP8;

            narrow_of(&n, "llama-8b", "dgx-b200");
            n.trainer.fp8_delayed = engine;
            assert_true(near(rates_of(&n, want[i].precision).operand, want[i].bytes));
            pl_operands_of(&operands, &n.trainer, want[i].precision);
            assert_true(near(operands.kept, kept ? want[i].bytes : 2));
        }
}

/* Where memory is slow, the products of a step read half as many bytes of operands in fp8. */
static void narrow_operands_are_fewer_bytes(void **state)
{
    double seconds[2];

    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        struct narrow n;
        struct pl_operands operands;
        struct pl_layout l;
        struct pl_layer_time layer;
        struct pl_rates rates;
        struct pl_op_ctx op;

        narrow_of(&n, "llama-8b", "dgx-h100");
        n.x.c.device.memory_gbs = 1;
        op = (struct pl_op_ctx){&pl_default_constants, world_problem(&n.x), &rates};
        rates = rates_of(&n, narrow ? PL_FP8 : PL_BF16);
        rates.cast = 0;
        l = layout_of(&n.x, "{'precision':'bf16'}");
        pl_layer_time_of(&layer, &op, &l, false);
        seconds[narrow] = layer.bwd_weight; /* has products alone */
        pl_operands_of(&operands, &n.trainer, PL_FP8);
        assert_true(near(operands.read, 1));
    }
    assert_true(seconds[1] < 0.85 * seconds[0] && seconds[1] > 0.5 * seconds[0]);
}

/* One of nvfp4's orders is rotated before it is cast: a third pass over the operand. */
static void nvfp4_is_cast_in_three_passes(void **state)
{
    struct narrow n;
    struct pl_operands fp4, tensor, block;

    (void)state;
    narrow_of(&n, "llama-8b", "dgx-b200");
    pl_operands_of(&fp4, &n.trainer, PL_NVFP4);
    pl_operands_of(&tensor, &n.trainer, PL_FP8_CURRENT);
    pl_operands_of(&block, &n.trainer, PL_MXFP8);
    assert_true(near(fp4.cast - 2 * fp4.read, 3 * 2));
    assert_true(near(tensor.cast - 2 * tensor.read, 2 * 2));
    assert_true(near(block.cast - 2 * block.read, 2));
}

/* Attention with fp8 operands gains where a score's products are long, on devices that scale
 * blocks, and costs no more than in half precision but for the casts. */
static void fp8_attention_gains_with_the_width_of_heads(void **state)
{
    static const char *const models[] = {"llama-8b", "deepseek-v3"}; /* 128 + 128, 192 + 128 */
    double gain[2];

    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        double seconds[2], fp8[2], hopper[2];

        for (int on = 0; on < 2; on++) {
            struct narrow n;

            narrow_of(&n, models[wide], "dgx-b200");
            n.x.w.seq = 65536;
            n.trainer.fp8_attention = on;
            seconds[on] =
                cost_of(&n, "{'precision':'mxfp8','ep':1,'etp':1}").seconds[PL_COST_BACKWARD];
            fp8[on] = cost_of(&n, "{'precision':'fp8','ep':1,'etp':1}").seconds[PL_COST_BACKWARD];
            n.x.c.device.tflops_fp4 = 0;
            hopper[on] =
                cost_of(&n, "{'precision':'fp8','ep':1,'etp':1}").seconds[PL_COST_BACKWARD];
        }
        gain[wide] = seconds[0] / seconds[1];
        assert_true(fp8[0] / fp8[1] > gain[wide]); /* one scale a tensor: no scales of blocks */
        assert_true(near(hopper[0], hopper[1]));
    }
    assert_true(gain[0] > 1 && gain[1] > gain[0] && gain[1] < 320 / (0.91 * 256));
}

/* Kernels for a whole feed-forward of experts save the activation's bytes and the streams. */
static void fused_experts_take_less_under_mxfp8(void **state)
{
    static const char *const layouts[] = {"{'ep':8,'zero':1,'precision':'mxfp8'}",
                                          "{'ep':8,'zero':1,'precision':'fp8-current'}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        double seconds[2];

        for (int fused = 0; fused < 2; fused++) {
            struct narrow n;

            narrow_of(&n, "qwen3-30b-a3b", "dgx-b200");
            n.trainer.fused_experts = fused;
            seconds[fused] = cost_of(&n, layouts[i]).total;
        }
        assert_true(i ? near(seconds[1], seconds[0]) : seconds[1] < 0.97 * seconds[0]);
    }
}

/* A host that waits for the number of tokens issues the products of an expert one by one; not in a
 * graph of the whole step, nor where the number is known. */
static void the_host_issues_products_of_experts(void **state)
{
    struct narrow n;
    double forward, graph, padded, least;

    (void)state;
    narrow_of(&n, "qwen3-30b-a3b", "dgx-b200");
    n.x.w.seq = 512;
    forward = cost_of(&n, "{'ep':8,'zero':1,'precision':'bf16'}").seconds[PL_COST_FORWARD];
    graph = cost_of(&n, "{'ep':8,'zero':1,'precision':'bf16','cuda_graphs':'iteration'}")
                .seconds[PL_COST_FORWARD];
    n.x.m.moe.capacity_factor = 1;
    padded = cost_of(&n, "{'ep':8,'zero':1,'precision':'bf16'}").seconds[PL_COST_FORWARD];
    /* 16 experts, two products, 48 layers, 8 micro-batches; the device needs less than half */
    least = 16 * 2 * 33e-6 * 48 * 8;
    assert_true(forward > least && forward - graph > 0.5 * least);
    assert_true(near(padded, graph));
}

static void an_fp8_head_is_faster_under_mxfp8(void **state)
{
    double seconds[2][2];

    (void)state;
    for (int head = 0; head < 2; head++) {
        struct narrow n;

        narrow_of(&n, "llama-8b", "dgx-b200");
        n.trainer.fp8_head = head;
        seconds[0][head] = cost_of(&n, "{'precision':'mxfp8'}").total;
        seconds[1][head] = cost_of(&n, "{'precision':'fp8'}").total;
    }
    assert_true(seconds[0][1] < seconds[0][0]);
    assert_true(near(seconds[1][1], seconds[1][0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_measured_fp8_product_sets_the_rate),
        cmocka_unit_test(products_read_what_was_cast),
        cmocka_unit_test(narrow_operands_are_fewer_bytes),
        cmocka_unit_test(nvfp4_is_cast_in_three_passes),
        cmocka_unit_test(fp8_attention_gains_with_the_width_of_heads),
        cmocka_unit_test(fused_experts_take_less_under_mxfp8),
        cmocka_unit_test(the_host_issues_products_of_experts),
        cmocka_unit_test(an_fp8_head_is_faster_under_mxfp8),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
