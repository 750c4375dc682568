/* Layouts: canonical form, every rule of legality by name and numbers, meshes. */
#include "tests/unit/plan_world.h"

static void every_rule_is_reported_by_name_and_numbers(void **state)
{
    static const struct {
        const char *model, *trainer;
        int cores, batch; /* 0 cores: a node of dgx-h100 */
        const char *layout, *rule, *text;
    } row[] = {
        {"tiny-llama", "any", 4, 32, "{'world':3,'tp':2}", "world-dense",
         "world 3 is not a multiple of tp 2 x cp 1 x pp 1"},
        {"tiny-moe", "any", 8, 32, "{'world':4,'ep':2,'pp':4}", "world-expert",
         "world 4 is not a multiple of etp 1 x ep 2 x pp 4"},
        {"tiny-moe", "any", 8, 32, "{'world':8,'tp':4,'sp':1,'etp':2}", "world-expert",
         "etp 2 is neither 1 nor tp 4"},
        {"tiny-llama", "any", 2, 32, "{'world':4}", "world-fits",
         "world 4 is more than nodes 1 x devices_per_node 2"},
        {"tiny-llama", "any", 64, 32, "{'world':16,'tp':16}", "heads-tp",
         "heads 8 is not a multiple of tp 16"},
        {"tiny-llama", "any", 64, 32, "{'world':8,'tp':8}", "kv-heads-tp",
         "kv_heads 4 is not a multiple of tp 8"},
        {"nano-llama", "any", 64, 32, "{'world':3,'tp':3}", "ffn-tp",
         "ffn 128 is not a multiple of tp 3"},
        {"tiny-moe", "any", 64, 32, "{'world':3,'tp':3,'etp':3,'sp':1}", "ffn-tp",
         "expert_ffn 512 is not a multiple of etp 3"},
        {"tiny-moe", "any", 64, 33, "{'world':3,'ep':3}", "experts-ep",
         "experts 4 is not a multiple of ep 3"},
        {"tiny-llama", "partune", 64, 33, "{'world':3,'pp':3}", "layers-pp-vp",
         "layers 4 is not a multiple of pp 3 x vp 1"},
        {"tiny-llama", "any", 64, 32, "{'world':8,'pp':8}", "layers-pp-vp",
         "layers 4 is less than pp 8 x vp 1"},
        {"tiny-llama", "any", 64, 32, "{'world':2,'pp':2,'stages':'1,2'}", "stages-fit",
         "stages lists 3 layers, the model has 4"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'global_batch':16}", "batch-known",
         "global_batch 16 is not the workload's 32"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'micro_batch':5}", "batch-divides",
         "global_batch 32 is not a multiple of micro_batch 5 x dp 2"},
        {"tiny-llama", "any", 2, 30, "{'world':2,'pp':2,'vp':2,'micro_batch':2}",
         "interleave-microbatches",
         "15 micro-batches (global_batch 30 / (micro_batch 2 x dp 1)) are not a multiple of pp 2"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'vp':2}", "vp-needs-pp",
         "vp 2 needs pp > 1, pp is 1"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'pp':2,'vp':2,'schedule':'gpipe'}", "schedule-vp",
         "vp 2 needs schedule interleaved, not gpipe"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'pp':2,'vp':1,'schedule':'zb-v'}", "schedule-vp",
         "schedule zb-v needs vp 2, vp is 1"},
        {"tiny-llama", "any", 2, 6, "{'world':2,'pp':2,'schedule':'dualpipe-v','micro_batch':2}",
         "dualpipe-microbatches",
         "schedule dualpipe-v needs 2 x pp 2 micro-batches, global_batch 6 / (micro_batch 2 x dp "
         "1) are 3"},
        {"tiny-llama", "any", 2, 10, "{'world':2,'pp':2,'schedule':'dualpipe','micro_batch':2}",
         "dualpipe-microbatches",
         "schedule dualpipe needs an even number, at least 2 x pp 2 micro-batches, global_batch 10 "
         "/ (micro_batch 2 x dp 1) are 5"},
        {"tiny-llama", "any", 3, 18, "{'world':3,'pp':3,'stages':'1,1,2','schedule':'dualpipe'}",
         "dualpipe-pp",
         "schedule dualpipe needs an even pp, whose two halves hold the same stages in opposite "
         "order, pp is 3"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'pp':2,'vp':2,'schedule':'dualpipe'}",
         "schedule-vp", "vp 2 needs schedule interleaved, not dualpipe"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'pp':2,'schedule':'interleaved'}", "schedule-vp",
         "schedule interleaved needs vp > 1, vp is 1"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'sp':1}", "sp-needs-tp",
         "sp 1 needs tp > 1, tp is 1"},
        {"tiny-moe", "any", 2, 32, "{'world':2,'tp':2}", "moe-tp-needs-sp",
         "a model with experts and tp 2 needs sp 1"},
        {"nano-llama", "any", 64, 32, "{'world':6,'tp':3,'sp':1,'cp':2}", "seq-sp",
         "seq 32 is not a multiple of cp 2 x tp 3, as sp needs"},
        {"nano-llama", "any", 64, 33, "{'world':3,'cp':3}", "seq-cp",
         "seq 32 is not a multiple of 2 x cp 3"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'tp':2,'zero':1}", "zero-needs-dp",
         "zero 1 has only 1 rank to shard over (dp 1 x cp 1)"},
        {"tiny-moe", "any", 2, 32, "{'world':2,'ep':2,'zero':1,'zero_scope':'plain'}",
         "zero-needs-dp", "zero 1 plain has only 1 rank to shard over (dp 2 x cp 1)"},
        {"tiny-llama", "any", 8, 32, "{'world':8,'cp':8,'cp_comm':'a2a'}", "cp-comm-heads",
         "cp_comm a2a needs heads 8 and kv_heads 4 that are multiples of tp 1 x cp 8"},
        {"tiny-llama", "any", 8, 32, "{'world':8,'cp':2,'cp_comm':'a2a+p2p'}", "cp-comm-heads",
         "cp_comm a2a+p2p needs a proper divisor > 1 of cp 2 that, times tp 1, fits in a node and "
         "divides kv_heads 4"},
        {"tiny-llama", "any", 8, 32, "{'world':8,'cp':2,'zero':2,'shard':3}", "shard-divides",
         "dp 4 x cp 2 is not a multiple of shard 3"},
        {"tiny-llama", "any", 8, 32, "{'world':8,'zero':3,'shard':1}", "shard-divides",
         "shard 1 shards nothing: use zero 0"},
        {"tiny-moe", "any", 8, 32, "{'world':8,'ep':4,'zero':3,'shard':2}", "shard-divides",
         "edp 2 is not a multiple of the 4 copies of shard 2"},
        {"tiny-moe", "any", 8, 32, "{'world':8,'ep':2,'zero':1,'zero_scope':'plain','shard':4}",
         "shard-divides", "shard 4 needs zero_scope ep-aware"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'threads':2}", "threads-fit",
         "2 ranks per node x threads 2 is more than 2 cores"},
        {"nano-llama", "any", 64, 32, "{'world':16,'tp':2,'sp':1,'cp':4,'precision':'mxfp8'}",
         "scale-blocks", "tokens per micro-batch 8 is not a multiple of 32, as mxfp8 needs"},
        {"tiny-llama", "megatron", 2, 32, "{'world':2,'precision':'fp8-current'}", "fp8-device",
         "precision fp8-current needs devices that multiply in fp8: core has no "
         "peak_tflops.fp8"},
        {"tiny-llama", "any", 0, 32, "{'world':2,'precision':'mxfp8'}", "scale-device",
         "precision mxfp8 needs devices that multiply blocks with their scales: H100-80 "
         "SXM has no peak_tflops.fp4"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'zero':1,'offload_optimizer':50}",
         "offload-needs-device",
         "offload_optimizer 50 needs devices with their own memory: those of cluster local are CPU "
         "cores"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'offload_optimizer':50}", "offload-needs-zero",
         "offload_optimizer 50 needs zero >= 1 with dp 2 x cp 1 replicas, zero is 0"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'zero':1,'offload_params':1}",
         "offload-needs-zero",
         "offload_params 1 needs zero >= 2 with dp 2 x cp 1 replicas, zero is 1"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'pp':2,'offload_activations':3}", "offload-layers",
         "offload_activations 3 is more than the 2 layers of the fullest of pp 2 stages"},
        {"llama-405b", "any", 0, 32, "{'world':8,'zero':1,'offload_optimizer':100}",
         "offload-fits-host",
         "8 ranks per node offload 756 GiB each: more than the node's 2048 GiB of host memory"},
        {"tiny-llama", "partune", 2, 32, "{'world':2,'zero':1,'offload_optimizer':100}",
         "trainer-supports", "trainer partune does not support offload_optimizer > 0"},
        {"tiny-llama", "partune", 2, 32, "{'world':2,'offload_activations':1}", "trainer-supports",
         "trainer partune does not support offload_activations > 0"},
        {"tiny-llama", "megatron", 2, 32, "{'world':2,'zero':3,'offload_params':1}",
         "trainer-supports", "trainer megatron does not support offload_params 1"},
        {"tiny-llama", "megatron", 2, 32, "{'world':2,'zero':2,'offload_optimizer':50}",
         "trainer-supports",
         "trainer megatron does not support offload_optimizer 50 with zero above 1: Megatron-FSDP"},
        {"tiny-llama", "megatron", 2, 32,
         "{'world':2,'zero':1,'precision':'mxfp8','fp8_param_gather':1,'offload_optimizer':50}",
         "trainer-supports",
         "trainer megatron does not support offload_optimizer 50 with fp8_param_gather 1 in a "
         "precision other than fp8"},
        {"tiny-llama", "megatron", 2, 32, "{'world':2,'pp':2,'offload_activations':1}",
         "trainer-supports", "trainer megatron does not support offload_activations 1 with pp > 1"},
        {"tiny-llama", "megatron", 2, 32, "{'world':2,'recompute':'full','offload_activations':1}",
         "trainer-supports",
         "trainer megatron does not support offload_activations 1 with recompute"},
        {"tiny-llama", "megatron", 2, 32,
         "{'world':2,'cuda_graphs':'modules','offload_activations':1}", "trainer-supports",
         "trainer megatron does not support offload_activations 1 with cuda_graphs modules"},
        {"tiny-llama", "megatron", 2, 32, "{'world':2,'offload_activations':4}", "trainer-supports",
         "trainer megatron does not support offload_activations 4 with no layer left on the "
         "device"},
        {"tiny-llama", "torchtitan", 2, 32,
         "{'world':2,'zero':3,'offload_optimizer':50,'offload_params':1}", "trainer-supports",
         "trainer torchtitan does not support offload_optimizer 50"},
        {"tiny-llama", "torchtitan", 2, 32, "{'world':2,'zero':3,'offload_optimizer':100}",
         "trainer-supports",
         "trainer torchtitan does not support offload_optimizer 100 with offload_params 0: one "
         "switch does both"},
        {"tiny-llama", "torchtitan", 2, 32, "{'world':2,'zero':3,'offload_params':1}",
         "trainer-supports",
         "trainer torchtitan does not support offload_params 1 with offload_optimizer below 100: "
         "one switch does both"},
        {"tiny-llama", "torchtitan", 2, 32,
         "{'world':2,'zero':3,'offload_optimizer':100,'offload_params':1,'cuda_graphs':'iteration'"
         "}",
         "trainer-supports",
         "trainer torchtitan does not support offload_optimizer 100 with cuda_graphs"},
        {"tiny-llama", "deepspeed", 2, 32, "{'world':2,'zero':2,'offload_optimizer':50}",
         "trainer-supports",
         "trainer deepspeed does not support offload_optimizer 50 with zero below 3: it is 0 or "
         "100 there"},
        {"tiny-llama", "deepspeed", 4, 32, "{'world':4,'zero':3,'shard':2,'offload_optimizer':100}",
         "trainer-supports",
         "trainer deepspeed does not support offload_optimizer 100 with shard: MiCS"},
        {"tiny-llama", "deepspeed", 2, 32, "{'world':2,'zero':2,'offload_params':1}",
         "trainer-supports",
         "trainer deepspeed does not support offload_params 1 with zero below 3"},
        {"tiny-moe", "deepspeed", 4, 32,
         "{'world':4,'tp':2,'ep':2,'zero':2,'offload_optimizer':100}", "trainer-supports",
         "trainer deepspeed does not support offload_optimizer 100 with tp > 1 and ep > 1"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'precision':'fp32','grad_dtype':'bf16'}",
         "canonical", "grad_dtype bf16 is not canonical here: use fp32"},
        {"tiny-llama", "partune", 2, 32, "{'world':2,'precision':'fp32','grad_dtype':'bf16'}",
         "canonical", "grad_dtype bf16 is not canonical here: use fp32"},
        {"tiny-llama", "torchtitan", 2, 32, "{'world':2,'precision':'bf16','grad_dtype':'bf16'}",
         "trainer-supports", "trainer torchtitan does not support grad_dtype bf16"},
        {"tiny-llama", "deepspeed", 2, 32, "{'world':2,'precision':'bf16'}", "trainer-supports",
         "trainer deepspeed does not support grad_dtype fp32 with zero 0: it accumulates in the "
         "precision of the weights"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'fp8_param_gather':1,'zero':1}", "canonical",
         "fp8_param_gather 1 is not canonical here: use 0"},
        {"tiny-moe", "megatron", 2, 32,
         "{'world':2,'recompute':'selective','recompute_moe_act':1,'precision':'fp8'}",
         "trainer-supports",
         "trainer megatron does not support recompute_moe_act 1 with precision fp8: delayed "
         "scaling"},
        {"tiny-moe", "megatron", 2, 32,
         "{'world':2,'ep':2,'overlap_moe_a2a':1,'moe_dispatch':'allgather','precision':'bf16'}",
         "trainer-supports",
         "trainer megatron does not support overlap_moe_a2a 1 with moe_dispatch allgather"},
        {"tiny-moe", "any", 2, 32, "{'world':2,'moe_dispatch':'deepep'}", "canonical",
         "moe_dispatch deepep is not canonical here: use alltoall"},
        {"tiny-moe", "torchtitan", 2, 32, "{'world':2,'ep':2,'moe_dispatch':'deepep'}",
         "trainer-supports", "trainer torchtitan does not support moe_dispatch deepep"},
        {"tiny-moe", "megatron", 2, 32, "{'world':2,'cuda_graphs':'iteration'}", "trainer-supports",
         "trainer megatron does not support cuda_graphs iteration with experts"},
        {"tiny-llama", "megatron", 2, 32, "{'world':2,'recompute':'full','cuda_graphs':'modules'}",
         "trainer-supports",
         "trainer megatron does not support cuda_graphs modules with recompute full"},
        {"tiny-llama", "partune", 2, 32, "{'world':2,'cuda_graphs':'iteration'}",
         "trainer-supports", "trainer partune does not support cuda_graphs iteration"},
        {"tiny-llama", "partune", 2, 32, "{'world':2,'tp':2,'cuda_graphs':'modules'}",
         "trainer-supports", "trainer partune does not support cuda_graphs modules with tp > 1"},
        {"tiny-llama", "partune", 2, 32, "{'world':2,'zero':3,'cuda_graphs':'modules'}",
         "trainer-supports", "trainer partune does not support cuda_graphs modules with zero > 1"},
        {"tiny-moe", "partune", 2, 32, "{'world':2,'cuda_graphs':'modules'}", "trainer-supports",
         "trainer partune does not support cuda_graphs modules with experts"},
        {"tiny-llama", "torchtitan", 2, 32, "{'world':2,'cuda_graphs':'modules'}",
         "trainer-supports", "trainer torchtitan does not support cuda_graphs modules"},
        {"tiny-llama", "torchtitan", 2, 32, "{'world':2,'pp':2,'cuda_graphs':'iteration'}",
         "trainer-supports",
         "trainer torchtitan does not support cuda_graphs iteration with pp 2 and ep 1"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'tp':2,'tp_overlap':1}", "tp-overlap-needs-sp",
         "tp_overlap 1 needs sp 1, sp is 0"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'tp_overlap':1}", "canonical",
         "tp_overlap 1 is not canonical here: use 0"},
        {"tiny-llama", "deepspeed", 2, 32, "{'world':2,'tp':2,'tp_overlap':1}", "trainer-supports",
         "trainer deepspeed does not support tp_overlap 1"},
        {"tiny-llama", "any", 2, 32,
         "{'world':2,'recompute':'full','recompute_method':'block','recompute_num_layers':99}",
         "canonical", "recompute_method block is not canonical here: use uniform"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'recompute_num_layers':2}", "canonical",
         "recompute_num_layers 2 is not canonical here: use 1"},
        {"tiny-llama", "partune", 2, 32,
         "{'world':2,'recompute':'full','recompute_method':'block'}", "trainer-supports",
         "trainer partune does not support recompute_method block"},
        {"tiny-llama", "torchtitan", 2, 32,
         "{'world':2,'recompute':'full','recompute_num_layers':2}", "trainer-supports",
         "trainer torchtitan does not support recompute_num_layers > 1"},
        {"deepseek-v3", "megatron", 2, 32,
         "{'world':2,'recompute':'full','recompute_num_layers':2}", "trainer-supports",
         "trainer megatron does not support recompute_num_layers > 1 with mtp 1"},
        {"tiny-moe", "any", 2, 32,
         "{'world':2,'recompute':'selective','recompute_moe':1,'recompute_moe_act':1}", "canonical",
         "recompute_moe_act 1 is not canonical here: use 0"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'recompute':'selective','recompute_core_attn':1}",
         "canonical", "recompute_core_attn 1 is not canonical here: use 0"},
        {"tiny-llama", "deepspeed", 2, 32, "{'world':2,'precision':'mxfp8'}", "trainer-supports",
         "trainer deepspeed does not support precision mxfp8"},
        {"tiny-llama", "deepspeed", 2, 32, "{'world':2,'cp':2}", "trainer-supports",
         "trainer deepspeed does not support cp > 1"},
        {"deepseek-v3", "torchtitan", 8, 32, "{'world':8,'cp':8,'zero':2}", "trainer-supports",
         "trainer torchtitan does not support mtp 1 with pp 1 and cp 8: multi-token prediction "
         "needs both to be 1"},
        {"gpt-oss-20b", "torchtitan", 8, 32, "{'world':8,'cp':2,'zero':2}", "trainer-supports",
         "trainer torchtitan does not support cp 2 with attn_sinks: its attention is "
         "VarlenAttention"},
        {"qwen2.5-7b", "torchtitan", 8, 32, "{'world':8,'zero':2}", "trainer-supports",
         "trainer torchtitan does not support qkv_bias true without attn_sinks"},
        {"gpt-1.4B", "torchtitan", 2, 32, "{'world':2,'zero':2}", "trainer-supports",
         "trainer torchtitan does not support mlp gelu"},
        {"tiny-llama", "partune", 6, 30, "{'world':6,'zero':3,'shard':4}", "shard-divides",
         "dp 6 x cp 1 is not a multiple of shard 4"},
        {"tiny-llama", "partune", 2, 32, "{'world':2,'tp':2,'sp':1,'zero':2}", "zero-needs-dp",
         "zero 2 has only 1 rank to shard over (dp 1 x cp 1)"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'schedule':'gpipe'}", "canonical",
         "schedule gpipe is not canonical here: use 1f1b"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'ep':2}", "canonical",
         "ep 2 is not canonical here: use 1"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'zero_scope':'plain'}", "canonical",
         "zero_scope plain is not canonical here: use none"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'zero':1,'zero_scope':'plain'}", "canonical",
         "zero_scope plain is not canonical here: use ep-aware"},
        {"tiny-llama", "torchtitan", 8, 32, "{'world':8,'cp':4,'cp_comm':'a2a'}",
         "trainer-supports", "trainer torchtitan does not support cp_comm a2a"},
        {"tiny-llama", "any", 8, 32, "{'world':8,'cp_comm':'a2a'}", "canonical",
         "cp_comm a2a is not canonical here: use p2p"},
        {"tiny-llama", "any", 8, 32, "{'world':8,'zero':2,'shard':8}", "canonical",
         "shard 8 is not canonical here: use 0"},
        {"tiny-llama", "any", 8, 32, "{'world':8,'shard':4}", "canonical",
         "shard 4 is not canonical here: use 0"},
        {"tiny-llama", "any", 2, 32, "{'world':2,'overlap_p2p':1}", "canonical",
         "overlap_p2p 1 is not canonical here: use 0"},
    };
    const char *const *rule = pl_rule_names();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = row[i].cores
                             ? world_cpu(row[i].model, row[i].cores, row[i].batch, row[i].trainer)
                             : world_of(row[i].model, "dgx-h100", 1, row[i].batch, row[i].trainer);
        struct pl_layout l = layout_of(&x, row[i].layout);
        struct pl_verdict v;
        char all[4096];
        bool seen = false;

        assert_false(pl_layout_check(&v, problem_of(&x), &l));
        assert_false(pl_layout_check(NULL, problem_of(&x), &l));
        for (int j = 0; j < v.count; j++)
            seen |= !strcmp(v.v[j].rule, row[i].rule) && !strcmp(v.v[j].text, row[i].text);
        if (!seen)
            fail_msg("%s %s: wanted %s: %s, found %s", row[i].model, row[i].layout, row[i].rule,
                     row[i].text, pl_verdict_text(all, sizeof(all), &v));
    }
    for (; *rule; rule++) {                          /* the table above leaves no rule out */
        bool covered = !strncmp(*rule, "parts-", 6); /* by plan_parts.c */

        for (size_t i = 0; i < ARRAY_LEN(row); i++)
            covered |= !strcmp(row[i].rule, *rule);
        if (!covered)
            fail_msg("no case for the rule %s", *rule);
    }
}

