/*
 * No word of a model is lost on the way to Megatron: each either changes its arguments or is named
 * among what they cannot say.
 */
#include "tests/unit/problem.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>

#include "tuner/export/internal.h"

struct world {
    struct pl_model m;
    struct pl_cluster c;
    struct pl_workload w;
};

static void open_world(struct world *world, const char *model)
{
    AUTO_JSON *m = *model == '{' ? unit_json(model) : json_string(model);
    AUTO_JSON *c = unit_json("{'profile':'dgx-h100','nodes':2}");
    AUTO_JSON *w = unit_json("{'global_batch':96,'seq':64}");
    struct err e = {0};

    if (pl_model_parse(&world->m, m, &e) < 0 || pl_cluster_parse(&world->c, c, NULL, &e) < 0 ||
        pl_workload_parse(&world->w, w, &world->m, pl_trainer_find("any"), &e) < 0)
        fail_msg("%s: %s %s", model, e.pointer, e.text);
}

/* What EXPORTER writes for the model, over PP stages of VP chunks each, and what it lacks. */
static void write_stages(struct str *text, struct tn_findings *lost, const char *model,
                         const struct tn_exporter *exporter, int pp, int vp)
{
    struct world world;
    struct pl_layout layout;
    struct tn_export_in in = {.model = &world.m,
                              .cluster = &world.c,
                              .layout = &layout,
                              .workload = &world.w,
                              .campaign = "k3v9qw2m",
                              .campaign_name = "words",
                              .tokens_per_s = NAN,
                              .lo = NAN,
                              .hi = NAN,
                              .date = "2026-03-01T09:30:00.000Z"};

    open_world(&world, model);
    pl_layout_default(&layout, &world.w);
    layout.world = layout.pp = pp;
    layout.vp = vp;
    layout.schedule = vp > 1 ? PL_INTERLEAVED : PL_1F1B;
    layout.stages = pp > 1 ? PL_STAGES_BALANCED : PL_STAGES_EVEN;
    pl_layout_derive(&layout);
    pl_layout_canonical(&layout, &world.m);
    tn_gap_trainer(lost, &in, "megatron", NULL);
    exporter->write(text, &in, lost);
}

/* Megatron's arguments for the model on one device, and what they lack. */
static void write_arguments(struct str *text, struct tn_findings *lost, const char *model)
{
    write_stages(text, lost, model, &tn_export_megatron, 1, 1);
}

#define SHAPE "{'layers':6,'hidden':64,'heads':4,'ffn':96,'vocab':64,'seq':64"
#define MOE SHAPE ",'moe':{'experts':8,'top_k':2,'expert_ffn':32,'shared_ffn':32"
#define ONE_NORMED SHAPE ",'moe':{'experts':8,'top_k':1,'expert_ffn':32,'router':'sigmoid'"
#define ONE ONE_NORMED ",'topk_norm':false"
#define LINEAR                                                                                     \
    "'linear_attention':{'num_key_heads':2,'num_value_heads':4,'key_head_dim':8,"                  \
    "'value_head_dim':8"
#define LATENTS                                                                                    \
    "'mla':{'q_lora_rank':16,'kv_lora_rank':16,'qk_nope_head_dim':16,'qk_rope_head_dim':8,"        \
    "'v_head_dim':16}"
#define INDEXER "'dsa':{'index_n_heads':2,'index_head_dim':8,'index_topk':8"

