/* Importers: what production configurations look like, what they leave unsaid, and what is no
 * setting of a layout. The round trips of exported files are in tuner_export.c. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "tests/unit/import_text.h"
#include "tuner/export/export.h"

static struct pl_model preset(const char *name)
{
    AUTO_JSON *v = json_string(name);
    struct pl_model m;
    struct err e = {0};

    if (pl_model_parse(&m, v, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    return m;
}

static struct pl_model llama(void)
{
    return preset("llama-8b");
}

static void imports_refuse_what_they_cannot_read(void **state)
{
    static const struct {
        const char *source, *text, *want;
    } rows[] = {
        {"megatron", "--tensor-model-parallel-size two", "must be a positive integer"},
        {"megatron", "--tensor-model-parallel-size", "must be a positive integer"},
        {"megatron", "tensor 2", "that begins with --"},
        {"megatron", "--recompute-granularity half", "`full` or `selective`"},
        {"megatron", "--tensor-model-parallel-size 7", "32 devices are not a multiple"},
        {"megatron", "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3",
         "32 layers are not a multiple"},
        {"deepspeed", "{\"zero_optimization\":{\"stage\":5}}", "outside 0..3"},
        {"megatron", "--bf16 --main-grads-dtype fp8",
         "must be fp32, bf16, fp16 or auto, not `fp8`"},
        {"deepspeed", "{\"communication_data_type\":\"int8\"}", "must be fp32, bf16 or fp16"},
        {"deepspeed", "[1]", "JSON object"},
        {"deepspeed", "{", "not JSON"},
        {"torchtitan", "[parallelism]\ntensor_parallel_degree = x", "must be a positive integer"},
        {"torchtitan",
         "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "
         "\"InterleavedZeroBubble\"",
         "InterleavedZeroBubble"},
        {"torchtitan",
         "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"DualPipeV\"\n"
         "pipeline_parallel_layers_per_stage = 4\n",
         "9 stages of 32 layers"},
        {"nemo", "", "unknown import source"},
        {"megatron", "--tensor-model-parallel-size 16777216 --context-parallel-size 16777216",
         "32 devices are not a multiple"},
        {"torchtitan", "[parallelism]\ntensor_parallel_degree = -1", "must be a positive integer"},
        {"torchtitan", "[parallelism\ntensor_parallel_degree = 1", "line 1: expected ]"},
        {"torchtitan", "a = [1,\n2", "line 2: unterminated array"},
        {"torchtitan", "a = {b = 1", "unterminated inline table"},
        {"torchtitan", "a = \"b", "line 1: unterminated string"},
        {"torchtitan", "[a]\nb = 1 2", "line 2: expected the end of the line"},
        {"torchtitan", "= 2", "line 1: expected key = value"},
        {"torchtitan",
         "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_layers_per_stage = 3\n",
         "12 stages of 32 layers"},
        {"deepspeed",
         "{\"train_batch_size\":64,\"train_micro_batch_size_per_gpu\":1,"
         "\"gradient_accumulation_steps\":4}",
         "is not micro-batch 1 x accumulation 4 x 32 replicas"},
        {"deepspeed", "{\"train_batch_size\":33}", "is not a multiple of 1 accumulation steps"},
    };
    struct pl_model m = llama();

    (void)state;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};

        assert_true(import_text(&out, rows[i].source, rows[i].text, 32, &m, &e) < 0);
        if (!strstr(e.text, rows[i].want))
            fail_msg("`%s` gave `%s`", rows[i].text, e.text);
    }
}

static void import_lists_what_it_ignores(void **state)
{
    struct tn_imported out;
    struct pl_model m = llama();
    struct err e = {0};

    (void)state;

    assert_int_equal(
        import_text(&out, "megatron",
                    "# today's job\n--tensor-model-parallel-size=4 --sequence-parallel \\\n"
                    " --lr 3e-4 --bf16 --data-path 'a b' --micro-batch-size 2",
                    32, &m, &e),
        0);
    assert_int_equal(out.layout.tp, 4);
    assert_int_equal(out.layout.sp, 1);
    assert_int_equal(out.layout.dp, 8);
    assert_int_equal(out.layout.micro_batch, 2);
    assert_int_equal(out.ignored.count, 2);
    assert_string_equal(out.ignored.v[0].setting, "--lr");
    assert_string_equal(out.ignored.v[1].setting, "--data-path");
}

/* A script's load-balancing loss is compared with the model's in the model's own words. */
static void another_load_balancing_loss_is_listed(void **state)
{
    static const struct {
        const char *text, *setting, *says; /* NULL: nothing */
    } rows[] = {
        {"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.00125", NULL, NULL},
        {"--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2",
         "--moe-aux-loss-coeff",
         "\"megatron\" with aux_loss_coef 0.01, but mixtral-8x7b has "
         "\"sequence\" with 0.02"},
        {"--moe-aux-loss-coeff 1e-2", "--moe-aux-loss-coeff", "\"megatron\""},
        {"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01",
         "--moe-aux-loss-coeff", "\"sequence\" with aux_loss_coef 0.16"},
        {"--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0.01",
         "--moe-router-load-balancing-type", "no such value"},
        {"--moe-router-load-balancing-type none", "--moe-aux-loss-coeff", "with aux_loss_coef 0,"},
        {"--moe-z-loss-coeff 0", NULL, NULL},
        {"--moe-z-loss-coeff 1e-3", "--moe-z-loss-coeff",
         "this is moe.z_loss_coef 0.001, but mixtral-8x7b has 0: another model?"},
    };
    struct pl_model m = preset("mixtral-8x7b");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "megatron", rows[i].text, 8, &m, &e) < 0)
            fail_msg("%s: %s", rows[i].text, e.text);
        assert_int_equal(out.ignored.count, rows[i].says ? 1 : 0);
        if (!rows[i].says)
            continue;
        assert_string_equal(out.ignored.v[0].setting, rows[i].setting);
        if (!strstr(out.ignored.v[0].detail, rows[i].says))
            fail_msg("%s: %s", rows[i].text, out.ignored.v[0].detail);
    }
}

