/*
 * Language models: their shape, parameters and FLOPs. A part of plan.h.
 */
#ifndef PLAN_MODEL_H
#define PLAN_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* swiglu and geglu are gated: three matrices, not two. swiglu-clamped is GPT-OSS's: both inputs are
 * clamped to 7, the gate is x sigmoid(1.702 x), and one is added to the other. gelu is by the error
 * function (GPT-NeoX), gelu-tanh the approximation by tanh (GPT-2, "gelu_new"). */
enum pl_mlp { PL_SWIGLU, PL_GELU, PL_GEGLU, PL_RELU2, PL_SWIGLU_CLAMPED, PL_GELU_TANH };
enum pl_norm { PL_RMSNORM, PL_LAYERNORM };
enum pl_positions { PL_ROPE, PL_LEARNED, PL_NO_POSITIONS };

/* RMSNorm of queries and keys before rotation: with one weight vector for all heads (Qwen3), over
 * all heads together (OLMoE), or without weights and only where they are rotated (Llama 4). */
enum pl_qk_norm { PL_QK_NONE, PL_QK_HEAD, PL_QK_FULL, PL_QK_L2 };

/* How a router scores experts: by a softmax over all, or each by a sigmoid (DeepSeek-V3). */
enum pl_router { PL_ROUTER_SOFTMAX, PL_ROUTER_SIGMOID };

/* Rotary positions stretched beyond the lengths that a model was trained with. */
enum pl_rope_kind { PL_ROPE_PLAIN, PL_ROPE_LINEAR, PL_ROPE_LLAMA3, PL_ROPE_YARN, PL_ROPE_LONG };

/*
 * The load-balancing loss, of which aux_loss_coef times is added to the cross-entropy. Over a pool
 * of tokens let f_e be the choices that fell on expert e divided by the tokens (so f adds up to
 * top_k) and P_e the mean router probability of e, by a softmax over all experts; only P is
 * differentiated (Fedus et al. 2021). The objective of a step is the mean over its pools of
 *
 *   sequence     E sum_e f_e P_e, a pool for each sequence of each layer
 *   huggingface  E sum_e f_e P_e, a pool for each micro-batch, of all its tokens in all layers:
 *                load_balancing_loss_func() of transformers' modeling_mixtral.py
 *   megatron     E / top_k sum_e f_e P_e, a pool for each micro-batch of each layer, the layers
 *                added up: "aux_loss" of megatron/core/transformer/moe/router.py
 */
enum pl_aux_loss { PL_AUX_SEQUENCE, PL_AUX_HUGGINGFACE, PL_AUX_MEGATRON };

extern const char *const pl_aux_loss_names[]; /* by enum pl_aux_loss, ends in NULL */

struct pl_moe {
    int experts; /* 0: a dense model, and the other fields mean nothing */
    int top_k;
    int expert_ffn;
    enum pl_aux_loss aux_loss; /* which load-balancing loss; "sequence" unless said */
    double aux_loss_coef;      /* its coefficient; 0.01 unless said */
    double capacity_factor;    /* 0: dropless */
    int shared_ffn;            /* width of the experts that every token visits; 0: none */
    int every;                 /* layer l is MoE if (l + 1) % every == 0; 1 unless said */
    int dense_layers;          /* the first ones are dense whatever `every` says */
    enum pl_router router;
    bool topk_norm;    /* weights of a token's experts are divided by their sum; true unless said */
    bool balance_bias; /* bias of the choice that balances the load without a loss (DeepSeek-V3) */
    double scaling;    /* factor of the experts' sum; 1 unless said */
    int n_group;       /* experts in so many groups, of which a token meets ... */
    int topk_group;    /* ... the best so many; both 1 unless said */
    bool router_bias;  /* the router's product has a bias (GPT-OSS) */
    bool shared_gate;  /* the shared expert's output has a sigmoid gate (Qwen2-MoE) */
    double z_loss_coef; /* of the routers' z-loss (kernels.h), the layers added up; 0: none */
    bool force_balance; /* tokens are dealt evenly whatever the router says: benchmarks */
    bool apply_probs_on_input; /* weights multiply what experts read, not their outputs (Llama 4) */
};

/* Multi-head latent attention, by DeepSeek's names. kv_lora_rank 0: not used. */
struct pl_mla {
    int q_lora_rank; /* 0: queries are not compressed */
    int kv_lora_rank;
    int qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
};

