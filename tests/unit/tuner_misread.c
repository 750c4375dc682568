/* Importers: what was read as another layout than the one that runs. Each is read as its target
 * does, or refused by name. */
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

/* A setting that no source knows and that reads like a degree would be another layout than the one
 * that runs: Megatron's parser takes no abbreviations, DeepSpeed and torchtitan refuse such keys.
 */
static void what_looks_like_a_degree_is_never_ignored(void **state)
{
    static const struct {
        const char *source, *text, *named;
    } cases[] = {
        {"megatron", "--tensor-model-parallel 4", "`--tensor-model-parallel-size`"},
        {"megatron", "--tensor-parallel-size 8", "`--tensor-parallel-size 8` looks like a degree"},
        {"megatron", "--tensor-model-paralell-size 8",
         "did you mean `--tensor-model-parallel-size`"},
        {"megatron", "--tensor_model_parallel_size 8",
         "did you mean `--tensor-model-parallel-size`"},
        {"megatron", "--micro-batchsize 8", "did you mean `--micro-batch-size`"},
        {"megatron", "--sequence-paralel", "did you mean `--sequence-parallel`"},
        {"megatron", "--use-distributed-optimiser", "did you mean `--use-distributed-optimizer`"},
        {"megatron", "--model-parallel-size 4", "did you mean `--tensor-model-parallel-size`"},
        {"megatron", "--tp 4", "`--tp 4` looks like a degree"},
        {"megatron", "--seed 1 --pp=2", "`--pp 2` looks like a degree"},
        {"megatron", "--world-size 64", "looks like a degree"},
        {"megatron", "--encoder-tensor-model-parallel-size 2", "looks like a degree"},
        {"megatron", "--use-mp-args-from-checkpoint-args", "from a checkpoint"},
        {"megatron", "--tensor-model-parallel-size 2 --yaml-cfg job.yaml", "from a file"},
        {"megatron", "--tensor-model-parallel-size: 2", "`MODEL_ARGS:`"},
        {"megatron",
         "torchrun run_recipe.py --recipe llama3_8b_pretrain_config "
         "model.tensor_model_parallel_size=4",
         "recipe of Megatron-Bridge"},
        {"megatron", "torchrun run_script.py --domain llm model.pipeline_model_parallel_size=4",
         "recipe of Megatron-Bridge"},
        {"megatron", "python setup_experiment.py --account me -tp 4 -pp 2",
         "recipe of Megatron-Bridge"},
        {"megatron", "torchrun train.py --config job.yaml", "train.py has no layout setting"},
        {"megatron", "accelerate launch finetune.py --epochs 3",
         "finetune.py has no layout setting"},
        {"deepspeed", "{\"tensor_parallel_size\": 4}", "`tensor_parallel_size`: 4 looks like"},
        {"deepspeed", "{\"mesh\": {\"expert_parallel_degree\": 8}}",
         "`mesh.expert_parallel_degree`: 8"},
        {"deepspeed", "{\"tensor_parallel\": {\"autotp_sise\": 1, \"ep_size\": 4}}",
         "`tensor_parallel.ep_size`: 4"},
        {"deepspeed", "{\"pipeline\": {\"stages\": 4}, \"train_batch_size\": 32}",
         "`pipeline.stages`: 4"},
        {"deepspeed", "{}", "none of DeepSpeed's layout settings"},
        {"deepspeed", "{\"hidden_size\": 4096, \"num_hidden_layers\": 32}",
         "none of DeepSpeed's layout settings"},
        {"torchtitan", "[parallelism]\ntensor_paralell_degree = 8\n",
         "did you mean parallelism.tensor_parallel_degree"},
        {"torchtitan", "[parallelsm]\ntensor_parallel_degree = 8\n",
         "did you mean parallelism.tensor_parallel_degree"},
        {"torchtitan", "[parallelism]\ntp_degree = 2\n", "looks like a degree"},
        {"torchtitan", "def f(c):\n    c.parallelism.pipeline_degree = 4\n", "looks like a degree"},
        {"torchtitan",
         "from megatron.bridge.recipes.llama import llama3_8b_pretrain_config\n\ndef job():\n"
         "    cfg = llama3_8b_pretrain_config()\n    cfg.model.tensor_model_parallel_size = 4\n"
         "    return cfg\n",
         "recipe of Megatron-Bridge"},
        {"torchtitan", "def job(cfg):\n    cfg.model.tensor_model_parallel_size = 4\n",
         "model.tensor_model_parallel_size 4 looks like a degree"},
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, cases[i].source, cases[i].text, 32, &m, &e) >= 0)
            fail_msg("`%s` was read", cases[i].text);
        if (!strstr(e.text, cases[i].named))
            fail_msg("`%s`: `%s` does not say %s", cases[i].text, e.text, cases[i].named);
    }
}