static void all_broken_rules_are_reported_at_once(void **state)
{
    struct world x = world_cpu("tiny-llama", 4, 30, "partune");
    struct pl_layout l = layout_of(&x, "{'world':8,'tp':8,'micro_batch':4,'threads':3}");
    struct pl_verdict v;
    char text[1024];

    (void)state;
    assert_false(pl_layout_check(&v, problem_of(&x), &l));
    pl_verdict_text(text, sizeof(text), &v);
    assert_non_null(strstr(text, "world-fits: "));
    assert_non_null(strstr(text, "kv-heads-tp: "));
    assert_non_null(strstr(text, "batch-divides: "));
    assert_non_null(strstr(text, "threads-fit: "));
    assert_int_equal(v.count, 4);
}

/* The widest that the bundled trainer's kernels take is legal, one more is refused by its key;
 * other trainers have no such bound. */
static void sizes_beyond_the_kernels_are_refused_by_key(void **state)
{
    static const struct {
        const char *key;
        size_t offset;
        int most, step;
    } row[] = {
        {"head_dim", offsetof(struct pl_model, head_dim), PL_MAX_HEAD_DIM, 2},
        {"hidden", offsetof(struct pl_model, hidden), PL_MAX_HIDDEN, 1},
        {"vocab", offsetof(struct pl_model, vocab), 2 * PL_MAX_COLUMNS, 1},
        {"ffn", offsetof(struct pl_model, ffn), 2 * PL_MAX_FFN, 2},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_cpu("tiny-llama", 2, 32, "partune");
        struct pl_layout l = layout_of(&x, "{'world':2,'tp':2}");
        struct pl_verdict v;
        char wanted[80];
        int *size = (int *)(void *)((char *)&x.m + row[i].offset);

        *size = row[i].most;
        assert_true(pl_layout_check(NULL, problem_of(&x), &l));
        *size += row[i].step;
        assert_false(pl_layout_check(&v, problem_of(&x), &l));
        assert_int_equal(v.count, 1);
        assert_string_equal(v.v[0].rule, "trainer-supports");
        snprintf(wanted, sizeof(wanted), "trainer partune does not support %s > ", row[i].key);
        if (strncmp(v.v[0].text, wanted, strlen(wanted)) != 0)
            fail_msg("%s: %s", row[i].key, v.v[0].text);
        assert_true(pl_layout_check(NULL, problem_with(&x, pl_trainer_find("any")), &l));
    }
}

