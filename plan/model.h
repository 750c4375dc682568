/*
 * Language models: their shape, parameters and FLOPs. A part of plan.h.
 */
#ifndef PLAN_MODEL_H
#define PLAN_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum pl_mlp { PL_SWIGLU, PL_GELU };
enum pl_norm { PL_RMSNORM, PL_LAYERNORM };
enum pl_positions { PL_ROPE, PL_LEARNED };

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
};

struct pl_model {
    char name[64];
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
    enum pl_mlp mlp;
    enum pl_norm norm;
    enum pl_positions positions;
    double rope_theta, norm_eps, init_std;
    bool tied; /* output projection shares the embedding */
    struct pl_moe moe;
};

/* JSON is an object or the name of a preset. Unset fields get their defaults (kv_heads = heads,
 * head_dim = hidden / heads, the design's constants). Refused by pointer: unknown keys, absent or
 * absurd sizes. */
int pl_model_parse(struct pl_model *ret, const json_t *json, struct err *error);
json_t *pl_model_json(const struct pl_model *model); /* complete object, new reference */

bool pl_model_is_moe(const struct pl_model *model);
bool pl_layer_is_moe(const struct pl_model *model, int layer); /* LAYER in [0, layers) */
/* The coefficient with which definition AS pulls on the routers of MODEL (which has experts) as
 * strongly as the model's own coefficient does under its own definition: the gradients are equal
 * where the experts are used evenly. */
double pl_aux_loss_coef(const struct pl_model *model, enum pl_aux_loss as);
uint64_t pl_model_params(const struct pl_model *model);        /* all parameters */
uint64_t pl_model_active_params(const struct pl_model *model); /* those that one token meets */

/* Model FLOPs of one token in a sequence of SEQ tokens, forward and backward: 3 x forward, full T x
 * T attention, no recompute (Megatron's convention). */
double pl_model_flops_per_token(const struct pl_model *model, int seq);

/* The same with the forward pass of every layer done again, the head's not: what "hardware FLOPs"
 * count under full recomputation (Narayanan et al. 2021, equation 3; Megatron-DeepSpeed's log). */
double pl_model_hardware_flops_per_token(const struct pl_model *model, int seq);

/* Names of presets, NULL-terminated, and the JSON text of one (NULL if unknown). */
const char *const *pl_model_presets(void);
const char *pl_model_preset(const char *name);

#endif
