/* Models as Hugging Face describes them: each family's shape is that of a preset, and what has no
 * word is refused by its name. The configurations are written from the published shapes. */
#include "tests/unit/plan_world.h"

#include <errno.h>
#include <math.h>

#define COMMON ",'use_cache':true,'torch_dtype':'bfloat16','bos_token_id':1,'eos_token_id':2"

/* Kinds of four layers, of which the last sees all; of eight. */
#define KINDS4 "'sliding_attention','sliding_attention','sliding_attention','full_attention'"
#define FULL3 "'full_attention','full_attention','full_attention'"
#define FULL9 FULL3 "," FULL3 "," FULL3
#define KINDS8 KINDS4 "," KINDS4
#define CHUNKS4 "'chunked_attention','chunked_attention','chunked_attention','full_attention'"
#define CHUNKS16 CHUNKS4 "," CHUNKS4 "," CHUNKS4 "," CHUNKS4
#define FACTORS8 "1.0,1.0,1.05,1.25,1.5,2.5,4.0,8.5"
#define FACTORS48 FACTORS8 "," FACTORS8 "," FACTORS8 "," FACTORS8 "," FACTORS8 "," FACTORS8
#define LINEAR4 "'linear_attention','linear_attention','linear_attention','full_attention'"
#define LINEAR16 LINEAR4 "," LINEAR4 "," LINEAR4 "," LINEAR4
#define LLAMA4                                                                                     \
    "'attention_bias':false,'attention_chunk_size':8192,'attention_dropout':0.0,'attn_scale':0.1," \
    "'floor_scale':8192,'for_llm_compressor':false,'head_dim':128,'hidden_act':'silu',"            \
    "'hidden_size':5120,'initializer_range':0.02,'intermediate_size':8192,"                        \
    "'intermediate_size_mlp':16384,'max_position_embeddings':8192,'num_attention_heads':40,"       \
    "'num_experts_per_tok':1,'num_hidden_layers':48,'num_key_value_heads':8,"                      \
    "'output_router_logits':false,'rms_norm_eps':1e-05,'rope_theta':500000.0,"                     \
    "'router_aux_loss_coef':0.001,'router_jitter_noise':0.0,'vocab_size':202048"