/* Settings of the targets that have such words, or a degree of one, and are none. */
static void settings_that_are_no_degree_are_listed(void **state)
{
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"megatron", "--tp-comm-overlap-cfg tp.yaml"},
        {"megatron", "--hierarchical-context-parallel-sizes 2 4"},
        {"megatron", "--rl-inference-tensor-model-parallel-size 4"},
        {"megatron", "--ckpt-fully-parallel-save"},
        {"megatron", "--expert-tensor-parallel-num-weight-shards 8"},
        {"megatron", "--pipeline-model-parallel-comm-backend nccl"},
        {"megatron", "--encoder-tensor-model-parallel-size 0"},
        {"megatron", "--data-path a=1,b=2"},
        {"megatron", "--lr 8"},
        {"deepspeed", "{\"zero_optimization\": {\"stage\": 1, \"zero_hpz_partition_size\": 8}}"},
        {"deepspeed", "{\"hybrid_engine\": {\"inference_tp_size\": 4}, \"bf16\": {}}"},
        {"deepspeed", "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"}}"},
        {"deepspeed", "{\"amp\": {\"enabled\": true, \"opt_level\": \"O1\"}}"},
        {"torchtitan", "[activation_checkpoint]\nmode = 'none'\n[comm]\ntrace_buf_size = 20000\n"},
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, cases[i].source, cases[i].text, 32, &m, &e) < 0)
            fail_msg("%s: %s", cases[i].text, e.text);
        assert_int_equal(out.layout.tp * out.layout.pp * out.layout.cp, 1);
        assert_int_equal(out.ignored.count, 1);
        if (strstr(cases[i].text, "autocast") || strstr(cases[i].text, "amp\""))
            assert_int_equal(out.layout.precision, PL_BF16);
    }
}

/* Parts of a script, other programs' scripts, and arguments that a reader and a shell would see
 * differently: their defaults are no layout. */
static void parts_of_scripts_are_refused(void **state)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"TP=8\nPP=$((2*2))\nMBS=1\nEXTRA=\"--bf16 --seq-length 2048 --micro-batch-size $MBS\"\n"
         ". ./submit.sh\n",
         "`TP=8` is set"},
        {"PP=${PP:-4}\nOPTIONS=\"--micro-batch-size 1 --global-batch-size 64\"\n", "`PP=4` is set"},
        {"EXPERT_PARALLEL=8\nARGS=(--micro-batch-size 1)\n", "`EXPERT_PARALLEL=8` is set"},
        {"MODEL_ARGS=\"--num-layers 32 --hidden-size 4096 --seq-length 4096 --bf16\"\n",
         "no argument in this text sets a degree"},
        {"deepspeed --num_gpus 8 squad.py --deepspeed --fp16 --epochs 3\n",
         "squad.py has no layout setting"},
        {"torchrun pretrain_gpt.py --tensor-model-parallel-size 2 > log --micro-batch-size 4\n",
         "`--micro-batch-size` is behind"},
        {"--tensor-model-parallel-size 2 --load <PATH TO A CHECKPOINT> "
         "--pipeline-model-parallel-size "
         "4 --micro-batch-size 4",
         "`--pipeline-model-parallel-size` is behind"},
        {"set -e\nA=1\nexec other\n", "found `set -e`"},
        {"--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 4",
         "--tensor-parallel-num-weight-shards 4 is not tp 2"},
    };
    static const char *const fine[] = {
        "TP=2\nWORLD_SIZE=16\nDP=8\ntorchrun pretrain_gpt.py --tensor-model-parallel-size 2 "
        "--micro-batch-size 1 > log 2>&1\n",
        "TP=2\nARGS=\"--tensor-model-parallel-size $TP --micro-batch-size "
        "1\"\nWORLD_SIZE=16\nDP=8\n",
        "--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 2",
    };
    struct pl_model m = llama();
    struct tn_imported out;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = {0};

        if (import_text(&out, "megatron", cases[i].text, 32, &m, &e) >= 0)
            fail_msg("`%s` was read", cases[i].text);
        if (!strstr(e.text, cases[i].named) || strchr(e.text, '\n'))
            fail_msg("`%s`: `%s`", cases[i].text, e.text);
    }
    for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
        struct err e = {0};

        if (import_text(&out, "megatron", fine[i], 32, &m, &e) < 0)
            fail_msg("`%s`: %s", fine[i], e.text);
        assert_int_equal(out.layout.tp, 2);
    }
}

