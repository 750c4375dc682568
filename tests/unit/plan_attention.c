/* Attention of other kinds than every query with every key before it: chunks (Llama 4), a gated
 * delta rule (Qwen3-Next), keys that an indexer chooses (DeepSeek-V3.2). Parameters against
 * published counts, FLOPs and bytes against formulas, seconds, words and their refusals. */
#include "tests/unit/plan_world.h"

#include <math.h>

#include "plan/memory_parts.h"

static bool near(double value, double want, double within)
{
    return fabs(value / want - 1) <= within;
}

/* Safetensors of the repositories: Scout 108,641,793,536 and Maverick 401,583,781,376, of which
 * 871,932,416 are the encoder of images and its projector (34 layers of width 1408; configuration
 * and shapes of modeling_llama4.py); both "17B" active. Qwen3-Next's shape, without its module of
 * prediction, 79,674,391,296 (Qwen/Qwen3-Coder-Next), 3,874,929,408 without the experts that a
 * token does not meet. */
static void parameters_are_those_published(void **state)
{
    const double images = 871932416;
    const struct {
        const char *preset;
        double all, active, active_within;
    } row[] = {
        {"llama-4-scout-17b-16e", 108641793536.0 - images, 17e9, 0.02},
        {"llama-4-maverick-17b-128e", 401583781376.0 - images, 17e9, 0.02},
        {"qwen3-next-80b-a3b", 79674391296.0, 3874929408.0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_model m = model_of(row[i].preset);
        double all = (double)pl_model_params(&m), active = (double)pl_model_active_params(&m);

        if (!near(all, row[i].all, 0))
            fail_msg("%s: %.0f, published %.0f", row[i].preset, all, row[i].all);
        if (!near(active, row[i].active, row[i].active_within))
            fail_msg("%s: %.0f active, published %.0f", row[i].preset, active, row[i].active);
    }
}

/* An indexer of 64 heads of width 128 in each of 61 layers and the module of prediction, with a
 * norm of its key: 13,959,424 parameters (modeling_deepseek_v32.py); all are 685B with the module's
 * copies of embedding and head, as README.md of deepseek-ai/DeepSeek-V3.2-Exp has it. */
static void an_indexer_adds_its_products(void **state)
{
    struct pl_model plain = model_of("deepseek-v3"), sparse = model_of("deepseek-v3.2");
    double each = 1536.0 * 64 * 128 + 7168.0 * (128 + 64) + 2 * 128, copies = 2 * 129280.0 * 7168;

    (void)state;
    assert_true(near((double)(pl_model_params(&sparse) - pl_model_params(&plain)), 62 * each, 0));
    assert_true(near((double)pl_model_params(&sparse) + copies, 685e9, 0.001));
}

#define SHAPE "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':1024"
#define LINEAR                                                                                     \
    "'linear_attention':{'num_key_heads':2,'num_value_heads':4,'key_head_dim':8,"                  \
    "'value_head_dim':16}"
#define MLA                                                                                        \
    "'mla':{'q_lora_rank':32,'kv_lora_rank':16,'qk_nope_head_dim':16,'qk_rope_head_dim':8,"        \
    "'v_head_dim':16}"
#define LONGROPE "'rope_scaling':{'kind':'longrope','factor':4,'original_seq':256,"
#define DSA "'dsa':{'index_n_heads':2,'index_head_dim':8,'index_topk':256}"

/* Chunks of a quarter leave a quarter; the last one may be shorter. */
static void chunks_leave_their_share_of_attention(void **state)
{
    const double core = 3.0 * 4 * 4 * 1024 * 64;
    const struct {
        const char *words;
        double left; /* of the core */
    } row[] = {
        {",'attention_chunk_size':1024", 1},
        {",'attention_chunk_size':4096", 1},
        {",'attention_chunk_size':256", 1.0 / 4},
        {",'attention_chunk_size':768", 9.0 / 16 + 1.0 / 16},
        {",'attention_chunk_size':256,'global_every':4", 1.0 / 4 + 3.0 / 4 * 1 / 4},
    };
    struct pl_model plain = model_of(SHAPE "}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_FREE char *text = mem_printf(SHAPE "%s}", row[i].words);
        struct pl_model m = model_of(text);
        double want = core * (1 - row[i].left),
               less = pl_model_flops_per_token(&plain, 1024) - pl_model_flops_per_token(&m, 1024);

        if (fabs(less - want) > 1e-6)
            fail_msg("%s: %g less, not %g", row[i].words, less, want);
    }
}

/* num_floating_point_operations() of Megatron-LM (d98e8a64): products, convolution, four products
 * with the state; a gate of the output widens the product of queries. */
