/* What models may have: parameters against published counts, FLOPs, words and their refusals. */
#include "tests/unit/plan_world.h"

#include <math.h>

#include "plan/memory_parts.h"

/* DeepSeek-V3's attention and experts (arXiv 2412.19437, section 4.2). */
#define V3                                                                                         \
    "{'layers':61,'hidden':7168,'heads':128,'ffn':18432,'vocab':129280,'seq':4096,"                \
    "'mla':{'q_lora_rank':1536,'kv_lora_rank':512,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"   \
    "'v_head_dim':128},'moe':{'experts':256,'top_k':8,'expert_ffn':2048,'shared_ffn':2048,"        \
    "'dense_layers':3,'router':'sigmoid','balance_bias':true,'scaling':2.5,'n_group':8,"           \
    "'topk_group':4}"

/* Nemotron 3 Nano's layers. */
#define NANO                                                                                       \
    "{'layers':52,'hidden':2688,'heads':32,'kv_heads':2,'head_dim':128,'ffn':1856,"                \
    "'vocab':131072,'seq':8192,'mlp':'relu2','positions':'none',"                                  \
    "'pattern':'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME',"                            \
    "'mamba':{'heads':64,'head_dim':64,'state':128},"                                              \
    "'moe':{'experts':128,'top_k':6,'expert_ffn':1856,'shared_ffn':3712,'router':'sigmoid',"       \
    "'balance_bias':true,'scaling':2.5}}"