/* Sizes of linear attention and of an indexer are compared, in a script and in a recipe. */
static void other_sizes_of_attention_are_listed(void **state)
{
    static const struct {
        const char *target, *model, *text, *setting, *says; /* NULL: nothing */
    } rows[] = {
        {"megatron", "qwen3-next-80b-a3b",
         "--linear-num-key-heads 16 --linear-num-value-heads 32 --linear-key-head-dim 128 "
         "--linear-value-head-dim 128",
         NULL, NULL},
        {"megatron", "qwen3-next-80b-a3b", "--linear-num-value-heads 16",
         "--linear-num-value-heads", "16, but qwen3-next-80b-a3b has 32: another model?"},
        {"megatron", "deepseek-v3.2", "--dsa-indexer-topk 2048 --dsa-indexer-n-heads 64", NULL,
         NULL},
        {"megatron", "deepseek-v3", "--dsa-indexer-topk 2048", "--dsa-indexer-topk",
         "2048, but deepseek-v3 has 0"},
        {"megatron", "qwen3-next-80b-a3b",
         "--experimental-attention-variant gdn --linear-attention-freq 4", NULL, NULL},
        {"megatron", "qwen3-next-80b-a3b", "--experimental-attention-variant gated_delta_net", NULL,
         NULL},
        {"megatron", "qwen3-next-80b-a3b", "--experimental-attention-variant dsa",
         "--experimental-attention-variant",
         "dsa, but qwen3-next-80b-a3b has linear_attention (gdn): another model?"},
        {"megatron", "llama-8b", "--experimental-attention-variant gdn",
         "--experimental-attention-variant", "gdn, but llama-8b has neither"},
        {"megatron", "qwen3-next-80b-a3b", "--linear-attention-freq 3", "--linear-attention-freq",
         "3, but qwen3-next-80b-a3b has 4"},
        {"megatron", "qwen3-next-80b-a3b", "--linear-attention-freq ([1]*3+[0])*12",
         "--linear-attention-freq", "not a setting of the layout"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct pl_model m = preset(rows[i].model);
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, rows[i].target, rows[i].text, 8, &m, &e) < 0)
            fail_msg("%s: %s", rows[i].text, e.text);
        if (!rows[i].says) {
            assert_int_equal(out.ignored.count, 0);
            continue;
        }
        assert_string_equal(out.ignored.v[0].setting, rows[i].setting);
        if (!strstr(out.ignored.v[0].detail, rows[i].says))
            fail_msg("%s: %s", rows[i].text, out.ignored.v[0].detail);
    }
}

/* With dp x cp = 1 experts alone have replicas: torchtitan shards them since it has functions. */
static void experts_alone_are_sharded(void **state)
{
    static const struct {
        const char *text;
        int zero;
    } rows[] = {
        {"def f(c):\n    c.parallelism.tensor_parallel_degree = 32\n"
         "    c.parallelism.expert_parallel_degree = 4\n",
         3},
        {"def f(c):\n    c.parallelism.tensor_parallel_degree = 32\n"
         "    c.parallelism.expert_parallel_degree = 32\n",
         0},
        {"[parallelism]\ntensor_parallel_degree = 32\nexpert_parallel_degree = 4\n", 0},
    };
    struct pl_model m = preset("deepseek-v3-like");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "torchtitan", rows[i].text, 32, &m, &e) < 0)
            fail_msg("`%s`: %s", rows[i].text, e.text);
        assert_int_equal(out.layout.zero, rows[i].zero);
        assert_int_equal(out.layout.overlap_grad_reduce, rows[i].zero > 0);
    }
}

