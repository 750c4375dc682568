/*
 * Families of models at Hugging Face: their keys and what holds for all their models.
 *
 * Sources: the configuration classes of transformers (models/FAMILY/configuration_FAMILY.py) and
 * the config.json files that the authors publish with their weights.
 */
#include "plan/hf_tables.h"

static const struct pl_hf_row shape_rows[] = {
    {"num_hidden_layers", "layers"},    {"hidden_size", "hidden"},
    {"num_attention_heads", "heads"},   {"num_key_value_heads", "kv_heads"},
    {"head_dim", "head_dim"},           {"vocab_size", "vocab"},
    {"max_position_embeddings", "seq"}, {"initializer_range", "init_std"},
    {"tie_word_embeddings", "tied"},    {"rms_norm_eps", "norm_eps"},
    {"rope_theta", "rope_theta"},       {NULL, NULL},
};

static const struct pl_hf_row dense_rows[] = {{"intermediate_size", "ffn"}, {NULL, NULL}};
static const struct pl_hf_row mlp_bias_rows[] = {{"mlp_bias", "mlp_bias"}, {NULL, NULL}};

/* The experts are the only feed-forward. */
static const struct pl_hf_row expert_rows[] = {
    {"intermediate_size", "moe.expert_ffn"},
    {"num_local_experts", "moe.experts"},
    {"num_experts", "moe.experts"},
    {"num_experts_per_tok", "moe.top_k"},
    {"experts_per_token", "moe.top_k"},
    {"norm_topk_prob", "moe.topk_norm"},
    {"router_aux_loss_coef", "moe.aux_loss_coef"},
    {NULL, NULL},
};

static const struct pl_hf_row fine_rows[] = {
    {"intermediate_size", "ffn"},
    {"moe_intermediate_size", "moe.expert_ffn"},
    {"shared_expert_intermediate_size", "moe.shared_ffn"},
    {"moe_shared_expert_intermediate_size", "moe.shared_ffn"},
    {"num_local_experts", "moe.experts"},
    {"num_experts", "moe.experts"},
    {"n_routed_experts", "moe.experts"},
    {"num_experts_per_tok", "moe.top_k"},
    {"decoder_sparse_step", "moe.every"},
    {"first_k_dense_replace", "moe.dense_layers"},
    {"norm_topk_prob", "moe.topk_norm"},
    {"router_aux_loss_coef", "moe.aux_loss_coef"},
    {"aux_loss_alpha", "moe.aux_loss_coef"},
    {"n_group", "moe.n_group"},
    {"topk_group", "moe.topk_group"},
    {"routed_scaling_factor", "moe.scaling"},
    {"scoring_func", "moe.router"},
    {"num_nextn_predict_layers", "mtp"},
    {NULL, NULL},
};

static const struct pl_hf_row mla_rows[] = {
    {"q_lora_rank", "mla.q_lora_rank"},
    {"kv_lora_rank", "mla.kv_lora_rank"},
    {"qk_nope_head_dim", "mla.qk_nope_head_dim"},
    {"qk_rope_head_dim", "mla.qk_rope_head_dim"},
    {"v_head_dim", "mla.v_head_dim"},
    {NULL, NULL},
};

static const struct pl_hf_row gemma_rows[] = {
    {"attn_logit_softcapping", "attn_softcap"},
    {"final_logit_softcapping", "logit_softcap"},
    {"rope_local_base_freq", "rope_theta_local"},
    {NULL, NULL},
};

static const struct pl_hf_row partial_rows[] = {
    {"partial_rotary_factor", "partial_rotary_factor"},
    {"rope_percent", "partial_rotary_factor"},
    {"rotary_pct", "partial_rotary_factor"},
    {"rotary_emb_base", "rope_theta"},
    {"layer_norm_eps", "norm_eps"},
    {"norm_eps", "norm_eps"},
    {"norm_epsilon", "norm_eps"},
    {"use_parallel_residual", "parallel_block"},
    {NULL, NULL},
};