static void a_delta_rule_counts_as_megatron_has_it(void **state)
{
    struct pl_model plain = model_of(SHAPE "}"),
                    gated = model_of(SHAPE ",'attention_output_gate':true}"),
                    linear = model_of(SHAPE ",'linear_attention_freq':4," LINEAR "}");
    double h = 64, keys = 2 * 8, values = 4 * 16, in = 2 * keys + 2 * values + 2 * 4,
           rule = 2 * (h * in + 4 * (2 * keys + values) + 4 * 4 * 8 * 16 + values * h),
           attention = 2 * 4 * h * h + 4 * 1024.0 * h;

    (void)state;
    assert_true(
        near(pl_model_flops_per_token(&plain, 1024) - pl_model_flops_per_token(&linear, 1024),
             3 * 3 * (attention - rule), 1e-12));
    assert_true(
        near(pl_model_flops_per_token(&gated, 1024) - pl_model_flops_per_token(&plain, 1024),
             3 * 4 * 2 * h * h, 1e-12));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pl_layer_is_linear(&linear, i), i != 3);
}

/* A query meets no more than index_topk keys; the indexer scores all. */
static void sparse_attention_counts_what_is_chosen(void **state)
{
    struct pl_model plain = model_of(SHAPE "," MLA "}"),
                    sparse = model_of(SHAPE "," MLA "," DSA "}");
    double seq = 1024, chosen = 256 * (2 - 256 / seq), core = 2 * 4 * (24 + 16.0),
           indexer = 2 * (32 * 2 * 8 + 64 * (8 + 2.0)) + 2 * seq * 2 * 8;

    (void)state;
    assert_true(
        near(pl_model_flops_per_token(&plain, 1024) - pl_model_flops_per_token(&sparse, 1024),
             3 * 4 * (core * (seq - chosen) - indexer), 1e-12));
}

/* What the stages of a pipeline hold adds up to the model. */
static void stages_hold_the_whole_model(void **state)
{
    static const char *const row[] = {
        "llama-4-maverick-17b-128e",
        "qwen3-next-80b-a3b",
        "deepseek-v3.2",
        /* modules of prediction are of plain attention, and of linear */
        SHAPE ",'mtp':2,'linear_attention_freq':4," LINEAR "}",
        SHAPE ",'mtp':2,'linear_attention_freq':3," LINEAR "}",
    };
    struct world x = world_cpu("nano-llama", 1, 1, "any");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_layout l = layout_of(&x, "{'world':1}");
        struct pl_layer_params each[2];
        struct pl_held held;

        x.m = model_of(row[i]);
        pl_layer_params_of(each, &x.m, &l);
        pl_held_params(&held, &x.m, &l, 0, pl_stage_count(&x.m, &l, 0), each);
        if (!near(held.dense + held.expert, (double)pl_model_params(&x.m), 1e-4))
            fail_msg("%s: %.0f", row[i], held.dense + held.expert);
    }
}

static double kept(const char *json, const char *layout)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    struct pl_layout l;

    x.m = model_of(json);
    x.w.seq = x.m.seq;
    l = layout_of(&x, layout);
    return pl_layer_activation_bytes(problem_of(&x), &l, false);
}

/* Bytes of a token, of which the mean layer has 3 in 4 of linear attention: outputs of its product
 * and convolution, queries and keys of every value head, the inverse of its chunk of 64, strength
 * and decay in fp32, output of the rule and of its norm. */
static void activations_follow_the_kind(void **state)
{
    static const char one[] = "{'world':8,'tp':1,'micro_batch':1}";
    double token = 1024, plain = kept(SHAPE "}", one),
           linear = kept(SHAPE ",'linear_attention_freq':4," LINEAR "}", one),
           gated = kept(SHAPE ",'attention_output_gate':true}", one),
           latent = kept(SHAPE "," MLA "}", one), sparse = kept(SHAPE "," MLA "," DSA "}", one);
    double attention = 2 * (4 + 4) * (16 + 16),
           rule = 2 * ((2 * 16 + 2 * 64 + 2 * 4) + (2 * 16 + 64) + 2 * 4 * 8 + 64 * 4 + 2 * 64) +
                  2 * 4 * 4;

    (void)state;
    assert_true(near(linear - plain, token * 0.75 * (rule - attention), 1e-9));
    assert_true(near(gated - plain, token * 2 * 2 * 64, 1e-9));
    /* queries, and those that met the latents' key, their output, and that of the values; before,
     * q, k, v and output of each head */
    assert_true(near(sparse - latent,
                     token * (2 * 4 * (24 + 24 + 16 + 16) - 2 * (4 + 4) * (24 + 16) +
                              2 * (2 * 8 + 2 * 8) + 4 * 2 + 4 * 256),
                     1e-9));
}