static const struct {
    const char *preset, *config;
} families[] = {
    {"meta-llama/Llama-3.2-1B",
     "{'architectures':['LlamaForCausalLM'],'model_type':'llama','attention_bias':false,"
     "'head_dim':64,'hidden_act':'silu','hidden_size':2048,'initializer_range':0.02,"
     "'intermediate_size':8192,'max_position_embeddings':8192,'mlp_bias':false,"
     "'num_attention_heads':32,'num_hidden_layers':16,'num_key_value_heads':8,'pretraining_tp':1,"
     "'rms_norm_eps':1e-5,'rope_scaling':{'factor':32.0,'high_freq_factor':4.0,"
     "'low_freq_factor':1.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
     "'rope_theta':500000.0,'tie_word_embeddings':true,'vocab_size':128256" COMMON "}"},
    {"mistralai/Mistral-7B-v0.1",
     "{'model_type':'mistral','hidden_act':'silu','hidden_size':4096,'intermediate_size':14336,"
     "'max_position_embeddings':8192,'num_attention_heads':32,'num_hidden_layers':32,"
     "'num_key_value_heads':8,'rms_norm_eps':1e-5,'rope_theta':10000.0,'sliding_window':4096,"
     "'tie_word_embeddings':false,'vocab_size':32000" COMMON "}"},
    {"mixtral-8x7b",
     "{'model_type':'mixtral','hidden_act':'silu','hidden_size':4096,'intermediate_size':14336,"
     "'max_position_embeddings':4096,'num_attention_heads':32,'num_hidden_layers':32,"
     "'num_key_value_heads':8,'num_experts_per_tok':2,'num_local_experts':8,'rms_norm_eps':1e-5,"
     "'rope_theta':1e6,'router_aux_loss_coef':0.02,'sliding_window':null,'vocab_size':32000" COMMON
     "}"},
    {"Qwen/Qwen2.5-7B",
     "{'model_type':'qwen2','hidden_act':'silu','hidden_size':3584,'intermediate_size':18944,"
     "'max_position_embeddings':4096,'max_window_layers':28,'num_attention_heads':28,"
     "'num_hidden_layers':28,'num_key_value_heads':4,'rms_norm_eps':1e-6,'rope_theta':1e6,"
     "'sliding_window':131072,'use_mrope':null,'use_sliding_window':false,'vocab_size':"
     "152064" COMMON "}"},
    {"Qwen/Qwen3-8B",
     "{'model_type':'qwen3','attention_bias':false,'head_dim':128,'hidden_act':'silu',"
     "'hidden_size':4096,'intermediate_size':12288,'max_position_embeddings':4096,"
     "'max_window_layers':36,'num_attention_heads':32,'num_hidden_layers':36,"
     "'num_key_value_heads':8,'rms_norm_eps':1e-6,'rope_scaling':null,'rope_theta':1e6,"
     "'sliding_window':null,'use_sliding_window':false,'vocab_size':151936" COMMON "}"},
    {"Qwen/Qwen3-30B-A3B",
     "{'model_type':'qwen3_moe','attention_bias':false,'decoder_sparse_step':1,'head_dim':128,"
     "'hidden_act':'silu','hidden_size':2048,'intermediate_size':6144,"
     "'max_position_embeddings':4096,'mlp_only_layers':[],'moe_intermediate_size':768,"
     "'norm_topk_prob':true,'num_attention_heads':32,'num_experts':128,'num_experts_per_tok':8,"
     "'num_hidden_layers':48,'num_key_value_heads':4,'output_router_logits':false,"
     "'rms_norm_eps':1e-6,'rope_theta':1e6,'router_aux_loss_coef':0.001,'vocab_size':151936" COMMON
     "}"},
    {"deepseek-ai/DeepSeek-V2-Lite",
     "{'model_type':'deepseek_v2','aux_loss_alpha':0.001,'first_k_dense_replace':1,"
     "'hidden_act':'silu','hidden_size':2048,'intermediate_size':10944,'kv_lora_rank':512,"
     "'max_position_embeddings':4096,'moe_intermediate_size':1408,'moe_layer_freq':1,'n_group':1,"
     "'n_routed_experts':64,'n_shared_experts':2,'norm_topk_prob':false,'num_attention_heads':16,"
     "'num_experts_per_tok':6,'num_hidden_layers':27,'num_key_value_heads':16,'q_lora_rank':null,"
     "'qk_nope_head_dim':128,'qk_rope_head_dim':64,'routed_scaling_factor':1.0,"
     "'scoring_func':'softmax','seq_aux':true,'topk_group':1,'topk_method':'greedy',"
     "'v_head_dim':128,'vocab_size':102400" COMMON "}"},
    {"deepseek-ai/DeepSeek-R1",
     "{'model_type':'deepseek_v3','ep_size':1,'first_k_dense_replace':3,'hidden_act':'silu',"
     "'hidden_size':7168,'intermediate_size':18432,'kv_lora_rank':512,"
     "'max_position_embeddings':4096,'moe_intermediate_size':2048,'moe_layer_freq':1,'n_group':8,"
     "'n_routed_experts':256,'n_shared_experts':1,'norm_topk_prob':true,"
     "'num_attention_heads':128,'num_experts_per_tok':8,'num_hidden_layers':61,"
     "'num_key_value_heads':128,'num_nextn_predict_layers':1,'q_lora_rank':1536,"
     "'qk_nope_head_dim':128,'qk_rope_head_dim':64,'quantization_config':{'quant_method':'fp8'},"
     "'routed_scaling_factor':2.5,'rms_norm_eps':1e-6,'scoring_func':'sigmoid','topk_group':4,"
     "'topk_method':'noaux_tc','v_head_dim':128,'vocab_size':129280" COMMON "}"},
    {"deepseek-ai/DeepSeek-V3.2-Exp",
     "{'model_type':'deepseek_v32','ep_size':1,'first_k_dense_replace':3,'hidden_act':'silu',"
     "'hidden_size':7168,'index_head_dim':128,'index_n_heads':64,'index_topk':2048,"
     "'intermediate_size':18432,'kv_lora_rank':512,'max_position_embeddings':4096,"
     "'moe_intermediate_size':2048,'moe_layer_freq':1,'n_group':8,'n_routed_experts':256,"
     "'n_shared_experts':1,'norm_topk_prob':true,'num_attention_heads':128,"
     "'num_experts_per_tok':8,'num_hidden_layers':61,'num_key_value_heads':128,"
     "'num_nextn_predict_layers':1,'q_lora_rank':1536,'qk_nope_head_dim':128,"
     "'qk_rope_head_dim':64,'quantization_config':{'quant_method':'fp8'},"
     "'routed_scaling_factor':2.5,'rms_norm_eps':1e-6,'scoring_func':'sigmoid','topk_group':4,"
     "'topk_method':'noaux_tc','v_head_dim':128,'vocab_size':129280" COMMON "}"},
    {"meta-llama/Llama-4-Scout-17B-16E",
     "{'model_type':'llama4','architectures':['Llama4ForConditionalGeneration'],"
     "'boi_token_index':200080,'image_token_index':200092,'vision_config':{'hidden_size':1408},"
     "'text_config':{'model_type':'llama4_text'," LLAMA4 ",'attn_temperature_tuning':4,"
     "'interleave_moe_layer_step':1,'num_local_experts':16,'moe_layers':[0,1,2,3,4,5,6,7,8,9,10,"
     "11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,"
     "41,42,43,44,45,46,47],'no_rope_layers':[1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,"
     "1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0],'rope_scaling':{'factor':16.0,"
     "'high_freq_factor':1.0,'low_freq_factor':1.0,'original_max_position_embeddings':8192,"
     "'rope_type':'llama3'},'use_qk_norm':true" COMMON "}}"},
    {"meta-llama/Llama-4-Maverick-17B-128E",
     "{'model_type':'llama4','text_config':{" LLAMA4 ",'attn_temperature_tuning':true,"
     "'interleave_moe_layer_step':2,'num_local_experts':128,'layer_types':[" CHUNKS16 "," CHUNKS16
     "," CHUNKS16 "],'moe_layers':[1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,"
     "45,47],'no_rope_layers':[],'rope_scaling':null,'use_qk_norm':false" COMMON "}}"},
    {"Qwen/Qwen3-Next-80B-A3B-Instruct",
     "{'model_type':'qwen3_next','attention_bias':false,'decoder_sparse_step':1,"
     "'full_attention_interval':4,'head_dim':256,'hidden_act':'silu','hidden_size':2048,"
     "'intermediate_size':5120,'linear_conv_kernel_dim':4,'linear_key_head_dim':128,"
     "'linear_num_key_heads':16,'linear_num_value_heads':32,'linear_value_head_dim':128,"
     "'max_position_embeddings':4096,'mlp_only_layers':[],'moe_intermediate_size':512,"
     "'norm_topk_prob':true,'num_attention_heads':16,'num_experts':512,'num_experts_per_tok':10,"
     "'num_hidden_layers':48,'num_key_value_heads':2,'output_router_logits':false,"
     "'partial_rotary_factor':0.25,'rms_norm_eps':1e-6,'rope_scaling':null,'rope_theta':1e7,"
     "'router_aux_loss_coef':0.001,'shared_expert_intermediate_size':512,"
     "'use_sliding_window':false,'vocab_size':151936" COMMON "}"},
    {"moonshotai/Kimi-K2-Base",
     "{'model_type':'kimi_k2','aux_loss_alpha':0.001,'first_k_dense_replace':1,"
     "'hidden_act':'silu','hidden_size':7168,'intermediate_size':18432,'kv_lora_rank':512,"
     "'max_position_embeddings':4096,'moe_intermediate_size':2048,'moe_layer_freq':1,'n_group':1,"
     "'n_routed_experts':384,'n_shared_experts':1,'norm_topk_prob':true,'num_attention_heads':64,"
     "'num_experts_per_tok':8,'num_hidden_layers':61,'num_key_value_heads':64,"
     "'num_nextn_predict_layers':0,'q_lora_rank':1536,'qk_nope_head_dim':128,"
     "'qk_rope_head_dim':64,'rms_norm_eps':1e-6,'rope_theta':50000,"
     "'routed_scaling_factor':2.827,'scoring_func':'sigmoid','seq_aux':true,'topk_group':1,"
     "'topk_method':'noaux_tc','v_head_dim':128,'vocab_size':163840" COMMON "}"},
    {"openai/gpt-oss-20b",
     "{'model_type':'gpt_oss','attention_bias':true,'experts_per_token':4,'head_dim':64,"
     "'hidden_act':'silu','hidden_size':2880,'initial_context_length':4096,"
     "'intermediate_size':2880,'max_position_embeddings':4096,"
     "'num_attention_heads':64,'num_experts_per_tok':4,'num_hidden_layers':24,"
     "'num_key_value_heads':8,'num_local_experts':32,'rms_norm_eps':1e-5,"
     "'rope_scaling':{'beta_fast':32.0,'beta_slow':1.0,'factor':32.0,"
     "'original_max_position_embeddings':4096,'rope_type':'yarn','truncate':false},"
     "'quantization_config':{'modules_to_not_convert':['model.layers.*.self_attn',"
     "'model.layers.*.mlp.router','model.embed_tokens','lm_head'],'quant_method':'mxfp4'},"
     "'rope_theta':150000,'router_aux_loss_coef':0.9,'sliding_window':128,'swiglu_limit':7.0,"
     "'vocab_size':201088" COMMON "}"},
    {"zai-org/GLM-4.5-Air",
     "{'model_type':'glm4_moe','attention_bias':true,'first_k_dense_replace':1,'head_dim':128,"
     "'hidden_act':'silu','hidden_size':4096,'intermediate_size':10944,"
     "'max_position_embeddings':4096,'moe_intermediate_size':1408,'n_group':1,"
     "'n_routed_experts':128,'n_shared_experts':1,'norm_topk_prob':true,'num_attention_heads':96,"
     "'num_experts_per_tok':8,'num_hidden_layers':46,'num_key_value_heads':8,"
     "'num_nextn_predict_layers':1,'partial_rotary_factor':0.5,'rms_norm_eps':1e-5,"
     "'rope_theta':1000000,'routed_scaling_factor':1.0,'topk_group':1,'use_qk_norm':false,"
     "'vocab_size':151552" COMMON "}"},
    {"allenai/OLMoE-1B-7B-0924",
     "{'model_type':'olmoe','attention_bias':false,'clip_qkv':null,'hidden_act':'silu',"
     "'hidden_size':2048,'intermediate_size':1024,'max_position_embeddings':4096,"
     "'norm_topk_prob':false,'num_attention_heads':16,'num_experts':64,'num_experts_per_tok':8,"
     "'num_hidden_layers':16,'num_key_value_heads':16,'rms_norm_eps':1e-5,'rope_theta':10000.0,"
     "'router_aux_loss_coef':0.01,'vocab_size':50304" COMMON "}"},
    {"allenai/OLMo-2-0325-32B",
     "{'model_type':'olmo2','attention_bias':false,'attention_dropout':0.0,'hidden_act':'silu',"
     "'hidden_size':5120,'intermediate_size':27648,'max_position_embeddings':4096,"
     "'num_attention_heads':40,'num_hidden_layers':64,'num_key_value_heads':8,"
     "'rms_norm_eps':1e-6,'rope_scaling':null,'rope_theta':500000,'vocab_size':100352" COMMON "}"},
    {"allenai/Olmo-3-1025-7B",
     "{'model_type':'olmo3','attention_bias':false,'hidden_act':'silu','hidden_size':4096,"
     "'intermediate_size':11008,'layer_types':[" KINDS8 "," KINDS8 "," KINDS8 "," KINDS8 "],"
     "'max_position_embeddings':65536,'num_attention_heads':32,'num_hidden_layers':32,"
     "'num_key_value_heads':32,'rms_norm_eps':1e-6,'rope_scaling':{"
     "'attention_factor':1.2079441541679836,'beta_fast':32.0,'beta_slow':1.0,'factor':8.0,"
     "'original_max_position_embeddings':8192,'rope_type':'yarn'},'rope_theta':500000,"
     "'sliding_window':4096,'vocab_size':100278" COMMON "}"},
    {"google/gemma-2-27b",
     "{'model_type':'gemma2','attention_bias':false,'attn_logit_softcapping':50.0,"
     "'cache_implementation':'hybrid','final_logit_softcapping':30.0,'head_dim':128,"
     "'hidden_act':'gelu_pytorch_tanh','hidden_activation':'gelu_pytorch_tanh',"
     "'hidden_size':4608,'intermediate_size':36864,'max_position_embeddings':8192,"
     "'num_attention_heads':32,'num_hidden_layers':46,'num_key_value_heads':16,"
     "'query_pre_attn_scalar':144,'rms_norm_eps':1e-6,'sliding_window':4096,"
     "'vocab_size':256000" COMMON "}"},
    {"openai-community/gpt2-xl",
     "{'model_type':'gpt2','activation_function':'gelu_new','attn_pdrop':0.1,'embd_pdrop':0.1,"
     "'layer_norm_epsilon':1e-5,'n_ctx':1024,'n_embd':1600,'n_head':25,'n_inner':null,"
     "'n_layer':48,'n_positions':1024,'resid_pdrop':0.1,'scale_attn_weights':true,"
     "'summary_type':'cls_index','task_specific_params':{},'vocab_size':50257" COMMON "}"},
    {"EleutherAI/gpt-neox-20b",
     "{'model_type':'gpt_neox','hidden_act':'gelu_fast','hidden_size':6144,"
     "'intermediate_size':24576,'layer_norm_eps':1e-5,'max_position_embeddings':2048,"
     "'num_attention_heads':64,'num_hidden_layers':44,'rotary_emb_base':10000,'rotary_pct':0.25,"
     "'tie_word_embeddings':false,'use_parallel_residual':true,'vocab_size':50432" COMMON "}"},
    {"nvidia/Nemotron-4-340B-Base",
     "{'model_type':'nemotron','attention_bias':false,'head_dim':192,'hidden_act':'relu2',"
     "'hidden_size':18432,'intermediate_size':73728,'max_position_embeddings':4096,"
     "'mlp_bias':false,'norm_eps':1e-5,'num_attention_heads':96,'num_hidden_layers':96,"
     "'num_key_value_heads':8,'partial_rotary_factor':0.5,'rope_theta':10000.0,"
     "'vocab_size':256000" COMMON "}"},
    {"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
     "{'model_type':'nemotron_h','attention_bias':false,'chunk_size':128,'conv_kernel':4,"
     "'expand':2,'head_dim':128,'hidden_size':2688,"
     "'hybrid_override_pattern':'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME',"
     "'intermediate_size':1856,'layer_norm_epsilon':1e-5,'mamba_head_dim':64,"
     "'mamba_hidden_act':'silu','mamba_num_heads':64,'mamba_proj_bias':false,"
     "'max_position_embeddings':8192,'mlp_bias':false,'mlp_hidden_act':'relu2',"
     "'moe_intermediate_size':1856,'moe_shared_expert_intermediate_size':3712,'n_group':1,"
     "'n_groups':8,'n_routed_experts':128,'n_shared_experts':1,'norm_topk_prob':true,"
     "'num_attention_heads':32,'num_experts_per_tok':6,'num_hidden_layers':52,"
     "'num_key_value_heads':2,'rescale_prenorm_residual':true,'residual_in_fp32':false,"
     "'routed_scaling_factor':2.5,'ssm_state_size':128,'time_step_floor':1e-4,'topk_group':1,"
     "'use_bias':false,'use_conv_bias':true,'use_mamba_kernels':true,'vocab_size':131072" COMMON
     "}"},
};