/* What a source does not say has the source's own default, not ours. */
static void imports_fill_in_the_sources_defaults(void **state)
{
    static const struct {
        const char *source, *text, *key;
        int want;
    } rows[] = {
        {"megatron", "--use-megatron-fsdp", "zero", 3},
        {"megatron", "--use-megatron-fsdp --data-parallel-sharding-strategy optim", "zero", 1},
        {"megatron", "--data-parallel-sharding-strategy optim", "zero", 0},
        {"megatron", "--context-parallel-size 4 --cp-comm-type all_gather", "cp_comm",
         PL_CP_ALL_GATHER},
        {"megatron", "--context-parallel-size 4 --cp-comm-type allgather", "cp_comm",
         PL_CP_ALL_GATHER},
        {"megatron", "--context-parallel-size 4 --cp-comm-type a2a+p2p --bf16", "cp_comm",
         PL_CP_A2A_P2P},
        {"megatron", "--cp-comm-type a2a a2a --context-parallel-size 4", "cp_comm", PL_CP_A2A},
        {"megatron", "--use-megatron-fsdp", "overlap_param_gather", 1},
        {"megatron",
         "--use-distributed-optimizer --num-distributed-optimizer-instances 4 "
         "--tensor-model-parallel-size 2",
         "shard", 4},
        {"megatron", "--use-distributed-optimizer --num-distributed-optimizer-instances 32", "zero",
         0},
        {"megatron", "--fp8-format hybrid --bf16", "precision", PL_FP8},
        {"megatron", "--fp16", "precision", PL_BF16},
        {"megatron", "--fp8-recipe delayed --fp8-format hybrid", "precision", PL_FP8},
        {"megatron", "--bf16 --fp8-recipe tensorwise --fp8-format hybrid", "precision",
         PL_FP8_CURRENT},
        {"megatron", "--fp8-format e4m3 --fp8-recipe mxfp8", "precision", PL_MXFP8},
        {"megatron", "--bf16 --fp8-recipe mxfp8", "precision", PL_BF16},
        {"megatron", "--fp4-format e2m1 --fp4-recipe nvfp4 --bf16", "precision", PL_NVFP4},
        {"megatron", "--fp8-format e4m3 --fp8-param-gather --use-distributed-optimizer",
         "fp8_param_gather", 1},
        /* gradients: both in fp32 with --bf16, and Megatron-FSDP's in the type of the weights */
        {"megatron", "--bf16", "grad_dtype", PL_GRADS_FP32},
        {"megatron", "--bf16 --grad-reduce-in-bf16", "grad_dtype", PL_GRADS_BF16},
        {"megatron", "--bf16 --grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32",
         "grad_dtype", PL_GRADS_BF16},
        {"megatron", "--bf16 --main-grads-dtype bf16", "grad_dtype", PL_GRADS_BF16},
        {"megatron", "--bf16 --main-grads-dtype fp32", "grad_dtype", PL_GRADS_FP32},
        {"megatron", "--fp16", "grad_dtype", PL_GRADS_BF16},
        {"megatron", "--fp16 --accumulate-allreduce-grads-in-fp32", "grad_dtype", PL_GRADS_FP32},
        {"megatron", "--grad-reduce-in-bf16", "grad_dtype", PL_GRADS_FP32}, /* of fp32 weights */
        {"megatron", "--bf16 --use-megatron-fsdp", "grad_dtype", PL_GRADS_BF16},
        {"megatron", "--bf16 --use-torch-fsdp2", "grad_dtype", PL_GRADS_BF16},
        {"megatron", "--bf16 --use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32",
         "grad_dtype", PL_GRADS_FP32},
        {"megatron", "--use-megatron-fsdp --megatron-fsdp-main-grads-dtype auto --bf16",
         "grad_dtype", PL_GRADS_BF16},
        {"deepspeed", "{\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":1}}",
         "grad_dtype", PL_GRADS_BF16},
        {"deepspeed",
         "{\"bf16\":{\"enabled\":true},\"data_types\":{\"grad_accum_dtype\":\"fp32\"}}",
         "grad_dtype", PL_GRADS_FP32},
        {"deepspeed",
         "{\"fp16\":{\"enabled\":true},\"data_types\":{\"grad_accum_dtype\":\"half\"}}",
         "grad_dtype", PL_GRADS_BF16},
        {"deepspeed", "{\"torch_autocast\":{\"enabled\":true}}", "grad_dtype", PL_GRADS_FP32},
        {"megatron",
         "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et|(tt|)*6,tL", "vp",
         2},
        {"megatron",
         "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|t*15|t*15|tL", "vp",
         2},
        {"deepspeed", "{\"zero_optimization\":{\"stage\":3}}", "overlap_grad_reduce", 1},
        {"deepspeed", "{\"zero_optimization\":{\"stage\":2}}", "overlap_grad_reduce", 0},
        {"deepspeed", "{\"train_batch_size\":128,\"gradient_accumulation_steps\":2}", "micro_batch",
         2},
        {"deepspeed", "{\"train_batch_size\":\"auto\",\"train_micro_batch_size_per_gpu\":\"auto\"}",
         "micro_batch", 1},
        {"deepspeed", "{\"tensor_parallel\":{\"tp\":{\"tp_size\":4}}}", "tp", 4},
        {"torchtitan", "", "micro_batch", 8},
        {"torchtitan", "", "precision", PL_BF16},
        {"torchtitan", "", "recompute", PL_RECOMPUTE_SELECTIVE},
        {"torchtitan", "", "zero", 3},
        {"torchtitan",
         "[parallelism]\ndata_parallel_replicate_degree = 16\ncontext_parallel_degree = 2\n"
         "data_parallel_shard_degree = 1",
         "zero", 3}, /* shards lie over dp_shard x cp */
        {"torchtitan", "[parallelism]\ndata_parallel_replicate_degree = 4", "shard", 8},
        {"deepspeed", "{\"zero_optimization\":{\"stage\":3,\"mics_shard_size\":8}}", "shard", 8},
        {"deepspeed", "{\"zero_optimization\":{\"stage\":3,\"mics_shard_size\":-1}}", "shard", 0},
        {"torchtitan",
         "[parallelism]\ncontext_parallel_degree = 32\ndata_parallel_shard_degree = 1",
         "overlap_grad_reduce", 1},
        /* names of the first releases */
        {"torchtitan", "[training]\nbatch_size = 4", "micro_batch", 4},
        {"torchtitan", "[training]\ntensor_parallel_degree = 2", "tp", 2},
        {"torchtitan", "[experimental]\ncontext_parallel_degree = 2", "cp", 2},
        {"torchtitan",
         "[training]\nbatch_size = 8\n[experimental]\npipeline_parallel_degree = 4\n"
         "pipeline_parallel_schedule = \"gpipe\"",
         "micro_batch", 2}, /* as many micro-batches as stages */
        {"torchtitan",
         "[training]\nbatch_size = 8\n[experimental]\npipeline_parallel_degree = 4\n"
         "pipeline_parallel_microbatches = 8",
         "micro_batch", 1},
        {"torchtitan",
         "[parallelism]\npipeline_parallel_degree = 2\n"
         "pipeline_parallel_schedule = \"interleaved1f1b\"",
         "vp", 2},
        {"megatron", "--use-torch-fsdp2", "zero", 3},
        {"megatron", "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", "zero", 2},
        {"megatron", "--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", "zero", 2},
        {"deepspeed", "{\"bfloat16\":{\"enabled\":true}}", "precision", PL_BF16},
        {"deepspeed", "{\"bfloat16\":{\"enabled\":true},\"bf16\":{\"enabled\":false}}", "precision",
         PL_FP32},
        {"deepspeed", "{\"zero_optimization\":{\"stage\":\"auto\"}}", "zero", 0},
        {"torchtitan", "[parallelism]\npipeline_parallel_degree = 2", "zero", 2},
        {"torchtitan",
         "[parallelism]\npipeline_parallel_degree = 2\n"
         "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
         "pipeline_parallel_layers_per_stage = 6",
         "vp", 3}, /* (32 + 1 + 1) / 6 stages: the first and the last are a layer shorter */
        {"torchtitan",
         "[parallelism]\npipeline_parallel_degree = 2\n"
         "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
         "pipeline_parallel_layers_per_stage = 4\n"
         "pipeline_parallel_first_stage_less_layers = 0\n"
         "pipeline_parallel_last_stage_less_layers = 0",
         "vp", 4},
        {"torchtitan",
         "def f(c):\n    c.parallelism.tensor_parallel_degree = 2\n"
         "    c.parallelism.enable_sequence_parallel = False\n",
         "sp", 0},
        {"torchtitan", "def f(c):\n    c.activation_checkpoint = None\n", "recompute",
         PL_RECOMPUTE_NONE},
        {"torchtitan",
         "def f(c):\n    c.training.max_context_length = 1_024\n"
         "    c.training.num_tokens_per_microbatch_per_dp_rank = 4 * 1024\n",
         "micro_batch", 4},
        {"torchtitan", "[model]\nconverters = [\"float8\"]", "precision", PL_FP8},
        {"torchtitan", "[model]\nconverters = [\"quantize.linear.mx\"]", "precision", PL_MXFP8},
        {"torchtitan", "[model]\nconverters = []", "precision", PL_BF16},
        {"torchtitan",
         "def f(c):\n    c.training.mixed_precision_param = \"bfloat16\"\n"
         "    c.model_spec = model_registry(\"8B\", "
         "converters=[MXFP8LinearConverter.Config(model_compile_enabled=True)])\n",
         "precision", PL_MXFP8},
        {"torchtitan",
         "def f(c):\n    if not has_quantization(c.model_spec.model):\n"
         "        narrow = Float8LinearConverter.Config(filter_fqns=[\"lm_head\"])\n"
         "        c.model_spec = model_registry(\"8B\", converters=[narrow])\n"
         "    c.training.local_batch_size = 1\n",
         "precision", PL_FP8},
        {"deepspeed", "{\"bf16\":{\"enabled\":\"auto\"},\"fp16\":{\"enabled\":\"auto\"}}",
         "precision", PL_FP32},
        {"deepspeed", "{\"zero_optimization\":{\"stage\":3,\"overlap_comm\":\"auto\"}}",
         "overlap_param_gather", 1},
    };
    struct pl_model m = llama();

    (void)state;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, rows[i].source, rows[i].text, 32, &m, &e) < 0)
            fail_msg("`%s`: %s", rows[i].text, e.text);
        if (pl_layout_get(&out.layout, pl_layout_key_find(rows[i].key)) != rows[i].want)
            fail_msg("%s of `%s` is %d, not %d", rows[i].key, rows[i].text,
                     pl_layout_get(&out.layout, pl_layout_key_find(rows[i].key)), rows[i].want);
    }
}