#define LONG                                                                                       \
    "{'layers':8,'hidden':4096,'heads':32,'kv_heads':32,'ffn':14336,'vocab':32000,'seq':65536"
#define LONG_LINEAR                                                                                \
    "'linear_attention':{'num_key_heads':16,'num_value_heads':32,'key_head_dim':128,"              \
    "'value_head_dim':128}"
#define LONG_MLA                                                                                   \
    "'mla':{'q_lora_rank':1536,'kv_lora_rank':512,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"   \
    "'v_head_dim':128}"
#define LONG_DSA "'dsa':{'index_n_heads':16,'index_head_dim':128,'index_topk':2048}"

/* Less of the keys takes less time, and a gate or an indexer some. */
static void seconds_follow_the_kind(void **state)
{
    static const char one[] = "{'world':8,'zero':1}", ring[] = "{'world':8,'cp':8,'zero':1}";
    double full = seconds_with(LONG "}", one),
           chunks = seconds_with(LONG ",'attention_chunk_size':8192}", one),
           mixed = seconds_with(LONG ",'attention_chunk_size':8192,'global_every':4}", one),
           linear = seconds_with(LONG ",'linear_attention_freq':4," LONG_LINEAR "}", one),
           rarely = seconds_with(LONG ",'linear_attention_freq':8," LONG_LINEAR "}", one),
           gated = seconds_with(LONG ",'attention_output_gate':true}", one),
           latent = seconds_with(LONG "," LONG_MLA "}", one),
           sparse = seconds_with(LONG "," LONG_MLA "," LONG_DSA "}", one),
           wide = seconds_with(LONG "," LONG_MLA ",'dsa':{'index_n_heads':64,'index_head_dim':128,"
                                    "'index_topk':2048}}",
                               one);

    (void)state;
    assert_true(chunks < mixed && mixed < full && full < gated && gated < 1.1 * full);
    assert_true(rarely < linear && linear < 0.6 * full);
    assert_true(sparse < wide && sparse < 0.7 * latent);
    /* ranks of cp exchange heads of linear attention */
    assert_true(seconds_with(LONG ",'linear_attention_freq':8," LONG_LINEAR "}", ring) >
                0.9 * rarely);
}

static void words_survive_their_json(void **state)
{
    static const char *const row[] = {
        "llama-4-scout-17b-16e",
        "llama-4-maverick-17b-128e",
        "qwen3-next-80b-a3b",
        "deepseek-v3.2",
        SHAPE ",'no_rope_freq':2,'attn_temperature_tuning':true,'attn_temperature_floor':16,"
              "'attn_temperature_scale':0.5}",
        SHAPE "," MLA ",'dsa':{'index_n_heads':2,'index_head_dim':8,'index_topk':256,"
              "'indexer_loss_coef':0.5}}",
        SHAPE ",'partial_rotary_factor':0.5,'rope_scaling':{'kind':'longrope','factor':32,"
              "'original_seq':32,'short_factor':[1,1.5,2,4],'long_factor':[1,2.25,9,64]}}",
        SHAPE ",'linear_attention_freq':5,'linear_attention':{'num_key_heads':2,"
              "'num_value_heads':4,'key_head_dim':8,'value_head_dim':16,'conv_kernel_dim':3}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_model m = model_of(row[i]), back;
        AUTO_JSON *v = pl_model_json(&m), *again = NULL;
        struct err e = {0};

        assert_int_equal(pl_model_parse(&back, v, &e), 0);
        again = pl_model_json(&back);
        if (!json_equal(v, again) || pl_model_params(&m) != pl_model_params(&back))
            fail_msg("%s", row[i]);
    }
}