static void every_word_is_written_or_named(void **state)
{
    static const struct {
        const char *plain, *with, *key;
    } row[] = {
        {SHAPE "}", SHAPE ",'mlp':'geglu'}", "mlp"},
        {SHAPE "}", SHAPE ",'mlp':'relu2'}", "mlp"},
        {SHAPE "}", SHAPE ",'mlp':'swiglu-clamped'}", "mlp"},
        {SHAPE "}", SHAPE ",'positions':'none'}", "positions"},
        {SHAPE "}", SHAPE ",'qkv_bias':true}", "qkv_bias"},
        {SHAPE "}", SHAPE ",'out_bias':true}", "out_bias"},
        {SHAPE "}", SHAPE ",'mlp_bias':true,'qkv_bias':true,'out_bias':true}", "mlp_bias"},
        {SHAPE ",'norm':'layernorm'}",
         SHAPE ",'norm':'layernorm','mlp_bias':false,'out_bias':false}", "mlp_bias"},
        {SHAPE "}", SHAPE ",'qk_norm':'head'}", "qk_norm"},
        {SHAPE "}", SHAPE ",'qk_norm':'full'}", "qk_norm"},
        {SHAPE "}", SHAPE ",'qk_norm':'l2'}", "qk_norm"},
        {SHAPE ",'no_rope_freq':2}", SHAPE ",'no_rope_freq':2,'qk_norm':'l2'}", "qk_norm"},
        {SHAPE "}", SHAPE ",'attention_output_gate':true}", "attention_output_gate"},
        {SHAPE "}", SHAPE ",'attention_chunk_size':8}", "attention_chunk_size"},
        {SHAPE ",'no_rope_freq':2}",
         SHAPE ",'no_rope_freq':2,'attn_temperature_tuning':true,'attn_temperature_floor':64}",
         "attn_temperature_floor"},
        {SHAPE "}", SHAPE ",'linear_attention_freq':3," LINEAR "}}", "linear_attention"},
        {SHAPE ",'linear_attention_freq':3," LINEAR "}}",
         SHAPE ",'linear_attention_freq':2," LINEAR "}}", "linear_attention_freq"},
        {SHAPE ",'linear_attention_freq':3," LINEAR "}}",
         SHAPE ",'linear_attention_freq':3," LINEAR ",'conv_kernel_dim':3}}", "linear_attention"},
        {SHAPE "," LATENTS "}", SHAPE "," LATENTS "," INDEXER "}}", "dsa"},
        {SHAPE "," LATENTS "," INDEXER "}}",
         SHAPE "," LATENTS "," INDEXER ",'indexer_loss_coef':0.5}}", "dsa"},
        {SHAPE "}", SHAPE ",'parallel_block':true}", "parallel_block"},
        {SHAPE "}", SHAPE ",'post_norms':true}", "post_norms"},
        {SHAPE ",'post_norms':true}", SHAPE ",'post_norms':true,'pre_norms':false}", "pre_norms"},
        {SHAPE "}", SHAPE ",'zero_centered_norm':true}", "zero_centered_norm"},
        {SHAPE "}", SHAPE ",'attn_sinks':true}", "attn_sinks"},
        {SHAPE "}", SHAPE ",'attn_softcap':50}", "attn_softcap"},
        {SHAPE "}", SHAPE ",'logit_softcap':30}", "logit_softcap"},
        {SHAPE "}", SHAPE ",'attn_scale':0.1}", "attn_scale"},
        {SHAPE "}", SHAPE ",'embed_scale':true}", "embed_scale"},
        {SHAPE ",'norm':'layernorm'}", SHAPE ",'norm':'layernorm','norm_bias':false}", "norm_bias"},
        {SHAPE ",'parallel_block':true}", SHAPE ",'parallel_block':true,'shared_norm':true}",
         "shared_norm"},
        {SHAPE "}", SHAPE ",'embedding_multiplier':12}", "embedding_multiplier"},
        {SHAPE "}", SHAPE ",'residual_multiplier':0.22}", "residual_multiplier"},
        {SHAPE "}", SHAPE ",'logit_scale':0.0625}", "logit_scale"},
        {SHAPE "}", SHAPE ",'sliding_window':8}", "sliding_window"},
        {SHAPE ",'sliding_window':8}", SHAPE ",'sliding_window':8,'global_every':2}",
         "global_every"},
        {SHAPE ",'sliding_window':8}", SHAPE ",'sliding_window':8,'rope_theta_local':100}",
         "rope_theta_local"},
        {SHAPE "}", SHAPE ",'no_rope_freq':4}", "no_rope_freq"},
        {SHAPE "}", SHAPE ",'partial_rotary_factor':0.5}", "partial_rotary_factor"},
        {SHAPE "}", SHAPE ",'rope_scaling':{'kind':'linear','factor':8}}", "rope_scaling"},
        {SHAPE "}", SHAPE ",'rope_scaling':{'kind':'llama3','factor':8,'original_seq':8192}}",
         "rope_scaling"},
        {SHAPE ",'rope_scaling':{'kind':'llama3','factor':8,'original_seq':8192}}",
         SHAPE ",'rope_scaling':{'kind':'llama3','factor':8,'original_seq':4096}}", "rope_scaling"},
        {SHAPE "}", SHAPE ",'rope_scaling':{'kind':'yarn','factor':8,'original_seq':32}}",
         "rope_scaling"},
        {SHAPE ",'rope_scaling':{'kind':'yarn','factor':8,'original_seq':32}}",
         SHAPE ",'rope_scaling':{'kind':'yarn','factor':8,'original_seq':32,'beta_slow':2,"
               "'mscale':0.7}}",
         "rope_scaling"},
        {SHAPE "}",
         SHAPE ",'mla':{'kv_lora_rank':16,'qk_nope_head_dim':16,'qk_rope_head_dim':8,"
               "'v_head_dim':16}}",
         "mla"},
        {SHAPE "}", SHAPE ",'mtp':1}", "mtp"},
        {SHAPE ",'mtp':1}", SHAPE ",'mtp':1,'mtp_loss_coef':0.3}", "mtp_loss_coef"},
        {SHAPE "}", SHAPE ",'pattern':'M*-M*-','mamba':{'heads':8,'head_dim':16,'state':16}}",
         "pattern"},
        {MOE "}}", MOE ",'router':'sigmoid'}}", "router"},
        {MOE "}}", MOE ",'topk_norm':false}}", "topk_norm"},
        {MOE ",'router':'sigmoid'}}", MOE ",'router':'sigmoid','topk_norm':false}}", "topk_norm"},
        {MOE "}}", MOE ",'balance_bias':true}}", "balance_bias"},
        {MOE "}}", MOE ",'scaling':2.5}}", "scaling"},
        {MOE "}}", MOE ",'n_group':4,'topk_group':2}}", "n_group"},
        {MOE ",'n_group':4,'topk_group':2}}", MOE ",'n_group':4,'topk_group':3}}", "topk_group"},
        {MOE "}}", MOE ",'router_bias':true}}", "router_bias"},
        {MOE "}}", MOE ",'shared_gate':true}}", "shared_gate"},
        {MOE "}}", MOE ",'apply_probs_on_input':true}}", "apply_probs_on_input"},
        {ONE "}}", ONE ",'apply_probs_on_input':true}}", "apply_probs_on_input"},
        {ONE "}}", ONE_NORMED "}}", "topk_norm"},
        {MOE "}}", MOE ",'z_loss_coef':1e-3}}", "z_loss_coef"},
        {MOE "}}", MOE ",'force_balance':true}}", "force_balance"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_STR plain = {0}, with = {0};
        struct tn_findings before = {0}, lost = {0};
        AUTO_FREE char *key = mem_printf("model.%s", row[i].key);
        bool named = false;

        write_arguments(&plain, &before, row[i].plain);
        write_arguments(&with, &lost, row[i].with);
        for (int k = 0; k < lost.count; k++)
            named |= str_eq(lost.v[k].setting, key);
        if (!named && str_eq(str_text(&plain), str_text(&with)))
            fail_msg("%s: neither written nor named", row[i].with);
    }
}

/* As in the recipe of Megatron-Bridge for DeepSeek-V3: attention, router, prediction. */
static void deepseek_v3_is_written_whole(void **state)
{
    static const char *const lines[] = {"--multi-latent-attention",
                                        "--q-lora-rank 1536",
                                        "--kv-lora-rank 512",
                                        "--qk-head-dim 128",
                                        "--qk-pos-emb-head-dim 64",
                                        "--v-head-dim 128",
                                        "--qk-layernorm",
                                        "--mtp-num-layers 1",
                                        "--moe-router-score-function sigmoid",
                                        "--moe-router-enable-expert-bias",
                                        "--moe-router-topk-scaling-factor 2.5",
                                        "--moe-router-num-groups 8",
                                        "--moe-router-group-topk 4",
                                        "--disable-bias-linear"};
    AUTO_STR text = {0};
    struct tn_findings lost = {0};

    (void)state;
    write_arguments(&text, &lost, "deepseek-v3");
    assert_int_equal(lost.count, 0);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        AUTO_FREE char *line = mem_printf("\n%s\n", lines[i]);

        if (!strstr(str_text(&text), line))
            fail_msg("no %s in:\n%s", lines[i], str_text(&text));
    }
}