/* Published counts in 10^9, of all parameters and of those that a token meets; 0: not published. */
static void parameters_are_those_published(void **state)
{
    static const struct {
        const char *what, *json;
        double billions, active, within, active_within;
    } row[] = {
        {"DeepSeek-V3: 671B, 37B active", V3 "}", 671, 37, 0.005, 0.02},
        /* config.json of deepseek-ai/DeepSeek-V2: 236B, 21B active. */
        {"DeepSeek-V2",
         "{'layers':60,'hidden':5120,'heads':128,'ffn':12288,'vocab':102400,'seq':4096,"
         "'mla':{'q_lora_rank':1536,'kv_lora_rank':512,'qk_nope_head_dim':128,"
         "'qk_rope_head_dim':64,'v_head_dim':128},'moe':{'experts':160,'top_k':6,"
         "'expert_ffn':1536,'shared_ffn':3072,'dense_layers':1,'n_group':8,'topk_group':3,"
         "'topk_norm':false,'scaling':16}}",
         236, 21, 0.005, 0.02},
        /* arXiv 2405.04434: V2-Lite, without compressed queries: 15.7B, 2.4B active. */
        {"DeepSeek-V2-Lite",
         "{'layers':27,'hidden':2048,'heads':16,'ffn':10944,'vocab':102400,'seq':4096,"
         "'mla':{'kv_lora_rank':512,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"
         "'v_head_dim':128},'moe':{'experts':64,'top_k':6,'expert_ffn':1408,'shared_ffn':2816,"
         "'dense_layers':1,'topk_norm':false}}",
         15.7, 0, 0.005, 0},
        /* arXiv 2508.10925, table 1: 116.83B and 5.13B active, 20.91B and 3.61B; active counts
         * leave out the embedding. */
        {"gpt-oss-120b",
         "{'layers':36,'hidden':2880,'heads':64,'kv_heads':8,'head_dim':64,'vocab':201088,"
         "'seq':4096,'mlp':'swiglu-clamped','qkv_bias':true,'out_bias':true,'mlp_bias':true,"
         "'attn_sinks':true,'sliding_window':128,'global_every':2,"
         "'moe':{'experts':128,'top_k':4,'expert_ffn':2880,'router_bias':true}}",
         116.83, 5.13 + 0.579, 0.0005, 0.005},
        {"gpt-oss-20b",
         "{'layers':24,'hidden':2880,'heads':64,'kv_heads':8,'head_dim':64,'vocab':201088,"
         "'seq':4096,'mlp':'swiglu-clamped','qkv_bias':true,'out_bias':true,'mlp_bias':true,"
         "'attn_sinks':true,'sliding_window':128,'global_every':2,"
         "'moe':{'experts':32,'top_k':4,'expert_ffn':2880,'router_bias':true}}",
         20.91, 3.61 + 0.579, 0.0005, 0.005},
        /* Files of Qwen/Qwen3-8B: 8.19B, the norms of queries and keys included. */
        {"Qwen3-8B",
         "{'layers':36,'hidden':4096,'heads':32,'kv_heads':8,'head_dim':128,'ffn':12288,"
         "'vocab':151936,'seq':4096,'qk_norm':'head'}",
         8.19, 0, 0.001, 0},
        /* Files of Qwen/Qwen2.5-7B: 7.62B. */
        {"Qwen2.5-7B",
         "{'layers':28,'hidden':3584,'heads':28,'kv_heads':4,'ffn':18944,'vocab':152064,"
         "'seq':4096,'qkv_bias':true}",
         7.62, 0, 0.001, 0},
        /* arXiv 2409.02060: OLMoE has 6.9B, 1.3B active. */
        {"OLMoE-1B-7B",
         "{'layers':16,'hidden':2048,'heads':16,'vocab':50304,'seq':4096,'qk_norm':'full',"
         "'moe':{'experts':64,'top_k':8,'expert_ffn':1024,'topk_norm':false}}",
         6.92, 1.28, 0.001, 0.005},
        /* arXiv 2501.00656 has three OLMo 2 of 7B, 13B and 32B; safetensors of the last two hold
         * 13,716,198,400 and 32,234,279,936 parameters. */
        {"OLMo 2 13B",
         "{'layers':40,'hidden':5120,'heads':40,'ffn':13824,'vocab':100352,'seq':4096,"
         "'qk_norm':'full','pre_norms':false,'post_norms':true}",
         13.716198400, 0, 1e-9, 0},
        {"OLMo 2 32B",
         "{'layers':64,'hidden':5120,'heads':40,'kv_heads':8,'ffn':27648,'vocab':100352,"
         "'seq':4096,'qk_norm':'full','pre_norms':false,'post_norms':true}",
         32.234279936, 0, 1e-9, 0},
        /* arXiv 2204.06745: 20,554,567,680 parameters. */
        {"GPT-NeoX-20B",
         "{'layers':44,'hidden':6144,'heads':64,'ffn':24576,'vocab':50432,'seq':2048,"
         "'mlp':'gelu','norm':'layernorm','parallel_block':true,'partial_rotary_factor':0.25}",
         20.554567680, 0, 0.0001, 0},
        /* arXiv 2408.00118, table 2: 8,324M and 918M of the embedding. */
        {"Gemma 2 9B",
         "{'layers':42,'hidden':3584,'heads':16,'kv_heads':8,'head_dim':256,'ffn':14336,"
         "'vocab':256128,'seq':4096,'mlp':'geglu','tied':true,'post_norms':true,"
         "'attn_softcap':50,'logit_softcap':30,'sliding_window':4096,'global_every':2,"
         "'embed_scale':true}",
         9.242, 0, 0.0005, 0},
        /* arXiv 2503.19786, table 1: 25,600M and 1,416M of the embedding. */
        {"Gemma 3 27B",
         "{'layers':62,'hidden':5376,'heads':32,'kv_heads':16,'head_dim':128,'ffn':21504,"
         "'vocab':262144,'seq':4096,'mlp':'geglu','tied':true,'post_norms':true,"
         "'qk_norm':'head','sliding_window':1024,'global_every':6,'embed_scale':true}",
         27.016, 0, 0.001, 0},
        /* arXiv 2512.20848: Nemotron 3 Nano has 31.6B, 3.6B active with embeddings. */
        {"Nemotron 3 Nano 30B-A3B", NANO, 31.6, 3.6, 0.005, 0.02},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_model m = model_of(row[i].json);
        double all = (double)pl_model_params(&m) / 1e9,
               active = (double)pl_model_active_params(&m) / 1e9;

        if (fabs(all / row[i].billions - 1) > row[i].within)
            fail_msg("%s: %.4f, published %.4f", row[i].what, all, row[i].billions);
        if (row[i].active > 0 && fabs(active / row[i].active - 1) > row[i].active_within)
            fail_msg("%s: %.4f active, published %.4f", row[i].what, active, row[i].active);
    }
}

/* README.md of deepseek-ai/DeepSeek-V3: 685B in its files, which have copies of embedding and head
 * for the module. */
