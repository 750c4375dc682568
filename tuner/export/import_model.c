/* The model that Megatron's arguments describe: it is the campaign's, so that sizes and kinds of
 * attention are only compared with it. */
#include "tuner/export/internal.h"

const int *tn_megatron_size(const struct pl_model *model, const char *flag)
{
    const struct {
        const char *flag;
        const int *have;
    } rows[] = {
        {"--num-layers", &model->layers},
        {"--hidden-size", &model->hidden},
        {"--ffn-hidden-size", &model->ffn},
        {"--num-attention-heads", &model->heads},
        {"--num-query-groups", &model->kv_heads},
        /* attention of latents has widths of its own, and reads no --kv-channels */
        {"--kv-channels", model->mla.kv_lora_rank ? NULL : &model->head_dim},
        {"--q-lora-rank", &model->mla.q_lora_rank},
        {"--kv-lora-rank", &model->mla.kv_lora_rank},
        {"--qk-head-dim", &model->mla.qk_nope_head_dim},
        {"--qk-pos-emb-head-dim", &model->mla.qk_rope_head_dim},
        {"--v-head-dim", &model->mla.v_head_dim},
        {"--dsa-indexer-n-heads", &model->dsa.index_n_heads},
        {"--dsa-indexer-head-dim", &model->dsa.index_head_dim},
        {"--dsa-indexer-topk", &model->dsa.index_topk},
        {"--linear-num-key-heads", &model->linear.num_key_heads},
        {"--linear-num-value-heads", &model->linear.num_value_heads},
        {"--linear-key-head-dim", &model->linear.key_head_dim},
        {"--linear-value-head-dim", &model->linear.value_head_dim},
        {"--mtp-num-layers", &model->mtp},
        {"--num-experts", &model->moe.experts},
        {"--moe-router-topk", &model->moe.top_k},
        {"--moe-ffn-hidden-size", &model->moe.expert_ffn},
        {"--moe-shared-expert-intermediate-size", &model->moe.shared_ffn},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i].flag, flag))
            return rows[i].have;
    return NULL;
}

void tn_megatron_compare(struct tn_imported *out, const struct pl_model *model, const char *flag,
                         const char *value, int have)
{
    int64_t v;

    if (!value || tn_import_whole(&v, value, 0, 1 << 30) < 0 || v != have)
        tn_finding_add(&out->ignored, flag, "%.40s, but %s has %d: another model?",
                       value ? value : "", model->name, have);
}

/* Names of attention variants, an older one of gdn among them, and whether a model has it. */
static bool has_variant(const struct pl_model *model, const char *value)
{
    if (str_eq(value, "gdn") || str_eq(value, "gated_delta_net"))
        return model->linear.num_value_heads > 0;
    return str_eq(value, "dsa") && model->dsa.index_topk > 0;
}

bool tn_megatron_attention(struct tn_imported *out, const struct pl_model *model, const char *flag,
                           const char *value)
{
    int64_t every;

    if (str_eq(flag, "--linear-attention-freq") && value &&
        tn_import_whole(&every, value, 0, 1 << 30) ==
            0) { /* or a list, as of layers with experts */
        tn_megatron_compare(out, model, flag, value, model->linear_attention_freq);
        return true;
    }
    if (!str_eq(flag, "--experimental-attention-variant"))
        return false;
    if (!has_variant(model, value))
        tn_finding_add(&out->ignored, flag, "%.40s, but %s has %s: another model?",
                       value ? value : "", model->name,
                       model->linear.num_value_heads ? "linear_attention (gdn)"
                       : model->dsa.index_topk       ? "dsa"
                                                     : "neither linear_attention nor dsa");
    return true;
}