/* A value below its argument, and both forms of lists. */
static void values_in_yaml_are_read_in_every_form(void **state)
{
    static const char *const texts[] = {
        "MODEL_ARGS:\n  --tensor-model-parallel-size:\n    4\n  --recompute-granularity: "
        "selective\n"
        "  --recompute-modules: [core_attn, mlp]\n  --bf16:\n    # on\n    true\n",
        "MODEL_ARGS:\n  --tensor-model-parallel-size: 4\n  --recompute-modules:\n  - core_attn\n"
        "  - mlp # both\n  --recompute-granularity:\n      selective\n  --bf16: true\nNEXT: 3\n",
        "MODEL_ARGS:\n  --tensor-model-parallel-size: 4\n  --recompute-modules:\n    - "
        "core_attn\n\n"
        "    - mlp\n  --recompute-granularity: \"selective\"\n  --bf16:\n",
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "megatron", texts[i], 32, &m, &e) < 0)
            fail_msg("`%s`: %s", texts[i], e.text);
        assert_int_equal(out.layout.tp, 4);
        assert_int_equal(out.layout.recompute_mlp, 1);
        assert_int_equal(out.layout.recompute_core_attn, 1);
        assert_int_equal(out.layout.precision, PL_BF16);
        assert_int_equal(out.ignored.count, 0);
    }
}

/* Versions before 3.0, and Megatron-DeepSpeed: BLOOM's job was imported without recomputation. */
static void recomputation_as_older_versions_say_it_is_read(void **state)
{
    static const struct {
        const char *text;
        int recompute, method, layers;
        const char *ignored; /* NULL: nothing */
    } rows[] = {
        {"--checkpoint-activations", PL_RECOMPUTE_FULL, PL_RECOMPUTE_UNIFORM, 1, NULL},
        {"--checkpoint-activations --checkpoint-num-layers 2", PL_RECOMPUTE_FULL,
         PL_RECOMPUTE_UNIFORM, 2, NULL},
        {"--checkpoint-activations --deepspeed-activation-checkpointing", PL_RECOMPUTE_FULL,
         PL_RECOMPUTE_UNIFORM, 1, "--deepspeed-activation-checkpointing"},
        {"--activations-checkpoint-method uniform", PL_RECOMPUTE_FULL, PL_RECOMPUTE_UNIFORM, 1,
         NULL},
        {"--activations-checkpoint-method block --activations-checkpoint-num-layers 4",
         PL_RECOMPUTE_FULL, PL_RECOMPUTE_BLOCK, 4, NULL},
        {"--checkpoint-num-layers 2", PL_RECOMPUTE_NONE, 0, 1, "--checkpoint-num-layers"},
        {"--recompute-activations --recompute-granularity full", PL_RECOMPUTE_SELECTIVE, 0, 1,
         NULL},
    };
    struct pl_model m = preset("llama-8b");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};
        AUTO_FREE char *text = mem_printf("--micro-batch-size 1 %s", rows[i].text);

        if (import_text(&out, "megatron", text, 32, &m, &e) < 0)
            fail_msg("%s: %s", text, e.text);
        if (out.layout.recompute != rows[i].recompute ||
            out.layout.recompute_method != rows[i].method ||
            out.layout.recompute_num_layers != rows[i].layers)
            fail_msg("%s: %d, %d, %d", text, out.layout.recompute, out.layout.recompute_method,
                     out.layout.recompute_num_layers);
        assert_int_equal(out.ignored.count, rows[i].ignored ? 1 : 0);
        if (rows[i].ignored)
            assert_string_equal(out.ignored.v[0].setting, rows[i].ignored);
    }
}

/* Experts' degrees, the schedule and the optimizer's place are said by other names; states are
 * sharded without a stage, too (deepspeed/runtime/bf16_optimizer.py). */
static void arguments_of_megatron_deepspeed_are_read(void **state)
{
    static const struct {
        const char *text, *key;
        int want;
    } rows[] = {
        {"--deepspeed --moe-expert-parallel-size 4 --tensor-model-parallel-size 2", "ep", 4},
        {"--deepspeed --moe-expert-parallel-size 4 --tensor-model-parallel-size 2", "etp", 1},
        {"--deepspeed --moe-expert-parallel-size 4 --tensor-model-parallel-size 2 "
         "--enable-expert-tensor-parallelism",
         "etp", 2},
        {"--deepspeed --pipeline-model-parallel-size 4 --enable-zbh1-pipeline "
         "--enable-zbh1-exact-semantics",
         "schedule", PL_ZERO_BUBBLE},
        {"--bf16 --deepspeed --zero-stage 1 --cpu-optimizer", "offload_optimizer", 100},
        {"--deepspeed --ds-sequence-parallel-size 4", "cp", 4},
        {"--bf16 --deepspeed --zero-stage 0", "zero", 1},
        {"--bf16 --deepspeed --zero-stage 0 --no-pipeline-parallel", "zero", 0},
        {"--fp16 --deepspeed --zero-stage 0", "zero", 0},
        {"--deepspeed --zero-stage 0", "zero", 0},
        {"--deepspeed --num-experts 64 64 128 --moe-expert-parallel-size 4", "ep", 4},
        {"--bf16 --deepspeed --zero-stage 2", "zero", 2},
        {"--bf16 --zero-stage 0", "zero", 0},
    };
    struct pl_model m = preset("mixtral-8x7b");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_FREE char *text = mem_printf("--micro-batch-size 1 %s", rows[i].text);
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "megatron", text, 32, &m, &e) < 0)
            fail_msg("%s: %s", text, e.text);
        if (pl_layout_get(&out.layout, pl_layout_key_find(rows[i].key)) != rows[i].want)
            fail_msg("%s of %s is %d", rows[i].key, text,
                     pl_layout_get(&out.layout, pl_layout_key_find(rows[i].key)));
    }
}