static void a_prediction_module_adds_a_layer(void **state)
{
    struct pl_model plain = model_of(V3 "}"), one = model_of(V3 ",'mtp':1}");
    double all = (double)pl_model_params(&one) / 1e9, copies = 2 * 129280.0 * 7168 / 1e9;

    (void)state;
    if (fabs((all + copies) / 685 - 1) > 0.001)
        fail_msg("%.3f", all + copies);
    assert_true(pl_model_flops_per_token(&one, 4096) > pl_model_flops_per_token(&plain, 4096));
}

/* A window as wide as the sequence is none; half as wide, 3/4 of the causal half is left. */
static void a_window_leaves_its_share_of_attention(void **state)
{
    static const char shape[] =
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':1024%s}";
    char text[300];
    double core, full;
    struct pl_model m;

    (void)state;
    snprintf(text, sizeof(text), shape, "");
    m = model_of(text);
    full = pl_model_flops_per_token(&m, 1024);
    core = 3.0 * 4 * 4 * 1024 * 64;
    snprintf(text, sizeof(text), shape, ",'sliding_window':1024");
    m = model_of(text);
    assert_true(fabs(pl_model_flops_per_token(&m, 1024) - full) < 1e-6);
    snprintf(text, sizeof(text), shape, ",'sliding_window':512");
    m = model_of(text);
    assert_true(fabs(full - pl_model_flops_per_token(&m, 1024) - core / 4) < 1e-6);
    snprintf(text, sizeof(text), shape, ",'sliding_window':512,'global_every':2");
    m = model_of(text);
    assert_true(fabs(full - pl_model_flops_per_token(&m, 1024) - core / 8) < 1e-6);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pl_layer_has_window(&m, i), i % 2 == 0);
}

/* arXiv 2405.04434, table 1: a query meets (qk_nope + qk_rope) and v_head_dim of each key; its
 * products are the five of section 2.1. */
static void latent_attention_counts_its_own_products(void **state)
{
    struct pl_model m = model_of(V3 "}");
    double h = 7168, attention = 61 * 2 *
                                 (h * 1536 + 1536.0 * 128 * 192 + h * 576 + 512.0 * 128 * 256 +
                                  128 * 128 * h + 4096.0 * 128 * (192 + 128));
    double dense = 3 * 2 * 3 * h * 18432, experts = 58 * 2 * (3 * h * 2048 * 9 + h * 256);

    (void)state;
    assert_int_equal(m.head_dim, 192);
    assert_true(fabs(pl_model_flops_per_token(&m, 4096) /
                         (3 * (attention + dense + experts + 2 * h * 129280)) -
                     1) < 1e-12);
}

/* What the stages of a pipeline hold adds up to the model: all but biases, and with modules of
 * prediction the last stage's own embedding. */
static void stages_hold_the_whole_model(void **state)
{
    static const struct {
        const char *json;
        int pp;
        double copies; /* of the embedding */
    } row[] = {
        {V3 "}", 1, 0},
        {V3 ",'mtp':1}", 1, 0},
        {NANO, 4, 0},
        {"{'layers':8,'hidden':64,'heads':4,'ffn':96,'vocab':64,'seq':64,'qk_norm':'full',"
         "'post_norms':true,'mtp':2}",
         4, 1},
        {"{'layers':8,'hidden':64,'heads':4,'ffn':96,'vocab':64,'seq':64,'qk_norm':'full',"
         "'pre_norms':false,'post_norms':true}",
         4, 0},
    };
    struct world x = world_cpu("nano-llama", 1, 1, "any");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_layout l = layout_of(&x, "{'world':1}");
        double all = 0;

        x.m = model_of(row[i].json);
        l.pp = l.world = row[i].pp;
        pl_layout_derive(&l);
        for (int stage = 0; stage < l.pp; stage++) {
            struct pl_held held;

            held_on(&held, &x.m, &l, stage);
            all += held.dense + held.expert;
        }
        all -= row[i].copies * x.m.vocab * x.m.hidden;
        if (fabs(all / (double)pl_model_params(&x.m) - 1) > 1e-4)
            fail_msg("%zu: %.0f of %.0f", i, all, (double)pl_model_params(&x.m));
    }
}

