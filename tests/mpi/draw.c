#include "tests/mpi/draw.h"

#include "base/base.h"
#include "plan/plan.h"

static int between(struct rng *r, int lo, int hi)
{
    return lo + (int)rng_below(r, (uint64_t)(hi - lo + 1));
}

/* Divisible by much, or by nothing. */
static int width(struct rng *r, int hi)
{
    return between(r, 0, 2) ? 12 * between(r, 1, hi / 12) : between(r, 1, hi);
}

static void flag(json_t *model, struct rng *r, const char *key, int one_in)
{
    if (between(r, 1, one_in) == 1)
        json_object_set_new(model, key, json_true());
}

/* How experts are chosen and weighed. Groups divide them, and those met hold as many as a token
 * uses. */
static void draw_router(json_t *moe, struct rng *r)
{
    int experts = (int)json_integer_value(json_object_get(moe, "experts"));
    int top_k = (int)json_integer_value(json_object_get(moe, "top_k"));
    int groups = between(r, 1, experts), met = between(r, 1, groups);

    if (between(r, 0, 1))
        json_object_set_new(moe, "router", json_string("sigmoid"));
    json_object_set_new(moe, "topk_norm", json_boolean(between(r, 0, 2)));
    json_object_set_new(moe, "scaling", json_real(0.5 * between(r, 1, 5)));
    flag(moe, r, "balance_bias", 2);
    flag(moe, r, "force_balance", 5);
    if (json_integer_value(json_object_get(moe, "shared_ffn")) > 0)
        flag(moe, r, "shared_gate", 2);
    if (experts % groups || experts / groups * met < top_k)
        return;
    json_object_set_new(moe, "n_group", json_integer(groups));
    json_object_set_new(moe, "topk_group", json_integer(met));
}

/* With a z-loss of the routers, or none. */
static json_t *draw_moe(struct rng *r, int layers, const char *aux_loss, bool z_loss)
{
    int experts = between(r, 1, 8);
    int top_k = between(r, 1, experts < DRAW_TOP_K ? experts : DRAW_TOP_K);
    int every = between(r, 1, layers < 2 ? layers : 2);
    json_t *moe;

    moe = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:f}", "experts", experts, "top_k", top_k,
        "expert_ffn", width(r, 48), "shared_ffn", between(r, 0, 1) * width(r, 36), "every", every,
        "dense_layers", every == 1 ? between(r, 0, layers - 1) : 0, "aux_loss_coef",
        0.02 * between(r, 0, 2), "aux_loss", aux_loss, "z_loss_coef", z_loss ? 0.04 : 0.0);
    if (between(r, 0, 1))
        draw_router(moe, r);
    return moe;
}

/* What the GPT line and its heirs have; every fourth model is a plain Llama or Mixtral. */
static void draw_family(json_t *model, struct rng *r, bool experts)
{
    static const char *const mlps[] = {"swiglu", "gelu", "gelu-tanh", "relu2"},
                             *const norms[] = {"head", "full"},
                             *const places[] = {"learned", "none"};
    static const double turned[] = {1, 0.5, 0.25};
    int dim = (int)json_integer_value(json_object_get(model, "head_dim"));

    if (between(r, 0, 3) == 0)
        return;
    json_object_set_new(model, "mlp", json_string(experts ? "swiglu" : mlps[between(r, 0, 3)]));
    if (between(r, 0, 1))
        json_object_set_new(model, "norm", json_string("layernorm"));
    json_object_set_new(model, "mlp_bias", json_boolean(!experts && between(r, 0, 1)));
    flag(model, r, "qkv_bias", 2);
    flag(model, r, "out_bias", 2);
    flag(model, r, "parallel_block", 3);
    if (between(r, 0, 2) == 0)
        json_object_set_new(model, "qk_norm", json_string(norms[between(r, 0, 1)]));
    if (between(r, 0, 2) == 0)
        json_object_set_new(model, "positions", json_string(places[between(r, 0, 1)]));
    else if (dim % 8 == 0)
        json_object_set_new(model, "partial_rotary_factor", json_real(turned[between(r, 0, 2)]));
}