static void contradictions_are_refused_by_pointer(void **state)
{
    static const struct {
        const char *words, *pointer, *text;
    } row[] = {
        {"'attention_chunk_size':8,'sliding_window':8", "/attention_chunk_size", "sliding_window"},
        {"'attention_chunk_size':8,'pattern':'*-*-'", "/attention_chunk_size", "pattern"},
        {"'attn_temperature_tuning':true", "/attn_temperature_tuning", "no_rope_freq"},
        {"'attention_output_gate':true," MLA, "/attention_output_gate", "mla"},
        {LINEAR, "/linear_attention_freq", "needs linear_attention_freq"},
        {"'linear_attention_freq':4", "/linear_attention_freq", "needs linear_attention"},
        {"'linear_attention_freq':1," LINEAR, "/linear_attention_freq", "leave both out"},
        {"'linear_attention_freq':4," LINEAR "," MLA, "/linear_attention", "with mla"},
        {"'linear_attention_freq':4,'no_rope_freq':2," LINEAR, "/linear_attention",
         "with no_rope_freq"},
        {"'linear_attention_freq':4,'linear_attention':{'num_key_heads':3,'num_value_heads':4,"
         "'key_head_dim':8,'value_head_dim':8}",
         "/linear_attention/num_key_heads", "does not divide num_value_heads 4"},
        {"'linear_attention_freq':4,'linear_attention':{'num_key_heads':2}",
         "/linear_attention/num_value_heads", "missing"},
        {DSA, "/dsa", "needs mla"},
        {"'mla':{'kv_lora_rank':16,'qk_nope_head_dim':16,'qk_rope_head_dim':8,'v_head_dim':16}"
         "," DSA,
         "/dsa", "q_lora_rank"},
        {MLA ",'dsa':{'index_n_heads':2,'index_head_dim':4,'index_topk':8}", "/dsa",
         "at least qk_rope_head_dim"},
        {MLA ",'dsa':{'index_n_heads':2,'index_head_dim':8}", "/dsa/index_topk", "missing"},
        {"'qk_norm':'l2'," MLA, "/qk_norm", "mla"},
        {LONGROPE "'short_factor':[1,1,1,1],'long_factor':[1,2]}", "/rope_scaling/short_factor",
         "4 numbers, not 8"},
        {LONGROPE "'short_factor':[1,1,1,1,1,1,1,1]}", "/rope_scaling/long_factor",
         "0 numbers, not 8"},
        {LONGROPE "'short_factor':[1,1,1,1,1,1,1,0]}", "/rope_scaling/short_factor", "number 7"},
        {LONGROPE "'short_factor':1}", "/rope_scaling/short_factor", "list"},
        {"'rope_scaling':{'kind':'longrope','factor':2}", "/rope_scaling/original_seq", "missing"},
        {"'rope_scaling':{'kind':'linear','factor':2,'long_factor':[1]}",
         "/rope_scaling/long_factor", "other kinds none"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_FREE char *text = mem_printf(SHAPE ",%s}", row[i].words);
        AUTO_JSON *v = unit_json(text);
        struct pl_model m;
        struct err e = {0};

        if (pl_model_parse(&m, v, &e) >= 0)
            fail_msg("accepted: %s", text);
        if (strcmp(e.pointer, row[i].pointer) || !strstr(e.text, row[i].text))
            fail_msg("%s: %s %s", text, e.pointer, e.text);
    }
}

static bool refuses(const struct pl_verdict *verdict, const char *key)
{
    for (int i = 0; i < verdict->count; i++)
        if (!strcmp(verdict->v[i].rule, "trainer-supports") && !strcmp(verdict->v[i].key, key))
            return true;
    return false;
}

/* Each word, and who trains it: Megatron-LM chunks and temperatures where sequences end before they
 * begin, norms of queries only with rotation in all layers; none of it the bundled trainer. */
static void trainers_refuse_what_they_lack_by_key(void **state)
{
#define MOE1 "'moe':{'experts':8,'top_k':1,'expert_ffn':64,'router':'sigmoid','topk_norm':false"
    static const struct {
        const char *words, *key;
        bool megatron;
    } row[] = {
        {"'qk_norm':'l2'", "qk_norm", true},
        {"'qk_norm':'l2','no_rope_freq':2", "qk_norm", false},
        {"'attention_output_gate':true", "attention_output_gate", true},
        {"'linear_attention_freq':4," LINEAR, "linear_attention", true},
        {MLA "," DSA, "dsa", true},
        {"'attention_chunk_size':1024", "attention_chunk_size", true},
        {"'attention_chunk_size':1023", "attention_chunk_size", false},
        {"'no_rope_freq':2,'attn_temperature_tuning':true", "attn_temperature_tuning", true},
        {"'no_rope_freq':2,'attn_temperature_tuning':true,'attn_temperature_floor':1024",
         "attn_temperature_floor", false},
        {LONGROPE "'short_factor':[1,1,1,1,1,1,1,1],'long_factor':[2,2,2,2,2,2,2,2]}",
         "rope_scaling", false},
        {MOE1 ",'apply_probs_on_input':true}", "apply_probs_on_input", true},
        {"'moe':{'experts':8,'top_k':2,'expert_ffn':64,'apply_probs_on_input':true}",
         "apply_probs_on_input", false},
        {"'moe':{'experts':8,'top_k':1,'expert_ffn':64,'router':'sigmoid'}", "topk_norm", false},
    };
    static const char *const trainers[] = {"partune", "torchtitan", "megatron", "deepspeed", "any"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (size_t k = 0; k < ARRAY_LEN(trainers); k++) {
            AUTO_FREE char *text = mem_printf(SHAPE ",%s}", row[i].words);
            struct world x = world_of("llama-8b", "dgx-h100", 1, 8, trainers[k]);
            struct pl_layout l = layout_of(&x, "{'world':8}");
            struct pl_verdict verdict;
            bool known = !strcmp(row[i].key, "topk_norm") ||
                         !strcmp(row[i].key, "attn_temperature_floor"); /* by another key */
            bool want = k == 2   ? !row[i].megatron
                        : k == 3 ? !strcmp(row[i].key, "dsa") /* whose indexer is not trained */
                                 : k < 2 && !known;

            x.m = model_of(text);
            x.w.seq = 1024;
            pl_layout_check(&verdict, problem_of(&x), &l);
            if (!(known && k < 2) && refuses(&verdict, row[i].key) != want)
                fail_msg("%s of %s: %s", row[i].key, trainers[k], want ? "taken" : "refused");
        }
}

/* Ranks of tp share the key heads; Megatron's ranks of cp, too. What else it raises. */
static void layouts_have_rules_of_their_own(void **state)
{
    static const struct {
        const char *model, *layout, *rule, *key;
    } row[] = {
        {"qwen3-next-80b-a3b", "{'world':8,'tp':2,'sp':1,'cp':4,'ep':8}", NULL, NULL},
        {SHAPE ",'linear_attention_freq':4," LINEAR "}", "{'world':8,'tp':2}", NULL, NULL},
        {SHAPE ",'linear_attention_freq':4," LINEAR "}", "{'world':8,'tp':4}", "heads-tp", "tp"},
        {SHAPE ",'linear_attention_freq':4," LINEAR "}", "{'world':8,'tp':2,'cp':2}",
         "trainer-supports", "cp"},
        {SHAPE "," MLA "," DSA "}", "{'world':8,'cp':2}", "trainer-supports", "cp_comm"},
        {SHAPE "," MLA "," DSA "}", "{'world':8,'tp':2}", "trainer-supports", "sp"},
        {SHAPE "," MLA "," DSA "}", "{'world':8,'tp':2,'sp':1}", NULL, NULL},
        {SHAPE "," MLA "," DSA "}", "{'world':8,'precision':'fp32'}", "trainer-supports",
         "precision"},
        /* outputs: 2 x 16 + 2 x 64 + 2 x 4 = 168, and 192 */
        {SHAPE ",'linear_attention_freq':4," LINEAR "}", "{'world':8,'precision':'fp8'}",
         "trainer-supports", "precision"},
        {SHAPE ",'linear_attention_freq':4,'linear_attention':{'num_key_heads':8,"
               "'num_value_heads':8,'key_head_dim':4,'value_head_dim':7}}",
         "{'world':8,'precision':'fp8'}", NULL, NULL},
        {SHAPE "," MLA "," DSA "}", "{'world':8,'cp':2,'cp_comm':'all-gather'}", NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "megatron");
        struct pl_layout l;
        struct pl_verdict verdict;
        bool found = false;

        x.m = model_of(row[i].model);
        x.w.seq = 1024;
        l = layout_of(&x, row[i].layout);
        if (pl_layout_check(&verdict, problem_of(&x), &l) != !row[i].rule)
            fail_msg("%s, %s: %s", row[i].model, row[i].layout,
                     verdict.count ? verdict.v[0].text : "legal");
        for (int k = 0; k < verdict.count; k++)
            found |=
                !strcmp(verdict.v[k].rule, row[i].rule) && !strcmp(verdict.v[k].key, row[i].key);
        assert_int_equal(found, row[i].rule != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_published),
        cmocka_unit_test(an_indexer_adds_its_products),
        cmocka_unit_test(chunks_leave_their_share_of_attention),
        cmocka_unit_test(a_delta_rule_counts_as_megatron_has_it),
        cmocka_unit_test(sparse_attention_counts_what_is_chosen),
        cmocka_unit_test(stages_hold_the_whole_model),
        cmocka_unit_test(activations_follow_the_kind),
        cmocka_unit_test(seconds_follow_the_kind),
        cmocka_unit_test(words_survive_their_json),
        cmocka_unit_test(contradictions_are_refused_by_pointer),
        cmocka_unit_test(trainers_refuse_what_they_lack_by_key),
        cmocka_unit_test(layouts_have_rules_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
