/* Hugging Face folders of every family: configurations, refusals, damaged tensors. That weights and
 * values agree is shown by tests/mpi/golden.c and save_hf.sh. */
#include "tests/unit/trainer_world.h"

#include <errno.h>

#include <math.h>

#include "trainer/hf.h"
#include "trainer/mxfp4.h"
#include "trainer/rope.h"

#define SIZES "'name':'gpt2','layers':2,'hidden':32,'heads':4,'ffn':24,'vocab':50,'seq':16"
#define WORDS SIZES ",'norm_eps':1e-4"
/* DeepSeek's: with latents, and with experts to which a comma and more words are added. */
#define LATENTS "'kv_lora_rank':12,'qk_nope_head_dim':6,'qk_rope_head_dim':4,'v_head_dim':7}"
#define MLA SIZES ",'norm_eps':1e-6,'mla':{'q_lora_rank':10," LATENTS
#define V3 MLA ",'moe':{'experts':8,'expert_ffn':20,'router':'sigmoid'"
#define V2 MLA ",'moe':{'experts':8,'top_k':4,'expert_ffn':20"

/* What every Gemma has, and the rest of what it must have. */
#define GEMMA WORDS ",'post_norms':true,'embed_scale':true"
#define WHOLE_GEMMA GEMMA ",'mlp':'geglu','zero_centered_norm':true"

/* GPT-OSS's, and its experts, to which a comma and more words are added. */
#define OSS_REST                                                                                   \
    ",'heads':4,'vocab':50,'seq':16,'mlp':'swiglu-clamped','attn_sinks':true,'mlp_bias':true,"     \
    "'qkv_bias':true,'out_bias':true"
#define OSS "'name':'oss','layers':2,'hidden':32" OSS_REST
#define OSS_MOE                                                                                    \
    "'moe':{'experts':4,'top_k':2,'expert_ffn':24,'router_bias':true,'aux_loss':'huggingface',"    \
    "'aux_loss_coef':0.003"
#define NEMOTRON WORDS ",'norm':'layernorm','mlp':'relu2','zero_centered_norm':true"
#define OLMOE                                                                                      \
    WORDS ",'qk_norm':'full','moe':{'experts':4,'top_k':2,'expert_ffn':24,'aux_loss':'"            \
          "huggingface'"

#define OLMO WORDS ",'qk_norm':'full','pre_norms':false,'post_norms':true"
#define EXAONE WORDS ",'qk_norm':'head','pre_norms':false,'post_norms':true"
#define COHERE_NORMS                                                                               \
    WORDS ",'norm':'layernorm','norm_bias':false,'parallel_block':true,'shared_norm':true"
#define COHERE COHERE_NORMS ",'qkv_bias':false,'out_bias':false,'mlp_bias':false"
#define GRANITE_MOE                                                                                \
    WORDS ",'embedding_multiplier':12,'residual_multiplier':0.22,'moe':{'experts':4,'top_k':2,"    \
          "'expert_ffn':24,'aux_loss':'huggingface'"
#define OLMO3 OLMO ",'sliding_window':5,'global_every':2"
#define YARN ",'rope_scaling':{'kind':'yarn','factor':4,'original_seq':64,'beta_fast':24}"