/* Sparse attention with a lightning indexer, by DeepSeek's names (DeepSeek-V3.2): of the keys
 * before it a query sees the index_topk that small heads of their own score highest. They read the
 * latents of queries, and share one key. index_topk 0: not used. */
struct pl_dsa {
    int index_n_heads, index_head_dim, index_topk;
    double indexer_loss_coef; /* of the divergence from attention, over the keys that are seen */
};

/* Linear attention by a gated delta rule (Yang et al. 2024; Qwen3-Next), by transformers' names.
 * Every key head serves num_value_heads / num_key_heads of the value heads. num_value_heads 0: no
 * layer has it. */
struct pl_linear {
    int num_key_heads, num_value_heads, key_head_dim, value_head_dim;
    int conv_kernel_dim; /* width of the causal convolution of q, k and v; 4 unless said */
};

/* Mamba-2's mixer (Dao and Gu 2024). heads 0: no layer has one. */
struct pl_mamba {
    int heads, head_dim;
    int state;  /* of one head */
    int groups; /* heads of one group share B and C; 8 unless said */
    int conv;   /* width of the causal convolution; 4 unless said */
};

enum { PL_MAX_PAIRS = 128 }; /* of rotated elements of a head that have factors of their own */

struct pl_pair_factors {
    int count;
    double at[PL_MAX_PAIRS];
};

struct pl_rope_scaling {
    enum pl_rope_kind kind;
    double factor;
    int original_seq; /* positions before scaling; of all kinds but linear */
    /* longrope (Ding et al. 2024; Phi): what divides the frequency of each pair, in sequences of up
     * to original_seq tokens and in longer ones; cosine and sine are multiplied by sqrt(1 +
     * ln(factor) / ln(original_seq)) (transformers' modeling_rope_utils.py). */
    struct pl_pair_factors short_factor, long_factor;
    double low_freq_factor, high_freq_factor; /* llama3; 1 and 4 unless said */
    double beta_fast, beta_slow;              /* yarn; 32 and 1 unless said */
    bool truncate;                 /* yarn: what these bound are whole pairs; true unless said */
    double mscale, mscale_all_dim; /* yarn, of attention's scale; 0: the plain rule */
};

enum { PL_MAX_PATTERN = 255 };

struct pl_model {
    char name[64];
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
    enum pl_mlp mlp;
    enum pl_norm norm;
    enum pl_positions positions;
    double rope_theta, norm_eps, init_std;
    bool tied; /* output projection shares the embedding */
    /* Biases of the products of q, k and v; of attention's output; of the feed-forward, experts
     * included. Models with layernorm have them unless they say otherwise, others have none. */
    bool qkv_bias, out_bias, mlp_bias;
    enum pl_qk_norm qk_norm;
    bool norm_bias;          /* norms have one; those of layernorm unless said */
    bool parallel_block;     /* attention and feed-forward both read the layer's input (GPT-NeoX) */
    bool shared_norm;        /* of a parallel block, by one norm (Cohere) */
    bool pre_norms;          /* their inputs are normalized; true unless said */
    bool post_norms;         /* their outputs are (Gemma 2; OLMo 2, whose inputs are not) */
    bool zero_centered_norm; /* a norm's scale is 1 + its weight (Gemma, Nemotron) */
    bool attn_sinks;         /* a learned logit for each head in the softmax's sum (GPT-OSS) */
    double attn_softcap, logit_softcap; /* logits are c tanh(x / c); 0: as they are */
    double attn_scale;                  /* factor of the scores; 0: 1 / sqrt(width of a key) */
    bool attention_output_gate; /* a sigmoid of as many elements multiplies attention's output */
    /* Of layers that are not rotated, queries at position t, counted from 1, are multiplied by 1 +
     * scale ln(1 + floor(t / floor)) (Llama 4); floor and scale are 8192 and 0.1 unless said. */
    bool attn_temperature_tuning;
    int attn_temperature_floor;
    double attn_temperature_scale;
    bool embed_scale; /* embeddings are multiplied by sqrt(hidden) (Gemma) */
    /* Factors of embeddings, next to that; of what attention and feed-forward add to the rows; and
     * of logits, before they are capped (Granite, Cohere). 1 unless said. */
    double embedding_multiplier, residual_multiplier, logit_scale;
    /* Tokens that a query sees, itself included; or the length of the chunks of a sequence, of
     * which a query sees its own up to itself; 0: all before it. Layers global_every, 2
     * global_every, ... see all; 0: none does. */
    int sliding_window, attention_chunk_size, global_every;
    /* With linear_attention layers n, 2n, ... are of plain attention, the others of that; 0: no
     * layer has linear attention. */
    int linear_attention_freq;
    int no_rope_freq;             /* layers n, 2n, ... are not rotated; 0: all are */
    double partial_rotary_factor; /* share of a head that is rotated; 1 unless said */
    double rope_theta_local;      /* rope_theta of layers with a window; 0: the same */
    struct pl_rope_scaling rope_scaling;
    struct pl_mla mla;
    struct pl_dsa dsa;
    struct pl_linear linear;
    int mtp;              /* depth of multi-token prediction (DeepSeek-V3); 0: none */
    double mtp_loss_coef; /* of its loss; 0.1 unless said */
    /* Of a hybrid, a letter a layer: M Mamba-2, * attention, - feed-forward, E experts, each with
     * one norm. "": every layer is attention and feed-forward. */
    char pattern[PL_MAX_PATTERN + 1];
    struct pl_mamba mamba;
    struct pl_moe moe;
};