/* Norms of outputs and zero-centered norms are legal where the bundled trainer has them. */
static void norms_that_the_bundled_trainer_lacks_are_refused(void **state)
{
    static const struct {
        bool post_norms, zero_centered, parallel, layernorm;
        const char *model, *text;
        bool outputs_only;
    } row[] = {
        {true, false, false, false, "tiny-llama", NULL, true},
        {true, true, true, false, "tiny-llama", "post_norms with parallel_block true", true},
        {true, true, false, false, "tiny-llama", NULL, false},
        {false, true, true, false, "tiny-moe", NULL, false},
        {true, false, false, false, "tiny-moe", "post_norms with experts", false},
        {true, false, true, false, "tiny-llama", "post_norms with parallel_block true", false},
        {true, false, false, true, "tiny-llama", "post_norms with norm layernorm", false},
        {false, true, false, true, "tiny-llama", NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_cpu(row[i].model, 2, 32, "partune");
        struct pl_layout l = layout_of(&x, "{'world':2}");
        struct pl_verdict v = {0};

        x.m.post_norms = row[i].post_norms;
        x.m.pre_norms = !row[i].outputs_only;
        x.m.zero_centered_norm = row[i].zero_centered;
        x.m.parallel_block = row[i].parallel;
        x.m.norm = row[i].layernorm ? PL_LAYERNORM : PL_RMSNORM;
        x.m.qkv_bias = x.m.out_bias = x.m.mlp_bias = row[i].layernorm;
        assert_int_equal(pl_layout_check(&v, problem_of(&x), &l), !row[i].text);
        if (row[i].text && (v.count != 1 || !strstr(v.v[0].text, row[i].text)))
            fail_msg("%zu: %s", i, v.v[0].text);
    }
}

static void a_multiplier_of_outputs_is_refused_in_a_parallel_block_alone(void **state)
{
    static const struct {
        const char *model;
        bool parallel, post_norms;
    } row[] = {{"tiny-llama", false, false},
               {"tiny-llama", false, true},
               {"tiny-moe", false, false},
               {"tiny-llama", true, false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_cpu(row[i].model, 2, 32, "partune");
        struct pl_layout l = layout_of(&x, "{'world':2}");
        struct pl_verdict v = {0};

        x.m.residual_multiplier = 0.22;
        x.m.parallel_block = row[i].parallel;
        x.m.post_norms = row[i].post_norms;
        assert_int_equal(pl_layout_check(&v, problem_of(&x), &l), !row[i].parallel);
        if (row[i].parallel)
            assert_string_equal(v.v[0].key, "residual_multiplier");
    }
}

/* What GPT-OSS has is legal with experts, and what experts of the bundled trainer lack is named. */
static void experts_of_the_bundled_trainer_are_swiglu_perhaps_clamped_and_biased(void **state)
{
    static const struct {
        enum pl_mlp mlp;
        bool bias;
        int shared;
        const char *text;
    } row[] = {
        {PL_SWIGLU, false, 0, NULL},
        {PL_SWIGLU_CLAMPED, true, 0, NULL},
        {PL_SWIGLU_CLAMPED, false, 64, NULL},
        {PL_GEGLU, false, 0, "experts with an mlp other than swiglu and swiglu-clamped"},
        {PL_SWIGLU, true, 64, "mlp_bias true with shared experts"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_cpu("tiny-moe", 2, 32, "partune");
        struct pl_layout l = layout_of(&x, "{'world':2}");
        struct pl_verdict v = {0};

        x.m.mlp = row[i].mlp;
        x.m.mlp_bias = x.m.qkv_bias = x.m.out_bias = row[i].bias;
        x.m.attn_sinks = x.m.moe.router_bias = true;
        x.m.moe.shared_ffn = row[i].shared;
        assert_int_equal(pl_layout_check(&v, problem_of(&x), &l), !row[i].text);
        if (row[i].text && (v.count != 1 || !strstr(v.v[0].text, row[i].text)))
            fail_msg("%zu: %s", i, v.v[0].text);
    }
}

static void a_layout_made_of_zeros_is_refused_without_a_division(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 32, "any");
    struct pl_layout l = {0};
    struct pl_verdict v;

    (void)state;
    assert_false(pl_layout_check(&v, problem_of(&x), &l));
    assert_string_equal(v.v[0].rule, "canonical");
}

static void an_oversubscribed_cluster_takes_more_ranks_and_threads(void **state)
{
    struct world x = world_cpu("tiny-llama", 2, 32, "partune");
    struct pl_layout l = layout_of(&x, "{'world':4,'threads':2}");

    (void)state;
    assert_false(pl_layout_check(NULL, problem_of(&x), &l));
    x.c.oversubscribe = true;
    assert_true(pl_layout_check(NULL, problem_of(&x), &l));
}

static void absent_keys_get_their_defaults(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 32, "any");
    struct pl_layout l = layout_of(&x, "{'pp':2,'vp':2}");

    (void)state;
    assert_int_equal(l.world, 4);
    assert_int_equal(l.dp, 2);
    assert_int_equal(l.edp, 2);
    assert_int_equal(l.schedule, PL_INTERLEAVED);
    assert_int_equal(l.zero_scope, PL_SCOPE_NONE);
    assert_int_equal(layout_of(&x, "{'zero':1}").zero_scope, PL_SCOPE_EP_AWARE);
    assert_int_equal(layout_of(&x, "{'dp':2,'tp':2,'sp':1}").world, 4);
    assert_int_equal(layout_of(&x, "{'dp':1,'tp':2,'sp':1}").world, 2);
}

static void bad_layouts_are_refused_by_pointer(void **state)
{
    static const struct {
        const char *layout, *pointer, *text;
    } row[] = {
        {"{'tpp':2}", "/tpp", "did you mean \"tp\"?"},
        {"{'tp':0}", "/tp", "outside 1..65536"},
        {"{'tp':1.5}", "/tp", "must be an integer"},
        {"{'schedule':'1F1B'}", "/schedule", "1f1b"},
        {"{'sp':true}", "/sp", "must be an integer"},
        {"{'dp':3}", "", NULL},
        {"{'world':4,'dp':3}", "/dp", "does not agree with world 4"},
        {"{'world':4,'edp':3}", "/edp", "does not agree with world 4"},
        {"[]", "", "expected an object"},
    };
    struct world x = world_cpu("tiny-llama", 4, 36, "any");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].layout);
        struct err e = {0};
        struct pl_layout l;
        int r = pl_layout_parse(&l, v, problem_of(&x), &e);

        if (!row[i].text) {
            assert_int_equal(r, 0);
            continue;
        }
        assert_true(r < 0);
        assert_string_equal(e.pointer, row[i].pointer);
        if (!strstr(e.text, row[i].text))
            fail_msg("%s: %s", row[i].layout, e.text);
    }
}