/* A model's words in config.json and back. */
static void every_family_comes_back_from_its_config(void **state)
{
    static const char *const models[] = {
        "{" WORDS "}",
        "{" WORDS ",'qkv_bias':true,'out_bias':true,'mlp_bias':true}",
        "{" WORDS ",'qkv_bias':true}",
        "{" WORDS ",'qk_norm':'head','qkv_bias':true,'out_bias':true}",
        "{" WORDS ",'norm':'layernorm','mlp':'gelu-tanh','positions':'learned','tied':true}",
        "{" WORDS ",'norm':'layernorm','mlp':'gelu','positions':'learned'}",
        "{" WORDS ",'norm':'layernorm','mlp':'gelu','parallel_block':true,"
        "'partial_rotary_factor':0.5}",
        "{" WORDS ",'norm':'layernorm','mlp':'gelu-tanh','qkv_bias':false,'out_bias':false}",
        "{" WORDS ",'rope_scaling':{'kind':'linear','factor':4}}",
        "{" WORDS ",'sliding_window':5}",
        "{" WORDS ",'sliding_window':5,'qkv_bias':true}",
        "{" WORDS ",'sliding_window':5,'qkv_bias':true,'global_every':2}",
        "{" WORDS ",'sliding_window':5,'qk_norm':'head','global_every':2,"
        "'rope_scaling':{'kind':'linear','factor':4}}",
        "{" WORDS ",'rope_scaling':{'kind':'llama3','factor':8,'original_seq':8192,"
        "'low_freq_factor':2,'high_freq_factor':5}}",
        "{" WORDS ",'qkv_bias':true,'rope_scaling':{'kind':'yarn','factor':4,'original_seq':64,"
        "'beta_fast':24,'beta_slow':2,'mscale':0.7,'mscale_all_dim':1.5}}",
        "{" WORDS ",'norm':'layernorm','mlp':'gelu','partial_rotary_factor':0.5,"
        "'rope_scaling':{'kind':'yarn','factor':2.5,'original_seq':7}}",
        "{" MLA ",'tied':true,'rope_theta':500}",
        "{" MLA ",'qkv_bias':true,'out_bias':true,'rope_scaling':{'kind':'yarn','factor':4,"
        "'original_seq':64,'mscale':0.7,'mscale_all_dim':1.5}}",
        "{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':40,'dense_layers':1,'scaling':2.5,"
        "'aux_loss_coef':0.003,'n_group':4,'topk_group':2}}",
        "{" V3 ",'top_k':3,'balance_bias':true,'shared_ffn':20,'topk_norm':false}}",
        "{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':20,'aux_loss_coef':0.003},'mtp':2}",
        "{" SIZES ",'norm_eps':1e-6,'mla':{" LATENTS ",'moe':{'experts':8,'top_k':4,"
        "'expert_ffn':20,'shared_ffn':20,'topk_norm':false}}",
        "{" V2 ",'shared_ffn':20,'topk_norm':false,'scaling':16,'n_group':4,'topk_group':4,"
        "'dense_layers':1}}",
        "{" WHOLE_GEMMA ",'tied':true,'sliding_window':5,'global_every':2,'attn_softcap':50,"
        "'logit_softcap':30,'attn_scale':0.25}",
        "{" WHOLE_GEMMA ",'sliding_window':5,'qkv_bias':true,'out_bias':true}",
        "{" WHOLE_GEMMA ",'qk_norm':'head','sliding_window':5,'global_every':2,"
        "'rope_theta_local':100,'rope_scaling':{'kind':'linear','factor':8}}",
        "{" WHOLE_GEMMA ",'qk_norm':'head','logit_softcap':30}",
        "{" OSS ",'sliding_window':5,'global_every':2,'rope_scaling':{'kind':'yarn','factor':4,"
        "'original_seq':64,'truncate':false}," OSS_MOE "}}",
        "{" OSS ",'tied':true," OSS_MOE "}}",
        "{" NEMOTRON ",'partial_rotary_factor':0.5,'kv_heads':2,'head_dim':12}",
        "{" NEMOTRON ",'qkv_bias':false,'out_bias':false,'mlp_bias':false,'tied':true}",
        "{" OLMOE "}}",
        "{" OLMOE ",'topk_norm':false,'aux_loss_coef':0.01},'qkv_bias':true,'out_bias':true,"
        "'kv_heads':2,'rope_theta':500}",
        "{" OLMO "}",
        "{" OLMO ",'kv_heads':2,'head_dim':6,'qkv_bias':true,'out_bias':true,'tied':true}",
        "{" OLMO YARN ",'rope_theta':500000}",
        "{" WORDS ",'no_rope_freq':2}",
        "{" WORDS ",'no_rope_freq':3,'qkv_bias':true,'out_bias':true,'mlp_bias':true,'tied':true}",
        "{" COHERE ",'logit_scale':0.0625,'tied':true}",
        "{" COHERE ",'kv_heads':2,'rope_theta':500}",
        "{" COHERE ",'sliding_window':5,'global_every':2,'no_rope_freq':2}",
        "{" COHERE ",'sliding_window':5,'logit_scale':0.3}",
        "{" COHERE ",'sliding_window':64" YARN "}",
        "{" WORDS ",'embedding_multiplier':12,'residual_multiplier':0.22,'logit_scale':0.0625,"
        "'attn_scale':0.0078125,'tied':true}",
        "{" WORDS
        ",'logit_scale':0.3,'kv_heads':2,'qkv_bias':true,'out_bias':true,'mlp_bias':true" YARN "}",
        "{" WORDS ",'attn_scale':0.1}",
        "{" GRANITE_MOE ",'aux_loss_coef':0.003}}",
        "{" EXAONE "}",
        "{" EXAONE ",'sliding_window':5,'kv_heads':2,'head_dim':6,'tied':true}",
        "{" EXAONE ",'sliding_window':32,'global_every':2,'no_rope_freq':2" YARN "}",
        "{" OLMO3 "}",
        "{" OLMO3 ",'rope_theta':500000}",
        "{" OLMO3 YARN ",'rope_theta':500000,'rope_theta_local':500000}",
        "{" OLMO3 YARN ",'rope_theta':700,'rope_theta_local':700}",
        "{" OLMO ",'sliding_window':5}",
        "{" OLMO ",'sliding_window':32,'rope_theta_local':10000,'rope_scaling':{'kind':'linear',"
        "'factor':2}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        AUTO_JSON *v = unit_json(models[i]);
        AUTO_JSON *config = NULL, *ours = NULL;
        struct pl_model m, back;
        struct err e = {0};

        assert_int_equal(pl_model_parse(&m, v, &e), 0);
        if (tr_hf_config(&config, &m, &e) < 0 || tr_hf_model(&back, config, &e) < 0 ||
            (ours = pl_model_json(&m), tr_same_model(ours, &back, "the config", &e)) < 0)
            fail_msg("%s: %s", models[i], e.text);
    }
}

