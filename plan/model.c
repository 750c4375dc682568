#include "plan/memory.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"

static const char *const mlp_names[] = {"swiglu", "gelu", NULL};
static const char *const norm_names[] = {"rmsnorm", "layernorm", NULL};
static const char *const position_names[] = {"rope", "learned", NULL};

const char *const pl_aux_loss_names[] = {"sequence", "huggingface", "megatron", NULL};

/* Sizes above these are typing errors: the largest published models are ten times smaller. */
enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 20, MAX_SEQ = 1 << 24, MAX_VOCAB = 1 << 24 };

static int parse_moe(struct pl_moe *x, const json_t *v, const struct pl_model *m, struct err *e)
{
    static const char *const keys[] = {
        "experts",         "top_k",      "expert_ffn", "aux_loss",     "aux_loss_coef",
        "capacity_factor", "shared_ffn", "every",      "dense_layers", NULL};
    int r, aux_loss = PL_AUX_SEQUENCE;

    x->aux_loss_coef = 0.01;
    x->every = 1;
    if ((r = jx_keys(v, keys, e)) < 0 || (r = jx_need(v, "experts", e)) < 0 ||
        (r = jx_need(v, "top_k", e)) < 0 || (r = jx_need(v, "expert_ffn", e)) < 0 ||
        (r = jx_get_int(&x->experts, v, "experts", 1, 1 << 16, e)) < 0 ||
        (r = jx_get_int(&x->top_k, v, "top_k", 1, x->experts, e)) < 0 ||
        (r = jx_get_int(&x->expert_ffn, v, "expert_ffn", 1, MAX_WIDTH, e)) < 0 ||
        (r = jx_get_enum(&aux_loss, v, "aux_loss", pl_aux_loss_names, e)) < 0 ||
        (r = jx_get_f64(&x->aux_loss_coef, v, "aux_loss_coef", 0, 1e3, e)) < 0 ||
        (r = jx_get_f64(&x->capacity_factor, v, "capacity_factor", 0.01, 1e4, e)) < 0 ||
        (r = jx_get_int(&x->shared_ffn, v, "shared_ffn", 0, MAX_WIDTH, e)) < 0 ||
        (r = jx_get_int(&x->every, v, "every", 1, m->layers, e)) < 0 ||
        (r = jx_get_int(&x->dense_layers, v, "dense_layers", 0, m->layers - 1, e)) < 0)
        return r;
    x->aux_loss = (enum pl_aux_loss)aux_loss;
    return 0;
}

static bool has_dense_layer(const struct pl_model *m)
{
    for (int l = 0; l < m->layers; l++)
        if (!pl_layer_is_moe(m, l))
            return true;
    return false;
}

/* What depends on more than one field. */
static int complete(struct pl_model *m, const json_t *v, struct err *e)
{
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (m->heads % m->kv_heads)
        return err_at(e, -EINVAL, "/kv_heads", "kv_heads %d does not divide heads %d", m->kv_heads,
                      m->heads);
    if (!m->head_dim && m->hidden % m->heads)
        return err_at(e, -EINVAL, "/head_dim",
                      "head_dim is missing and hidden %d is not a multiple of heads %d", m->hidden,
                      m->heads);
    if (!m->head_dim)
        m->head_dim = m->hidden / m->heads;
    if (m->positions == PL_ROPE && m->head_dim % 2)
        return err_at(e, -EINVAL, "/head_dim", "head_dim %d is odd: rotary positions turn pairs",
                      m->head_dim);
    if (!m->ffn && (!m->moe.experts || has_dense_layer(m)))
        return jx_need(v, "ffn", e);
    if (!m->ffn)
        m->ffn = m->moe.expert_ffn;
    return 0;
}