static void numbers_are_read_as_python_reads_them(void **state)
{
    static const char *const wrong[] = {"_8", "8_", "1__0", "1_x", "_"};
    struct pl_model m = preset("llama-8b");
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    assert_int_equal(import_text(&out, "megatron",
                                 "--micro-batch-size 1 --global-batch-size 1_0_24 --num-layers "
                                 "3_2",
                                 32, &m, &e),
                     0);
    assert_int_equal(out.global_batch, 1024);
    assert_int_equal(out.ignored.count, 0);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        AUTO_FREE char *text = mem_printf("--micro-batch-size %s", wrong[i]);

        assert_true(import_text(&out, "megatron", text, 32, &m, &e) < 0);
        assert_non_null(strstr(e.text, "must be a positive integer"));
    }
}

/* As it was said before selective recomputation named modules (transformer_config.py). */
static void recomputation_of_expert_layers_is_read(void **state)
{
    struct pl_model m = preset("mixtral-8x7b");
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    assert_int_equal(
        import_text(&out, "megatron", "--micro-batch-size 1 --moe-layer-recompute", 32, &m, &e), 0);
    assert_int_equal(out.layout.recompute, PL_RECOMPUTE_SELECTIVE);
    assert_int_equal(out.layout.recompute_moe, 1);
    assert_int_equal(out.layout.recompute_core_attn, 1);
    assert_int_equal(import_text(&out, "megatron",
                                 "--recompute-granularity selective --recompute-modules layernorm "
                                 "--moe-layer-recompute",
                                 32, &m, &e),
                     0);
    assert_int_equal(out.layout.recompute_moe, 1);
    assert_int_equal(out.layout.recompute_core_attn, 0);
    assert_int_equal(out.ignored.count, 0);
}