/* What no class of Hugging Face has is refused by key. */
static void words_without_a_class_are_refused_by_key(void **state)
{
    static const struct {
        const char *model, *key;
    } rows[] = {
        {"{" WORDS ",'norm':'layernorm'}", "/mlp"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','kv_heads':2}", "/kv_heads"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','mlp_bias':false}", "/mlp_bias"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','out_bias':false}", "/out_bias"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','positions':'learned',"
         "'parallel_block':true}",
         "/parallel_block"},
        {"{" WORDS ",'parallel_block':true}", "/parallel_block"},
        {"{" WORDS ",'positions':'learned'}", "/positions"},
        {"{" WORDS ",'qk_norm':'head','qkv_bias':true}", "/qkv_bias"},
        {"{" WORDS ",'partial_rotary_factor':0.5}", "/partial_rotary_factor"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','sliding_window':4}", "/sliding_window"},
        {"{" WORDS ",'sliding_window':4,'mlp_bias':true}", "/sliding_window"},
        {"{" WORDS ",'sliding_window':4,'qkv_bias':true,'out_bias':true}", "/sliding_window"},
        {"{" WORDS ",'sliding_window':4,'global_every':2}", "/global_every"},
        {"{" WORDS ",'sliding_window':4,'moe':{'experts':2,'top_k':1,'expert_ffn':8},"
         "'global_every':2}",
         "/global_every"},
        {"{" WORDS ",'sliding_window':4,'rope_theta_local':100}", "/rope_theta_local"},
        {"{" WORDS ",'no_rope_freq':2,'qk_norm':'head'}", "/qk_norm"},
        {"{" WORDS ",'no_rope_freq':2,'sliding_window':5}", "/sliding_window"},
        {"{" WORDS ",'no_rope_freq':2,'norm':'layernorm','mlp':'gelu'}", "/mlp"},
        {"{" OLMO ",'no_rope_freq':2}", "/qk_norm"},
        {"{" EXAONE ",'no_rope_freq':2}", "/no_rope_freq"},
        {"{" EXAONE ",'sliding_window':5,'global_every':2}", "/no_rope_freq"},
        {"{" EXAONE ",'qkv_bias':true}", "/qkv_bias"},
        {"{" WORDS ",'norm':'layernorm','parallel_block':true,'shared_norm':true}", "/norm_bias"},
        {"{" WORDS ",'norm':'layernorm','norm_bias':false}", "/shared_norm"},
        {"{" COHERE_NORMS ",'qkv_bias':false,'out_bias':false}", "/mlp_bias"},
        {"{" COHERE_NORMS ",'out_bias':false,'mlp_bias':false}", "/out_bias"},
        {"{" COHERE ",'sliding_window':5,'global_every':2}", "/no_rope_freq"},
        {"{" COHERE ",'no_rope_freq':2}", "/no_rope_freq"},
        {"{" COHERE ",'embedding_multiplier':2}", "/embedding_multiplier"},
        {"{" COHERE ",'attn_scale':0.5}", "/attn_scale"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','norm_bias':false}", "/shared_norm"},
        {"{" WORDS ",'parallel_block':true,'shared_norm':true}", "/norm"},
        {"{" WORDS ",'attn_scale':0.5,'head_dim':6}", "/head_dim"},
        {"{" WORDS ",'logit_scale':0.5,'qkv_bias':true}", "/out_bias"},
        {"{" WORDS ",'embedding_multiplier':2,'norm':'layernorm','mlp':'gelu'}", "/mlp"},
        {"{" WORDS ",'residual_multiplier':0.5,'sliding_window':4}", "/sliding_window"},
        {"{" GRANITE_MOE ",'shared_ffn':8}}", "/moe/shared_ffn"},
        {"{" GRANITE_MOE ",'topk_norm':false}}", "/moe/topk_norm"},
        {"{" WHOLE_GEMMA ",'logit_scale':0.5}", "/mlp"},
        {"{" MLA ",'embedding_multiplier':2}", "/mla"},
        {"{" OLMO ",'residual_multiplier':0.5}", "/qk_norm"},
        {"{" WORDS ",'mlp':'geglu'}", "/mlp"},
        {"{" WORDS ",'logit_softcap':30}", "/logit_softcap"},
        {"{" WORDS ",'embed_scale':true}", "/post_norms"},
        {"{" WORDS ",'norm':'layernorm','mlp':'relu2'}", "/zero_centered_norm"},
        {"{" WORDS ",'zero_centered_norm':true,'norm':'layernorm','mlp':'gelu'}", "/mlp"},
        {"{" WORDS ",'mlp':'relu2'}", "/mlp"},
        {"{" NEMOTRON ",'positions':'none'}", "/positions"},
        {"{" NEMOTRON ",'out_bias':false}", "/out_bias"},
        {"{" NEMOTRON ",'qk_norm':'head'}", "/qk_norm"},
        {"{" NEMOTRON ",'sliding_window':4}", "/sliding_window"},
        {"{" NEMOTRON ",'rope_scaling':{'kind':'linear','factor':4}}", "/rope_scaling"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','positions':'none'}", "/positions"},
        {"{" WORDS ",'positions':'none'}", "/positions"},
        {"{" WORDS ",'qk_norm':'full'}", "/qk_norm"},
        {"{" OLMOE "},'head_dim':10}", "/head_dim"},
        {"{" OLMOE "},'qkv_bias':true}", "/out_bias"},
        {"{" OLMOE "},'sliding_window':4}", "/sliding_window"},
        {"{" OLMOE ",'shared_ffn':8}}", "/moe/shared_ffn"},
        {"{" WORDS ",'pre_norms':false,'post_norms':true}", "/qk_norm"},
        {"{" OLMO ",'mlp':'gelu'}", "/mlp"},
        {"{" OLMO ",'norm':'layernorm','mlp':'gelu'}", "/mlp"},
        {"{" OLMO ",'zero_centered_norm':true}", "/zero_centered_norm"},
        {"{" OLMO ",'embed_scale':true}", "/embed_scale"},
        {"{" OLMO ",'qkv_bias':true}", "/out_bias"},
        {"{" OLMO ",'attn_softcap':2}", "/attn_softcap"},
        {"{" OLMO ",'mtp':1}", "/mtp"},
        {"{" OLMO ",'moe':{'experts':4,'top_k':2,'expert_ffn':24}}", "/moe"},
        {"{" OLMO ",'attn_sinks':true}", "/attn_sinks"},
        {"{" OLMO3 YARN "}", "/rope_theta_local"},
        {"{" OLMO3 YARN ",'rope_theta_local':100}", "/rope_theta_local"},
        {"{" OLMO3 ",'rope_theta_local':10000}", "/rope_theta_local"},
        {"{" WHOLE_GEMMA ",'qk_norm':'full'}", "/qk_norm"},
        {"{" GEMMA ",'mlp':'geglu'}", "/zero_centered_norm"},
        {"{" GEMMA ",'zero_centered_norm':true}", "/mlp"},
        {"{" WHOLE_GEMMA ",'mlp_bias':true}", "/mlp_bias"},
        {"{" WHOLE_GEMMA ",'qkv_bias':true}", "/out_bias"},
        {"{" WHOLE_GEMMA ",'sliding_window':4,'rope_theta_local':100}", "/rope_theta_local"},
        {"{" WHOLE_GEMMA ",'qk_norm':'head','sliding_window':4}", "/rope_theta_local"},
        {"{" WHOLE_GEMMA ",'qk_norm':'head','attn_softcap':50}", "/attn_softcap"},
        {"{" WORDS ",'attn_sinks':true}", "/moe"},
        {"{" OSS ",'sliding_window':5,'qk_norm':'head'," OSS_MOE "}}", "/qk_norm"},
        {"{" OSS "," OSS_MOE ",'scaling':2}}", "/moe/scaling"},
        {"{" WORDS ",'mla':{" LATENTS "}", "/norm_eps"},
        {"{" MLA ",'qkv_bias':true}", "/out_bias"},
        {"{" MLA ",'mlp_bias':true}", "/mlp_bias"},
        {"{" MLA ",'sliding_window':4}", "/sliding_window"},
        {"{" WORDS ",'mtp':1}", "/mtp"},
        {"{" V2 ",'shared_ffn':20,'topk_norm':false},'mtp':1}", "/mtp"},
        {"{" WORDS ",'norm':'layernorm','mlp':'gelu','mtp':1}", "/mtp"},
        {"{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':20,'every':2}}", "/moe/every"},
        {"{" V3 ",'top_k':4,'balance_bias':true}}", "/moe/shared_ffn"},
        {"{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':30}}", "/moe/shared_ffn"},
        {"{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':20,'shared_gate':true}}",
         "/moe/shared_gate"},
        {"{" V3 ",'top_k':4,'shared_ffn':20}}", "/moe/balance_bias"},
        {"{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':20,'n_group':4,'topk_group':4}}",
         "/moe/topk_group"},
        {"{" V2 ",'shared_ffn':20,'topk_norm':false,'balance_bias':true}}", "/moe/balance_bias"},
        {"{" V2 ",'shared_ffn':20}}", "/moe/topk_norm"},
        {"{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':20,'n_group':8,'topk_group':4}}",
         "/moe/n_group"},
        {"{" MLA ",'norm':'layernorm','mlp':'gelu'}", "/mla"},
        {"{" WORDS ",'qk_norm':'l2'}", "/qk_norm"},
        {"{" WORDS ",'rope_scaling':{'kind':'longrope','factor':2,'original_seq':8,"
         "'short_factor':[1,1,1,1],'long_factor':[1,1,2,2]}}",
         "/rope_scaling"},
        {"{" WORDS ",'attention_output_gate':true}", "/attention_output_gate"},
        {"{" WORDS ",'attention_chunk_size':8}", "/attention_chunk_size"},
        {"{" WORDS ",'linear_attention_freq':2,'linear_attention':{'num_key_heads':2,"
         "'num_value_heads':2,'key_head_dim':8,'value_head_dim':8}}",
         "/linear_attention_freq"},
        {"{" MLA ",'dsa':{'index_n_heads':2,'index_head_dim':8,'index_topk':4}}", "/dsa"},
        {"{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':20,'apply_probs_on_input':true}}",
         "/moe/apply_probs_on_input"},
        {"{" V2 ",'shared_ffn':20,'topk_norm':false,'n_group':4,'topk_group':2}}",
         "/moe/topk_group"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON *v = unit_json(rows[i].model);
        AUTO_JSON *config = NULL;
        struct pl_model m;
        struct err e = {0};

        assert_int_equal(pl_model_parse(&m, v, &e), 0);
        assert_int_equal(tr_hf_config(&config, &m, &e), -ENOTSUP);
        assert_string_equal(e.pointer, rows[i].key);
    }
}

/* Of those that DeepSeek has published: V2 limits groups by their best expert alone, where a model
 * here adds the best two up. */
static void published_deepseeks_have_a_folder_or_a_reason(void **state)
{
    static const struct {
        const char *preset, *key;
    } rows[] = {
        {"deepseek-v2-lite", NULL}, {"deepseek-v2", "/moe/topk_group"}, {"deepseek-v3", NULL}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON *name = json_string(rows[i].preset), *config = NULL;
        struct pl_model m;
        struct err e = {0};

        assert_int_equal(pl_model_parse(&m, name, &e), 0);
        assert_int_equal(tr_hf_config(&config, &m, &e), rows[i].key ? -ENOTSUP : 0);
        if (rows[i].key)
            assert_string_equal(e.pointer, rows[i].key);
    }
}

/* The golden folder NAME loaded into a model of one rank, with the files in FOLDER. */
static int load_golden(const char *name, const char *folder, struct err *e)
{
    AUTO_FREE char *golden = mem_printf("%s/tests/data/golden/%s", getenv("PT_SRC"), name);
    struct job job;
    struct tr_params t;
    struct tr_ckpt_what what = {.model = &job.model};
    AUTO_FREE struct tr_part *part = NULL;
    int r;

    assert_int_equal(tr_hf_model_load(&job.model, golden, e), 0);
    job.layout = world_layout(&job.model, 1, "");
    params_make(&t, &job.model, &job.layout, 0);
    what.part = part = tr_parts(&what.count, &t, &job.layout, false);
    r = tr_hf_load(folder ? folder : golden, &what, &tr_team_alone, e);
    params_done(&t);
    return r;
}

/* FOLDER/model.safetensors of the golden case NAME with tensor SPOILT renamed to AS or, where that
 * is NULL, one row longer. */
static void write_spoilt(const char *folder, const char *name, const char *spoilt, const char *as)
{
    AUTO_FREE char *from =
        mem_printf("%s/tests/data/golden/%s/model.safetensors", getenv("PT_SRC"), name);
    AUTO_FREE char *to = mem_printf("%s/model.safetensors", folder);
    AUTO(tr_st) *in = NULL, *out = tr_st_new(to, NULL);
    struct err e = {0};

    assert_int_equal(tr_st_open(&in, from, &e), 0);
    for (size_t i = 0; i < in->count; i++) {
        const struct tr_st_tensor *t = &in->tensor[i];
        bool this = str_eq(t->name, spoilt);
        int64_t shape[3] = {t->shape[0] + (this && !as), t->shape[1], t->shape[2]};

        tr_st_add(out, this && as ? as : t->name, t->dtype, t->ndim, shape);
    }
    assert_int_equal(tr_st_create(out, &e), 0);
}

static void a_damaged_gpt_folder_is_refused_by_tensor(void **state)
{
    static const struct {
        const char *golden, *tensor, *as, *says;
    } rows[] = {
        {"gpt2", "transformer.h.1.attn.c_attn.weight", NULL,
         "transformer.h.1.attn.c_attn.weight is 37 x 108 where the model needs 36 x 108"},
        {"gpt2", "transformer.h.2.mlp.c_fc.bias", "transformer.h.2.mlp.c_fc.bios",
         "transformer.h.2.mlp.c_fc.bios is not part of the model"},
        {"gpt2", "transformer.wpe.weight", "lm_head.weight", "transformer.wpe.weight is missing"},
        {"neox", "gpt_neox.layers.0.attention.query_key_value.weight", NULL,
         "query_key_value.weight is 145 x 48 where the model needs 144 x 48"},
        {"neox", "gpt_neox.layers.1.attention.query_key_value.bias",
         "gpt_neox.layers.1.attention.bias", "query_key_value.bias is missing"},
        {"qwen3", "model.layers.1.self_attn.q_norm.weight", "rotary_emb.inv_freq",
         "self_attn.q_norm.weight is missing"},
        {"gemma3", "model.layers.1.post_feedforward_layernorm.weight", "rotary_emb.inv_freq",
         "post_feedforward_layernorm.weight is missing"},
        {"nemotron", "model.layers.1.post_attention_layernorm.bias", "rotary_emb.inv_freq",
         "post_attention_layernorm.bias is missing"},
        {"olmoe", "model.layers.1.self_attn.k_norm.weight", NULL,
         "k_norm.weight is 13 x 1 where the model needs 12 x 1"},
        {"olmo2", "model.layers.2.post_feedforward_layernorm.weight", "rotary_emb.inv_freq",
         "post_feedforward_layernorm.weight is missing"},
        {"olmo3", "model.layers.0.post_attention_layernorm.weight",
         "model.layers.0.input_layernorm.weight",
         "input_layernorm.weight is not part of the model"},
        {"cohere", "model.layers.1.self_attn.q_proj.weight", NULL, "q_proj.weight is 25 x 24"},
        {"cohere", "model.layers.1.mlp.up_proj.weight",
         "model.layers.1.post_attention_layernorm.weight",
         "post_attention_layernorm.weight is not part of the model"},
        {"granite-moe", "model.layers.1.block_sparse_moe.router.layer.weight",
         "model.layers.1.block_sparse_moe.gate.weight", "gate.weight is not part of the model"},
        {"granite-moe", "model.layers.0.block_sparse_moe.input_linear.weight", NULL,
         "input_linear.weight is"},
        {"deepseek-v3", "model.layers.2.self_attn.kv_b_proj.weight", NULL,
         "kv_b_proj.weight is 49 x 11 where the model needs 48 x 11"},
        {"deepseek-v3", "model.layers.1.mlp.gate.e_score_correction_bias", "rotary_emb.inv_freq",
         "e_score_correction_bias is missing"},
        {"deepseek-v2", "model.layers.0.self_attn.q_proj.weight",
         "model.layers.0.self_attn.q_b_proj.weight", "q_b_proj.weight is not part of the model"},
        {"gpt-oss", "model.layers.0.mlp.experts.down_proj_bias", NULL,
         "down_proj_bias is 6 x 20 where the model needs 5 x 20"},
        {"gpt-oss", "model.layers.2.self_attn.sinks", "rotary_emb.inv_freq", "sinks is missing"},
        {"gpt-oss", "model.layers.1.mlp.experts.gate_up_proj",
         "model.layers.1.mlp.experts.gate_up_proj_blocks",
         "gate_up_proj is in mxfp4, whose blocks of 32 do not divide its 20 inputs"},
        {"gpt-oss", "model.layers.1.mlp.experts.gate_up_proj",
         "model.layers.1.mlp.experts.gate_up_blocks", "gate_up_blocks is not part of the model"},
        {"gpt-oss", "model.layers.1.mlp.experts.down_proj_bias",
         "model.layers.1.mlp.experts.down_proj_bias_scales",
         "down_proj_bias_scales is not part of the model"},
    };
    AUTO_FREE char *folder = unit_folder("spoilt");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = {0};

        if (load_golden(rows[i].golden, NULL, &e) < 0)
            fail_msg("%s", e.text);
        write_spoilt(folder, rows[i].golden, rows[i].tensor, rows[i].as);
        assert_true(load_golden(rows[i].golden, folder, &e) < 0);
        if (!strstr(e.text, rows[i].says))
            fail_msg("%s, not: %s", e.text, rows[i].says);
    }
    file_remove_tree(folder, NULL);
}

/* Not all writers pad a header to a multiple of eight bytes. */
static void a_header_of_any_length_is_read(void **state)
{
    AUTO_FREE char *folder = unit_folder("unpadded"), *bytes = NULL;
    AUTO_FREE char *from =
        mem_printf("%s/tests/data/golden/llama/model.safetensors", getenv("PT_SRC"));
    AUTO_FREE char *to = mem_printf("%s/model.safetensors", folder);
    struct str out = {0};
    size_t size = 0, header = 0;
    struct err e = {0};

    (void)state;
    assert_int_equal(file_read_all(&bytes, &size, from, 64 << 20, &e), 0);
    memcpy(&header, bytes, 8);
    header++;
    str_addn(&out, (const char *)&header, 8);
    str_addn(&out, bytes + 8, header - 1);
    str_addc(&out, ' ');
    str_addn(&out, bytes + 7 + header, size - 7 - header);
    assert_int_equal(file_write_atomic(to, out.text, out.len, 0644, &e), 0);
    free(str_take(&out));
    if (load_golden("llama", folder, &e) < 0)
        fail_msg("%s", e.text);
    file_remove_tree(folder, NULL);
}

/* ---- folders of another form, from and to shards -------------------------- */

static void folder_save(const struct tr_team *team, void *arg)
{
    const struct job *j = arg;
    struct tr_ckpt_what what = {.model = &j->model, .state = true};
    struct tr_params t;
    struct err e = {0};
    AUTO_FREE struct tr_part *part = NULL;

    params_make(&t, &j->model, &j->layout, team->rank);
    params_fill(&t, j->stamp);
    what.part = part = tr_parts(&what.count, &t, &j->layout, true);
    world_need(tr_hf_save(j->dir, TR_F32, &what, team, &e) == 0, "%s", e.text);
    params_done(&t);
}

static long masters_wrong(const struct tr_params *t, int stamp)
{
    long bad = 0;

    for (int i = 0; i < t->table.n && t->master; i++) {
        const struct pl_param *p = &t->table.p[i];
        uint64_t first = 0, at = 0, n = tr_param_state(&first, &at, t, i);

        for (uint64_t k = 0; k < n; k++) {
            int64_t g = pl_param_global(p, first + k);

            bad += t->master[at + k] != (g < 0 ? 0.0f : known(p->name, 0, g, stamp));
        }
    }
    return bad;
}

static long writes;

ssize_t __real_pwrite(int fd, const void *in, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *in, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *in, size_t size, off_t at)
{
    writes++;
    return __real_pwrite(fd, in, size, at);
}

static void folder_load(const struct tr_team *team, void *arg)
{
    const struct job *j = arg;
    struct tr_ckpt_what what = {.model = &j->model, .state = true};
    struct tr_params t;
    struct err e = {0};
    AUTO_FREE struct tr_part *part = NULL;
    long wrong;

    params_make(&t, &j->model, &j->layout, team->rank);
    what.part = part = tr_parts(&what.count, &t, &j->layout, true);
    world_need(tr_hf_load(j->dir, &what, team, &e) == 0, "%s", e.text);
    wrong = params_wrong(&t, j->stamp, false) + masters_wrong(&t, j->stamp);
    world_need(wrong == 0, "rank %d: %ld elements are wrong", team->rank, wrong);
    params_done(&t);
}

/* Of a GPT-OSS: each row of the folder's matrices holds gate and up by turns, a number of each. */
static void interleaved_rows_are_written_as_rows(void **state)
{
    AUTO_FREE char *dir = unit_folder("rows");
    AUTO_FREE char *folder = mem_printf("%s/folder", dir);
    AUTO_JSON *v = unit_json("{" OSS "," OSS_MOE "}}");
    struct job job = {.dir = folder, .stamp = 4};
    struct err e = {0};
    long rows, tensors = 100; /* more than there are, each written by few calls */

    (void)state;
    assert_int_equal(pl_model_parse(&job.model, v, &e), 0);
    job.layout = world_layout(&job.model, 1, "");
    rows = job.model.layers * job.model.moe.experts *
           (2 * job.model.hidden + job.model.moe.expert_ffn);
    writes = 0;
    folder_save(&tr_team_alone, &job);
    assert_in_range(writes, rows, rows + 2 * tensors);
    assert_int_equal(world_run(1, folder_load, &job), 0);
    file_remove_tree(dir, NULL);
}

/* GPT-2 has its matrices transposed, GPT-NeoX its queries, keys and values head by head, DeepSeek
 * keys and values, and pairs of what is rotated, Gemma other names, GPT-OSS all experts of a layer
 * in one tensor: a shard begins and ends inside of a row. Modules of multi-token prediction repeat
 * what other stages have. */
static void shards_of_every_layout_meet_in_a_foreign_folder(void **state)
{
    static const char *const models[] = {
        "{" WORDS ",'norm':'layernorm','mlp':'gelu-tanh','positions':'learned','tied':true}",
        "{" WORDS ",'norm':'layernorm','mlp':'gelu','positions':'rope'}",
        "{" MLA ",'qkv_bias':true,'out_bias':true}",
        "{" V3 ",'top_k':4,'balance_bias':true,'shared_ffn':20},'mtp':2}",
        "{" WHOLE_GEMMA ",'qk_norm':'head','tied':true}",
        "{" OSS "," OSS_MOE "}}",
        "{'name':'odd','layers':2,'hidden':33,'head_dim':8" OSS_REST "," OSS_MOE "}}",
        "{" NEMOTRON "}",
        "{" OLMOE "}}",
        "{" OLMO3 ",'kv_heads':2,'qkv_bias':true,'out_bias':true}",
    };
    static const struct {
        int world;
        const char *keys;
    } layouts[] = {
        {1, ""},
        {4, "'tp':2,'sp':1,'zero':3"},
        {4, "'tp':2,'sp':1,'pp':2"},
        {4, "'zero':3,'precision':'bf16'"},
        {2, "'zero':1,'precision':'bf16'"},
        {8, "'tp':2,'sp':1,'zero':3,'shard':2,'precision':'bf16'"},
    };

    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        AUTO_JSON *v = unit_json(models[m]);
        AUTO_FREE char *folder = unit_folder("foreign");
        struct job j = {0};
        struct err e = {0};

        assert_int_equal(pl_model_parse(&j.model, v, &e), 0);
        for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
            AUTO_FREE char *to = mem_printf("%s/%zu", folder, i);

            j.dir = to;
            j.stamp = (int)i + 1;
            j.layout = world_layout(&j.model, layouts[i].world, layouts[i].keys);
            assert_int_equal(world_run(layouts[i].world, folder_save, &j), 0);
            for (size_t k = 0; k < ARRAY_LEN(layouts); k++) {
                j.layout = world_layout(&j.model, layouts[k].world, layouts[k].keys);
                assert_int_equal(world_run(layouts[k].world, folder_load, &j), 0);
            }
        }
        file_remove_tree(folder, NULL);
    }
}

