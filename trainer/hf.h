/*
 * The model as Hugging Face knows it: tensor names, shapes and config.json, Llama for dense models and
 * Mixtral for models with experts. All weights are (out, in), row-major.
 *
 * A model with shared_ffn, every > 1 or dense_layers is neither; its own checkpoints use the names below for
 * the parts they share, `mlp.*` in its dense layers and `block_sparse_moe.shared_expert.w{1,2,3}.weight`, but
 * tr_hf_config refuses it.
 */
#ifndef TRAINER_HF_H
#define TRAINER_HF_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "plan/plan.h"

enum tr_hf_kind {
    TR_HF_EMBED,     /* model.embed_tokens.weight                        (vocab, hidden) */
    TR_HF_NORM1,     /* model.layers.L.input_layernorm.weight            (hidden) */
    TR_HF_Q,         /* model.layers.L.self_attn.q_proj.weight           (heads*head_dim, hidden) */
    TR_HF_K,         /* …k_proj.weight                                   (kv_heads*head_dim, hidden) */
    TR_HF_V,         /* …v_proj.weight                                   (kv_heads*head_dim, hidden) */
    TR_HF_O,         /* …o_proj.weight                                   (hidden, heads*head_dim) */
    TR_HF_NORM2,     /* model.layers.L.post_attention_layernorm.weight   (hidden) */
    TR_HF_GATE,      /* model.layers.L.mlp.gate_proj.weight              (ffn, hidden) */
    TR_HF_UP,        /* …up_proj.weight                                  (ffn, hidden) */
    TR_HF_DOWN,      /* …down_proj.weight                                (hidden, ffn) */
    TR_HF_ROUTER,    /* model.layers.L.block_sparse_moe.gate.weight      (experts, hidden) */
    TR_HF_W1,        /* model.layers.L.block_sparse_moe.experts.E.w1.weight (expert_ffn, hidden): gate */
    TR_HF_W2,        /* …w2.weight                                       (hidden, expert_ffn): down */
    TR_HF_W3,        /* …w3.weight                                       (expert_ffn, hidden): up */
    TR_HF_SHARED_W1, /* model.layers.L.block_sparse_moe.shared_expert.w1.weight (shared_ffn, hidden) */
    TR_HF_SHARED_W2,
    TR_HF_SHARED_W3,
    TR_HF_FINAL_NORM, /* model.norm.weight                               (hidden) */
    TR_HF_LM_HEAD,    /* lm_head.weight                                  (vocab, hidden); absent when tied */
    TR_HF_KINDS
};

enum { TR_HF_NAME = 120 };

struct tr_hf_tensor {
    char            name[TR_HF_NAME];
    enum tr_hf_kind kind;
    int             layer, expert; /* -1 where there is none */
    int             ndim;          /* 1 or 2 */
    int64_t         shape[2];      /* unpadded; shape[1] is 1 when ndim is 1 */
};

/* Name of one tensor into BUF, returns it. LAYER and EXPERT are ignored where the kind has none. */
char *tr_hf_name(char buf[TR_HF_NAME], enum tr_hf_kind kind, int layer, int expert);

/* Every tensor of the model in the order of a forward pass. Caller frees. */
struct tr_hf_tensor *tr_hf_tensors(size_t *ret_count, const struct pl_model *m);

/* config.json of the model. -ENOTSUP, naming the key, for a model that Hugging Face has no class for. */
int tr_hf_config(json_t **ret, const struct pl_model *m, struct err *e);
/* The model that a config.json describes. Refused by key: other architectures, biases, sliding windows that are
 * shorter than the positions, scaled RoPE, other activations. */
int tr_hf_model(struct pl_model *ret, const json_t *config, struct err *e);
int tr_hf_model_load(struct pl_model *ret, const char *folder, struct err *e);

#endif