/* Megatron-LM's tests keep their arguments in YAML. */
static void arguments_in_yaml_are_read(void **state)
{
    static const char text[] = "ENV_VARS:\n"
                               "  CUDA_DEVICE_MAX_CONNECTIONS: 1\n"
                               "MODEL_ARGS:\n"
                               "  # the layout\n"
                               "  --tensor-model-parallel-size: 2\n"
                               "  --pipeline-model-parallel-size: 4 # stages\r\n"
                               "  --sequence-parallel: true\n"
                               "  --micro-batch-size: \"2\"\n"
                               "\n"
                               "  --global-batch-size: 64\n"
                               "  --recompute-granularity: selective\n"
                               "  --recompute-modules: [core_attn]\n"
                               "  --data-path: ${DATA}/one two\n"
                               "  --moe-layer-freq: ([0]*1+[1]*3)\n"
                               "METRICS:\n"
                               "  - \"lm loss\"\n"
                               "MODEL_ARGS_2:\n"
                               "  --tensor-model-parallel-size: 8\n";
    static const struct {
        const char *text, *named;
    } wrong[] = {
        {"MODEL_ARGS:\n  <<: *BASE\n  --bf16: true\n", "merges another list"},
        {"MODEL_ARGS:\n  trainer.num_nodes: 1\n", "found `trainer.num_nodes: 1`"},
        {"MODEL_ARGS:\n  --tensor-model-parallel-size: two\n", "must be a positive integer"},
        {"MODEL_ARGS:\n  --tensor-parallel-size: 2\n", "looks like a degree"},
        {"MODEL_ARGS:\n  --bf16: false\n", "`false`"},
        {"MODEL_ARGS:\n  --tensor-model-parallel-size: ${TP}\n", "`${TP}` is not set"},
    };
    struct pl_model m = llama();
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    if (import_text(&out, "megatron", text, 32, &m, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(out.layout.tp, 2);
    assert_int_equal(out.layout.pp, 4);
    assert_int_equal(out.layout.sp, 1);
    assert_int_equal(out.layout.micro_batch, 2);
    assert_int_equal(out.layout.recompute, PL_RECOMPUTE_SELECTIVE);
    assert_int_equal(out.global_batch, 64);
    assert_int_equal(out.ignored.count, 2);
    assert_string_equal(out.ignored.v[0].detail, "not a setting of the layout: ${DATA}/one two");
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        if (import_text(&out, "megatron", wrong[i].text, 32, &m, &e) >= 0)
            fail_msg("`%s` was read", wrong[i].text);
        if (!strstr(e.text, wrong[i].named))
            fail_msg("`%s`: `%s`", wrong[i].text, e.text);
    }
}

/* The run_config.yaml of Megatron-Bridge's recipe of DeepSeek-V3 on 1,024 H100, as PyYAML writes
 * it; LAYOUT is the pipeline layout in one of its two forms. */
static char *run_config(const char *layout)
{
    return mem_printf(
        "_target_: megatron.bridge.training.config.ConfigContainer\n"
        "checkpoint:\n  load: a path that is so long that it goes on\n    below, with: a colon\n"
        "comm_overlap:\n  overlap_moe_expert_parallel_comm: true\n  tp_comm_overlap: false\n"
        "ddp:\n  grad_reduce_in_fp32: true\n  overlap_grad_reduce: true\n  overlap_param_gather: "
        "true\n"
        "  use_distributed_optimizer: true\n"
        "mixed_precision:\n  bf16: true\n  fp8: hybrid\n  fp8_param_gather: true\n"
        "  fp8_recipe: tensorwise\n  grad_reduce_in_fp32: false\n"
        "model:\n  _target_: made.up.Provider\n  activation_func:\n    _call_: false\n"
        "    _target_: torch.nn.functional.silu\n"
        "  context_parallel_size: 1\n  expert_model_parallel_size: 64\n"
        "  expert_tensor_parallel_size: 1\n  moe_layer_freq:\n  - 0\n  - 1\n"
        "  moe_flex_dispatcher_backend: hybridep\n  moe_token_dispatcher_type: flex\n"
        "  mtp_num_layers: 1\n  num_layers: 61\n  pipeline_model_parallel_layout:%s"
        "  pipeline_model_parallel_size: 8\n  recompute_granularity: selective\n"
        "  recompute_method: null\n  recompute_modules:\n  - mla_up_proj\n  - mlp\n"
        "  seq_length: 4096\n  sequence_parallel: true\n  tensor_model_parallel_size: 2\n"
        "  virtual_pipeline_model_parallel_size: 4\n"
        "train:\n  global_batch_size: 16384\n  micro_batch_size: 1\n",
        layout);
}

static void the_configuration_of_a_run_of_megatron_bridge_is_read(void **state)
{
    struct pl_model m = preset("deepseek-v3");
    AUTO_STR list = {0};

    (void)state;
    str_add(&list, "\n  - - embedding\n    - decoder\n");
    for (int i = 0; i < 30; i++)
        str_add(&list, "  - - decoder\n    - decoder\n");
    str_add(&list, "  - - mtp\n    - loss\n");
    for (int form = 0; form < 2; form++) {
        AUTO_FREE char *text = run_config(form ? str_text(&list) : " Et|(tt|)*30mL\n");
        char layout[160];
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "megatron", text, 1024, &m, &e) < 0)
            fail_msg("%s in:\n%s", e.text, text);
        assert_string_equal(pl_layout_text(layout, &out.layout),
                            "tp2 pp8 vp4 ep64 dp64 mb1 sp stages-balanced zero1 "
                            "recompute-selective re-mlp-mla overlap-grad-param-p2p-moe "
                            "moe-hybridep fp8-current fp8-params grads-bf16");
        assert_int_equal(out.global_batch, 16384);
        assert_int_equal(out.seq, 4096);
    }
}

/* Of every configuration it has the numbers of what is off, too. */
static void what_a_run_of_megatron_bridge_offloads_is_read(void **state)
{
    static const struct {
        const char *on;
        int optimizer, activations;
    } row[] = {{"true", 25, 20}, {"false", 0, 0}};
    struct pl_model m = preset("llama-70b");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_FREE char *text = mem_printf(
            "ddp:\n  use_distributed_optimizer: true\nmodel:\n  cpu_offloading: %s\n"
            "  cpu_offloading_num_layers: 20\n  fine_grained_activation_offloading: false\n"
            "  tensor_model_parallel_size: 1\noptimizer:\n  optimizer_cpu_offload: %s\n"
            "  optimizer_offload_fraction: 0.25\n  overlap_cpu_optimizer_d2h_h2d: true\n",
            row[i].on, row[i].on);
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "megatron", text, 64, &m, &e) < 0)
            fail_msg("%s in:\n%s", e.text, text);
        assert_int_equal(out.layout.offload_optimizer, row[i].optimizer);
        assert_int_equal(out.layout.offload_activations, row[i].activations);
        assert_int_equal(out.ignored.count, 1); /* others */
    }
}

#define PRIMUS(framework, rest)                                                                    \
    "work_group: amd\nmodules:\n  pre_trainer:\n    framework: " framework "\n"                    \
    "    model: llama3.1_70B.yaml\n    overrides:\n      sink_level: null\n" rest