/* A DeepSeek folder's rotation by halves would be another model. */
static void a_rotation_without_a_word_is_refused_by_key(void **state)
{
    AUTO_JSON *v = unit_json("{" V3 ",'top_k':3,'balance_bias':true,'shared_ffn':20}}");
    AUTO_JSON *config = NULL;
    struct pl_model m;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_model_parse(&m, v, &e), 0);
    assert_int_equal(tr_hf_config(&config, &m, &e), 0);
    assert_int_equal(tr_hf_model(&m, config, &e), 0);
    json_object_set_new(config, "rope_interleave", json_false());
    assert_int_equal(tr_hf_model(&m, config, &e), -ENOTSUP);
    assert_string_equal(e.pointer, "/rope_interleave");
}

/* From release 5 on transformers takes a GPT-OSS's rope_scaling null for that of its class. */
static void a_gpt_oss_without_scaling_says_so(void **state)
{
    AUTO_JSON *v = unit_json("{" OSS "," OSS_MOE "}}");
    AUTO_JSON *config = NULL;
    struct pl_model m;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_model_parse(&m, v, &e), 0);
    assert_int_equal(tr_hf_config(&config, &m, &e), 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(config, "rope_scaling"), "rope_type")),
        "default");
}

/* The specification's numbers, the first of each byte in its low bits; where an element times its
 * scale exceeds fp32, it is infinite, as in transformers. */