static void nested_settings_without_a_word_are_listed(void **state)
{
    struct tn_imported out;
    struct pl_model m = llama();
    struct err e = {0};

    (void)state;

    assert_int_equal(import_text(&out, "deepspeed",
                                 "{\"zero_optimization\":{\"stage\":2,\"leaf_module\":{"
                                 "\"names\":[\"a\"]}},\"wall_clock_breakdown\":false}",
                                 32, &m, &e),
                     0);
    assert_int_equal(out.ignored.count, 1);
    assert_string_equal(out.ignored.v[0].setting, "zero_optimization.leaf_module");
    assert_int_equal(import_text(&out, "megatron",
                                 "--recompute-granularity selective "
                                 "--recompute-modules core_attn mlp mhc --seed 1",
                                 32, &m, &e),
                     0);
    assert_int_equal(out.ignored.count, 2);
    assert_string_equal(out.ignored.v[0].setting, "--recompute-modules");
    assert_non_null(strstr(out.ignored.v[0].detail, "mhc"));
    assert_true(out.layout.recompute_mlp && out.layout.recompute_core_attn);
}

/* A job as a script has it: the launcher before it, variables set, quotes, comments.
 */
static void a_whole_command_line_is_read(void **state)
{
    struct pl_model m = llama();
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    assert_int_equal(
        import_text(
            &out, "megatron",
            "torchrun --nproc_per_node 8 \\\r\n  \"$DIR/pretrain_gpt.py\" \\\r\n"
            "--tensor-model-parallel-size 4 --pipeline-model-parallel-size=2\\\n"
            "--num-layers 32 --hidden-size 5120 --save my\\ run --no-such-flag # narrow\n--lr 1",
            32, &m, &e),
        0);
    assert_int_equal(out.layout.tp, 4);
    assert_int_equal(out.layout.pp, 2);
    assert_int_equal(out.ignored.count, 4);
    assert_string_equal(out.ignored.v[0].setting, "--hidden-size");
    assert_string_equal(out.ignored.v[0].detail, "5120, but llama-8b has 4096: another model?");
    assert_string_equal(out.ignored.v[1].detail, "not a setting of the layout: my run");
    assert_string_equal(out.ignored.v[2].setting, "--no-such-flag");
    assert_string_equal(out.ignored.v[3].setting, "--lr");
    assert_string_equal(out.ignored.v[3].detail,
                        "not an argument: the line before it does not end in a backslash");
}

/* As people's scripts end, and what they leave to variables. */
static void what_a_shell_would_fill_in_is_listed(void **state)
{
    static const struct {
        const char *text, *setting, *detail;
    } cases[] = {
        {"--bf16 \"$@\" --tensor-model-parallel-size 4", "$@",
         "the script's own arguments are unknown here"},
        {"--tensor-model-parallel-size 4 --data-path \"$A\" $B", "--data-path",
         "not a setting of the layout: $A $B"},
        {"--tensor-model-parallel-size 4 --bf16 2>&1 | tee log --lr 3", "2>&1",
         "the command ends here"},
        {"--tensor-model-parallel-size 4 && echo done", "&&", "the command ends here"},
        {"--sequence-parallel '--tensor-model-parallel-size' \"4\" --seed 1", "--seed",
         "not a setting of the layout: 1"},
        {"+ torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --seed 1", "--seed",
         "not a setting of the layout: 1"}, /* what `set -x` shows */
        {"--tensor-model-parallel-size \\\n    4 --note \"two \\\n words\"", "--note",
         "not a setting of the layout: two  words"},
    };
    struct pl_model m = llama();
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (import_text(&out, "megatron", cases[i].text, 32, &m, &e) < 0)
            fail_msg("%s: %s", cases[i].text, e.text);
        assert_int_equal(out.layout.tp, 4);
        assert_int_equal(out.ignored.count, 1);
        assert_string_equal(out.ignored.v[0].setting, cases[i].setting);
        assert_string_equal(out.ignored.v[0].detail, cases[i].detail);
    }
}

/* What is cut off to fit stays text: an answer with half a letter could not be written. */
static void listed_values_are_text_where_they_are_cut(void **state)
{
    struct pl_model m = llama();

    (void)state;
    for (int shift = 0; shift < 6; shift++) {
        AUTO_STR text = {0};
        struct tn_imported out;
        struct err e = {0};
        const char *detail;

        str_addf(&text, "--data-path %.*s", shift, "xxxxxx");
        for (int i = 0; i < 200; i++)
            str_add(&text, i % 3 ? "\xc3\xa9" : "\xe2\x82\xac");
        assert_int_equal(import_text(&out, "megatron", str_text(&text), 32, &m, &e), 0);
        assert_int_equal(out.ignored.count, 1);
        detail = out.ignored.v[0].detail;
        assert_true(strlen(detail) > 80);
        assert_true(str_is_utf8(detail, strlen(detail)));
    }
}

/* Without expert parallelism these two split experts by tp, whatever else is said. */
static void experts_follow_tp_where_nothing_places_them(void **state)
{
    static const struct {
        const char *source, *text;
        int etp;
    } cases[] = {
        {"torchtitan", "[parallelism]\ntensor_parallel_degree = 2\n", 2},
        {"torchtitan", "[parallelism]\ntensor_parallel_degree = 2\nexpert_parallel_degree = 4\n",
         1},
        {"deepspeed", "{\"tensor_parallel\": {\"autotp_size\": 2}}", 2},
        {"deepspeed",
         "{\"tensor_parallel\": {\"autotp_size\": 2}, \"expert_parallel\": {\"enabled\": true, "
         "\"autoep_size\": 4}}",
         1},
        {"megatron", "--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1", 1},
    };
    struct pl_model m = preset("mixtral-8x7b");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, cases[i].source, cases[i].text, 32, &m, &e) < 0)
            fail_msg("%s: %s", cases[i].text, e.text);
        assert_int_equal(out.layout.etp, cases[i].etp);
    }
}

static void a_long_list_says_how_much_more_there_is(void **state)
{
    struct pl_model m = llama();
    struct tn_imported out;
    AUTO_STR text = {0};
    struct err e = {0};

    (void)state;
    for (int i = 0; i < TN_MAX_FINDINGS + 4; i++)
        str_addf(&text, "--flag%d\n", i);
    assert_int_equal(import_text(&out, "megatron", str_text(&text), 32, &m, &e), 0);
    assert_int_equal(out.ignored.count, TN_MAX_FINDINGS);
    assert_string_equal(out.ignored.v[TN_MAX_FINDINGS - 1].detail, "and 5 more");
}