/* As AMD has Llama-3.1-70B on MI300X, for torchtitan and for Megatron-LM. */
static void files_of_primus_are_read(void **state)
{
    static const struct {
        const char *source, *text, *layout; /* or what its refusal names */
        int world;
    } cases[] = {
        {"torchtitan",
         PRIMUS("torchtitan", "      training:\n        local_batch_size: 2\n"
                              "        seq_len: 8192\n        mock_data: false\n\n"
                              "      activation_checkpoint:\n        mode: full\n"
                              "      primus_turbo:\n        enable_primus_turbo : true\n"),
         "dp64 mb2 zero3 recompute-full overlap-grad-param bf16", 64},
        {"megatron",
         PRIMUS("megatron", "      micro_batch_size: 3\n      global_batch_size: 24\n"
                            "      # parallel\n      tensor_model_parallel_size: 1\n"
                            "      overlap_grad_reduce: true\n      use_torch_fsdp2: true\n"
                            "      use_distributed_optimizer: false\n"
                            "      recompute_granularity: full # full, selective\n"
                            "      recompute_method: block\n      recompute_num_layers: 80\n"),
         "dp8 mb3 zero3 recompute-full overlap-grad-param bf16 grads-bf16", 8},
        {"megatron", PRIMUS("megatron", "      tensor_model_paralel_size: 8\n"),
         "did you mean `--tensor-model-parallel-size`", 8},
        {"megatron",
         PRIMUS("megatron", "      tensor_model_parallel_size: ${PRIMUS_TP:8}\n"
                            "      seq_length: ${PRIMUS_SEQ_LENGTH:4096}\n"
                            "      micro_batch_size: 3\n      global_batch_size: 24\n"),
         "tp8 dp1 mb3 bf16", 8},
        {"megatron", PRIMUS("megatron_bridge", ""),
         "line 4: no importer reads files for megatron_bridge", 8},
        {"megatron", PRIMUS("torchtitan", ""), "line 4: this is a file for torchtitan", 8},
        {"torchtitan", PRIMUS("megatron", ""), "line 4: this is a file for megatron", 8},
        {"megatron", "model:\n  freeze: true\n", "run_config.yaml", 8},
        {"megatron", "model:\n  model.: 3\n  -: 1\n", "run_config.yaml", 8}, /* names nothing */
        {"megatron", "def x() -> ConfigContainer:\n    return y()\n", "run_config.yaml", 8},
    };
    struct pl_model m = preset("llama-70b");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char layout[160];
        struct tn_imported out;
        struct err e = {0};
        int r = import_text(&out, cases[i].source, cases[i].text, cases[i].world, &m, &e);

        if (r == 0)
            assert_string_equal(pl_layout_text(layout, &out.layout), cases[i].layout);
        else if (!strstr(e.text, cases[i].layout))
            fail_msg("`%s`: `%s`", cases[i].text, e.text);
    }
}

/* DeepSpeed's own tensor parallelism counts its ranks as replicas, its sequence parallelism does
 * not (runtime/config.py: world_size). */
static void deepspeeds_batch_counts_what_deepspeed_counts(void **state)
{
    static const struct {
        const char *text;
        int tp, cp, micro, global;
    } cases[] = {
        {"{\"tensor_parallel\":{\"autotp_size\":4},\"train_micro_batch_size_per_gpu\":2,"
         "\"gradient_accumulation_steps\":4}",
         4, 1, 2, 64},
        {"{\"tensor_parallel\":{\"autotp_size\":4},\"train_batch_size\":256,"
         "\"train_micro_batch_size_per_gpu\":2,\"gradient_accumulation_steps\":4}",
         4, 1, 2, 64},
        {"{\"tensor_parallel\":{\"autotp_size\":4},\"train_batch_size\":256,"
         "\"gradient_accumulation_steps\":4}",
         4, 1, 2, 64},
        {"{\"tensor_parallel\":{\"autotp_size\":4},\"train_batch_size\":64,"
         "\"train_micro_batch_size_per_gpu\":2,\"gradient_accumulation_steps\":4}",
         4, 1, 2, 64}, /* as with a mesh of the program's own */
        {"{\"sequence_parallel_size\":4,\"train_batch_size\":64,"
         "\"train_micro_batch_size_per_gpu\":2}",
         1, 4, 2, 64},
        {"{\"sequence_parallel_size\":4,\"data_parallel_size\":8,"
         "\"train_micro_batch_size_per_gpu\":2}",
         1, 4, 2, 16},
        {"{\"sequence_parallel_size\":1,\"train_batch_size\":64}", 1, 1, 2, 64},
    };
    static const struct {
        const char *text, *named;
    } wrong[] = {
        {"{\"sequence_parallel_size\":3}", "not a multiple"},
        {"{\"sequence_parallel_size\":4,\"data_parallel_size\":32}", "is not the 32 devices"},
        {"{\"sequence_parallel_size\":\"four\"}", "integer"},
        {"{\"tensor_parallel\":{\"autotp_size\":4},\"train_batch_size\":32,"
         "\"train_micro_batch_size_per_gpu\":2,\"gradient_accumulation_steps\":4}",
         "is not micro-batch 2 x accumulation 4 x 32 replicas"},
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "deepspeed", cases[i].text, 32, &m, &e) < 0)
            fail_msg("%s: %s", cases[i].text, e.text);
        if (out.layout.tp != cases[i].tp || out.layout.cp != cases[i].cp ||
            out.layout.micro_batch != cases[i].micro || out.global_batch != cases[i].global)
            fail_msg("%s: tp %d cp %d micro %d global %d", cases[i].text, out.layout.tp,
                     out.layout.cp, out.layout.micro_batch, out.global_batch);
        if (out.layout.cp > 1)
            assert_string_equal(out.ignored.v[0].setting, "sequence_parallel_size");
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "deepspeed", wrong[i].text, 32, &m, &e) >= 0)
            fail_msg("`%s` was read", wrong[i].text);
        if (!strstr(e.text, wrong[i].named))
            fail_msg("`%s`: `%s`", wrong[i].text, e.text);
    }
}