static double seconds_of(const char *json)
{
    return seconds_with(json, "{'world':8,'zero':1}");
}

static void seconds_follow_the_words(void **state)
{
#define LONG                                                                                       \
    "{'layers':8,'hidden':4096,'heads':32,'kv_heads':8,'ffn':14336,'vocab':32000,'seq':32768"
    double full = seconds_of(LONG "}"), narrow = seconds_of(LONG ",'sliding_window':4096}"),
           mixed = seconds_of(LONG ",'sliding_window':4096,'global_every':4}"),
           four = seconds_of(LONG ",'post_norms':true}"),
           outputs = seconds_of(LONG ",'post_norms':true,'pre_norms':false}"),
           further = seconds_of(LONG ",'mtp':1}"), normed = seconds_of(LONG ",'qk_norm':'head'}");

    (void)state;
    assert_true(narrow < mixed && mixed < full);
    assert_true(full < normed && normed < further);
    assert_true(full < four && fabs(outputs / full - 1) < 1e-12); /* two norms either way */
    assert_true(further < 1.5 * full); /* nine layers and two heads for eight and one */
}

/* Ranks of tp add up what a norm over all heads needs, and a norm of each head does not. */
static void a_norm_over_all_heads_costs_sums_over_tp(void **state)
{
    static const char head[] = LONG ",'qk_norm':'head'}", all[] = LONG ",'qk_norm':'full'}";
    static const char alone[] = "{'world':8,'zero':1}", two[] = "{'world':8,'tp':2,'zero':1}";

    double weights = seconds_with(all, alone) - seconds_with(head, alone);

    (void)state;
    assert_true(weights < 1e-4 * seconds_with(head, alone)); /* the optimizer's, of more elements */
    assert_true(seconds_with(all, two) - seconds_with(head, two) > 10 * fabs(weights));
    assert_true(seconds_with(all, two) < 1.02 * seconds_with(head, two));
}

static void words_survive_their_json_and_defaults_are_left_out(void **state)
{
    static const char *const row[] = {
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64}",
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64,'norm':'layernorm',"
        "'mlp':'gelu','qkv_bias':false,'out_bias':true}",
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64,"
        "'rope_scaling':{'kind':'yarn','factor':40,'original_seq':4096,'mscale':1},"
        "'rope_theta_local':10000,'sliding_window':8,'partial_rotary_factor':0.5}",
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64,'pre_norms':false,"
        "'post_norms':true}",
        V3 ",'mtp':1,'mtp_loss_coef':0.3}",
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64,'norm':'layernorm',"
        "'norm_bias':false,'parallel_block':true,'shared_norm':true}",
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64,'attn_scale':0.0078125,"
        "'embedding_multiplier':12,'residual_multiplier':0.22,'logit_scale':0.0625}",
        "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64,'pattern':'M*-M',"
        "'mamba':{'heads':8,'head_dim':16,'state':16,'groups':4,'conv':3}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_model m = model_of(row[i]), back;
        AUTO_JSON *v = pl_model_json(&m), *again;
        struct err e = {0};

        assert_int_equal(pl_model_parse(&back, v, &e), 0);
        again = pl_model_json(&back);
        assert_true(json_equal(v, again));
        assert_true(pl_model_params(&m) == pl_model_params(&back));
        if (i == 0)
            assert_int_equal(json_object_size(v), 16);
    }
}