/* As in Megatron-Bridge's recipes for Qwen3-Next and its bridges of sparse attention; Maverick in
 * sequences shorter than its chunks, beyond which its positions would count. */
static void models_of_later_years_are_written_whole(void **state)
{
    static const struct {
        const char *model, *lines[12];
    } row[] = {
        {"qwen3-next-80b-a3b",
         {"--experimental-attention-variant gdn", "--linear-attention-freq 4",
          "--linear-num-key-heads 16", "--linear-num-value-heads 32", "--linear-key-head-dim 128",
          "--linear-value-head-dim 128", "--linear-conv-kernel-dim 4", "--attention-output-gate",
          "--qk-layernorm", "--apply-layernorm-1p", "--rotary-percent 0.25"}},
        {"deepseek-v3.2",
         {"--experimental-attention-variant dsa", "--dsa-indexer-n-heads 64",
          "--dsa-indexer-head-dim 128", "--dsa-indexer-topk 2048", "--dsa-indexer-loss-coeff 0.001",
          "--dsa-indexer-use-sparse-loss", "--no-rope-fusion", "--multi-latent-attention",
          "--mtp-num-layers 1"}},
        {"llama-4-maverick-17b-128e",
         {"--no-rope-freq 4", "--moe-router-score-function sigmoid", "--moe-router-topk 1",
          "--moe-apply-probs-on-input", "--moe-shared-expert-intermediate-size 8192",
          "--moe-layer-freq [0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,"
          "0,1,0,1,0,1,0,1,0,1,0,1,0,1]"}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_STR text = {0};
        struct tn_findings lost = {0};

        write_arguments(&text, &lost, row[i].model);
        if (lost.count)
            fail_msg("%s: %s %s", row[i].model, lost.v[0].setting, lost.v[0].detail);
        for (int k = 0; row[i].lines[k]; k++) {
            AUTO_FREE char *line = mem_printf("\n%s\n", row[i].lines[k]);

            if (!strstr(str_text(&text), line))
                fail_msg("no %s in:\n%s", row[i].lines[k], str_text(&text));
        }
    }
}

/* Of latent attention Megatron fuses the rotation by yarn only, and refuses to start with another
 * one unless that is switched off (MLATransformerConfig); of yarn its arguments are the factor and
 * the two scales, the rest is DeepSeek's. */
static void the_rotation_of_latent_attention_starts(void **state)
{
#define LATENT                                                                                     \
    SHAPE ",'mla':{'kv_lora_rank':16,'qk_nope_head_dim':16,'qk_rope_head_dim':8,'v_head_dim':16}"
    static const char yarn[] =
        LATENT ",'rope_scaling':{'kind':'yarn','factor':40,'original_seq':4096,'mscale':1,"
               "'mscale_all_dim':0.7}}";
    static const char other[] =
        LATENT ",'rope_scaling':{'kind':'yarn','factor':32,'original_seq':4096,'beta_fast':1}}";
    static const char *const lines[] = {
        "--rope-type yarn", "--position-embedding-type rope", "--rotary-scaling-factor 40",
        "--mscale 1",       "--mscale-all-dim 0.7",
    };
    AUTO_STR plain = {0}, scaled = {0}, foreign = {0};
    struct tn_findings none = {0}, lost = {0};

    (void)state;
    write_arguments(&plain, &none, LATENT "}");
    assert_non_null(strstr(str_text(&plain), "\n--rope-type rope\n--no-rope-fusion\n"));
    write_arguments(&scaled, &none, yarn);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        AUTO_FREE char *line = mem_printf("\n%s\n", lines[i]);

        if (!strstr(str_text(&scaled), line))
            fail_msg("no %s in:\n%s", lines[i], str_text(&scaled));
    }
    assert_null(strstr(str_text(&scaled), "--no-rope-fusion"));
    assert_null(strstr(str_text(&scaled), "--yarn-"));
    assert_int_equal(none.count, 0);
    write_arguments(&foreign, &lost, other);
    assert_int_equal(lost.count, 1);
    assert_string_equal(lost.v[0].setting, "model.rope_scaling");
}