static void a_layout_survives_its_json(void **state)
{
    struct world x = world_cpu("tiny-moe", 64, 64, "any");
    struct pl_layout l = layout_of(
                         &x, "{'world':16,'tp':2,'sp':1,'pp':2,'vp':2,'ep':2,'etp':2,'zero':1,"
                             "'zero_scope':'plain','recompute':'selective','precision':'bf16',"
                             "'micro_batch':2,'overlap_p2p':1}"),
                     back;
    AUTO_JSON *v = pl_layout_json(&l);
    struct err e = {0};

    (void)state;
    assert_true(pl_layout_check(NULL, problem_of(&x), &l));
    assert_int_equal(pl_layout_parse(&back, v, problem_of(&x), &e), 0);
    assert_true(pl_layout_equal(&l, &back));
    assert_int_equal(json_integer_value(json_object_get(v, "edp")), 2);
}

static void the_canonical_form_is_legal_in_all_but_sizes(void **state)
{
    struct world x = world_cpu("tiny-llama", 4, 32, "any");
    struct pl_layout l =
        layout_of(&x, "{'world':4,'sp':1,'schedule':'gpipe','ep':2,'zero_scope':'plain',"
                      "'overlap_p2p':1,'overlap_moe_a2a':1,'overlap_param_gather':1}");

    (void)state;
    pl_layout_canonical(&l, &x.m);
    assert_true(pl_layout_check(NULL, problem_of(&x), &l));
    assert_int_equal(l.sp + l.overlap_p2p + l.overlap_moe_a2a + l.overlap_param_gather, 0);
    assert_int_equal(l.ep, 1);
}