/* The forms that TOML allows for the same settings. */
static void job_files_are_toml(void **state)
{
    static const char text[] = "# a job\n"
                               "title = 'x # y'\n"
                               "parallelism.tensor_parallel_degree = 2 # dotted\n"
                               "[ training ]\n"
                               "\"local_batch_size\" = 4\n"
                               "global_batch_size = 1_024\n"
                               "[model]\n"
                               "converters = [\n"
                               "    \"a]\", # first\n"
                               "    'b',\n"
                               "]\n"
                               "[activation_checkpoint]\r\n"
                               "mode = 'full'\r\n"
                               "[parallelism]\n"
                               "pipeline_parallel_degree = 2\n"
                               "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                               "pipeline_parallel_microbatch_size = 2\n"
                               "[checkpoint]\n"
                               "note = \"\"\"two\nlines = 1\"\"\"\n"
                               "async = { mode = \"disabled\", every = [1, [2, 3]] }\n"
                               "[[list]]\n"
                               "x = true\n";
    static const char *const ignored[] = {"title",
                                          "model.converters",
                                          "checkpoint.note",
                                          "checkpoint.async.mode",
                                          "checkpoint.async.every",
                                          "list.x",
                                          "training.global_batch_size"};
    struct pl_model m = llama();
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    if (import_text(&out, "torchtitan", text, 32, &m, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(out.layout.tp, 2);
    assert_int_equal(out.layout.pp, 2);
    assert_int_equal(out.layout.vp, 2);
    assert_int_equal(out.layout.stages, PL_STAGES_BALANCED); /* its default */
    assert_int_equal(out.layout.micro_batch, 2);
    assert_int_equal(out.layout.recompute, PL_RECOMPUTE_FULL);
    assert_int_equal(out.global_batch, 1024);
    assert_int_equal(out.ignored.count, ARRAY_LEN(ignored));
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        assert_string_equal(out.ignored.v[i].setting, ignored[i]);
}

/* A recipe as a registry has it, and one that changes another. */
static void functions_of_configurations_are_read(void **state)
{
    static const char *const texts[] = {
        "from torchtitan.config import (\n    ParallelismConfig,\n    TrainingConfig,\n)\n\n\n"
        "def job() -> Trainer.Config:\n    \"\"\"Not this:\n    training.seq_len = 1\n    \"\"\"\n"
        "    return Trainer.Config(\n        optimizer=Optimizers.Config(lr=8e-4),\n"
        "        training=TrainingConfig(\n            local_batch_size=2,  # a rank\n"
        "            seq_len=8192,\n        ),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=8),\n"
        "        activation_checkpoint=ActivationCheckpointConfig(mode='full'),\n"
        "        dataloader=Loader.Config(args={'a': [1, 2]}, f=lambda x: x),\n    )\n",
        "def job():\n    seq = 8 * 1024\n    tp = 8\n    config = base_recipe('8B')\n"
        "    training, x = config.training, 1\n"
        "    training = config.training\n    training.seq_len = seq\n"
        "    training.local_batch_size = 2\n    parallelism = config.parallelism\n"
        "    parallelism.tensor_parallel_degree: int = tp\n"
        "    parallelism.context_parallel_degree = 1\n"
        "    parallelism.pipeline_parallel_degree = 1\n"
        "    parallelism.data_parallel_replicate_degree = 1\n"
        "    parallelism.data_parallel_shard_degree = -1\n"
        "    config.activation_checkpoint = FullAC.Config()\n    return config\n",
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "torchtitan", texts[i], 32, &m, &e) < 0)
            fail_msg("%zu: %s", i, e.text);
        assert_int_equal(out.layout.tp, 8);
        assert_int_equal(out.layout.micro_batch, 2);
        assert_int_equal(out.layout.recompute, PL_RECOMPUTE_FULL);
        assert_int_equal(out.seq, 8192);
        assert_true(out.ignored.count > 0);
        assert_string_equal(out.ignored.v[0].setting, i ? "base_recipe" : "optimizer.lr");
    }
}

/* Every way in which Megatron-LM and torchtitan say what a stage holds; llama-8b has 32 layers. */
static void stages_come_in_by_any_of_their_forms(void **state)
{
    static const struct {
        const char *source, *text;
        int vp;
        const char *stages; /* or the error */
    } row[] = {
        {"megatron", "--pipeline-model-parallel-layout Et*7|(t*9|)*2,t*7,L", 1, "7,9*2,7"},
        {"megatron", "--pipeline-model-parallel-layout E|(t*16|)*2L", 1, "0,16*2,0"},
        {"megatron", "--pipeline-model-parallel-layout Ettt|(t*4|)*3(t*5|)*3ttL", 2, "3,4*3,5*3,2"},
        {"megatron", "--pipeline-model-parallel-layout Et*8|(t*8|)*2t*8L", 1, "even"},
        {"megatron", "--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6",
         1, "6,10*2,6"},
        {"megatron", "--decoder-last-pipeline-num-layers 2", 1, "10*3,2"},
        {"megatron",
         "--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 2 "
         "--num-virtual-stages-per-pipeline-rank 2",
         2, "3,6*2,1,3,6*2,1"},
        {"megatron", "--decoder-first-pipeline-num-layers 7", 1, "do not divide over pp 4"},
        {"megatron", "--decoder-first-pipeline-num-layers 8 --account-for-loss-in-pipeline-split",
         1, "at most one of"},
        {"megatron", "--account-for-loss-in-pipeline-split", 1, "33 layers, embedding and loss"},
        {"torchtitan",
         "pipeline_parallel_first_stage_less_layers = 0\n"
         "pipeline_parallel_last_stage_less_layers = 0\n",
         1, "even"},
        {"torchtitan", "pipeline_parallel_first_stage_less_layers = 1\n", 1, "balanced"},
        {"torchtitan", "pipeline_parallel_last_stage_less_layers = 3\n", 1, "8,9*2,6"},
        {"torchtitan", "pipeline_parallel_last_stage_less_layers = 30\n", 1, "cannot have 1 fewer"},
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        bool titan = str_eq(row[i].source, "torchtitan");
        AUTO_FREE char *text = mem_printf("%s%s",
                                          titan ? "[parallelism]\npipeline_parallel_degree = 4\n"
                                                : "--pipeline-model-parallel-size 4 ",
                                          row[i].text);
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, row[i].source, text, 32, &m, &e) < 0) {
            if (!strstr(e.text, row[i].stages))
                fail_msg("%s: %s", text, e.text);
            continue;
        }
        assert_int_equal(out.layout.vp, row[i].vp);
        assert_string_equal(pl_stages_text(out.layout.stages), row[i].stages);
    }
    m.layers = 30;
    for (int vp = 1; vp <= 2; vp++) {
        AUTO_FREE char *text =
            mem_printf("--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split "
                       "--account-for-loss-in-pipeline-split "
                       "--num-layers-per-virtual-pipeline-stage %d",
                       8 / vp);
        struct tn_imported out;
        struct err e = {0};

        assert_int_equal(import_text(&out, "megatron", text, 32, &m, &e), 0);
        assert_int_equal(out.layout.vp, vp);
        assert_int_equal(out.layout.stages, PL_STAGES_BALANCED);
    }
}