static int parse_object(struct pl_model *m, const json_t *v, struct err *e)
{
    static const char *const keys[] = {
        "name", "layers", "hidden",    "heads",      "kv_heads", "head_dim", "ffn",  "vocab", "seq",
        "mlp",  "norm",   "positions", "rope_theta", "norm_eps", "init_std", "tied", "moe",   NULL};
    static const char *const needed[] = {"layers", "hidden", "heads", "vocab", "seq", NULL};
    json_t *moe = NULL;
    int r, mlp = 0, norm = 0, positions = 0;

    if ((r = jx_keys(v, keys, e)) < 0)
        return r;
    for (int i = 0; needed[i]; i++)
        if ((r = jx_need(v, needed[i], e)) < 0)
            return r;
    snprintf(m->name, sizeof(m->name), "custom");
    if ((r = jx_copy_str(m->name, sizeof(m->name), v, "name", e)) < 0 ||
        (r = jx_get_int(&m->layers, v, "layers", 1, MAX_LAYERS, e)) < 0 ||
        (r = jx_get_int(&m->hidden, v, "hidden", 1, MAX_WIDTH, e)) < 0 ||
        (r = jx_get_int(&m->heads, v, "heads", 1, MAX_WIDTH, e)) < 0 ||
        (r = jx_get_int(&m->kv_heads, v, "kv_heads", 1, m->heads, e)) < 0 ||
        (r = jx_get_int(&m->head_dim, v, "head_dim", 1, MAX_WIDTH, e)) < 0 ||
        (r = jx_get_int(&m->ffn, v, "ffn", 1, MAX_WIDTH, e)) < 0 ||
        (r = jx_get_int(&m->vocab, v, "vocab", 2, MAX_VOCAB, e)) < 0 ||
        (r = jx_get_int(&m->seq, v, "seq", 1, MAX_SEQ, e)) < 0 ||
        (r = jx_get_enum(&mlp, v, "mlp", mlp_names, e)) < 0 ||
        (r = jx_get_enum(&norm, v, "norm", norm_names, e)) < 0 ||
        (r = jx_get_enum(&positions, v, "positions", position_names, e)) < 0 ||
        (r = jx_get_f64(&m->rope_theta, v, "rope_theta", 1, 1e12, e)) < 0 ||
        (r = jx_get_f64(&m->norm_eps, v, "norm_eps", 1e-12, 1, e)) < 0 ||
        (r = jx_get_f64(&m->init_std, v, "init_std", 0, 10, e)) < 0 ||
        (r = jx_get_bool(&m->tied, v, "tied", e)) < 0 || (r = jx_get_object(&moe, v, "moe", e)) < 0)
        return r;
    m->mlp = (enum pl_mlp)mlp;
    m->norm = (enum pl_norm)norm;
    m->positions = (enum pl_positions)positions;
    if (moe && (r = parse_moe(&m->moe, moe, m, e)) < 0)
        return err_under(e, "/moe");
    return complete(m, v, e);
}

int pl_model_parse(struct pl_model *ret, const json_t *v, struct err *e)
{
    struct pl_model m = {.rope_theta = 10000, .norm_eps = 1e-5, .init_std = 0.02};
    AUTO_JSON *preset = NULL;
    int r;

    if (json_is_string(v)) {
        const char *name = json_string_value(v), *text = pl_model_preset(name);

        if (!text) {
            const char *near = str_nearest(name, pl_model_presets());

            return err_set(e, -EINVAL, "no model preset \"%.64s\"%s%s%s (partune presets models)",
                           name, near ? "; did you mean \"" : "", near ? near : "",
                           near ? "\"?" : "");
        }
        if ((r = jx_parse(&preset, text, strlen(text), e)) < 0)
            return r;
        v = preset;
    }
    r = parse_object(&m, v, e);
    if (r == 0)
        *ret = m;
    return r;
}

static json_t *moe_json(const struct pl_moe *x)
{
    json_t *v = json_pack("{s:i s:i s:i s:f}", "experts", x->experts, "top_k", x->top_k,
                          "expert_ffn", x->expert_ffn, "aux_loss_coef", x->aux_loss_coef);

    /* Left out where it is the default, so that models stored before the word was known are equal
     * to what they were. */
    if (x->aux_loss != PL_AUX_SEQUENCE)
        json_object_set_new(v, "aux_loss", json_string(pl_aux_loss_names[x->aux_loss]));
    json_object_set_new(v, "capacity_factor",
                        x->capacity_factor > 0 ? json_real(x->capacity_factor) : json_null());
    json_object_set_new(v, "shared_ffn", json_integer(x->shared_ffn));
    json_object_set_new(v, "every", json_integer(x->every));
    json_object_set_new(v, "dense_layers", json_integer(x->dense_layers));
    return v;
}

json_t *pl_model_json(const struct pl_model *m)
{
    json_t *v =
        json_pack("{s:s s:i s:i s:i s:i s:i s:i s:i s:i s:s s:s s:s s:f s:f s:f s:b}", "name",
                  m->name, "layers", m->layers, "hidden", m->hidden, "heads", m->heads, "kv_heads",
                  m->kv_heads, "head_dim", m->head_dim, "ffn", m->ffn, "vocab", m->vocab, "seq",
                  m->seq, "mlp", mlp_names[m->mlp], "norm", norm_names[m->norm], "positions",
                  position_names[m->positions], "rope_theta", m->rope_theta, "norm_eps",
                  m->norm_eps, "init_std", m->init_std, "tied", (int)m->tied);

    if (m->moe.experts)
        json_object_set_new(v, "moe", moe_json(&m->moe));
    return v;
}