/* Rotation stretched in each published way, with lengths that bring its bounds into the head. */
static void draw_scaling(json_t *model, struct rng *r)
{
    static const char *const kinds[] = {"linear", "llama3", "yarn"};
    json_t *scaling;

    if (json_object_get(model, "positions") || between(r, 0, 1))
        return;
    scaling = json_pack("{s:s, s:i, s:i}", "kind", kinds[between(r, 0, 2)], "factor",
                        between(r, 1, 9), "original_seq", between(r, 1, 200));
    json_object_set_new(model, "rope_scaling", scaling);
}

/* Windows shorter and longer than a chunk of a divided sequence, in all layers or not in every. */
static void draw_window(json_t *model, struct rng *r)
{
    int seq = (int)json_integer_value(json_object_get(model, "seq"));

    if (between(r, 0, 1))
        return;
    json_object_set_new(model, "sliding_window", json_integer(between(r, 1, seq)));
    if (between(r, 0, 1))
        json_object_set_new(model, "global_every", json_integer(between(r, 1, 3)));
    if (between(r, 0, 1))
        json_object_set_new(model, "rope_theta_local", json_integer(between(r, 10, 1000)));
    if (between(r, 0, 1))
        json_object_set_new(model, "attn_scale", json_real(0.1 * between(r, 1, 9)));
}

/* Some layers of those that rotate do not. */
static void draw_no_rope(json_t *model, struct rng *r)
{
    if (!json_object_get(model, "positions") && !json_object_get(model, "mla") &&
        between(r, 0, 3) == 0)
        json_object_set_new(model, "no_rope_freq", json_integer(between(r, 2, 4)));
}

/* What Gemma has, which experts, LayerNorm and parallel blocks do not go with; Nemotron's LayerNorm
 * is zero-centered, too. */
static void draw_gemma(json_t *model, struct rng *r, bool experts)
{
    static const char *const others[] = {"norm", "parallel_block"};

    if (json_object_get(model, "norm"))
        flag(model, r, "zero_centered_norm", 3);
    if (between(r, 0, 2))
        return;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        json_object_del(model, others[i]);
    if (!experts)
        json_object_set_new(model, "mlp", json_string("geglu"));
    if (!experts)
        flag(model, r, "post_norms", 2);
    if (json_is_true(json_object_get(model, "post_norms")))
        json_object_set_new(model, "pre_norms", json_boolean(between(r, 0, 1)));
    flag(model, r, "zero_centered_norm", 2);
    flag(model, r, "embed_scale", 2);
    json_object_set_new(model, "attn_softcap", json_integer(between(r, 0, 2)));
    json_object_set_new(model, "logit_softcap", json_integer(between(r, 0, 1) * between(r, 2, 9)));
}

/* Latent attention takes the place of what it does not know. */
static void draw_mla(json_t *model, struct rng *r)
{
    static const char *const others[] = {"head_dim", "qk_norm", "partial_rotary_factor", "norm"};
    json_t *mla;

    if (between(r, 0, 2))
        return;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        json_object_del(model, others[i]);
    json_object_set(model, "kv_heads", json_object_get(model, "heads"));
    mla =
        json_pack("{s:i, s:i, s:i, s:i, s:i}", "q_lora_rank", between(r, 0, 1) * between(r, 1, 24),
                  "kv_lora_rank", between(r, 1, 24), "qk_nope_head_dim", between(r, 1, 9),
                  "qk_rope_head_dim", 2 * between(r, 1, 4), "v_head_dim", between(r, 1, 12));
    json_object_set_new(model, "mla", mla);
}

/* Modules of multi-token prediction, where the model can have them. */
static void draw_mtp(json_t *model, struct rng *r)
{
    const char *positions = json_string_value(json_object_get(model, "positions"));
    int seq = (int)json_integer_value(json_object_get(model, "seq"));
    int depth = between(r, 0, seq > DRAW_MTP ? DRAW_MTP : seq - 1);

    if (json_object_get(model, "norm") || (positions && str_eq(positions, "learned")))
        return;
    json_object_set_new(model, "mtp", json_integer(depth));
    json_object_set_new(model, "mtp_loss_coef", json_real(0.3));
}