/* Settings that we read, with a meaning that has no word here, or none for this model. */
static void what_is_read_only_in_part_is_listed(void **state)
{
    static const struct {
        const char *source, *text, *setting, *detail;
    } cases[] = {
        {"megatron",
         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 40",
         "recompute_num_layers", "40 has no effect here, taken as 32"},
        {"megatron", "--expert-model-parallel-size 8", "ep", "8 has no effect here, taken as 1"},
        {"megatron", "--sequence-parallel", "sp", "1 has no effect here, taken as 0"},
        {"megatron", "--grad-reduce-in-bf16", "grad_dtype",
         "bf16 has no effect here, taken as fp32"},
        {"megatron",
         "--bf16 --use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32 "
         "--megatron-fsdp-grad-comm-dtype bf16",
         "--megatron-fsdp-grad-comm-dtype",
         "gradients are reduced in bf16, but accumulated in fp32: grad_dtype is the latter"},
        {"megatron", "--bf16 --use-megatron-fsdp --accumulate-allreduce-grads-in-fp32",
         "--accumulate-allreduce-grads-in-fp32",
         "Megatron-FSDP reads --megatron-fsdp-main-grads-dtype, here bf16"},
        {"megatron", "--bf16 --megatron-fsdp-main-grads-dtype bf16",
         "--megatron-fsdp-main-grads-dtype", "applies only with --use-megatron-fsdp"},
        {"deepspeed", "{\"bf16\":{\"enabled\":true},\"communication_data_type\":\"FP32\"}",
         "communication_data_type",
         "gradients are reduced in fp32, but accumulated in bf16: grad_dtype is the latter"},
        {"torchtitan",
         "[training]\nmixed_precision_reduce = 'bfloat16'\n[activation_checkpoint]\nmode = "
         "'none'\n",
         "training.mixed_precision_reduce",
         "gradients are reduced in bfloat16, but accumulated in fp32: grad_dtype is the latter"},
        {"megatron", "--recompute-num-layers 4", "--recompute-num-layers",
         "applies only with full"},
        {"megatron", "--recompute-granularity selective --recompute-method uniform",
         "--recompute-method", "applies only with full"},
        {"megatron", "--data-parallel-sharding-strategy optim", "--data-parallel-sharding-strategy",
         "applies only with --use-megatron-fsdp"},
        {"megatron", "--ckpt-format torch_dist", "--ckpt-format",
         "not a setting of the layout: torch_dist"},
        {"megatron",
         "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E(t)*15|(t)*15,L",
         "--pipeline-model-parallel-layout", "30 layers, but llama-8b has 32: another model?"},
        {"megatron",
         "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout E(t)*12|(t)*11|t*9m|L",
         "--pipeline-model-parallel-layout",
         "m in stage 3 of 4: here, multi-token prediction layers are in the last one"},
        {"megatron", "--overlap-param-gather-with-optimizer-step",
         "--overlap-param-gather-with-optimizer-step", "not a setting of the layout"},
        {"deepspeed", "{\"expert_parallel\": {\"enabled\": true, \"autoep_size\": 4}}", "ep",
         "4 has no effect here, taken as 1"},
        {"deepspeed", "{\"expert_parallel\": {\"autoep_size\": 4}}", "expert_parallel.autoep_size",
         "applies only with \"enabled\": true"}, /* off unless it is said */
        {"deepspeed", "{\"train_micro_batch_size_per_gpu\": \"auto\"}",
         "train_micro_batch_size_per_gpu", "auto: the script decides"},
        {"deepspeed", "{\"zero_optimization\": {\"stage\": \"auto\"}}", "zero_optimization.stage",
         "auto: the script decides"},
        {"deepspeed", "{\"bf16\": {\"enabled\": true, \"immediate_grad_update\": true}}",
         "bf16.immediate_grad_update", "not a setting of the layout"},
        {"deepspeed", "{\"tensor_parallel\": {\"tp\": {\"tp_size\": 2, \"tp_grain_size\": 64}}}",
         "tensor_parallel.tp.tp_grain_size", "not a setting of the layout"},
        {"torchtitan",
         "[training]\nmixed_precision_param = 'float16'\n[activation_checkpoint]\nmode = 'none'\n",
         "training.mixed_precision_param", "float16 taken as bf16, which needs the same bytes"},
        {"torchtitan", "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '4'\n",
         "activation_checkpoint.selective_ac_option",
         "selective recomputes operators here, not one layer in 4"},
        {"torchtitan", "", "activation_checkpoint.selective_ac_option",
         "selective recomputes operators here, not one layer in 2"}, /* the default */
    };
    struct pl_model m = llama();
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (import_text(&out, cases[i].source, cases[i].text, 32, &m, &e) < 0)
            fail_msg("%s: %s", cases[i].text, e.text);
        assert_int_equal(out.ignored.count, 1);
        assert_string_equal(out.ignored.v[0].setting, cases[i].setting);
        assert_string_equal(out.ignored.v[0].detail, cases[i].detail);
    }
}