static void both_meshes_number_all_ranks_with_tp_fastest_and_pp_slowest(void **state)
{
    struct world x = world_cpu("tiny-moe", 64, 64, "any");
    struct pl_layout l = layout_of(&x, "{'world':16,'tp':2,'sp':1,'pp':2,'ep':4}");
    static const enum pl_axis dense[] = {PL_TP, PL_CP, PL_DP, PL_PP};
    static const enum pl_axis expert[] = {PL_ETP, PL_EP, PL_EDP, PL_PP};

    (void)state;
    for (int rank = 0; rank < l.world; rank++) {
        int a = 0, b = 0;

        for (int i = 0; i < 4; i++) {
            a += pl_axis_coord(&l, dense[i], rank) * pl_axis_stride(&l, dense[i]);
            b += pl_axis_coord(&l, expert[i], rank) * pl_axis_stride(&l, expert[i]);
        }
        assert_int_equal(a, rank);
        assert_int_equal(b, rank);
        assert_int_equal(pl_axis_peer(&l, PL_EP, rank, pl_axis_coord(&l, PL_EP, rank)), rank);
    }
    assert_int_equal(pl_axis_peer(&l, PL_PP, 3, 1), 11);
    assert_int_equal(pl_axis_peer(&l, PL_TP, 3, 0), 2);
}