static void blocks_of_mxfp4_have_the_values_of_their_specification(void **state)
{
    static const double element[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                                       -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};
    static const uint8_t scales[] = {0, 1, 2, 126, 127, 128, 251, 252, 253, 254};
    uint8_t blocks[sizeof(scales) * TR_MXFP4_BYTES];
    float got[sizeof(scales) * TR_MXFP4_BLOCK];
    const float *at = got;

    (void)state;
    for (size_t i = 0; i < sizeof(blocks); i++)
        blocks[i] = (uint8_t)(i % 16 | (15 - i % 16) << 4);
    tr_mxfp4_decode(got, blocks, scales, sizeof(scales));
    for (size_t s = 0; s < sizeof(scales); s++)
        for (size_t k = 0; k < TR_MXFP4_BLOCK; k++, at++) {
            double exact = ldexp(element[k % 2 ? 15 - k / 2 : k / 2], scales[s] - 127);

            if (fabs(exact) >= 0x1p128)
                assert_true(isinf(*at) && !signbit(*at) == !signbit(exact));
            else
                assert_true((double)*at == exact && !signbit(*at) == !signbit(exact));
        }
}

/* GPT-OSS as published has its experts in mxfp4, which is read; others are not. */
static void quantized_weights_are_read_or_refused_by_key(void **state)
{
    AUTO_JSON *v = unit_json("{" OSS "," OSS_MOE "}}");
    AUTO_JSON *config = NULL;
    struct pl_model m;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_model_parse(&m, v, &e), 0);
    assert_int_equal(tr_hf_config(&config, &m, &e), 0);
    json_object_set_new(config, "quantization_config", json_pack("{s:s}", "quant_method", "mxfp4"));
    assert_int_equal(tr_hf_model(&m, config, &e), 0);
    json_object_set_new(config, "quantization_config", json_pack("{s:s}", "quant_method", "fp8"));
    assert_int_equal(tr_hf_model(&m, config, &e), -ENOTSUP);
    assert_string_equal(e.pointer, "/quantization_config");
    assert_non_null(strstr(e.text, "fp8"));
    json_decref(v);
    json_decref(config);
    v = unit_json("{" OLMOE "}}");
    config = NULL;
    assert_int_equal(pl_model_parse(&m, v, &e), 0);
    assert_int_equal(tr_hf_config(&config, &m, &e), 0);
    json_object_set_new(config, "quantization_config", json_pack("{s:s}", "quant_method", "mxfp4"));
    assert_int_equal(tr_hf_model(&m, config, &e), -ENOTSUP);
}