/* Megatron-DeepSpeed has Megatron's arguments and some of its own. */
static void megatron_deepspeeds_arguments_are_read(void **state)
{
    struct pl_model m = llama();
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    assert_int_equal(import_text(&out, "megatron",
                                 "--deepspeed --zero-stage 2 --ds-sequence-parallel-size 4 "
                                 "--tensor-model-parallel-size 2 --micro-batch-size 1",
                                 32, &m, &e),
                     0);
    assert_int_equal(out.layout.zero, 2);
    assert_int_equal(out.layout.cp, 4);
    assert_int_equal(out.layout.dp, 4);
    assert_int_equal(import_text(&out, "megatron", "--zero-stage 2", 32, &m, &e), 0);
    assert_int_equal(out.layout.zero, 0);
    assert_string_equal(out.ignored.v[0].detail, "applies only with --deepspeed");
    assert_true(import_text(&out, "megatron", "--deepspeed --zero-stage 4", 32, &m, &e) < 0);
}

/* A configuration that begins as another function's has that one's settings first. */
static void functions_that_change_others_are_read_with_them(void **state)
{
    static const char base[] =
        "def base() -> Trainer.Config:\n    spec = model_registry('8B')\n"
        "    def helper(x):\n        return x\n"
        "    return Trainer.Config(\n        model_spec=spec,\n"
        "        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192,\n"
        "            max_context_length=8192),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=8))\n\n\n";
    static const struct {
        const char *text;
        int tp, pp;
    } cases[] = {
        {"def job():\n    config = base()\n    config.optimizer.lr = 1e-4\n    return config\n", 8,
         1},
        {"def job():\n    config = base()\n    config.parallelism.tensor_parallel_degree = 4\n"
         "    return config\n",
         4, 1},
        {"def job():\n    config = base()\n    parallelism = config.parallelism\n"
         "    parallelism.pipeline_parallel_degree = 2\n    return config\n",
         8, 2},
        {"def job():\n    return base()\n", 8, 1},
    };
    static const struct {
        const char *text, *named;
    } wrong[] = {
        {"def job():\n    config = llama3_70b()\n    config.training.steps = 10\n"
         "    return config\n",
         "what llama3_70b() returns, which is not in this text"},
        {"def job():\n    return recipes.llama3_70b()\n", "recipes.llama3_70b()"},
        {"def job():\n    config = adapt(base(), 'x')\n    return config\n", "adapt()"},
        {"def job():\n    config = later()\n    return config\n\ndef later():\n    return "
         "Trainer.Config()\n",
         "later() is defined below"},
    };
    struct pl_model m = llama();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *text = mem_printf("%s%s", base, cases[i].text);
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "torchtitan", text, 32, &m, &e) < 0)
            fail_msg("%s: %s", cases[i].text, e.text);
        assert_int_equal(out.layout.tp, cases[i].tp);
        assert_int_equal(out.layout.pp, cases[i].pp);
        assert_int_equal(out.seq, 8192);
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import_text(&out, "torchtitan", wrong[i].text, 32, &m, &e) >= 0)
            fail_msg("`%s` was read", wrong[i].text);
        if (!strstr(e.text, wrong[i].named))
            fail_msg("`%s`: `%s`", wrong[i].text, e.text);
    }
    {
        AUTO_FREE char *text = mem_printf("%sdef job():\n    config = base()\n    "
                                          "config.parallelism = ParallelismConfig(pipeline_"
                                          "parallel_degree=2)\n    return config\n",
                                          base);
        struct tn_imported out;
        struct err e = {0};

        assert_true(import_text(&out, "torchtitan", text, 32, &m, &e) < 0);
        assert_non_null(strstr(e.text, "replaces settings"));
    }
}