static void contradictions_are_refused_by_pointer(void **state)
{
#define SMALL "{'layers':4,'hidden':64,'heads':4,'ffn':64,'vocab':64,'seq':64"
#define MLA "'mla':{'kv_lora_rank':8,'qk_nope_head_dim':8,'qk_rope_head_dim':4,'v_head_dim':8}"
    static const struct {
        const char *json, *pointer, *text;
    } row[] = {
        {SMALL ",'qk_norm':'heads'}", "/qk_norm", "head"},
        {SMALL ",'global_every':2}", "/global_every", "needs sliding_window"},
        {SMALL ",'rope_theta_local':2}", "/rope_theta_local", "needs sliding_window"},
        {SMALL ",'no_rope_freq':1}", "/no_rope_freq", "use positions none"},
        {SMALL ",'no_rope_freq':2,'positions':'learned'}", "/no_rope_freq", "other than rope"},
        {SMALL ",'no_rope_freq':2," MLA "}", "/no_rope_freq", "with mla"},
        {SMALL ",'no_rope_freq':2,'pattern':'*-*-'}", "/no_rope_freq", "pattern"},
        {SMALL ",'norm_bias':true}", "/norm_bias", "needs norm layernorm"},
        {SMALL ",'shared_norm':true}", "/shared_norm", "needs parallel_block"},
        {SMALL ",'shared_norm':true,'parallel_block':true,'pattern':'*-*-'}", "/shared_norm",
         "pattern"},
        {SMALL ",'pre_norms':false}", "/pre_norms", "needs post_norms true"},
        {SMALL ",'pre_norms':false,'post_norms':true,'pattern':'*-*-'}", "/pre_norms", "pattern"},
        {SMALL ",'mla':{'kv_lora_rank':8}}", "/mla/qk_nope_head_dim", "missing"},
        {SMALL ",'mla':{'kv_lora':8}}", "/mla/kv_lora", "unknown"},
        {SMALL ",'head_dim':16," MLA "}", "/head_dim", "8 + qk_rope_head_dim 4"},
        {SMALL ",'kv_heads':2," MLA "}", "/kv_heads", "with mla"},
        {SMALL ",'partial_rotary_factor':0.5," MLA "}", "/partial_rotary_factor", "with mla"},
        {SMALL ",'mla':{'kv_lora_rank':8,'qk_nope_head_dim':7,'qk_rope_head_dim':3,"
               "'v_head_dim':8}}",
         "/mla/qk_rope_head_dim", "3 is odd"},
        {SMALL ",'rope_scaling':{'kind':'llama3','factor':8,'original_seq':64,"
               "'low_freq_factor':5}}",
         "/rope_scaling/low_freq_factor", "is above high_freq_factor 4"},
        {SMALL ",'rope_theta':1,'rope_scaling':{'kind':'yarn','factor':8,'original_seq':64}}",
         "/rope_theta", "must be above 1"},
        {SMALL ",'rope_scaling':{'kind':'llama3','factor':8}}", "/rope_scaling/original_seq",
         "missing"},
        {SMALL ",'rope_scaling':{'kind':'linear','factor':0.5}}", "/rope_scaling/factor", "0.5"},
        {SMALL ",'pattern':'M*-'}", "/pattern", "3 letters for layers 4"},
        {SMALL ",'pattern':'**-x'}", "/pattern", "layer 3 is 'x'"},
        {SMALL ",'pattern':'M*--'}", "/mamba", "missing"},
        {SMALL ",'pattern':'*-*E'}", "/pattern", "need moe"},
        {SMALL ",'mamba':{'heads':8,'head_dim':8,'state':8}}", "/pattern", "needs a pattern"},
        {SMALL ",'moe':{'experts':8,'top_k':2,'expert_ffn':8,'n_group':3}}", "/moe/n_group",
         "does not divide experts 8"},
        {SMALL ",'moe':{'experts':8,'top_k':2,'expert_ffn':8,'topk_group':2}}", "/moe/topk_group",
         "more than n_group 1"},
        {SMALL ",'moe':{'experts':8,'top_k':2,'expert_ffn':8,'shared_gate':true}}",
         "/moe/shared_gate", "needs shared_ffn"},
        {SMALL ",'moe':{'experts':8,'top_k':2,'expert_ffn':8,'router':'tanh'}}", "/moe/router",
         "softmax"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].json);
        struct pl_model m;
        struct err e = {0};

        if (pl_model_parse(&m, v, &e) >= 0)
            fail_msg("accepted: %s", row[i].json);
        if (strcmp(e.pointer, row[i].pointer) || !strstr(e.text, row[i].text))
            fail_msg("%s: %s %s", row[i].json, e.pointer, e.text);
    }
}

static bool refuses(const struct pl_verdict *verdict, const char *key)
{
    for (int i = 0; i < verdict->count; i++)
        if (!strcmp(verdict->v[i].rule, "trainer-supports") && !strcmp(verdict->v[i].key, key))
            return true;
    return false;
}