/* Megatron ends where mtp layers of a pipeline layout are not as many as --mtp-num-layers says
 * (megatron/core/transformer/pipeline_parallel_layer_layout.py). NVIDIA's recipe for 1,024 H100 has
 * "Et|(tt|)*30mL". */
static void prediction_is_in_the_layout_of_a_pipeline(void **state)
{
    static const char bridge[] = "[\"decoder\"] * 0 + [\"mtp\"] * 1 + [\"loss\"],\n        ],\n";
    AUTO_STR arguments = {0}, python = {0}, layout = {0};
    struct tn_findings lost = {0};

    (void)state;
    str_add(&layout, "--pipeline-model-parallel-layout Et|");
    for (int i = 0; i < 30; i++)
        str_add(&layout, "tt|");
    str_add(&layout, "mL\n");
    write_stages(&arguments, &lost, "deepseek-v3", &tn_export_megatron, 8, 4);
    write_stages(&python, &lost, "deepseek-v3", &tn_export_bridge, 8, 4);
    if (!strstr(str_text(&arguments), str_text(&layout)))
        fail_msg("no %s in:\n%s", str_text(&layout), str_text(&arguments));
    if (!strstr(str_text(&python), bridge))
        fail_msg("no %s in:\n%s", bridge, str_text(&python));
}

