/* Which models a trainer can train: the part of the rule trainer-supports that is alike in all
 * layouts. */
#include "plan/legal.h"

#include <math.h>

#include "base/base.h"

/* What a model has, and whether the trainer can train it. */
struct need {
    bool wanted, able;
    const char *key, *what;
};

enum { MAX_NEEDS = 96 };

/* torchtitan's modules are whole models: words that no one of them has together. Those of
 * deepseek_v3 come with mla; those of gpt_oss are all there with attn_sinks, or none is. */
static size_t torchtitan_needs(struct need *ret, const struct pl_model *model)
{
    const struct pl_moe *moe = &model->moe;
    const bool oss = model->attn_sinks, mla = pl_model_is_mla(model),
               qk_norm = model->qk_norm == PL_QK_HEAD, experts = moe->experts > 0,
               yarn = model->rope_scaling.kind == PL_ROPE_YARN,
               llama3 = model->rope_scaling.kind == PL_ROPE_LLAMA3,
               plain = model->norm != PL_LAYERNORM;
    const struct need need[] = {
        {qk_norm && mla, false, "qk_norm", "head with mla"},
        {qk_norm && oss, false, "qk_norm", "head with attn_sinks"},
        {mla && oss, false, "mla", "with attn_sinks"},
        {yarn && !mla && !oss, false, "rope_scaling", "yarn without mla or attn_sinks"},
        {llama3 && (mla || oss || qk_norm), false, "rope_scaling",
         "llama3 with mla, attn_sinks or qk_norm"},
        {model->mtp && !mla, false, "mtp", "> 0 without mla"},
        {experts && moe->router == PL_ROUTER_SIGMOID && !mla, false, "router",
         "sigmoid without mla"},
        {experts && !moe->topk_norm && !mla, false, "topk_norm", "false without mla"},
        {experts && fabs(moe->scaling - 1) > 0 && !mla, false, "scaling", "without mla"},
        {experts && moe->n_group > 1 && !mla, false, "n_group", "> 1 without mla"},
        {oss != (model->mlp == PL_SWIGLU_CLAMPED), false, "mlp",
         oss ? "other than swiglu-clamped with attn_sinks" : "swiglu-clamped without attn_sinks"},
        {oss != (model->sliding_window > 0 && model->global_every == 2), false, "sliding_window",
         oss ? "other than in every second layer with attn_sinks" : "without attn_sinks"},
        {plain && oss != model->qkv_bias, false, "qkv_bias",
         oss ? "false" : "true without attn_sinks"},
        {plain && oss != model->out_bias, false, "out_bias",
         oss ? "false" : "true without attn_sinks"},
        {plain && oss != model->mlp_bias, false, "mlp_bias",
         oss ? "false" : "true without attn_sinks"},
        {oss != (experts && moe->router_bias), false, "router_bias",
         oss ? "false" : "true without attn_sinks"},
    };

    memcpy(ret, need, sizeof(need));
    return ARRAY_LEN(need);
}

static size_t needs(struct need ret[MAX_NEEDS], const struct pl_problem *problem)
{
    const struct pl_model *model = problem->model;
    const struct pl_trainer *trainer = problem->trainer;
    const bool all = trainer->by == PL_BY_ALL;
    const struct need need[] = {
        {model->mlp == PL_GELU, trainer->gelu, "mlp", "gelu"},
        {model->norm == PL_LAYERNORM, trainer->layernorm, "norm", "layernorm"},
        {model->positions == PL_LEARNED, trainer->learned, "positions", "learned"},
        {model->tied, trainer->tied, "tied", "true"},
        {model->moe.experts && model->moe.capacity_factor > 0, trainer->capacity, "capacity_factor",
         "a number"},
        {model->moe.experts && model->moe.shared_ffn > 0, trainer->shared_expert, "shared_ffn",
         "> 0"},
        {model->moe.experts && model->moe.every > 1, trainer->moe_every, "every", "> 1"},
        {model->moe.experts && model->moe.dense_layers > 0, trainer->dense_layers, "dense_layers",
         "> 0"},
#define FEATURE(key, what, trainers, wanted) {wanted, all || ((trainers)&trainer->by), key, what},
#include "plan/features.def"
    };

    _Static_assert(ARRAY_LEN(need) + 24 <= MAX_NEEDS, "needs[] is too short");
    memcpy(ret, need, sizeof(need));
    return ARRAY_LEN(need) +
           (trainer->by == PL_BY_TORCHTITAN ? torchtitan_needs(ret + ARRAY_LEN(need), model) : 0);
}

void pl_trainer_trains(struct pl_check *check)
{
    const struct pl_trainer *trainer = check->problem->trainer;
    struct need need[MAX_NEEDS];
    size_t count = needs(need, check->problem);

    for (size_t i = 0; i < count; i++)
        if (need[i].wanted && !need[i].able)
            pl_breaks(check, need[i].key, "trainer %s does not support %s %s", trainer->name,
                      need[i].key, need[i].what);
}

bool pl_model_unsupported(char *buf, size_t size, const struct pl_problem *problem)
{
    AUTO_STR lacks = {0};
    struct need need[MAX_NEEDS];
    size_t count = needs(need, problem);

    for (size_t i = 0; i < count; i++)
        if (need[i].wanted && !need[i].able)
            str_addf(&lacks, "%s%s %s", lacks.len ? ", " : "", need[i].key, need[i].what);
    if (!lacks.len)
        return false;
    snprintf(buf, size,
             "trainer %s cannot train this model in any layout: it does not support %s "
             "(rule trainer-supports); trainer \"any\" plans every model",
             problem->trainer->name, str_text(&lacks));
    return true;
}