/* Not of the shape, and told by few configurations. */
static void forget(json_t *model)
{
    static const char *const keys[] = {"name", "init_std", "mtp_loss_coef", "ffn", NULL};

    for (int i = 0; keys[i]; i++)
        json_object_del(model, keys[i]);
    json_object_del(json_object_get(model, "moe"), "aux_loss");
    json_object_del(json_object_get(model, "moe"), "aux_loss_coef");
    json_object_del(json_object_get(model, "rope_scaling"), "mscale");
}

/* DeepSeek's alpha is Megatron's coefficient: the loss of a sequence divided by top_k, of each
 * layer (arXiv 2412.19437, equations 17 to 20). */
static void deepseeks_balance_is_as_strong_as_its_authors_have_it(void **state)
{
    static const struct {
        const char *preset;
        double alpha;
    } cases[] = {{"deepseek-v2-lite", 0.001},
                 {"deepseek-v2", 0.003},
                 {"deepseek-v3", 0.0001},
                 {"deepseek-v3.2", 0.0001},
                 {"kimi-k2", 0.001}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world x = world_cpu(cases[i].preset, 1, 1, "any");
        double coef = pl_aux_loss_coef(&x.m, PL_AUX_MEGATRON);

        if (fabs(coef / cases[i].alpha - 1) > 1e-9)
            fail_msg("%s: %g, not %g", cases[i].preset, coef, cases[i].alpha);
    }
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        AUTO_JSON *v = unit_json(families[i].config);
        json_t *alpha = json_object_get(v, "aux_loss_alpha");
        struct pl_model m;
        struct err e = {0};

        if (!alpha)
            continue;
        assert_int_equal(pl_model_parse(&m, v, &e), 0);
        assert_true(fabs(pl_aux_loss_coef(&m, PL_AUX_MEGATRON) / json_number_value(alpha) - 1) <
                    1e-9);
    }
}

static void each_family_reads_as_its_preset(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        struct world x = world_cpu(families[i].preset, 1, 1, "any");
        AUTO_JSON *v = unit_json(families[i].config);
        AUTO_JSON *want = pl_model_json(&x.m), *got = NULL;
        struct pl_model m;
        struct err e = {0};

        if (pl_model_parse(&m, v, &e) < 0)
            fail_msg("%s: %s %s", families[i].preset, e.pointer, e.text);
        assert_true(pl_model_params(&m) == pl_model_params(&x.m));
        got = pl_model_json(&m);
        forget(want);
        forget(got);
        if (!json_equal(want, got)) {
            AUTO_FREE char *one = jx_canonical(want), *two = jx_canonical(got);

            fail_msg("%s:\n%s\n%s", families[i].preset, one, two);
        }
    }
}

/* Families without a preset: what is published with the weights, in billions of parameters; of
 * GLM-4.7-Flash 31.22, less the copies of embedding and output that its module of multi-token
 * prediction has there. */