/* What GPT-OSS has, in place of another feed-forward; experts that all tokens share have no
 * biases. */
static void draw_oss(json_t *model, struct rng *r)
{
    json_t *moe = json_object_get(model, "moe");

    if (between(r, 0, 3))
        return;
    json_object_set_new(model, "attn_sinks", json_true());
    if (between(r, 0, 2))
        json_object_set_new(model, "mlp", json_string("swiglu-clamped"));
    if (moe)
        flag(moe, r, "router_bias", 2);
    if (moe && json_integer_value(json_object_get(moe, "shared_ffn")) == 0)
        json_object_set_new(model, "mlp_bias", json_boolean(between(r, 0, 2)));
}

/* LayerNorm without a bias, and one norm for both halves of a parallel block. */
static void draw_cohere(json_t *model, struct rng *r)
{
    if (json_object_get(model, "norm") && between(r, 0, 1))
        json_object_set_new(model, "norm_bias", json_false());
    if (json_object_get(model, "parallel_block"))
        flag(model, r, "shared_norm", 2);
}

/* Granite's factors; that of outputs not in a parallel block. */
static void draw_multipliers(json_t *model, struct rng *r)
{
    if (between(r, 0, 2))
        return;
    json_object_set_new(model, "embedding_multiplier", json_real(0.5 * between(r, 1, 8)));
    json_object_set_new(model, "logit_scale", json_real(0.25 * between(r, 1, 8)));
    if (!json_object_get(model, "parallel_block"))
        json_object_set_new(model, "residual_multiplier", json_real(0.1 * between(r, 1, 12)));
}

json_t *draw_model(int *ret_batch, uint64_t seed)
{
    static const int counts[] = {1, 2, 3, 4, 4, 6}, batches[] = {1, 2, 3, 4, 6, DRAW_BATCH};
    struct rng r;
    int layers, kv_heads, seq;
    json_t *v;

    rng_seed(&r, seed);
    layers = between(&r, 1, DRAW_LAYERS);
    kv_heads = counts[rng_below(&r, ARRAY_LEN(counts))];
    seq = width(&r, DRAW_SEQ);
    *ret_batch = batches[rng_below(&r, ARRAY_LEN(batches))];
    v = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "layers", layers, "hidden",
                  between(&r, 6, 50), "kv_heads", kv_heads, "heads", kv_heads * between(&r, 1, 3),
                  "head_dim", 2 * between(&r, 1, 8), "ffn", width(&r, 72), "vocab",
                  between(&r, 12, 100), "seq", seq);
    json_object_set_new(v, "name", json_sprintf("drawn-%llu", (unsigned long long)seed));
    if (seed % 2)
        json_object_set_new(v, "moe",
                            draw_moe(&r, layers, pl_aux_loss_names[seed / 2 % 3], seed / 4 % 2));
    json_object_set_new(v, "tied", json_boolean(between(&r, 0, 2) == 0));
    draw_family(v, &r, seed % 2);
    draw_scaling(v, &r);
    draw_window(v, &r);
    draw_gemma(v, &r, seed % 2);
    draw_mla(v, &r);
    draw_mtp(v, &r);
    draw_oss(v, &r);
    draw_no_rope(v, &r);
    draw_multipliers(v, &r);
    draw_cohere(v, &r);
    return v;
}

double draw_z_loss(uint64_t seed)
{
    return rng_mix(~seed) % 3 == 0 ? 0.05 : 0;
}

void draw_documents(struct pl_workload *workload, const struct pl_model *model, uint64_t seed)
{
    struct rng r;

    rng_seed(&r, rng_mix(seed));
    if (seed % 3 == 0)
        return;
    workload->eod = between(&r, 0, model->vocab - 1);
    workload->reset_attention_mask = between(&r, 0, 3) > 0;
    workload->reset_position_ids = between(&r, 0, 1) > 0;
    workload->eod_mask_loss = between(&r, 0, 1) > 0;
}