/* What only one of plan's trainers, "any", takes without a word: each other names it by its key. */
static void a_trainer_refuses_what_it_lacks_by_key(void **state)
{
    static const char *const keys[] = {"capacity_factor", "attn_sinks",   "mtp",     "mla",
                                       "router",          "balance_bias", "scaling", "n_group"};
    struct world x = world_cpu("nano-llama", 1, 1, "partune");
    struct pl_layout l = layout_of(&x, "{'world':1}");
    struct pl_verdict verdict;

    (void)state;
    x.m = model_of(V3 ",'mtp':1,'attn_sinks':true}");
    x.m.moe.capacity_factor = 1.25;
    assert_false(pl_layout_check(&verdict, problem_of(&x), &l));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (refuses(&verdict, keys[i]) != (i < 1)) /* it has the others */
            fail_msg("%s is %s", keys[i], i < 1 ? "not refused" : "refused");
    x.t = pl_trainer_find("any");
    pl_layout_check(&verdict, problem_of(&x), &l);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        assert_false(refuses(&verdict, keys[i]));
}

/* Modules of multi-token prediction that the bundled trainer has no formula for, or no token. */
static void multi_token_prediction_has_limits_in_the_bundled_trainer(void **state)
{
    static const struct {
        const char *words, *key;
    } row[] = {{"'mtp':2", NULL},
               {"'mtp':2,'norm':'layernorm'", "norm"},
               {"'mtp':2,'positions':'learned'", "positions"},
               {"'mtp':64", "mtp"},
               {"'mtp':63", NULL}};
    struct world x = world_cpu("nano-llama", 1, 1, "partune");
    struct pl_layout l = layout_of(&x, "{'world':1}");

    (void)state;
    x.w.seq = 64;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_FREE char *text = mem_printf(SMALL ",%s}", row[i].words);
        struct pl_verdict verdict;

        x.m = model_of(text);
        if (pl_layout_check(&verdict, problem_of(&x), &l) != !row[i].key ||
            (row[i].key && !refuses(&verdict, row[i].key)))
            fail_msg("%s", row[i].words);
    }
}

/* Latent attention that the bundled trainer's kernels cannot compute. */
static void latents_have_limits_in_the_bundled_trainer(void **state)
{
    static const struct {
        const char *mla, *norm, *key;
    } row[] = {{"'kv_lora_rank':8,'v_head_dim':256", "rmsnorm", NULL},
               {"'kv_lora_rank':8,'v_head_dim':257", "rmsnorm", "v_head_dim"},
               {"'kv_lora_rank':16051,'v_head_dim':8", "rmsnorm", "kv_lora_rank"},
               {"'kv_lora_rank':8,'v_head_dim':8,'q_lora_rank':16051", "rmsnorm", "q_lora_rank"},
               {"'kv_lora_rank':8,'v_head_dim':8", "layernorm", "norm"}};
    struct world x = world_cpu("nano-llama", 1, 1, "partune");
    struct pl_layout l = layout_of(&x, "{'world':1}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_FREE char *text =
            mem_printf(SMALL ",'norm':'%s','mla':{%s,'qk_nope_head_dim':8,'qk_rope_head_dim':4}}",
                       row[i].norm, row[i].mla);
        struct pl_verdict verdict;

        x.m = model_of(text);
        assert_int_equal(pl_layout_check(&verdict, problem_of(&x), &l), !row[i].key);
        if (row[i].key && !refuses(&verdict, row[i].key))
            fail_msg("%s is not refused", row[i].key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_have_limits_in_the_bundled_trainer),
        cmocka_unit_test(parameters_are_those_published),
        cmocka_unit_test(a_prediction_module_adds_a_layer),
        cmocka_unit_test(a_window_leaves_its_share_of_attention),
        cmocka_unit_test(latent_attention_counts_its_own_products),
        cmocka_unit_test(stages_hold_the_whole_model),
        cmocka_unit_test(seconds_follow_the_words),
        cmocka_unit_test(a_norm_over_all_heads_costs_sums_over_tp),
        cmocka_unit_test(words_survive_their_json_and_defaults_are_left_out),
        cmocka_unit_test(contradictions_are_refused_by_pointer),
        cmocka_unit_test(a_trainer_refuses_what_it_lacks_by_key),
        cmocka_unit_test(multi_token_prediction_has_limits_in_the_bundled_trainer),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