static const struct {
    const char *name;
    double billions;
    const char *config;
} published[] = {
    {"microsoft/phi-4", 14.66,
     "{'model_type':'phi3','attention_bias':false,'attention_dropout':0.0,"
     "'embd_pdrop':0.0,'hidden_act':'silu','hidden_size':5120,'initializer_range':0.02,"
     "'intermediate_size':17920,'max_position_embeddings':16384,'num_attention_heads':40,"
     "'num_hidden_layers':40,'num_key_value_heads':10,'original_max_position_embeddings':16384,"
     "'resid_pdrop':0.0,'rms_norm_eps':1e-05,'rope_scaling':null,'rope_theta':250000,"
     "'sliding_window':null,'vocab_size':100352" COMMON "}"},
    {"microsoft/Phi-3-mini-4k-instruct", 3.821,
     "{'model_type':'phi3','hidden_act':'silu','hidden_size':3072,'intermediate_size':8192,"
     "'max_position_embeddings':4096,'num_attention_heads':32,'num_hidden_layers':32,"
     "'num_key_value_heads':32,'rms_norm_eps':1e-05,'rope_scaling':null,'rope_theta':10000.0,"
     "'sliding_window':2047,'vocab_size':32064,'original_max_position_embeddings':4096,"
     "'tie_word_embeddings':false" COMMON "}"},
    /* Safetensors hold 27,781,427,952, 9,653,104,368 and 35,951,822,704 parameters, of which
     * 460,730,096, 456,010,480 and 446,571,248 are the encoder of images. */
    {"Qwen/Qwen3.5-27B", 27.320697856,
     "{'model_type':'qwen3_5','image_token_id':248056,'vision_config':{'depth':27},'text_config':{"
     "'model_type':'qwen3_5_text','attention_bias':false,'attn_output_gate':true,"
     "'full_attention_interval':4,'head_dim':256,'hidden_act':'silu','hidden_size':5120,"
     "'intermediate_size':17408,'layer_types':[" LINEAR16 "," LINEAR16 "," LINEAR16 "," LINEAR16
     "],'linear_conv_kernel_dim':4,'linear_key_head_dim':128,'linear_num_key_heads':16,"
     "'linear_num_value_heads':48,'linear_value_head_dim':128,'mamba_ssm_dtype':'float32',"
     "'max_position_embeddings':262144,'mtp_num_hidden_layers':1,"
     "'mtp_use_dedicated_embeddings':false,'num_attention_heads':24,'num_hidden_layers':64,"
     "'num_key_value_heads':4,'rms_norm_eps':1e-06,'rope_parameters':{'mrope_interleaved':true,"
     "'mrope_section':[11,11,10],'partial_rotary_factor':0.25,'rope_theta':10000000,"
     "'rope_type':'default'},'tie_word_embeddings':false,'vocab_size':248320" COMMON "}}"},
    {"Qwen/Qwen3.5-9B", 9.197093888,
     "{'model_type':'qwen3_5','text_config':{'hidden_act':'silu','hidden_size':4096,"
     "'mtp_num_hidden_layers':1,'num_attention_heads':16,'num_hidden_layers':32,"
     "'vocab_size':248320" COMMON "}}"},
    {"Qwen/Qwen3.5-35B-A3B", 35.505251456,
     "{'model_type':'qwen3_5_moe','text_config':{'model_type':'qwen3_5_moe_text',"
     "'attn_output_gate':true,'full_attention_interval':4,'head_dim':256,'hidden_act':'silu',"
     "'hidden_size':2048,'linear_conv_kernel_dim':4,'linear_key_head_dim':128,"
     "'linear_num_key_heads':16,'linear_num_value_heads':32,'linear_value_head_dim':128,"
     "'moe_intermediate_size':512,'mtp_num_hidden_layers':1,'num_attention_heads':16,"
     "'num_experts':256,'num_experts_per_tok':8,'num_hidden_layers':40,'num_key_value_heads':2,"
     "'partial_rotary_factor':0.25,'rms_norm_eps':1e-06,'shared_expert_intermediate_size':512,"
     "'vocab_size':248320" COMMON "}}"},
    /* README.md: 744B. */
    {"zai-org/GLM-5", 744,
     "{'model_type':'glm_moe_dsa','attention_bias':false,'first_k_dense_replace':3,"
     "'head_dim':64,'hidden_act':'silu','hidden_size':6144,'index_head_dim':128,"
     "'index_n_heads':32,'index_topk':2048,'indexer_rope_interleave':true,"
     "'intermediate_size':12288,'kv_lora_rank':512,'max_position_embeddings':202752,"
     "'moe_intermediate_size':2048,'moe_layer_freq':1,'n_group':1,'n_routed_experts':256,"
     "'n_shared_experts':1,'norm_topk_prob':true,'num_attention_heads':64,"
     "'num_experts_per_tok':8,'num_hidden_layers':78,'num_key_value_heads':64,"
     "'num_nextn_predict_layers':0,'q_lora_rank':2048,'qk_head_dim':256,'qk_nope_head_dim':192,"
     "'qk_rope_head_dim':64,'rms_norm_eps':1e-05,'rope_parameters':{'rope_theta':1000000,"
     "'rope_type':'default'},'routed_scaling_factor':2.5,'scoring_func':'sigmoid',"
     "'topk_group':1,'topk_method':'noaux_tc','v_head_dim':256,'vocab_size':154880" COMMON "}"},
    {"microsoft/Phi-3.5-mini-instruct", 3.821,
     "{'model_type':'phi3','attention_bias':false,'hidden_act':'silu','hidden_size':3072,"
     "'intermediate_size':8192,'max_position_embeddings':131072,'num_attention_heads':32,"
     "'num_hidden_layers':32,'num_key_value_heads':32,'original_max_position_embeddings':4096,"
     "'rms_norm_eps':1e-05,'rope_scaling':{'long_factor':[" FACTORS48 "],'short_factor':[" FACTORS48
     "],'type':'longrope'},'rope_theta':10000.0,'sliding_window':262144,"
     "'tie_word_embeddings':false,'vocab_size':32064" COMMON "}"},
    {"microsoft/Phi-4-mini-instruct", 3.836,
     "{'model_type':'phi3','hidden_act':'silu','hidden_size':3072,'intermediate_size':8192,"
     "'max_position_embeddings':131072,'num_attention_heads':24,'num_hidden_layers':32,"
     "'num_key_value_heads':8,'original_max_position_embeddings':4096,"
     "'partial_rotary_factor':0.75,'rms_norm_eps':1e-05,'rope_scaling':{'long_factor':[" FACTORS48
     "],'short_factor':[" FACTORS48 "],'type':'longrope'},'rope_theta':10000.0,"
     "'sliding_window':262144,'tie_word_embeddings':true,'vocab_size':200064" COMMON "}"},
    {"HuggingFaceTB/SmolLM3-3B", 3.075,
     "{'model_type':'smollm3','attention_bias':false,'hidden_act':'silu','hidden_size':2048,"
     "'initializer_range':0.02,'intermediate_size':11008,'layer_types':[" FULL9 "," FULL9 "," FULL9
     "," FULL9 "],'max_position_embeddings':65536,'max_window_layers':28,'mlp_bias':false,"
     "'no_rope_layer_interval':4,'no_rope_layers':[1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,"
     "1,1,1,0,1,1,1,0,1,1,1,0],'num_attention_heads':16,'num_hidden_layers':36,"
     "'num_key_value_heads':4,'rms_norm_eps':1e-06,'rope_scaling':null,'rope_theta':5000000.0,"
     "'sliding_window':null,'use_sliding_window':false,'vocab_size':128256" COMMON "}"},
    {"LGAI-EXAONE/EXAONE-4.0-32B", 32.0,
     "{'model_type':'exaone4','attention_dropout':0.0,'head_dim':128,'hidden_act':'silu',"
     "'hidden_size':5120,'initializer_range':0.02,'intermediate_size':27392,"
     "'max_position_embeddings':131072,'num_attention_heads':40,'num_hidden_layers':64,"
     "'num_key_value_heads':8,'rms_norm_eps':1e-05,'rope_scaling':{'factor':16.0,"
     "'high_freq_factor':4.0,'low_freq_factor':1.0,'original_max_position_embeddings':8192,"
     "'rope_type':'llama3'},'rope_theta':1000000,'sliding_window':4096,"
     "'sliding_window_pattern':'LLLG','tie_word_embeddings':false,'vocab_size':102400" COMMON "}"},
    {"CohereLabs/c4ai-command-r-v01", 35.0,
     "{'model_type':'cohere','attention_bias':false,'attention_dropout':0.0,'hidden_act':'silu',"
     "'hidden_size':8192,'initializer_range':0.02,'intermediate_size':22528,"
     "'layer_norm_eps':1e-05,'logit_scale':0.0625,'max_position_embeddings':8192,"
     "'model_max_length':131072,'num_attention_heads':64,'num_hidden_layers':40,"
     "'num_key_value_heads':64,'pretraining_tp':1,"
     "'rope_theta':8000000.0,'vocab_size':256000" COMMON "}"},
    {"CohereLabs/c4ai-command-r7b-12-2024", 8.03,
     "{'model_type':'cohere2','attention_bias':false,'attention_dropout':0.0,"
     "'cache_implementation':'hybrid','head_dim':128,'hidden_act':'silu','hidden_size':4096,"
     "'initializer_range':0.02,'intermediate_size':14336,'layer_norm_eps':1e-05,'layer_switch':4,"
     "'logit_scale':0.25,'max_position_embeddings':8192,'num_attention_heads':32,"
     "'num_hidden_layers':32,'num_key_value_heads':8,"
     "'order_of_interleaved_layers':'local_attn_first','position_embedding_type':'rope_gptj',"
     "'rope_scaling':null,'rope_theta':50000,'rotary_pct':1.0,'sliding_window':4096,"
     "'sliding_window_pattern':4,'use_embedding_sharing':true,'use_gated_activation':true,"
     "'use_parallel_block':true,'use_parallel_embedding':true,'vocab_size':256000" COMMON "}"},
    {"ibm-granite/granite-3.0-8b-base", 8.17,
     "{'model_type':'granite','attention_bias':false,'attention_dropout':0.1,"
     "'attention_multiplier':0.0078125,'embedding_multiplier':12.0,'hidden_act':'silu',"
     "'hidden_size':4096,'initializer_range':0.02,'intermediate_size':12800,"
     "'logits_scaling':16.0,'max_position_embeddings':4096,'mlp_bias':false,"
     "'num_attention_heads':32,'num_hidden_layers':40,'num_key_value_heads':8,"
     "'residual_multiplier':0.22,'rms_norm_eps':1e-05,'rope_scaling':null,'rope_theta':10000,"
     "'tie_word_embeddings':true,'vocab_size':49155" COMMON "}"},
    {"ibm-granite/granite-3.0-3b-a800m-base", 3.3,
     "{'model_type':'granitemoe','attention_bias':false,'attention_dropout':0.1,"
     "'attention_multiplier':0.015625,'embedding_multiplier':12.0,'hidden_act':'silu',"
     "'hidden_size':1536,'initializer_range':0.02,'intermediate_size':512,'logits_scaling':6.0,"
     "'max_position_embeddings':4096,'num_attention_heads':24,'num_experts_per_tok':8,"
     "'num_hidden_layers':32,'num_key_value_heads':8,'num_local_experts':40,"
     "'output_router_logits':false,'residual_multiplier':0.22,'rms_norm_eps':1e-06,"
     "'rope_scaling':null,'rope_theta':10000.0,'router_aux_loss_coef':0.0,"
     "'tie_word_embeddings':true,'vocab_size':49155" COMMON "}"},
    {"ByteDance-Seed/Seed-OSS-36B-Base", 36.15,
     "{'model_type':'seed_oss','attention_bias':true,'attention_out_bias':false,'head_dim':128,"
     "'hidden_act':'silu','hidden_size':5120,'intermediate_size':27648,"
     "'max_position_embeddings':524288,'mlp_bias':false,'num_attention_heads':80,"
     "'num_hidden_layers':64,'num_key_value_heads':8,'residual_dropout':0.1,"
     "'rms_norm_eps':1e-06,'rope_scaling':{'rope_type':'default'},'rope_theta':10000000.0,"
     "'vocab_size':155136" COMMON "}"},
    {"zai-org/GLM-4-9B-0414", 9.4,
     "{'model_type':'glm4','attention_bias':true,'head_dim':128,'hidden_act':'silu',"
     "'hidden_size':4096,'intermediate_size':13696,'max_position_embeddings':32768,"
     "'num_attention_heads':32,'num_hidden_layers':40,'num_key_value_heads':2,"
     "'partial_rotary_factor':0.5,'rms_norm_eps':1e-05,'rope_theta':10000.0,'vocab_size':"
     "151552" COMMON "}"},
    {"zai-org/GLM-4-32B-0414", 32.57,
     "{'model_type':'glm4','attention_bias':false,'head_dim':128,'hidden_act':'silu',"
     "'hidden_size':6144,'intermediate_size':23040,'max_position_embeddings':32768,"
     "'num_attention_heads':48,'num_hidden_layers':61,'num_key_value_heads':2,"
     "'partial_rotary_factor':0.5,'rms_norm_eps':1e-05,'rope_theta':10000.0,'vocab_size':"
     "151552" COMMON "}"},
    {"rednote-hilab/dots.llm1.base", 142.8,
     "{'model_type':'dots1','attention_bias':false,'first_k_dense_replace':1,"
     "'hidden_act':'silu','hidden_size':4096,'intermediate_size':10944,"
     "'max_position_embeddings':32768,'max_window_layers':62,'moe_intermediate_size':1408,"
     "'n_routed_experts':128,'n_shared_experts':2,'norm_topk_prob':true,"
     "'num_attention_heads':32,'num_experts_per_tok':6,'num_hidden_layers':62,"
     "'num_key_value_heads':32,'rms_norm_eps':1e-05,'rope_theta':10000000.0,"
     "'routed_scaling_factor':2.5,'scoring_func':'sigmoid','sliding_window':null,"
     "'vocab_size':152064" COMMON "}"},
    {"MiniMaxAI/MiniMax-M2", 228.7,
     "{'model_type':'minimax_m2','attn_type_list':[1,1,1,1],'head_dim':128,'hidden_act':'silu',"
     "'hidden_size':3072,'intermediate_size':1536,'max_position_embeddings':196608,"
     "'mtp_transformer_layers':1,'num_attention_heads':48,'num_experts_per_tok':8,"
     "'num_hidden_layers':62,'num_key_value_heads':8,'num_local_experts':256,"
     "'num_mtp_modules':3,'output_router_logits':false,'qk_norm_type':'per_layer',"
     "'rms_norm_eps':1e-06,'rope_theta':5000000,'rotary_dim':64,'router_aux_loss_coef':0.001,"
     "'router_jitter_noise':0.0,'scoring_func':'sigmoid','shared_intermediate_size':0,"
     "'use_mtp':false,'use_qk_norm':true,'use_routing_bias':true,'vocab_size':200064" COMMON "}"},
    {"zai-org/GLM-4.7-Flash", 30.59,
     "{'model_type':'glm4_moe_lite','attention_bias':false,'first_k_dense_replace':1,"
     "'hidden_act':'silu','hidden_size':2048,'intermediate_size':10240,'kv_lora_rank':512,"
     "'max_position_embeddings':202752,'moe_intermediate_size':1536,'n_group':1,"
     "'n_routed_experts':64,'n_shared_experts':1,'norm_topk_prob':true,'num_attention_heads':20,"
     "'num_experts_per_tok':4,'num_hidden_layers':47,'num_key_value_heads':20,"
     "'num_nextn_predict_layers':1,'partial_rotary_factor':1.0,'q_lora_rank':768,"
     "'qk_nope_head_dim':192,'qk_rope_head_dim':64,'rms_norm_eps':1e-05,'rope_scaling':null,"
     "'rope_theta':1000000,'routed_scaling_factor':1.8,'topk_group':1,'topk_method':'noaux_tc',"
     "'v_head_dim':256,'vocab_size':154880" COMMON "}"},
    {"bigcode/starcoder2-3b", 3.03,
     "{'model_type':'starcoder2','hidden_act':'gelu_pytorch_tanh','hidden_size':3072,"
     "'initializer_range':0.018042,'intermediate_size':12288,'max_position_embeddings':16384,"
     "'norm_epsilon':1e-05,'norm_type':'layer_norm','num_attention_heads':24,"
     "'num_hidden_layers':30,'num_key_value_heads':2,'residual_dropout':0.1,"
     "'embedding_dropout':0.1,'rope_theta':999999.4420358813,'sliding_window':4096,"
     "'use_bias':true,'vocab_size':49152" COMMON "}"},
    {"arcee-ai/AFM-4.5B-Base", 4.62,
     "{'model_type':'arcee','attention_bias':false,'head_dim':128,'hidden_act':'relu2',"
     "'hidden_size':2560,'intermediate_size':18432,'max_position_embeddings':65536,"
     "'mlp_bias':false,'num_attention_heads':20,'num_hidden_layers':36,'num_key_value_heads':4,"
     "'rms_norm_eps':1e-05,'rope_theta':10000.0,'vocab_size':128004" COMMON "}"},
    {"baidu/ERNIE-4.5-0.3B-PT", 0.361,
     "{'model_type':'ernie4_5','head_dim':128,'hidden_act':'silu','hidden_size':1024,"
     "'intermediate_size':3072,'max_position_embeddings':131072,'num_attention_heads':16,"
     "'num_hidden_layers':18,'num_key_value_heads':2,'rms_norm_eps':1e-05,'rope_theta':500000,"
     "'tie_word_embeddings':true,'use_bias':false,'vocab_size':103424" COMMON "}"},
    {"baidu/ERNIE-4.5-21B-A3B-PT", 21.83,
     "{'model_type':'ernie4_5_moe','hidden_act':'silu','hidden_size':2560,"
     "'intermediate_size':12288,'max_position_embeddings':131072,'moe_capacity':[64,64,64],"
     "'moe_gate':'topk','moe_intermediate_size':1536,'moe_k':6,'moe_layer_end_index':-1,"
     "'moe_layer_interval':1,'moe_layer_start_index':1,'moe_num_experts':64,"
     "'moe_num_shared_experts':2,'moe_use_aux_free':true,'num_attention_heads':20,"
     "'num_hidden_layers':28,'num_key_value_heads':4,'rms_norm_eps':1e-05,'rope_theta':500000.0,"
     "'tie_word_embeddings':true,'use_bias':false,'vocab_size':103424" COMMON "}"},
};