/* Counted over the ranks themselves: distinct expert coordinates among those that share tp and pp
 * coordinates. */
static void expert_replicas_are_the_distinct_coordinates_in_a_replica_group(void **state)
{
    static const int shape[][4] = {/* tp, ep, etp, dp */
                                   {1, 4, 1, 4}, {2, 4, 1, 4}, {2, 4, 2, 4}, {4, 2, 1, 2},
                                   {4, 8, 1, 2}, {6, 4, 1, 2}, {2, 8, 1, 4}, {4, 2, 4, 2}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shape); i++) {
        struct pl_layout l = {.world = shape[i][0] * shape[i][3],
                              .tp = shape[i][0],
                              .cp = 1,
                              .pp = 1,
                              .vp = 1,
                              .ep = shape[i][1],
                              .etp = shape[i][2]};
        unsigned seen = 0;

        assert_true(pl_layout_derive(&l));
        for (int rank = 0; rank < l.world; rank += l.tp)
            seen |= 1U << pl_axis_coord(&l, PL_EP, rank);
        assert_int_equal(__builtin_popcount(seen), pl_layout_expert_replicas(&l));
    }
}

static void stages_hold_all_layers_once_and_first_ones_are_longer(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 24; layers++)
        for (int pp = 1; pp <= 6; pp++)
            for (int vp = 1; pp * vp <= layers && vp <= 3; vp++) {
                struct pl_layout l = {.pp = pp, .vp = vp};
                int next = 0;

                for (int run = 0; run < pp * vp; run++) {
                    int first, n = pl_stage_layers(&first, &l, layers, run % pp, run / pp);

                    assert_int_equal(first, next);
                    assert_true(n == layers / (pp * vp) || n == layers / (pp * vp) + 1);
                    next += n;
                }
                assert_int_equal(next, layers);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_is_reported_by_name_and_numbers),
        cmocka_unit_test(all_broken_rules_are_reported_at_once),
        cmocka_unit_test(sizes_beyond_the_kernels_are_refused_by_key),
        cmocka_unit_test(norms_that_the_bundled_trainer_lacks_are_refused),
        cmocka_unit_test(a_multiplier_of_outputs_is_refused_in_a_parallel_block_alone),
        cmocka_unit_test(experts_of_the_bundled_trainer_are_swiglu_perhaps_clamped_and_biased),
        cmocka_unit_test(a_layout_made_of_zeros_is_refused_without_a_division),
        cmocka_unit_test(an_oversubscribed_cluster_takes_more_ranks_and_threads),
        cmocka_unit_test(absent_keys_get_their_defaults),
        cmocka_unit_test(bad_layouts_are_refused_by_pointer),
        cmocka_unit_test(a_layout_survives_its_json),
        cmocka_unit_test(the_canonical_form_is_legal_in_all_but_sizes),
        cmocka_unit_test(both_meshes_number_all_ranks_with_tp_fastest_and_pp_slowest),
        cmocka_unit_test(expert_replicas_are_the_distinct_coordinates_in_a_replica_group),
        cmocka_unit_test(stages_hold_all_layers_once_and_first_ones_are_longer),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