/* A word within mla or moe is tried like one of the model. */
static void words_of_parts_are_reasons(void **state)
{
    static const char *const reasons[] = {"--q-lora-rank 1536", "<- model: mla.q_lora_rank 1536",
                                          "--moe-router-group-topk 4",
                                          "<- model: moe.topk_group 4"};
    AUTO_FREE char *file = NULL;
    AUTO_FREE char *explained = NULL;
    struct pl_layout layout;
    struct tn_findings lost;
    struct world world;
    struct tn_export_in in = {.model = &world.m,
                              .cluster = &world.c,
                              .layout = &layout,
                              .workload = &world.w,
                              .campaign = "k3v9qw2m",
                              .campaign_name = "words",
                              .tokens_per_s = NAN,
                              .lo = NAN,
                              .hi = NAN,
                              .date = "2026-03-01T09:30:00.000Z"};
    const char *type;
    struct err e = {0};

    (void)state;
    open_world(&world, "deepseek-v3");
    pl_layout_default(&layout, &world.w);
    layout.world = 1;
    pl_layout_canonical(&layout, &world.m);
    if (tn_export(&file, &type, &lost, "megatron", &in, true, &e) < 0 ||
        tn_export_explain(&explained, "megatron", &in, pl_trainer_find("megatron"), &layout, file,
                          &e) < 0)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < ARRAY_LEN(reasons); i += 2) {
        const char *line = strstr(explained, reasons[i]), *why = line ? strstr(line, " <- ") : NULL;

        if (!why || strncmp(why + 1, reasons[i + 1], strlen(reasons[i + 1])) != 0)
            fail_msg("%s: %.200s", reasons[i], line ? line : "not there");
    }
}