static void words_that_the_source_does_not_know_are_refused(void **state)
{
    static const struct {
        const char *source, *text, *named;
    } cases[] = {
        {"megatron", "--recompute-granularity full --recompute-method all", "--recompute-method"},
        {"megatron", "--recompute-num-layers some", "--recompute-num-layers"},
        {"megatron", "--bf16 true", "`true`"},
        {"megatron", "--sequence-parallel=true", "--sequence-parallel takes no value"},
        {"megatron", "--tensor-model-parallel-size 4 8", "`8`"},
        {"megatron", "--tensor-model-parallel-size $TP", "`$TP`"},
        {"megatron", "--save it's --tensor-model-parallel-size 4", "unterminated quote"},
        {"megatron", "--bf16 \"--micro-batch-size", "unterminated quote"},
        {"megatron",
         "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
         "--num-layers-per-virtual-pipeline-stage 4",
         "at most one of"},
        {"megatron", "--pipeline-model-parallel-layout E(t|*3L", "unclosed bracket"},
        {"megatron", "--pipeline-model-parallel-layout Et)L", "unopened bracket"},
        {"megatron", "--pipeline-model-parallel-layout Et*0L", "repeats"},
        {"megatron", "--pipeline-model-parallel-layout E((t*60000)*60000)*60000",
         "is not terminated"},
        {"megatron", "--pipeline-model-parallel-layout", "is empty"},
        {"megatron", "--micro-batch-size 16777216", "too many"},
        {"torchtitan", "[training]\nlocal_batch_size = 16777216", "too many"},
        {"torchtitan",
         "[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 2\n"
         "pipeline_parallel_microbatch_size = 3\n",
         "a local batch of 8 sequences"},
        {"torchtitan", "def f(c):\n    c.training.seq_len = n * 2\n", "not `n * 2`"},
        {"torchtitan", "def f(c):\n    if x:\n        c.training.seq_len = 4\n",
         "line 3: training.seq_len is under a condition"},
        {"torchtitan",
         "def f(c):\n    c.training.seq_len = 4\n\ndef g(c):\n    c.training.seq_len = 8\n",
         "both f and g set training.seq_len"},
        {"torchtitan", "def f(c):\n    return C.Config(training=TConfig(seq_len=4)",
         "unclosed bracket"},
        {"torchtitan", "def f(c):\n    x = 'a\n", "line 2: unterminated string"},
        {"torchtitan", "def f(c):\n    c.training.num_tokens_per_microbatch_per_dp_rank = 3000\n",
         "3000 is not a whole number of sequences of 2048"},
        {"torchtitan",
         "def f(c):\n    c.training.num_tokens_per_microbatch_per_dp_rank = 2048\n"
         "    c.training.num_tokens_per_train_step = 2048 * 33\n",
         "is not a multiple of 1 micro-batches"},
        {"torchtitan",
         "def f(c):\n    c.parallelism.pipeline_parallel_degree = 2\n"
         "    c.parallelism.num_pp_microbatches = 4\n",
         "changed from version to version"},
        {"torchtitan", "def f(c):\n    c.parallelism.enable_sequence_parallel = x\n",
         "enable_sequence_parallel must be one of"},
        {"deepspeed",
         "{\"expert_parallel\": {\"enabled\": true, \"autoep_size\": 2, "
         "\"expert_tensor_parallel_size\": 0}}",
         "expert_tensor_parallel_size"},
        {"torchtitan", "[training]\nmixed_precision_param = 'half'\n", "mixed_precision_param"},
        {"torchtitan", "[activation_checkpoint]\nmode = 'some'\n", "activation_checkpoint.mode"},
        {"torchtitan", "[parallelism]\nfsdp_reshard_after_forward = 'often'\n",
         "fsdp_reshard_after_forward"},
        {"torchtitan", "[parallelism]\ndata_parallel_shard_degree = 4\n",
         "data_parallel_shard_degree"},
        {"torchtitan", "[parallelism]\ndata_parallel_replicate_degree = 3\n",
         "data_parallel_replicate_degree"},
        {"megatron", "--cp-comm-type ring", "--cp-comm-type must be"},
        {"megatron", "--use-distributed-optimizer --num-distributed-optimizer-instances 3",
         "--num-distributed-optimizer-instances 3 does not divide dp x cp 32"},
    };
    struct pl_model m = llama();
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (import_text(&out, cases[i].source, cases[i].text, 32, &m, &e) >= 0)
            fail_msg("`%s` was read", cases[i].text);
        if (!strstr(e.text, cases[i].named) && !strstr(e.pointer, cases[i].named))
            fail_msg("%s does not name %s", e.text, cases[i].named);
    }
}

/* Dispatch, graphs and overlap of Megatron-LM's arguments, and its default dispatcher. */
static void dispatch_and_graphs_are_read(void **state)
{
    static const struct {
        const char *text;
        int dispatch, graphs, tp_overlap, ignored;
    } cases[] = {
        {"", PL_DISPATCH_ALLGATHER, PL_GRAPHS_NONE, 0, 0},
        {"--moe-token-dispatcher-type alltoall --cuda-graph-impl none", PL_DISPATCH_ALLTOALL,
         PL_GRAPHS_NONE, 0, 0},
        {"--moe-token-dispatcher-type alltoall_seq --world-size 16 --num-zero-experts 8",
         PL_DISPATCH_ALLTOALL, PL_GRAPHS_NONE, 0, 2},
        {"--moe-token-dispatcher-type flex", PL_DISPATCH_DEEPEP, PL_GRAPHS_NONE, 0, 0},
        {"--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
         PL_DISPATCH_HYBRIDEP, PL_GRAPHS_NONE, 0, 0},
        {"--moe-token-dispatcher-type=flex --moe-enable-deepep", PL_DISPATCH_DEEPEP, PL_GRAPHS_NONE,
         0, 0},
        {"--cuda-graph-impl local --cuda-graph-modules attn moe_router moe_preprocess "
         "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap",
         PL_DISPATCH_ALLGATHER, PL_GRAPHS_MODULES, 1, 0},
        {"--cuda-graph-impl transformer_engine --cuda-graph-modules moe", PL_DISPATCH_ALLGATHER,
         PL_GRAPHS_MODULES, 0, 1},
        {"--enable-cuda-graph", PL_DISPATCH_ALLGATHER, PL_GRAPHS_MODULES, 0, 0},
        {"--cuda-graph-impl full_iteration", PL_DISPATCH_ALLGATHER, PL_GRAPHS_ITERATION, 0, 0},
        {"--cuda-graph-impl local --cuda-graph-scope full_iteration", PL_DISPATCH_ALLGATHER,
         PL_GRAPHS_ITERATION, 0, 0},
    };
    AUTO_JSON *name = json_string("mixtral-8x7b");
    struct pl_model m;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_model_parse(&m, name, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *text = mem_printf("--expert-model-parallel-size 8 %s", cases[i].text);
        struct tn_imported out;

        if (import_text(&out, "megatron", text, 16, &m, &e) < 0)
            fail_msg("%s: %s", text, e.text);
        if (out.layout.moe_dispatch != cases[i].dispatch ||
            out.layout.cuda_graphs != cases[i].graphs ||
            out.layout.tp_overlap != cases[i].tp_overlap || out.ignored.count != cases[i].ignored)
            fail_msg("%s: moe_dispatch %d cuda_graphs %d tp_overlap %d, %d ignored", text,
                     out.layout.moe_dispatch, out.layout.cuda_graphs, out.layout.tp_overlap,
                     out.ignored.count);
    }
    assert_true(import_text(&(struct tn_imported){0}, "megatron", "--cuda-graph-impl some", 16, &m,
                            &e) < 0);
    assert_non_null(strstr(e.text, "full_iteration"));
}