static const struct pl_hf_row granite_rows[] = {
    {"attention_multiplier", "attn_scale"},
    {"embedding_multiplier", "embedding_multiplier"},
    {"residual_multiplier", "residual_multiplier"},
    {NULL, NULL},
};

static const struct pl_hf_row cohere_rows[] = {
    {"layer_norm_eps", "norm_eps"}, {"logit_scale", "logit_scale"}, {NULL, NULL}};

/* The shared expert is as wide as the others (n_shared_experts below). */
static const struct pl_hf_row llama4_rows[] = {
    {"intermediate_size", "moe.expert_ffn"},
    {"intermediate_size_mlp", "ffn"},
    {"num_local_experts", "moe.experts"},
    {"num_experts_per_tok", "moe.top_k"},
    {"interleave_moe_layer_step", "moe.every"},
    {"router_aux_loss_coef", "moe.aux_loss_coef"},
    {"floor_scale", "attn_temperature_floor"},
    {"attn_scale", "attn_temperature_scale"},
    {NULL, NULL},
};

static const struct pl_hf_row linear_rows[] = {
    {"linear_num_key_heads", "linear_attention.num_key_heads"},
    {"linear_num_value_heads", "linear_attention.num_value_heads"},
    {"linear_key_head_dim", "linear_attention.key_head_dim"},
    {"linear_value_head_dim", "linear_attention.value_head_dim"},
    {"linear_conv_kernel_dim", "linear_attention.conv_kernel_dim"},
    {"partial_rotary_factor", "partial_rotary_factor"},
    {"mtp_num_hidden_layers", "mtp"},
    {NULL, NULL},
};

static const struct pl_hf_row indexer_rows[] = {
    {"index_n_heads", "dsa.index_n_heads"},
    {"index_head_dim", "dsa.index_head_dim"},
    {"index_topk", "dsa.index_topk"},
    {NULL, NULL},
};

static const struct pl_hf_row gpt2_rows[] = {
    {"n_layer", "layers"},
    {"n_embd", "hidden"},
    {"n_head", "heads"},
    {"n_inner", "ffn"},
    {"n_positions", "seq"},
    {"vocab_size", "vocab"},
    {"layer_norm_epsilon", "norm_eps"},
    {"initializer_range", "init_std"},
    {"tie_word_embeddings", "tied"},
    {NULL, NULL},
};

static const struct pl_hf_row hybrid_rows[] = {
    {"hybrid_override_pattern", "pattern"},
    {"attention_head_dim", "head_dim"},
    {"mamba_num_heads", "mamba.heads"},
    {"mamba_head_dim", "mamba.head_dim"},
    {"ssm_state_size", "mamba.state"},
    {"n_groups", "mamba.groups"},
    {"conv_kernel", "mamba.conv"},
    {"layer_norm_epsilon", "norm_eps"},
    {"norm_eps", "norm_eps"},
    {NULL, NULL},
};

static const struct pl_hf_row ernie_rows[] = {
    {"intermediate_size", "ffn"},
    {"moe_intermediate_size", "moe.expert_ffn"},
    {"moe_num_experts", "moe.experts"},
    {"moe_k", "moe.top_k"},
    {"moe_layer_start_index", "moe.dense_layers"},
    {"router_aux_loss_coef", "moe.aux_loss_coef"},
    {"num_nextn_predict_layers", "mtp"},
    {NULL, NULL},
};

static const struct pl_hf_row out_bias_rows[] = {{"attention_out_bias", "out_bias"}, {NULL, NULL}};
static const struct pl_hf_row qwen_bias_rows[] = {{"qkv_bias", "qkv_bias"}, {NULL, NULL}};

#define MOE_AUX "'aux_loss':'huggingface','aux_loss_coef':0.001"
#define SIGMOID_MOE                                                                                \
    "'moe':{'aux_loss_coef':0,'router':'sigmoid','balance_bias':true,'topk_norm':true}"
#define COHERE                                                                                     \
    "'norm':'layernorm','norm_bias':false,'parallel_block':true,'shared_norm':true,"               \
    "'qkv_bias':false,'out_bias':false,'mlp_bias':false,'seq':8192,'tied':true"