static void each_further_family_has_its_published_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        AUTO_JSON *v = unit_json(published[i].config);
        double billions;
        struct pl_model m;
        struct err e = {0};

        if (pl_model_parse(&m, v, &e) < 0)
            fail_msg("%s: %s %s", published[i].name, e.pointer, e.text);
        billions = (double)pl_model_params(&m) / 1e9;
        if (fabs(billions / published[i].billions - 1) > 0.005)
            fail_msg("%s: %g billion, published are %g", published[i].name, billions,
                     published[i].billions);
    }
}

/* A key that is in no list changes what is trained, for all that we know. */
static void every_key_is_read_or_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        AUTO_JSON *v = unit_json(families[i].config);
        struct pl_model m;
        struct err e = {0};

        json_object_set_new(v, "residual_multiplier", json_real(0.22));
        assert_int_equal(pl_model_parse(&m, v, &e), -ENOTSUP);
        assert_string_equal(e.pointer, "/residual_multiplier");
        assert_non_null(strstr(e.text, "residual_multiplier"));
    }
}

/* Six layers, of which the third and the sixth see all; scores are divided by sqrt(24). */
static void windows_follow_the_types_of_layers(void **state)
{
    AUTO_JSON *v = unit_json(
        "{'model_type':'gemma3_text','hidden_size':64,'intermediate_size':96,'head_dim':16,"
        "'num_attention_heads':4,'num_key_value_heads':2,'num_hidden_layers':6,'vocab_size':50,"
        "'query_pre_attn_scalar':24,'sliding_window':8,'max_position_embeddings':64,"
        "'rope_parameters':{'full_attention':{'rope_theta':5e5,'rope_type':'default'},"
        "'sliding_attention':{'rope_theta':2e4,'rope_type':'default'}},"
        "'layer_types':['sliding_attention','sliding_attention','full_attention',"
        "'sliding_attention','sliding_attention','full_attention']}");
    struct pl_model m;
    struct err e = {0};

    (void)state;
    if (pl_model_parse(&m, v, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pl_layer_has_window(&m, i), i % 3 != 2);
    assert_float_equal(m.attn_scale * m.attn_scale, 1.0 / 24, 1e-12);
    assert_true(m.rope_theta == 5e5 && m.rope_theta_local == 2e4 && m.post_norms && m.tied);
}

#define TINY(type)                                                                                 \
    "{'model_type':'" type "','hidden_size':256,'num_hidden_layers':4,'num_attention_heads':32,"   \
    "'intermediate_size':64,'vocab_size':64"

/* WANT's words are MODEL's; null: it has no such word, or has its default. */
static void check_words(const char *config, const json_t *want, const json_t *model)
{
    const char *word;
    json_t *value;

    json_object_foreach((json_t *)want, word, value) {
        json_t *got = json_object_get(model, word);

        if (json_is_null(value) && got)
            fail_msg("%s: %s", config, word);
        if (json_is_object(value))
            check_words(config, value, got);
        else if (json_is_number(value) && json_is_number(got))
            assert_float_equal(json_number_value(got), json_number_value(value), 1e-12);
        else if (!json_is_null(value) && !json_equal(got, value))
            fail_msg("%s: %s", config, word);
    }
}

/* What a file leaves out is that of the family's class in transformers (configuration_*.py), and a
 * key that is null has no value. */
static void absent_keys_are_those_of_the_familys_class(void **state)
{
    static const struct {
        const char *config, *want;
    } rows[] = {
        {TINY("llama") "}",
         "{'kv_heads':32,'rope_theta':10000,'norm_eps':1e-6,'seq':2048,'sliding_window':null}"},
        {TINY("mistral") "}", "{'kv_heads':8,'sliding_window':4096,'seq':131072}"},
        {TINY("mistral") ",'sliding_window':null,'num_key_value_heads':null}",
         "{'kv_heads':32,'sliding_window':null}"},
        {TINY("mixtral") "}", "{'kv_heads':8,'rope_theta':1e6,'norm_eps':1e-5,'sliding_window':"
                              "null,'moe':{'experts':8,'top_k':2}}"},
        {TINY("qwen2") "}", "{'kv_heads':32,'sliding_window':null,'rope_theta':10000}"},
        {TINY("qwen2_moe") "}", "{'kv_heads':16,'qkv_bias':true,'moe':{'experts':60,'top_k':4,"
                                "'expert_ffn':1408,'shared_ffn':5632}}"},
        {TINY("qwen2_moe") ",'qkv_bias':false}", "{'qkv_bias':null}"},
        {TINY("qwen3") "}", "{'kv_heads':32,'head_dim':128,'rope_theta':10000}"},
        {TINY("qwen3_moe") "}",
         "{'kv_heads':4,'moe':{'experts':128,'top_k':8,'expert_ffn':768,'topk_norm':false}}"},
        {TINY("qwen3_moe") ",'num_local_experts':16}", "{'moe':{'experts':16}}"},
        {TINY("deepseek_v2") ",'num_experts_per_tok':6}",
         "{'mla':{'kv_lora_rank':512,'q_lora_rank':1536,'qk_nope_head_dim':128,"
         "'qk_rope_head_dim':64,'v_head_dim':128},'moe':{'experts':64,'shared_ffn':2814}}"},
        {TINY("deepseek_v3") ",'q_lora_rank':null}",
         "{'mla':{'kv_lora_rank':512,'q_lora_rank':null},'moe':{'experts':256,'top_k':8,"
         "'n_group':8,'topk_group':4,'scaling':2.5,'dense_layers':3,'shared_ffn':2048}}"},
        {TINY("deepseek_v3") ",'n_routed_experts':null}", "{'moe':null}"},
        {TINY("deepseek_v32") ",'index_topk':64}",
         "{'dsa':{'index_n_heads':64,'index_head_dim':128,'index_topk':64,"
         "'indexer_loss_coef':null},'mla':{'q_lora_rank':1536},'seq':163840,"
         "'moe':{'balance_bias':true,'scaling':2.5}}"},
        {TINY("llama4_text") "}",
         "{'kv_heads':8,'head_dim':128,'qk_norm':'l2','attention_chunk_size':8192,"
         "'global_every':4,'no_rope_freq':4,'attn_temperature_tuning':true,"
         "'attn_temperature_floor':null,'attn_temperature_scale':null,'ffn':16384,"
         "'rope_theta':500000,'seq':131072,'moe':{'experts':16,'top_k':1,'expert_ffn':64,"
         "'shared_ffn':64,'router':'sigmoid','topk_norm':false,'apply_probs_on_input':true,"
         "'every':1}}"},
        {TINY("llama4_text") ",'moe_layers':[1,3],'no_rope_layer_interval':2,'floor_scale':16,"
                             "'attn_scale':0.5,'use_qk_norm':false,'attn_temperature_tuning':0}",
         "{'qk_norm':null,'global_every':2,'no_rope_freq':2,'attn_temperature_tuning':null,"
         "'attn_temperature_floor':16,'attn_temperature_scale':0.5,'moe':{'every':2}}"},
        {TINY("llama4_text") ",'attention_chunk_size':null,'no_rope_layers':[1,1,1,1],"
                             "'no_rope_layer_interval':4}",
         "{'attention_chunk_size':null,'global_every':null,'no_rope_freq':null,"
         "'attn_temperature_tuning':null}"},
        {TINY("llama4_text") ",'layer_types':['full_attention','full_attention','full_attention',"
                             "'full_attention']}",
         "{'attention_chunk_size':null,'global_every':null,'no_rope_freq':4}"},
        {TINY("qwen3_next") "}",
         "{'kv_heads':2,'head_dim':256,'qk_norm':'head','zero_centered_norm':true,"
         "'attention_output_gate':true,'partial_rotary_factor':0.25,'linear_attention_freq':4,"
         "'linear_attention':{'num_key_heads':16,'num_value_heads':32,'key_head_dim':128,"
         "'value_head_dim':128,'conv_kernel_dim':null},'moe':{'experts':512,'top_k':10,"
         "'expert_ffn':512,'shared_ffn':512,'shared_gate':true}}"},
        {TINY("qwen3_next") ",'full_attention_interval':3,'linear_conv_kernel_dim':2}",
         "{'linear_attention_freq':3,'linear_attention':{'conv_kernel_dim':2}}"},
        {TINY("qwen3_next") ",'layer_types':['linear_attention','linear_attention',"
                            "'linear_attention','linear_attention']}",
         "{'linear_attention_freq':5}"},
        {TINY("qwen3_next") ",'full_attention_interval':1}",
         "{'linear_attention_freq':null,'linear_attention':null,'attention_output_gate':true}"},
        {TINY("llama") ",'rope_scaling':{'rope_type':'longrope','short_factor':[1,1,2,2],"
                       "'long_factor':[4,4,8,8],'original_max_position_embeddings':512}}",
         "{'rope_scaling':{'kind':'longrope','factor':4,'original_seq':512,"
         "'short_factor':[1.0,1.0,2.0,2.0],'long_factor':[4.0,4.0,8.0,8.0]}}"},
        {TINY("glm4_moe") "}", "{'kv_heads':8,'partial_rotary_factor':0.5,'moe':{'experts':128,"
                               "'top_k':8,'shared_ffn':1408,'dense_layers':1}}"},
        {TINY("gpt_oss") "}",
         "{'kv_heads':8,'head_dim':64,'sliding_window':128,'global_every':2,'rope_theta':150000,"
         "'rope_scaling':{'kind':'yarn','factor':32,'original_seq':4096,'truncate':false},"
         "'moe':{'experts':128,'top_k':4}}"},
        {TINY("gpt_oss") ",'rope_parameters':{'rope_type':'default','rope_theta':5000}}",
         "{'rope_theta':5000,'rope_scaling':null}"},
        {TINY("gpt_oss") ",'rope_parameters':{'rope_type':'yarn','factor':8.0,'truncate':false,"
                         "'original_max_position_embeddings':512},'swiglu_alpha':1.702}",
         "{'rope_theta':150000,'rope_scaling':{'kind':'yarn','factor':8,'original_seq':512}}"},
        {TINY("gpt_oss") ",'rope_scaling':null}", "{'rope_scaling':null}"},
        {TINY("gpt_oss") ",'head_dim':null,'sliding_window':null}",
         "{'head_dim':8,'sliding_window':null,'global_every':null}"},
        {TINY("phi3") ",'partial_rotary_factor':0.75}",
         "{'norm_eps':1e-5,'seq':4096,'partial_rotary_factor':0.75,'sliding_window':null}"},
        {TINY("seed_oss") "}", "{'kv_heads':8,'head_dim':128,'qkv_bias':true,'out_bias':null}"},
        {TINY("seed_oss") ",'attention_bias':false,'attention_out_bias':true}",
         "{'qkv_bias':null,'out_bias':true}"},
        {TINY("glm") "}", "{'kv_heads':2,'partial_rotary_factor':0.5,'post_norms':null}"},
        {TINY("glm4") "}", "{'kv_heads':2,'qkv_bias':true,'out_bias':null,'post_norms':true}"},
        {TINY("glm4_moe_lite") "}",
         "{'mla':{'q_lora_rank':768,'v_head_dim':256},'moe':{'experts':64,'top_k':4,"
         "'scaling':1.8,'dense_layers':1,'shared_ffn':1536,'router':'sigmoid'}}"},
        {TINY("glm4_moe_lite") ",'mlp_layer_types':['dense','dense','sparse','sparse']}",
         "{'moe':{'dense_layers':2}}"},
        {TINY("dots1") ",'sliding_window':8,'n_routed_experts':8,'num_experts_per_tok':2}",
         "{'qk_norm':'head','sliding_window':null,'moe':{'router':'sigmoid','topk_norm':false,"
         "'balance_bias':true}}"},
        {TINY("minimax_m2") ",'rotary_dim':64}",
         "{'qk_norm':'full','partial_rotary_factor':0.5,'rope_theta':5e6,'mtp':null,"
         "'moe':{'experts':256,'expert_ffn':64,'router':'sigmoid','balance_bias':true}}"},
        {TINY("minimax_m2") ",'rotary_dim':64,'partial_rotary_factor':0.25}",
         "{'partial_rotary_factor':0.25}"},
        {TINY("minimax_m2") ",'num_mtp_modules':3}", "{'mtp':null}"},
        {TINY("minimax_m2") ",'use_mtp':true,'num_mtp_modules':3}", "{'mtp':3}"},
        {TINY("ernie4_5") ",'use_bias':true}",
         "{'tied':true,'qkv_bias':true,'out_bias':true,'mlp_bias':true}"},
        {TINY("ernie4_5_moe") ",'moe_layer_end_index':3}",
         "{'kv_heads':4,'moe':{'experts':64,'top_k':6,'dense_layers':1,'shared_ffn':3072,"
         "'balance_bias':true}}"},
        {TINY("starcoder2") "}", "{'norm':'layernorm','mlp':'gelu-tanh','tied':true}"},
        {TINY("starcoder2") ",'use_bias':false}",
         "{'qkv_bias':false,'out_bias':false,'mlp_bias':false}"},
        {TINY("arcee") "}", "{'mlp':'relu2','kv_heads':32,'norm':'rmsnorm','seq':4096}"},
        {TINY("olmoe") "}", "{'kv_heads':32,'moe':{'experts':64,'top_k':8,'aux_loss_coef':0.01}}"},
        {TINY("olmo2") "}",
         "{'kv_heads':32,'norm_eps':1e-5,'rope_theta':10000,'seq':2048,'qk_norm':'full',"
         "'pre_norms':false,'post_norms':true,'sliding_window':null,'qkv_bias':null}"},
        {TINY("olmo2") ",'attention_bias':true,'num_key_value_heads':8,'head_dim':16}",
         "{'kv_heads':8,'head_dim':16,'qkv_bias':true,'out_bias':true}"},
        {TINY("olmo3") "}", "{'rope_theta':500000,'pre_norms':false,'post_norms':true,"
                            "'sliding_window':null,'global_every':null}"},
        {TINY("olmo3") ",'max_position_embeddings':8192}",
         "{'sliding_window':4096,'global_every':4,'rope_theta_local':null}"},
        /* A window that no sequence is longer than, whose layers rotate otherwise. */
        {TINY("olmo3") ",'rope_theta':5000,'rope_scaling':{'rope_type':'yarn','factor':2.0,"
                       "'original_max_position_embeddings':1024}}",
         "{'sliding_window':4096,'global_every':4,'rope_theta':5000,'rope_theta_local':5000,"
         "'rope_scaling':{'kind':'yarn','factor':2}}"},
        {TINY("olmo3") ",'layer_types':['full_attention','full_attention','full_attention',"
                       "'full_attention'],'rope_scaling':{'rope_type':'linear','factor':2.0}}",
         "{'sliding_window':null,'rope_theta_local':null,'rope_scaling':{'kind':'linear'}}"},
        {TINY("olmo3") ",'max_position_embeddings':8192,'rope_parameters':{'full_attention':{"
                       "'rope_type':'yarn','rope_theta':7000,'factor':4.0,'attention_factor':"
                       "1.138629436111989,'original_max_position_embeddings':1024},"
                       "'sliding_attention':{'rope_type':'default','rope_theta':7000}}}",
         "{'rope_theta':7000,'rope_theta_local':7000,'rope_scaling':{'kind':'yarn','factor':4}}"},
        {TINY("olmo3") ",'max_position_embeddings':8192,'rope_parameters':{'full_attention':{"
                       "'rope_type':'default','rope_theta':7000},'sliding_attention':{"
                       "'rope_type':'default','rope_theta':7000}}}",
         "{'rope_theta':7000,'rope_theta_local':null,'sliding_window':4096}"},
        {TINY("smollm3") "}", "{'kv_heads':4,'rope_theta':2e6,'tied':true,'no_rope_freq':4}"},
        {TINY("smollm3") ",'no_rope_layers':[1,0,1,0,1,0],'sliding_window':64,"
                         "'use_sliding_window':false}",
         "{'no_rope_freq':2,'sliding_window':null}"},
        {TINY("smollm3") ",'no_rope_layers':[1,1,1,1]}", "{'no_rope_freq':null}"},
        {TINY("smollm3") ",'no_rope_layer_interval':3}", "{'no_rope_freq':3}"},
        {TINY("cohere") "}",
         "{'norm':'layernorm','norm_bias':false,'parallel_block':true,'shared_norm':true,"
         "'qkv_bias':false,'out_bias':false,'mlp_bias':false,'logit_scale':0.0625,'tied':true,"
         "'rope_theta':500000,'norm_eps':1e-5,'sliding_window':null}"},
        {TINY("cohere") ",'attention_bias':true,'layer_norm_eps':0.25,'logit_scale':1}",
         "{'qkv_bias':null,'out_bias':null,'norm_eps':0.25,'logit_scale':null}"},
        {TINY("cohere2") "}",
         "{'sliding_window':4096,'global_every':4,'no_rope_freq':4,'shared_norm':true,"
         "'rope_theta':10000,'logit_scale':0.0625}"},
        {TINY("cohere2") ",'layer_types':['sliding_attention','full_attention',"
                         "'sliding_attention','full_attention'],'sliding_window':8}",
         "{'sliding_window':8,'global_every':2,'no_rope_freq':2}"},
        /* The class's factor of scores is 1; the usual one needs no word. */
        {TINY("granite") "}",
         "{'attn_scale':1.0,'embedding_multiplier':null,'residual_multiplier':null,"
         "'logit_scale':null,'norm_eps':1e-6,'seq':2048,'kv_heads':32}"},
        {TINY("granite") ",'attention_multiplier':0.35355339059327379,'embedding_multiplier':12,"
                         "'residual_multiplier':0.22,'logits_scaling':8.0}",
         "{'attn_scale':null,'embedding_multiplier':12,'residual_multiplier':0.22,"
         "'logit_scale':0.125}"},
        {TINY("granitemoe") ",'logits_scaling':2}",
         "{'attn_scale':1.0,'logit_scale':0.5,'moe':{'experts':8,'top_k':2,'expert_ffn':64,"
         "'aux_loss':'huggingface','aux_loss_coef':0.001}}"},
        /* Without a window it is none at all, and every layer rotates; with one, also where no
         * sequence is longer, those without do not. */
        {TINY("exaone4") ",'sliding_window':null,'sliding_window_pattern':null}",
         "{'kv_heads':32,'sliding_window':null,'no_rope_freq':null,'qk_norm':'head',"
         "'pre_norms':false,'post_norms':true}"},
        {TINY("exaone4") "}", "{'sliding_window':4096,'global_every':4,'no_rope_freq':4}"},
        {TINY("exaone4") ",'sliding_window_pattern':'LG'}",
         "{'sliding_window':4096,'global_every':2,'no_rope_freq':2}"},
        {TINY("gemma3_text") ",'max_position_embeddings':4096}",
         "{'sliding_window':4096,'global_every':6,'rope_theta_local':10000}"},
        {TINY("gemma2") "}", "{'kv_heads':4,'head_dim':256,'sliding_window':4096,'global_every':2,"
                             "'attn_softcap':50,'logit_softcap':30,'attn_scale':null}"},
        {TINY("gemma2") ",'head_dim':64,'final_logit_softcapping':null}",
         "{'attn_scale':0.0625,'logit_softcap':null}"},
        {TINY("gemma3_text") "}",
         "{'kv_heads':4,'head_dim':256,'sliding_window':4096,'global_every':6,'rope_theta':1e6,"
         "'rope_theta_local':10000,'attn_softcap':null}"},
        {TINY("gpt_neox") "}",
         "{'kv_heads':32,'partial_rotary_factor':0.25,'rope_theta':10000,'seq':2048}"},
        {TINY("nemotron") "}", "{'kv_heads':32,'init_std':0.0134,'partial_rotary_factor':0.5}"},
        {TINY("nemotron_h") ",'hybrid_override_pattern':'M*M-'}",
         "{'kv_heads':8,'head_dim':128,'mamba':{'heads':128,'head_dim':64,'state':128}}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON *v = unit_json(rows[i].config), *want = unit_json(rows[i].want), *got = NULL;
        struct pl_model m;
        struct err e = {0};

        if (pl_model_parse(&m, v, &e) < 0)
            fail_msg("%s: %s %s", rows[i].config, e.pointer, e.text);
        got = pl_model_json(&m);
        check_words(rows[i].config, want, got);
    }
}

static void values_without_a_word_are_refused(void **state)
{
#define LLAMA                                                                                      \
    "{'model_type':'llama','hidden_size':64,'num_hidden_layers':4,'num_attention_heads':4,"        \
    "'intermediate_size':64,'vocab_size':64,'max_position_embeddings':64"
#define QWEN                                                                                       \
    "{'model_type':'qwen2','hidden_size':64,'num_hidden_layers':4,'num_attention_heads':4,"        \
    "'intermediate_size':64,'vocab_size':64,'max_position_embeddings':64"
    static const struct {
        const char *config, *pointer, *text;
    } row[] = {
        {TINY("smollm3") ",'no_rope_layers':[1,0,0,1]}", "/no_rope_layers", "every n-th layer"},
        {TINY("smollm3") ",'no_rope_layers':[1,1,1]}", "/no_rope_layers", "every n-th layer"},
        {TINY("smollm3") ",'no_rope_layer_interval':1}", "/no_rope_freq", "positions none"},
        {TINY("smollm3") ",'use_sliding_window':true,'sliding_window':8,'layer_types':["
                         "'full_attention','full_attention','full_attention',"
                         "'sliding_attention']}",
         "/layer_types", "every n-th layer global"},
        {TINY("exaone4") ",'sliding_window_pattern':'LLGG'}", "/sliding_window_pattern", "LLLG"},
        {TINY("exaone4") ",'layer_types':['full_attention','full_attention','full_attention',"
                         "'full_attention']}",
         "/layer_types", "no layer that knows positions"},
        {TINY("exaone4") ",'attention_bias':true}", "/attention_bias", "not supported"},
        {TINY("cohere") ",'use_qk_norm':true}", "/use_qk_norm", "true"},
        {TINY("cohere2") ",'sliding_window':null}", "/sliding_window", "knows positions"},
        {TINY("cohere2") ",'use_parallel_block':false}", "/use_parallel_block", "false"},
        {TINY("cohere2") ",'layer_types':['full_attention','full_attention','full_attention',"
                         "'full_attention']}",
         "/layer_types", "no layer that knows positions"},
        {TINY("granite") ",'logits_scaling':0}", "/logits_scaling", "above 0"},
        {TINY("granite") ",'logits_scaling':'8'}", "/logits_scaling", "above 0"},
        {TINY("granite") ",'residual_multiplier':-1}", "/residual_multiplier", "-1"},
        {LLAMA ",'embedding_multiplier':2}", "/embedding_multiplier", "not supported"},
        {"{'model_type':'bloom'}", "/model_type", "bloom"},
        {"{'architectures':['X']}", "/model_type", "missing"},
        {"{'model_type':'llama'}", "/num_hidden_layers", "missing"},
        {"{'model_type':'gpt2'}", "/n_layer", "missing"},
        {LLAMA ",'hidden_act':'tanh'}", "/hidden_act", "tanh"},
        {LLAMA ",'hidden_act':7}", "/hidden_act", "not supported"},
        {LLAMA ",'rope_scaling':{'type':'dynamic','factor':2}}", "/rope_scaling", "dynamic"},
        {LLAMA ",'rope_scaling':{'type':'longrope','factor':2}}", "/rope_scaling",
         "original_max_position_embeddings"},
        {LLAMA ",'rope_scaling':{'type':'longrope','short_mscale':2}}", "/rope_scaling",
         "short_mscale"},
        {LLAMA ",'rope_scaling':{'type':'linear','factor':2,'short_factor':[1]}}", "/rope_scaling",
         "short_factor"},
        {LLAMA ",'rope_scaling':{'type':'su','original_max_position_embeddings':32}}",
         "/rope_scaling/short_factor", "0 numbers, not 8"},
        {LLAMA ",'rope_scaling':{'type':'yarn','factor':2,'attention_factor':3}}", "/rope_scaling",
         "attention_factor"},
        {LLAMA ",'rope_scaling':{'type':'linear','factor':2,'attention_factor':1}}",
         "/rope_scaling", "attention_factor"},
        {TINY("olmo3") ",'rope_scaling':{'rope_type':'yarn','factor':8.0,'attention_factor':1.2,"
                       "'original_max_position_embeddings':512}}",
         "/rope_scaling", "attention_factor 1.2"},
        {TINY("olmo3") ",'rope_parameters':{'full_attention':{'rope_type':'default'},"
                       "'sliding_attention':{'rope_type':'yarn','factor':2.0}}}",
         "/rope_parameters", "yarn"},
        {TINY("olmo2") ",'clip_qkv':8.0}", "/clip_qkv", "8.0"},
        {LLAMA ",'rope_scaling':{'type':'llama3','factor':2}}", "/rope_scaling/original_seq",
         "missing"},
        {QWEN ",'use_sliding_window':true,'sliding_window':8}", "/use_sliding_window",
         "layer_types"},
        {QWEN ",'sliding_window':8,'layer_types':['full_attention','sliding_attention',"
              "'sliding_attention','full_attention']}",
         "/layer_types", "every n-th"},
        {QWEN ",'sliding_window':8,'layer_types':['full_attention']}", "/layer_types",
         "one entry for each layer"},
        {"{'model_type':'qwen3_moe','hidden_size':64,'num_hidden_layers':4,"
         "'num_attention_heads':4,'num_experts':8,'moe_intermediate_size':8,'vocab_size':64,"
         "'num_experts_per_tok':2,'mlp_only_layers':[1]}",
         "/mlp_only_layers", "[1]"},
        {TINY("minimax_m2") ",'attn_type_list':[1,0,1,1]}", "/attn_type_list", "another kind"},
        {TINY("minimax_m2") ",'rotary_dim':256}", "/rotary_dim", "128"},
        {TINY("minimax_m2") ",'qk_norm_type':'per_head'}", "/qk_norm_type", "per_head"},
        {TINY("minimax_m2") ",'use_mtp':true,'num_mtp_modules':1,'mtp_transformer_layers':2}",
         "/mtp_transformer_layers", "2"},
        {TINY("dots1") ",'sliding_window':8,'max_window_layers':2}", "/max_window_layers",
         "layer_types"},
        {TINY("glm4_moe_lite") ",'mlp_layer_types':['dense','sparse','dense','sparse']}",
         "/mlp_layer_types", "dense first"},
        {TINY("glm4_moe_lite") ",'mlp_layer_types':['dense']}", "/mlp_layer_types",
         "one entry for each layer"},
        {TINY("ernie4_5_moe") ",'moe_layer_end_index':2}", "/moe_layer_end_index", "last layer"},
        {TINY("ernie4_5_moe") ",'moe_layer_interval':2}", "/moe_layer_interval", "2"},
        {TINY("ernie4_5_moe") ",'moe_use_aux_free':false}", "/moe_use_aux_free", "false"},
        {TINY("llama4_text") ",'moe_layers':[0,2,3]}", "/moe_layers", "every n-th layer"},
        {TINY("llama4_text") ",'moe_layers':[]}", "/moe_layers", "every n-th layer"},
        {TINY("llama4_text") ",'layer_types':['full_attention','chunked_attention',"
                             "'chunked_attention','full_attention']}",
         "/layer_types", "chunked_attention"},
        {TINY("llama4_text") ",'router_jitter_noise':0.1}", "/router_jitter_noise", "0.1"},
        {TINY("qwen3_next") ",'layer_types':['full_attention','linear_attention',"
                            "'linear_attention','full_attention']}",
         "/layer_types", "linear_attention"},
        {TINY("qwen3_next") ",'full_attention_interval':-1}", "/linear_attention_freq", "-1"},
        {TINY("qwen3_next") ",'full_attention_interval':0}", "/linear_attention_freq",
         "needs linear_attention_freq"},
        {TINY("llama4_text") ",'moe_layers':[2147483647]}", "/moe_layers", "every n-th layer"},
        {TINY("qwen3_next") ",'layer_types':['linear_attention']}", "/layer_types",
         "one entry for each layer"},
        {TINY("deepseek_v32") ",'layer_types':['full_attention','full_attention',"
                              "'full_attention','full_attention']}",
         "/layer_types", "deepseek_sparse_attention"},
        {TINY("glm_moe_dsa") ",'index_topk_freq':4}", "/index_topk_freq", "4"},
        {TINY("glm_moe_dsa") ",'indexer_types':['full','shared','full','shared']}",
         "/indexer_types", "full"},
        {TINY("qwen3_5_text") ",'attn_output_gate':false}", "/attn_output_gate", "false"},
        {"{'model_type':'llama4'}", "/text_config", "missing"},
        {"{'model_type':'llama4','vision_feature':2,'text_config':{}}", "/vision_feature",
         "not supported"},
        {"{'model_type':'llama4','tie_word_embeddings':true,'text_config':{}}",
         "/tie_word_embeddings", "differs from that of text_config"},
        {"{'model_type':'llama4','text_config':{'num_hidden_layers':2,'bloom':1}}",
         "/text_config/bloom", "not supported"},
        {"{'model_type':'gemma3','text_config':{'model_type':'gemma3_text'}}", "/model_type",
         "text_config"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].config);
        struct pl_model m;
        struct err e = {0};

        if (pl_model_parse(&m, v, &e) >= 0)
            fail_msg("accepted: %s", row[i].config);
        if (strcmp(e.pointer, row[i].pointer) || !strstr(e.text, row[i].text))
            fail_msg("%s: %s %s", row[i].config, e.pointer, e.text);
    }
}

static void every_repository_is_a_preset(void **state)
{
    (void)state;
    for (const char *const *name = pl_model_repositories(); *name; name++)
        if (!pl_model_preset(*name))
            fail_msg("%s", *name);
}

static void a_model_that_is_spelled_alike_is_offered(void **state)
{
    static const struct {
        const char *name, *want;
    } row[] = {{"meta-llama/Llama-3.1-70", "\"meta-llama/Llama-3.1-70B\"?"},
               {"lama-8b", "\"llama-8b\"?"},
               {"llama-3-8b", "\"llama-8b\"?"},
               {"Llama-3.1-70B", "\"meta-llama/Llama-3.1-70B\"?"},
               {"qwen3-8", "\"qwen3-8b\"?"},
               {"QWEN3-32B", "\"qwen3-32b\"?"},
               {"Mixtral-8x7B", "\"mixtral-8x7b\"?"},
               {"falcon-180b", "preset \"falcon-180b\" ("}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = json_string(row[i].name);
        struct pl_model m;
        struct err e = {0};

        assert_true(pl_model_parse(&m, v, &e) < 0);
        if (!strstr(e.text, row[i].want))
            fail_msg("%s", e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_reads_as_its_preset),
        cmocka_unit_test(each_further_family_has_its_published_size),
        cmocka_unit_test(deepseeks_balance_is_as_strong_as_its_authors_have_it),
        cmocka_unit_test(every_key_is_read_or_refused_by_name),
        cmocka_unit_test(windows_follow_the_types_of_layers),
        cmocka_unit_test(absent_keys_are_those_of_the_familys_class),
        cmocka_unit_test(values_without_a_word_are_refused),
        cmocka_unit_test(every_repository_is_a_preset),
        cmocka_unit_test(a_model_that_is_spelled_alike_is_offered),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