bool pl_model_is_moe(const struct pl_model *m)
{
    return m->moe.experts > 0;
}

bool pl_layer_is_moe(const struct pl_model *m, int layer)
{
    return m->moe.experts > 0 && layer >= m->moe.dense_layers && (layer + 1) % m->moe.every == 0;
}

bool pl_model_is_mixed(const struct pl_model *m)
{
    return m->moe.experts && (m->moe.every > 1 || m->moe.dense_layers > 0);
}

int pl_model_moe_layers(const struct pl_model *m)
{
    int n = 0;

    for (int l = 0; l < m->layers; l++)
        n += pl_layer_is_moe(m, l);
    return n;
}

/* Gradient by a router's probability of one token, with the experts evenly used (f_e = top_k / E),
 * times the tokens of a step: top_k / layers where all pools are averaged, 1 where Megatron divides
 * by top_k and adds up the layers. */
static double aux_loss_pressure(const struct pl_model *m, enum pl_aux_loss as)
{
    return as == PL_AUX_MEGATRON ? 1.0 : (double)m->moe.top_k / pl_model_moe_layers(m);
}

double pl_aux_loss_coef(const struct pl_model *m, enum pl_aux_loss as)
{
    if (as == m->moe.aux_loss || pl_model_moe_layers(m) == 0)
        return m->moe.aux_loss_coef;
    return m->moe.aux_loss_coef * aux_loss_pressure(m, m->moe.aux_loss) / aux_loss_pressure(m, as);
}

/* Layernorm models are of the GPT-2 line and carry biases in every projection; the others have
 * none. */
static uint64_t biases(const struct pl_model *m, uint64_t n)
{
    return m->norm == PL_LAYERNORM ? n : 0;
}

static uint64_t mlp_params(const struct pl_model *m, uint64_t width)
{
    uint64_t matrices = m->mlp == PL_SWIGLU ? 3 : 2;

    return matrices * (uint64_t)m->hidden * width +
           biases(m, (matrices - 1) * width + (uint64_t)m->hidden);
}

static uint64_t attention_params(const struct pl_model *m)
{
    uint64_t q = (uint64_t)m->heads * (uint64_t)m->head_dim;
    uint64_t kv = (uint64_t)m->kv_heads * (uint64_t)m->head_dim;
    uint64_t h = (uint64_t)m->hidden;

    return h * (2 * q + 2 * kv) + biases(m, q + 2 * kv + h);
}

/* Parameters with EXPERTS experts in each MoE layer. */
static uint64_t count_params(const struct pl_model *m, int experts)
{
    uint64_t h = (uint64_t)m->hidden, norm = m->norm == PL_LAYERNORM ? 2 * h : h;
    uint64_t n = (uint64_t)m->vocab * h * (m->tied ? 1 : 2) + norm;

    if (m->positions == PL_LEARNED)
        n += (uint64_t)m->seq * h;
    for (int l = 0; l < m->layers; l++) {
        n += attention_params(m) + 2 * norm;
        if (!pl_layer_is_moe(m, l)) {
            n += mlp_params(m, (uint64_t)m->ffn);
            continue;
        }
        n += (uint64_t)experts * mlp_params(m, (uint64_t)m->moe.expert_ffn);
        n += h * (uint64_t)m->moe.experts;
        if (m->moe.shared_ffn)
            n += mlp_params(m, (uint64_t)m->moe.shared_ffn);
    }
    return n;
}

uint64_t pl_model_params(const struct pl_model *m)
{
    return count_params(m, m->moe.experts);
}

uint64_t pl_model_active_params(const struct pl_model *m)
{
    return count_params(m, m->moe.top_k);
}

double pl_model_flops_per_token(const struct pl_model *m, int seq)
{
    double h = m->hidden, d = m->head_dim, mats = m->mlp == PL_SWIGLU ? 3 : 2;
    double attn = 2 * h * d * (2.0 * m->heads + 2.0 * m->kv_heads) + 4.0 * seq * m->heads * d;
    double moe_layers = pl_model_moe_layers(m), dense_layers = m->layers - moe_layers;
    double moe = 2 * mats * h * ((double)m->moe.top_k * m->moe.expert_ffn + m->moe.shared_ffn) +
                 2 * h * m->moe.experts;
    double forward = m->layers * attn + dense_layers * 2 * mats * h * m->ffn + moe_layers * moe +
                     2 * h * m->vocab;

    return 3 * forward;
}

double pl_model_hardware_flops_per_token(const struct pl_model *m, int seq)
{
    double model = pl_model_flops_per_token(m, seq), head = 2.0 * m->hidden * m->vocab;

    return model + (model / 3 - head);
}