#define LATENTS                                                                                    \
    "'kv_lora_rank':512,'q_lora_rank':1536,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"          \
    "'v_head_dim':128"
#define V3                                                                                         \
    LATENTS ",'n_routed_experts':256,'num_experts_per_tok':8,'moe_intermediate_size':2048,"        \
            "'n_shared_experts':1,'n_group':8,'topk_group':4,'routed_scaling_factor':2.5,"         \
            "'first_k_dense_replace':3"
/* Norms and gates of Qwen's models with linear attention; what their class has otherwise. */
#define QWEN_NEXT                                                                                  \
    "'norm_eps':1e-6,'seq':32768,'qk_norm':'head','zero_centered_norm':true,"                      \
    "'attention_output_gate':true,'partial_rotary_factor':0.25"
#define QWEN_LINEAR                                                                                \
    "'full_attention_interval':4,'linear_num_key_heads':16,'linear_num_value_heads':32,"           \
    "'linear_key_head_dim':128,'linear_value_head_dim':128"
#define QWEN_GATE "{'attn_output_gate':true,'mtp_use_dedicated_embeddings':false}"

const struct pl_hf_family pl_hf_families[] = {
    {"llama",
     "{'norm_eps':1e-6,'seq':2048}",
     "{}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, mlp_bias_rows}},
    {"mistral",
     "{'norm_eps':1e-6,'seq':131072}",
     "{'num_key_value_heads':8,'sliding_window':4096}",
     NULL,
     0,
     {shape_rows, dense_rows}},
    {"mixtral",
     "{'norm_eps':1e-5,'rope_theta':1e6,'seq':131072,'moe':{" MOE_AUX "}}",
     "{'num_key_value_heads':8,'num_local_experts':8,'num_experts_per_tok':2}",
     NULL,
     0,
     {shape_rows, expert_rows}},
    {"qwen2",
     "{'norm_eps':1e-6,'seq':32768,'qkv_bias':true}",
     "{'num_key_value_heads':32,'sliding_window':4096}",
     NULL,
     PL_HF_CHOSEN_WINDOWS,
     {shape_rows, dense_rows}},
    {"qwen2_moe",
     "{'norm_eps':1e-6,'seq':32768,'qkv_bias':true,'moe':{'topk_norm':false,'shared_gate':"
     "true," MOE_AUX "}}",
     "{'num_key_value_heads':16,'sliding_window':4096,'num_experts':60,'num_experts_per_tok':4,"
     "'moe_intermediate_size':1408,'shared_expert_intermediate_size':5632}",
     NULL,
     PL_HF_CHOSEN_WINDOWS,
     {shape_rows, fine_rows, qwen_bias_rows}},
    {"qwen3",
     "{'norm_eps':1e-6,'seq':32768,'qk_norm':'head'}",
     "{'num_key_value_heads':32,'head_dim':128,'sliding_window':4096}",
     NULL,
     PL_HF_OUT_BIAS | PL_HF_CHOSEN_WINDOWS,
     {shape_rows, dense_rows}},
    {"qwen3_moe",
     "{'norm_eps':1e-6,'seq':32768,'qk_norm':'head','moe':{'topk_norm':false," MOE_AUX "}}",
     "{'num_key_value_heads':4,'sliding_window':4096,'num_experts':128,'num_experts_per_tok':8,"
     "'moe_intermediate_size':768}",
     NULL,
     PL_HF_OUT_BIAS | PL_HF_CHOSEN_WINDOWS,
     {shape_rows, fine_rows}},
    {"qwen3_next",
     "{" QWEN_NEXT ",'moe':{'shared_gate':true,'topk_norm':true," MOE_AUX "}}",
     "{" QWEN_LINEAR ",'num_key_value_heads':2,'head_dim':256,'num_experts':512,"
     "'num_experts_per_tok':10,'moe_intermediate_size':512,'shared_expert_intermediate_size':512}",
     "{'use_sliding_window':false}",
     PL_HF_OUT_BIAS | PL_HF_LINEAR,
     {shape_rows, fine_rows, linear_rows}},
    {"qwen3_5_text",
     "{" QWEN_NEXT "}",
     "{" QWEN_LINEAR ",'num_key_value_heads':4,'head_dim':256,'intermediate_size':12288}",
     QWEN_GATE,
     PL_HF_OUT_BIAS | PL_HF_LINEAR,
     {shape_rows, dense_rows, linear_rows}},
    {"qwen3_5_moe_text",
     "{" QWEN_NEXT ",'moe':{'shared_gate':true,'topk_norm':true," MOE_AUX "}}",
     "{" QWEN_LINEAR ",'num_key_value_heads':2,'head_dim':256,'num_experts':256,"
     "'num_experts_per_tok':8,'moe_intermediate_size':512,'shared_expert_intermediate_size':512}",
     QWEN_GATE,
     PL_HF_OUT_BIAS | PL_HF_LINEAR,
     {shape_rows, fine_rows, linear_rows}},
    {"llama4_text",
     "{'norm_eps':1e-5,'rope_theta':500000,'seq':131072,"
     "'moe':{'router':'sigmoid','topk_norm':false,'apply_probs_on_input':true," MOE_AUX "}}",
     "{'num_key_value_heads':8,'head_dim':128,'intermediate_size':8192,"
     "'intermediate_size_mlp':16384,'num_local_experts':16,'num_experts_per_tok':1,"
     "'n_shared_experts':1,'interleave_moe_layer_step':1,'no_rope_layer_interval':4,"
     "'attention_chunk_size':8192,'attn_temperature_tuning':true,'use_qk_norm':true}",
     NULL,
     PL_HF_OUT_BIAS | PL_HF_L2_NORM | PL_HF_CHUNKS,
     {shape_rows, llama4_rows}},
    {"deepseek_v2",
     "{'norm_eps':1e-6,'seq':2048,'moe':{'topk_norm':false,'aux_loss_coef':0.001}}",
     "{" LATENTS ",'n_routed_experts':64,'n_shared_experts':2,'moe_intermediate_size':1407,"
     "'topk_method':'greedy'}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, fine_rows, mla_rows}},
    {"deepseek_v3",
     "{'norm_eps':1e-6,'seq':4096," SIGMOID_MOE "}",
     "{" V3 "}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, fine_rows, mla_rows}},
    {"deepseek_v32",
     "{'norm_eps':1e-6,'seq':163840," SIGMOID_MOE "}",
     "{" V3 ",'index_n_heads':64,'index_head_dim':128,'index_topk':2048}",
     "{'mlp_bias':false}",
     PL_HF_OUT_BIAS | PL_HF_SPARSE,
     {shape_rows, fine_rows, mla_rows, indexer_rows}},
    {"glm_moe_dsa",
     "{'norm_eps':1e-5,'seq':202752," SIGMOID_MOE "}",
     "{'kv_lora_rank':512,'q_lora_rank':2048,'qk_nope_head_dim':192,'qk_rope_head_dim':64,"
     "'v_head_dim':256,'n_routed_experts':256,'num_experts_per_tok':8,"
     "'moe_intermediate_size':2048,'n_shared_experts':1,'routed_scaling_factor':2.5,"
     "'first_k_dense_replace':3,'index_n_heads':32,'index_head_dim':128,'index_topk':2048}",
     "{'index_topk_freq':1,'mlp_bias':false}",
     PL_HF_OUT_BIAS | PL_HF_SPARSE,
     {shape_rows, fine_rows, mla_rows, indexer_rows}},
    {"kimi_k2",
     "{'norm_eps':1e-6,'seq':4096," SIGMOID_MOE "}",
     "{" V3 "}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, fine_rows, mla_rows}},
    {"glm4_moe",
     "{'norm_eps':1e-5,'seq':131072,'partial_rotary_factor':0.5," SIGMOID_MOE "}",
     "{'num_key_value_heads':8,'n_routed_experts':128,'num_experts_per_tok':8,"
     "'moe_intermediate_size':1408,'n_shared_experts':1,'first_k_dense_replace':1}",
     NULL,
     PL_HF_QK_NORM,
     {shape_rows, fine_rows, partial_rows}},
    {"gpt_oss",
     "{'norm_eps':1e-5,'rope_theta':150000,'seq':131072,'mlp':'swiglu-clamped','mlp_bias':true,"
     "'qkv_bias':true,'out_bias':true,'attn_sinks':true,'global_every':2,"
     "'moe':{'router_bias':true," MOE_AUX "}}",
     "{'num_key_value_heads':8,'head_dim':64,'sliding_window':128,'num_local_experts':128,"
     "'num_experts_per_tok':4,'rope_scaling':{'rope_type':'yarn','factor':32.0,'beta_fast':32.0,"
     "'beta_slow':1.0,'truncate':false,'original_max_position_embeddings':4096}}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, expert_rows}},
    {"olmoe",
     "{'norm_eps':1e-5,'seq':4096,'qk_norm':'full','moe':{'topk_norm':false,"
     "'aux_loss':'huggingface','aux_loss_coef':0.01}}",
     "{'num_experts':64,'num_experts_per_tok':8}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, expert_rows}},
    {"olmo2",
     "{'norm_eps':1e-5,'seq':2048,'qk_norm':'full','pre_norms':false,'post_norms':true}",
     "{}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows}},
    {"olmo3",
     "{'norm_eps':1e-5,'rope_theta':500000,'seq':2048,'qk_norm':'full','pre_norms':false,"
     "'post_norms':true,'global_every':4}",
     "{'sliding_window':4096}",
     NULL,
     PL_HF_OUT_BIAS | PL_HF_PLAIN_WINDOWS,
     {shape_rows, dense_rows}},
    {"exaone4",
     "{'norm_eps':1e-5,'seq':2048,'qk_norm':'head','pre_norms':false,'post_norms':true,"
     "'global_every':4}",
     "{'num_key_value_heads':32,'sliding_window':4096,'sliding_window_pattern':4}",
     "{'attention_bias':false}",
     PL_HF_GLOBAL_NO_ROPE,
     {shape_rows, dense_rows}},
    {"smollm3",
     "{'norm_eps':1e-6,'rope_theta':2e6,'seq':32768,'tied':true}",
     "{'num_key_value_heads':4,'no_rope_layer_interval':4}",
     "{'use_sliding_window':false}",
     PL_HF_OUT_BIAS | PL_HF_CHOSEN_WINDOWS,
     {shape_rows, dense_rows, mlp_bias_rows}},
    {"granite",
     "{'norm_eps':1e-6,'seq':2048}",
     "{'attention_multiplier':1.0}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, mlp_bias_rows, granite_rows}},
    {"granitemoe",
     "{'norm_eps':1e-6,'seq':2048,'moe':{" MOE_AUX "}}",
     "{'attention_multiplier':1.0,'num_local_experts':8,'num_experts_per_tok':2}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, expert_rows, granite_rows}},
    {"cohere",
     "{" COHERE ",'rope_theta':500000}",
     "{'logit_scale':0.0625}",
     "{'use_qk_norm':false}",
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, cohere_rows}},
    {"cohere2",
     "{" COHERE ",'global_every':4}",
     "{'logit_scale':0.0625,'sliding_window':4096}",
     "{'order_of_interleaved_layers':'local_attn_first','position_embedding_type':'rope_gptj',"
     "'rotary_pct':1,'use_embedding_sharing':true,'use_gated_activation':true,"
     "'use_parallel_block':true}",
     PL_HF_OUT_BIAS | PL_HF_GLOBAL_NO_ROPE | PL_HF_NEEDS_WINDOWS,
     {shape_rows, dense_rows, cohere_rows}},
    {"gemma2",
     "{'norm_eps':1e-6,'seq':8192,'tied':true,'mlp':'geglu','post_norms':true,"
     "'zero_centered_norm':true,'embed_scale':true,'global_every':2}",
     "{'num_key_value_heads':4,'head_dim':256,'query_pre_attn_scalar':256,'sliding_window':4096,"
     "'attn_logit_softcapping':50.0,'final_logit_softcapping':30.0}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, gemma_rows}},
    {"gemma3_text",
     "{'norm_eps':1e-6,'rope_theta':1e6,'seq':131072,'tied':true,'mlp':'geglu',"
     "'post_norms':true,'zero_centered_norm':true,'embed_scale':true,'qk_norm':'head',"
     "'global_every':6,'rope_theta_local':10000}",
     "{'num_key_value_heads':4,'head_dim':256,'query_pre_attn_scalar':256,'sliding_window':4096}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, gemma_rows}},
    {"gpt2",
     "{'norm':'layernorm','positions':'learned','mlp':'gelu-tanh','tied':true,'seq':1024}",
     "{}",
     NULL,
     0,
     {gpt2_rows}},
    {"gpt_neox",
     "{'norm':'layernorm','mlp':'gelu','seq':2048,'parallel_block':true,"
     "'partial_rotary_factor':0.25}",
     "{}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, partial_rows}},
    {"nemotron",
     "{'norm':'layernorm','zero_centered_norm':true,'mlp':'relu2','seq':4096,"
     "'partial_rotary_factor':0.5,'qkv_bias':false,'out_bias':false,'mlp_bias':false}",
     "{'initializer_range':0.0134}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, partial_rows, mlp_bias_rows}},
    {"nemotron_h",
     "{'mlp':'relu2','positions':'none','seq':4096,'mamba':{}," SIGMOID_MOE "}",
     "{'num_key_value_heads':8,'head_dim':128,'mamba_num_heads':128,'mamba_head_dim':64,"
     "'ssm_state_size':128}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, fine_rows, hybrid_rows, mlp_bias_rows}},
    {"phi3", "{'norm_eps':1e-5,'seq':4096}", "{}", NULL, 0, {shape_rows, dense_rows, partial_rows}},
    {"seed_oss",
     "{'norm_eps':1e-6,'seq':524288,'qkv_bias':true,'out_bias':false}",
     "{'num_key_value_heads':8,'head_dim':128}",
     NULL,
     0,
     {shape_rows, dense_rows, mlp_bias_rows, out_bias_rows}},
    {"arcee",
     "{'norm_eps':1e-5,'seq':4096,'mlp':'relu2'}",
     "{}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, dense_rows, mlp_bias_rows}},
    {"glm",
     "{'norm_eps':1.5625e-7,'seq':131072,'partial_rotary_factor':0.5,'qkv_bias':true}",
     "{'num_key_value_heads':2,'head_dim':128}",
     NULL,
     0,
     {shape_rows, dense_rows, partial_rows}},
    {"glm4",
     "{'norm_eps':1.5625e-7,'seq':131072,'partial_rotary_factor':0.5,'qkv_bias':true,"
     "'post_norms':true}",
     "{'num_key_value_heads':2,'head_dim':128}",
     NULL,
     0,
     {shape_rows, dense_rows, partial_rows}},
    {"glm4_moe_lite",
     "{'norm_eps':1e-5,'seq':202752," SIGMOID_MOE "}",
     "{'kv_lora_rank':512,'q_lora_rank':768,'qk_nope_head_dim':192,'qk_rope_head_dim':64,"
     "'v_head_dim':256,'n_routed_experts':64,'num_experts_per_tok':4,'moe_intermediate_size':1536,"
     "'n_shared_experts':1,'routed_scaling_factor':1.8,'first_k_dense_replace':1}",
     NULL,
     PL_HF_OUT_BIAS,
     {shape_rows, fine_rows, mla_rows, partial_rows}},
    {"dots1",
     "{'norm_eps':1e-6,'seq':2048,'qk_norm':'head'," SIGMOID_MOE "}",
     "{'num_key_value_heads':32,'norm_topk_prob':false,'moe_intermediate_size':1408,"
     "'sliding_window':4096,'max_window_layers':62}",
     NULL,
     PL_HF_OUT_BIAS | PL_HF_LATE_WINDOWS,
     {shape_rows, fine_rows}},
    {"minimax_m2",
     "{'norm_eps':1e-6,'rope_theta':5e6,'seq':196608,'qk_norm':'full',"
     "'moe':{'router':'sigmoid','balance_bias':true,'topk_norm':true," MOE_AUX "}}",
     "{'num_key_value_heads':8,'head_dim':128,'num_local_experts':256,'num_experts_per_tok':8}",
     "{'mtp_transformer_layers':1,'qk_norm_type':'per_layer','scoring_func':'sigmoid',"
     "'shared_intermediate_size':0,'use_qk_norm':true,'use_routing_bias':true}",
     PL_HF_OUT_BIAS,
     {shape_rows, expert_rows, partial_rows}},
    {"ernie4_5",
     "{'norm_eps':1e-5,'rope_theta':500000,'seq':131072,'tied':true}",
     "{'num_key_value_heads':2,'head_dim':128,'use_bias':false}",
     NULL,
     PL_HF_USE_BIAS,
     {shape_rows, dense_rows}},
    {"ernie4_5_moe",
     "{'norm_eps':1e-5,'rope_theta':500000,'seq':131072,'tied':true,"
     "'moe':{'balance_bias':true,'topk_norm':true," MOE_AUX "}}",
     "{'num_key_value_heads':4,'moe_num_experts':64,'moe_k':6,'moe_intermediate_size':1536,"
     "'moe_num_shared_experts':2,'moe_layer_start_index':1,'use_bias':false}",
     "{'moe_gate':'topk','moe_layer_interval':1,'moe_use_aux_free':true,'use_rmsnorm':true}",
     PL_HF_USE_BIAS,
     {shape_rows, ernie_rows}},
    {"starcoder2",
     "{'norm':'layernorm','mlp':'gelu-tanh','norm_eps':1e-5,'seq':4096,'tied':true}",
     "{'num_key_value_heads':2,'initializer_range':0.018042,'use_bias':true}",
     "{'mlp_type':'default','norm_type':'layer_norm'}",
     PL_HF_USE_BIAS,
     {shape_rows, dense_rows, partial_rows}},
    {NULL, NULL, NULL, NULL, 0, {NULL}},
};

const struct pl_hf_nested pl_hf_nested[] = {
    {"llama4", "llama4_text"},
    {"qwen3_5", "qwen3_5_text"},
    {"qwen3_5_moe", "qwen3_5_moe_text"},
    {NULL, NULL},
};

const struct pl_hf_fixed pl_hf_fixed[] = {
    {"add_cross_attention", "false"},
    {"clip_qkv", "0"},
    {"is_encoder_decoder", "false"},
    {"mamba_hidden_act", "\"silu\""},
    {"mamba_proj_bias", "false"},
    {"mlp_only_layers", "[]"},
    {"moe_layer_freq", "1"},
    {"reorder_and_upcast_attn", "false"},
    {"router_jitter_noise", "0"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"scale_attn_weights", "true"},
    {"seq_aux", "true"},
    {"swiglu_alpha", "1.702"},
    {"swiglu_limit", "7"},
    {"use_bias", "false"},
    {"use_bidirectional_attention", "false"},
    {"use_conv_bias", "true"},
    {NULL, NULL},
};

const char *const pl_hf_ignored[] = {
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_implementation",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "chunk_size",
    "classifier_dropout",
    "dtype",
    "embd_pdrop",
    "embedding_dropout",
    "eos_token_id",
    "ep_size",
    "expand",
    "for_llm_compressor",
    "hidden_dropout",
    "hidden_dropout_prob",
    "index_skip_topk_offset",
    "indexer_rope_interleave",
    "initial_context_length",
    "is_quantized",
    "keys_to_ignore_at_inference",
    "layer_switch",
    "mamba_ssm_dtype",
    "max_window_layers",
    "model_max_length",
    "model_type",
    "moe_capacity",
    "moe_norm_min",
    "n_ctx",
    "num_logits_to_keep",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "qk_head_dim",
    "quantization_config",
    "rescale_prenorm_residual",
    "resid_pdrop",
    "residual_dropout",
    "residual_in_fp32",
    "rope_interleave",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "time_step_floor",
    "time_step_limit",
    "time_step_max",
    "time_step_min",
    "time_step_rank",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "use_mamba_kernels",
    "use_mem_eff_path",
    "use_parallel_embedding",
    NULL,
};