/* What the targets' own checks raise: such a file is refused whatever may be lost. */
static void what_would_not_start_is_refused_even_with_loss(void **state)
{
    static const char biases[] = "etp > 1 with mlp_bias true";
    static const char split[] = "{'world':2,'tp':2,'sp':1,'etp':2,'micro_batch':1}";
    static const struct {
        const char *target, *model, *layout, *text; /* NULL: it is written */
    } row[] = {
        {"megatron", "gpt-oss-20b", split, biases},
        {"megatron-script", "gpt-oss-20b", split, biases},
        {"megatron-bridge", "gpt-oss-20b", split, biases},
        {"megatron", "gpt-oss-20b", "{'world':2,'tp':2,'sp':1,'etp':1,'micro_batch':1}", NULL},
        {"megatron", "deepseek-v3.2", "{'world':2,'cp':2,'micro_batch':1}", "cp_comm"},
        {"megatron-bridge", "deepseek-v3.2", "{'world':2,'cp':2,'micro_batch':1}", "cp_comm"},
        {"megatron", "deepseek-v3.2", "{'world':2,'cp':2,'cp_comm':'all-gather','micro_batch':1}",
         NULL},
        {"megatron", "deepseek-v3.2", "{'world':1,'precision':'fp32','micro_batch':1}", "fp32"},
        {"torchtitan", "deepseek-v3", "{'world':2,'cp':2,'zero':2,'micro_batch':1}",
         "mtp 1 with pp 1 and cp 2"},
        {"torchtitan", "deepseek-v3", "{'world':2,'pp':2,'micro_batch':1}",
         "mtp 1 with pp 2 and cp 1"},
        {"torchtitan", "gpt-oss-20b", "{'world':2,'cp':2,'zero':2,'micro_batch':1}",
         "cp 2 with attn_sinks"},
        {"torchtitan", "deepseek-v3-like", "{'world':1,'micro_batch':1,'precision':'nvfp4'}",
         "precision nvfp4 with experts"},
        {"torchtitan", "llama-8b", "{'world':1,'micro_batch':1,'precision':'nvfp4'}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world world;
        struct pl_layout layout;
        struct tn_export_in in = {.model = &world.m,
                                  .cluster = &world.c,
                                  .layout = &layout,
                                  .workload = &world.w,
                                  .campaign = "k3v9qw2m",
                                  .campaign_name = "starts",
                                  .tokens_per_s = NAN,
                                  .lo = NAN,
                                  .hi = NAN,
                                  .date = "2026-03-01T09:30:00.000Z"};
        struct pl_problem problem = {&world.m, &world.c, &world.w, pl_trainer_find("any")};
        AUTO_JSON *words = unit_json(row[i].layout);
        AUTO_FREE char *file = NULL;
        struct tn_findings lost;
        const char *type;
        struct err e = {0};
        int r;

        open_world(&world, row[i].model);
        if (pl_layout_parse(&layout, words, &problem, &e) < 0)
            fail_msg("%s: %s", row[i].layout, e.text);
        r = tn_export(&file, &type, &lost, row[i].target, &in, true, &e);
        if (r != (row[i].text ? -EINVAL : 0) || (row[i].text && !strstr(e.text, row[i].text)))
            fail_msg("%s of %s, %s: %d %s", row[i].target, row[i].model, row[i].layout, r, e.text);
    }
}

/* Its plugin takes full recomputation for granted where the file does not name another, and leaves
 * a method set that Megatron-LM refuses with selective. */
static void accelerate_recomputes_in_full_below_megatron(void **state)
{
    static const char *const layouts[] = {
        "{'world':2,'pp':2,'micro_batch':1,'precision':'bf16'}",
        "{'world':2,'pp':2,'micro_batch':1,'precision':'bf16','recompute':'selective'}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        struct world world;
        struct pl_layout layout;
        AUTO_JSON *words = unit_json(layouts[i]);
        AUTO_STR text = {0};
        struct tn_findings lost = {0};
        struct tn_export_in in = {
            .model = &world.m, .cluster = &world.c, .layout = &layout, .workload = &world.w};
        struct pl_problem problem = {&world.m, &world.c, &world.w, pl_trainer_find("any")};
        struct err e = {0};
        bool said = false;

        open_world(&world, "llama-8b");
        if (pl_layout_parse(&layout, words, &problem, &e) < 0)
            fail_msg("%s: %s", layouts[i], e.text);
        tn_export_accelerate.gaps(&lost, &in);
        for (int k = 0; k < lost.count; k++)
            said |= str_eq(lost.v[k].setting, "recompute");
        assert_true(said);
        tn_export_accelerate.write(&text, &in, &lost);
        assert_non_null(strstr(str_text(&text), "megatron_lm_recompute_granularity: full\n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_word_is_written_or_named),
        cmocka_unit_test(deepseek_v3_is_written_whole),
        cmocka_unit_test(models_of_later_years_are_written_whole),
        cmocka_unit_test(the_rotation_of_latent_attention_starts),
        cmocka_unit_test(prediction_is_in_the_layout_of_a_pipeline),
        cmocka_unit_test(words_of_parts_are_reasons),
        cmocka_unit_test(what_would_not_start_is_refused_even_with_loss),
        cmocka_unit_test(accelerate_recomputes_in_full_below_megatron),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