/* JSON is an object, the name of a preset or of its repository at Hugging Face, or a config.json of
 * Hugging Face (plan/hf.h). Unset fields get their defaults (kv_heads = heads,
 * head_dim = hidden / heads, the design's constants). Refused by pointer: unknown keys, absent or
 * absurd sizes. */
int pl_model_parse(struct pl_model *ret, const json_t *json, struct err *error);
json_t *pl_model_json(const struct pl_model *model); /* complete object, new reference */

bool pl_mlp_is_gated(enum pl_mlp mlp);
int pl_input_norms(const struct pl_model *model); /* of a layer: 0, 2, or 1 that both share */
/* Elements of a head that rotary positions turn: the first ones, with mla the last. */
int pl_rotary_dim(const struct pl_model *model);
/* Factor of cosine and sine under yarn: 0.1 ln(factor) + 1, or where both are given the ratio of
 * such terms of mscale and mscale_all_dim (transformers' modeling_rope_utils.py); and a term. */
double pl_yarn_amplitude(const struct pl_rope_scaling *scaling);
double pl_yarn_term(double factor, double mscale);
/* Is residual_multiplier other than 1? */
bool pl_residual_is_scaled(const struct pl_model *model);
/* Rotations that its layers differ in: 2 where those with a window have a base of their own. */
int pl_rope_tables(const struct pl_model *model);
bool pl_model_is_mla(const struct pl_model *model);
/* LAYER in [0, layers + mtp): modules of multi-token prediction follow the layers, and the layer of
 * each is like the last. */
bool pl_layer_has_window(const struct pl_model *model, int layer);
bool pl_layer_is_linear(const struct pl_model *model, int layer); /* of linear attention */
bool pl_layer_has_rope(const struct pl_model *model, int layer);
bool pl_model_is_moe(const struct pl_model *model);
bool pl_layer_is_moe(const struct pl_model *model, int layer); /* LAYER as above */
int pl_moe_layers(const struct pl_model *model);               /* how many of them are */
/* The coefficient with which definition AS pulls on the routers of MODEL (which has experts) as
 * strongly as the model's own coefficient does under its own definition: the gradients are equal
 * where the experts are used evenly. */
double pl_aux_loss_coef(const struct pl_model *model, enum pl_aux_loss as);
uint64_t pl_model_params(const struct pl_model *model);        /* all parameters */
uint64_t pl_model_active_params(const struct pl_model *model); /* those that one token meets */

/* Model FLOPs of one token in a sequence of SEQ tokens, forward and backward: 3 x forward, full T x
 * T attention, no recompute (Megatron's convention). A layer with a window counts twice what its
 * causal mask leaves, as full attention does. */
double pl_model_flops_per_token(const struct pl_model *model, int seq);

/* The same with the forward pass of every layer done again, the head's not: what "hardware FLOPs"
 * count under full recomputation (Narayanan et al. 2021, equation 3; Megatron-DeepSpeed's log). */
double pl_model_hardware_flops_per_token(const struct pl_model *model, int seq);

/* Names of presets and of the repositories of Hugging Face that they are, NULL-terminated, and the
 * JSON text of one by either (NULL if unknown). */
const char *const *pl_model_presets(void);
const char *const *pl_model_repositories(void);
const char *pl_model_preset(const char *name);

#endif