/* Scout has equal factors of low and high frequency: each pair turns as it did, or by FACTOR
 * slower, and none between, also one that turns just so often (transformers divides by zero). */
static void equal_factors_leave_no_pair_between(void **state)
{
    AUTO_JSON *v = unit_json("{" WORDS ",'head_dim':64,'rope_scaling':{'kind':'llama3','factor':16,"
                             "'original_seq':8192,'low_freq_factor':1,'high_freq_factor':1}}");
    const double turn = 2 * acos(-1);
    double frequency[32];
    struct pl_model m;
    struct err e = {0};
    int slower = 0;

    (void)state;
    assert_int_equal(pl_model_parse(&m, v, &e), 0);
    assert_true(tr_rope_frequencies(frequency, &m, TR_ROPE_MAIN) <= 1);
    for (int i = 0; i < 32; i++) {
        double plain = pow(10000, -2.0 * i / 64), turns = 8192 * plain / turn;

        assert_float_equal(frequency[i] / plain, turns > 1 ? 1 : 1.0 / 16, 1e-12);
        slower += turns < 1;
    }
    assert_true(slower > 0 && slower < 32);
    m.rope_scaling.low_freq_factor = m.rope_scaling.high_freq_factor = 8192 / turn;
    tr_rope_frequencies(frequency, &m, TR_ROPE_MAIN); /* the first pair turns by 1 */
    assert_true(isfinite(frequency[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rotation_without_a_word_is_refused_by_key),
        cmocka_unit_test(a_gpt_oss_without_scaling_says_so),
        cmocka_unit_test(blocks_of_mxfp4_have_the_values_of_their_specification),
        cmocka_unit_test(quantized_weights_are_read_or_refused_by_key),
        cmocka_unit_test(every_family_comes_back_from_its_config),
        cmocka_unit_test(words_without_a_class_are_refused_by_key),
        cmocka_unit_test(published_deepseeks_have_a_folder_or_a_reason),
        cmocka_unit_test(equal_factors_leave_no_pair_between),
        cmocka_unit_test(a_damaged_gpt_folder_is_refused_by_tensor),
        cmocka_unit_test(a_header_of_any_length_is_read),
        cmocka_unit_test(interleaved_rows_are_written_as_rows),
        cmocka_unit_test(shards_of_every_layout_meet_in_a_foreign_folder),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