/* What is in host memory, in each source's words; SETTING is listed, NULL: nothing is. */
static void what_is_offloaded_is_read(void **state)
{
    static const struct {
        const char *source, *text;
        int optimizer, params, activations;
        const char *setting;
    } cases[] = {
        {"megatron",
         "--use-distributed-optimizer --optimizer-cpu-offload --use-precision-aware-optimizer "
         "--overlap-cpu-optimizer-d2h-h2d",
         100, 0, 0, NULL},
        {"megatron",
         "--use-distributed-optimizer --optimizer-cpu-offload --optimizer-offload-fraction 0.5 "
         "--use-precision-aware-optimizer",
         50, 0, 0, "--optimizer-cpu-offload"},
        {"megatron",
         "--use-distributed-optimizer --optimizer-cpu-offload --optimizer-offload-fraction=0.333 "
         "--overlap-cpu-optimizer-d2h-h2d",
         33, 0, 0, "--optimizer-offload-fraction"},
        {"megatron", "--optimizer-offload-fraction 0.5", 0, 0, 0, "--optimizer-offload-fraction"},
        {"megatron", "--use-precision-aware-optimizer", 0, 0, 0, "--use-precision-aware-optimizer"},
        {"megatron", "--cpu-offloading-num-layers 7", 0, 0, 7, NULL},
        {"megatron", "--cpu-offloading-num-layers 0", 0, 0, 0, NULL},
        {"megatron", "--fine-grained-activation-offloading", 0, 0, 0,
         "--fine-grained-activation-offloading"},
        {"megatron", "--checkpoint-activations --checkpoint-in-cpu", 0, 0, 0,
         "--checkpoint-in-cpu"},
        {"deepspeed", "{'zero_optimization':{'stage':1,'offload_optimizer':{'device':'cpu'}}}", 100,
         0, 0, NULL},
        {"deepspeed",
         "{'zero_optimization':{'stage':3,'offload_optimizer':{'device':'cpu','ratio':0.3},"
         "'offload_param':{'device':'cpu','pin_memory':true}}}",
         30, 1, 0, NULL},
        {"deepspeed", "{'zero_optimization':{'stage':2,'cpu_offload':true}}", 100, 0, 0, NULL},
        {"deepspeed", "{'zero_optimization':{'stage':3,'offload_optimizer':{'device':'nvme'}}}",
         100, 0, 0, "zero_optimization.offload_optimizer"},
        {"deepspeed", "{'zero_optimization':{'stage':3,'offload_optimizer':{'device':'none'}}}", 0,
         0, 0, NULL},
        {"deepspeed", "{'zero_optimization':{'stage':0,'offload_optimizer':{'device':'cpu'}}}", 0,
         0, 0, "zero_optimization.offload_optimizer"},
        {"deepspeed", "{'zero_optimization':{'stage':2,'offload_param':{'device':'cpu'}}}", 0, 0, 0,
         "zero_optimization.offload_param"},
        {"torchtitan",
         "[training]\nenable_cpu_offload = true\n[parallelism]\n"
         "tensor_parallel_degree = 1\n"
         "[activation_checkpoint]\nmode = \"none\"\n",
         100, 1, 0, NULL},
        {"torchtitan",
         "[training]\nenable_cpu_offload = false\n[parallelism]\n"
         "tensor_parallel_degree = 1\n"
         "[activation_checkpoint]\nmode = \"none\"\n",
         0, 0, 0, NULL},
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *text = mem_strdup(cases[i].text);
        struct tn_imported out;
        struct err e = {0};
        bool listed = false;

        for (char *c = text; *text == '{' && *c; c++)
            *c = *c == '\'' ? '"' : *c;
        if (import_text(&out, cases[i].source, text, 32, &m, &e) < 0)
            fail_msg("%s: %s", text, e.text);
        for (int k = 0; k < out.ignored.count; k++)
            listed |= str_eq(out.ignored.v[k].setting, cases[i].setting);
        if (out.layout.offload_optimizer != cases[i].optimizer ||
            out.layout.offload_params != cases[i].params ||
            out.layout.offload_activations != cases[i].activations ||
            listed != (cases[i].setting != NULL) || (!listed && out.ignored.count))
            fail_msg("%s: optimizer %d params %d activations %d, %d listed", text,
                     out.layout.offload_optimizer, out.layout.offload_params,
                     out.layout.offload_activations, out.ignored.count);
    }
}

/* A job of one replica may say how to share a state that no other rank has. */
static void sharing_among_one_rank_has_no_effect(void **state)
{
    static const char *const rows[][2] = {
        {"megatron", "--tensor-model-parallel-size 4 --use-distributed-optimizer "
                     "--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d"},
        {"deepspeed", "{\"tensor_parallel\":{\"autotp_size\":4},\"zero_optimization\":{\"stage\":2,"
                      "\"offload_optimizer\":{\"device\":\"cpu\"}}}"},
        {"deepspeed", "{\"tensor_parallel\":{\"autotp_size\":4},\"zero_optimization\":{\"stage\":3,"
                      "\"offload_optimizer\":{\"device\":\"cpu\"},"
                      "\"offload_param\":{\"device\":\"cpu\"}}}"},
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, rows[i][0], rows[i][1], 4, &m, &e) < 0)
            fail_msg("%s: %s", rows[i][1], e.text);
        assert_true(out.layout.zero == 0 && out.layout.offload_optimizer == 100);
        assert_int_equal(out.layout.offload_params, strstr(rows[i][1], "offload_param\"") != NULL);
        assert_string_equal(out.ignored.v[0].setting, "zero");
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(imports_refuse_what_they_cannot_read),
    cmocka_unit_test(import_lists_what_it_ignores),
    cmocka_unit_test(another_load_balancing_loss_is_listed),
    cmocka_unit_test(other_sizes_of_attention_are_listed),
    cmocka_unit_test(experts_alone_are_sharded),
    cmocka_unit_test(imports_fill_in_the_sources_defaults),
    cmocka_unit_test(nested_settings_without_a_word_are_listed),
    cmocka_unit_test(a_whole_command_line_is_read),
    cmocka_unit_test(what_a_shell_would_fill_in_is_listed),
    cmocka_unit_test(listed_values_are_text_where_they_are_cut),
    cmocka_unit_test(experts_follow_tp_where_nothing_places_them),
    cmocka_unit_test(a_long_list_says_how_much_more_there_is),
    cmocka_unit_test(job_files_are_toml),
    cmocka_unit_test(functions_of_configurations_are_read),
    cmocka_unit_test(stages_come_in_by_any_of_their_forms),
    cmocka_unit_test(what_is_read_only_in_part_is_listed),
    cmocka_unit_test(dispatch_and_graphs_are_read),
    cmocka_unit_test(what_is_offloaded_is_read),
    cmocka_unit_test(sharing_among_one_rank_has_no_effect),
    cmocka_unit_test(words_that_the_source_does_not_know_are_refused),
};

UNIT_MAIN(tests)