/* What a text leaves to code that is not read is refused, wherever it could set a degree. */
static void what_only_python_could_tell_is_refused(void **state)
{
    static const char head[] = "def job():\n    config = Trainer.Config(training=TrainingConfig("
                               "num_tokens_per_microbatch_per_dp_rank=8192, "
                               "max_context_length=%s), parallelism=%s%s)\n%s    return config\n";
    static const struct {
        const char *seq, *parallelism, *more, *after;
    } wrong[] = {
        {"8192", "SHARED", "", ""},
        {"8192", "make(8)", "", ""},
        {"8192", "base().with_tp(8)", "", ""},
        {"8192", "ParallelismConfig(1, 8)", "", ""},
        {"8192", "ParallelismConfig(**SHARED)", "", ""},
        {"8192", "ParallelismConfig(tensor_parallel_degree=int(os.environ['TP']))", "", ""},
        {"8192", "ParallelismConfig(tensor_parallel_degree=2 if BIG else 1)", "", ""},
        {"length(64)", "ParallelismConfig(tensor_parallel_degree=2)", "", ""},
        {"8192", "ParallelismConfig(tensor_parallel_degree=2)", ", **MORE", ""},
        {"8192", "ParallelismConfig(tensor_parallel_degree=2)", ", activation_checkpoint=chosen()",
         ""},
        {"8192", "ParallelismConfig()", "",
         "    setattr(config.parallelism, 'tensor_parallel_degree', 2)\n"},
        {"8192", "ParallelismConfig()", "", "    config.parallelism.update({'x': 2})\n"},
        {"8192", "ParallelismConfig(tensor_parallel_degree=2)", "",
         "    config.parallelism.tensor_parallel_degree *= 2\n"},
        {"8192", "ParallelismConfig()", "",
         "    config.parallelism.tensor_parallel_degree, x = 8, 1\n"},
        {"8192", "ParallelismConfig()", "", "    spread(config, 8)\n"},
    };
    static const char *const fine[][4] = {
        {"8192", "ParallelismConfig(tensor_parallel_degree=2)", "", "    show(config.optimizer)\n"},
        {"8192", "ParallelismConfig(tensor_parallel_degree=2)",
         ", activation_checkpoint=FullAC.Config(), dataloader=loader(4)", ""},
        {"8192", "ParallelismConfig()", "",
         "    parallelism = config.parallelism\n    parallelism.tensor_parallel_degree = 2\n"},
    };
    static const char whole[] =
        "def job():\n    parallelism = ParallelismConfig(tensor_parallel_degree=2)\n"
        "    return Trainer.Config(parallelism=parallelism)\n";
    struct pl_model m = llama();
    struct tn_imported out;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        AUTO_FREE char *text =
            mem_printf(head, wrong[i].seq, wrong[i].parallelism, wrong[i].more, wrong[i].after);
        struct err e = {0};

        if (import_text(&out, "torchtitan", text, 32, &m, &e) >= 0)
            fail_msg("%s was read", text);
        if (!str_starts(e.text, "line "))
            fail_msg("%s: %s", text, e.text);
    }
    for (size_t i = 0; i <= ARRAY_LEN(fine); i++) {
        const char *const *f = i < ARRAY_LEN(fine) ? fine[i] : fine[0];
        AUTO_FREE char *text = mem_printf(head, f[0], f[1], f[2], f[3]);
        struct err e = {0};

        if (import_text(&out, "torchtitan", i < ARRAY_LEN(fine) ? text : whole, 32, &m, &e) < 0)
            fail_msg("%s: %s", text, e.text);
        assert_int_equal(out.layout.tp, 2);
    }
    for (int i = 0; i < 2; i++) {
        struct err e = {0};

        assert_true(import_text(&out, "torchtitan",
                                i ? "[project]\nname = 'x'\n"
                                  : "job = lambda: Trainer.Config(parallelism=P(tensor=8))\n",
                                32, &m, &e) < 0);
        assert_non_null(strstr(e.text, "no setting of torchtitan's"));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_looks_like_a_degree_is_never_ignored),
    cmocka_unit_test(settings_that_are_no_degree_are_listed),
    cmocka_unit_test(arguments_in_yaml_are_read),
    cmocka_unit_test(values_in_yaml_are_read_in_every_form),
    cmocka_unit_test(the_configuration_of_a_run_of_megatron_bridge_is_read),
    cmocka_unit_test(what_a_run_of_megatron_bridge_offloads_is_read),
    cmocka_unit_test(files_of_primus_are_read),
    cmocka_unit_test(parts_of_scripts_are_refused),
    cmocka_unit_test(what_only_python_could_tell_is_refused),
    cmocka_unit_test(recomputation_as_older_versions_say_it_is_read),
    cmocka_unit_test(arguments_of_megatron_deepspeed_are_read),
    cmocka_unit_test(numbers_are_read_as_python_reads_them),
    cmocka_unit_test(recomputation_of_expert_layers_is_read),
    cmocka_unit_test(deepspeeds_batch_counts_what_deepspeed_counts),
    cmocka_unit_test(megatron_deepspeeds_arguments_are_read),
    cmocka_unit_test(functions_that_change_others_are_read_with_them),
};

UNIT_MAIN(tests)
