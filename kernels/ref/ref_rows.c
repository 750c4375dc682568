/* Operations on rows: normalization, rotary positions, SwiGLU, GELU, squared ReLU, soft capping,
 * softmax. */
#include "kernels/ref/ref.h"

float kn_ref_rmsnorm_row(float *y, const float *x, const float *w, size_t dim, float eps)
{
    double ss = 0, r;

    for (size_t i = 0; i < dim; i++)
        ss += (double)x[i] * x[i];
    r = 1 / sqrt(ss / (double)dim + (double)eps);
    for (size_t i = 0; i < dim; i++)
        y[i] = (float)(x[i] * r * w[i]);
    return (float)r;
}

void kn_ref_rmsnorm_bwd(float *dx, float *dw, const float *dy, const float *x, const float *w,
                        const float *rrms, size_t rows, size_t dim, bool add)
{
    for (size_t i = 0; dw && i < dim; i++) {
        double sum = dw[i];

        for (size_t r = 0; r < rows; r++)
            sum += (double)dy[r * dim + i] * x[r * dim + i] * rrms[r];
        dw[i] = (float)sum;
    }
    for (size_t r = 0; r < rows; r++, dx += dim, dy += dim, x += dim) {
        double q = rrms[r], mean = 0;

        for (size_t i = 0; i < dim; i++)
            mean += (double)dy[i] * w[i] * x[i];
        mean /= (double)dim;
        for (size_t i = 0; i < dim; i++)
            dx[i] = (float)((add ? (double)dx[i] : 0) +
                            q * ((double)dy[i] * w[i] - x[i] * q * q * mean));
    }
}

void kn_ref_norm_row(float *y, const float *x, const float *w, float r, size_t dim)
{
    for (size_t i = 0; i < dim; i++)
        y[i] = (float)((double)x[i] * r * w[i]);
}

void kn_ref_norm_bwd_row(float *dx, float *dw, const float *dy, const float *x, const float *w,
                         float r, float along, size_t dim)
{
    for (size_t i = 0; i < dim; i++) {
        double d = dy[i];

        dw[i] = (float)(dw[i] + d * x[i] * r);
        dx[i] = (float)(r * (d * w[i] - (double)x[i] * along));
    }
}

void kn_ref_layernorm_row(float *y, float stats[2], const float *x, const float *w, const float *b,
                          size_t dim, float eps)
{
    double mean = 0, ss = 0, r;

    for (size_t i = 0; i < dim; i++)
        mean += (double)x[i] / (double)dim;
    for (size_t i = 0; i < dim; i++)
        ss += (x[i] - mean) * (x[i] - mean);
    r = 1 / sqrt(ss / (double)dim + (double)eps);
    for (size_t i = 0; i < dim; i++)
        y[i] = (float)((x[i] - mean) * r * w[i] + b[i]);
    stats[0] = (float)mean;
    stats[1] = (float)r;
}

void kn_ref_layernorm_bwd(float *dx, float *dw, float *db, const float *dy, const float *x,
                          const float *w, const float *stats, size_t rows, size_t dim, bool add)
{
    for (size_t i = 0; i < dim; i++) {
        double scale = dw[i], shift = db ? (double)db[i] : 0;

        for (size_t r = 0; r < rows; r++) {
            double n = ((double)x[r * dim + i] - stats[2 * r]) * stats[2 * r + 1];

            scale += dy[r * dim + i] * n;
            shift += dy[r * dim + i];
        }
        dw[i] = (float)scale;
        if (db)
            db[i] = (float)shift;
    }
    for (size_t r = 0; r < rows; r++, dx += dim, dy += dim, x += dim, stats += 2) {
        double m = stats[0], s = stats[1], all = 0, along = 0;

        for (size_t i = 0; i < dim; i++) {
            all += (double)dy[i] * w[i] / (double)dim;
            along += (double)dy[i] * w[i] * (x[i] - m) * s / (double)dim;
        }
        for (size_t i = 0; i < dim; i++)
            dx[i] = (float)((add ? (double)dx[i] : 0) +
                            s * ((double)dy[i] * w[i] - all - ((double)x[i] - m) * s * along));
    }
}

void kn_ref_rope_row(float *x, size_t heads, size_t dim, size_t turned, const float *c,
                     const float *s, bool backward)
{
    size_t half = turned / 2;

    for (size_t h = 0; h < heads; h++, x += dim) {
        for (size_t i = 0; i < half; i++) {
            double a = x[i], b = x[half + i], ci = c[i], si = backward ? -s[i] : s[i];

            x[i] = (float)(a * ci - b * si);
            x[half + i] = (float)(b * ci + a * si);
        }
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

void kn_ref_swiglu_row(float *y, const float *gate, const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (float)(gate[i] * sigmoid(gate[i]) * up[i]);
}

/* d silu / d x = s (1 + x (1 - s)) with s = sigmoid(x). */
void kn_ref_swiglu_bwd_row(float *dgate, float *dup, const float *dy, const float *gate,
                           const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double g = gate[i], u = up[i], s = sigmoid(g);

        dgate[i] = (float)(dy[i] * u * s * (1 + g * (1 - s)));
        dup[i] = (float)(dy[i] * g * s);
    }
}

static const double TANH_SLOPE = 0.79788456080286535588, TANH_CUBE = 0.044715; /* sqrt(2 / pi) */

static double gelu(double x, enum kn_act form)
{
    if (form == KN_GELU_ERF)
        return x * erfc(-x * M_SQRT1_2) / 2;
    return x * sigmoid(2 * TANH_SLOPE * (x + TANH_CUBE * x * x * x));
}

/* P + x p with the density p; or s + x s (1 - s) 2u' with s = sigmoid(2u). */
static double gelu_slope(double x, enum kn_act form)
{
    double s;

    if (form == KN_GELU_ERF)
        return erfc(-x * M_SQRT1_2) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    s = sigmoid(2 * TANH_SLOPE * (x + TANH_CUBE * x * x * x));
    return s + x * s * (1 - s) * 2 * TANH_SLOPE * (1 + 3 * TANH_CUBE * x * x);
}

static double act(double x, enum kn_act form)
{
    return form == KN_RELU2 ? fmax(x, 0) * fmax(x, 0) : gelu(x, form);
}

static double act_slope(double x, enum kn_act form)
{
    return form == KN_RELU2 ? 2 * fmax(x, 0) : gelu_slope(x, form);
}

void kn_ref_act_row(float *y, const float *x, const float *bias, size_t count, enum kn_act form)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (float)act((double)x[i] + (bias ? (double)bias[i] : 0), form);
}

void kn_ref_act_bwd_row(float *dx, float *dbias, const float *dy, const float *x, const float *bias,
                        size_t count, enum kn_act form)
{
    for (size_t i = 0; i < count; i++) {
        double d = dy[i] * act_slope((double)x[i] + (bias ? (double)bias[i] : 0), form);

        dx[i] = (float)d;
        if (dbias)
            dbias[i] = (float)(dbias[i] + d);
    }
}

void kn_ref_geglu_row(float *y, const float *gate, const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (float)(gelu((double)gate[i], KN_GELU_TANH) * up[i]);
}

void kn_ref_geglu_bwd_row(float *dgate, float *dup, const float *dy, const float *gate,
                          const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double g = gate[i], u = up[i];

        dgate[i] = (float)(dy[i] * u * gelu_slope(g, KN_GELU_TANH));
        dup[i] = (float)(dy[i] * gelu(g, KN_GELU_TANH));
    }
}

static double clamped_gate(double gate)
{
    return gate > (double)KN_CLAMP_LIMIT ? (double)KN_CLAMP_LIMIT : gate;
}

/* up between the limits, plus 1. */
static double clamped_up(double up)
{
    return fmax(-(double)KN_CLAMP_LIMIT, fmin((double)KN_CLAMP_LIMIT, up)) + 1;
}

void kn_ref_clamped_row(float *y, const float *gate, const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double g = clamped_gate((double)gate[i]);

        y[i] = (float)(clamped_up((double)up[i]) * g * sigmoid((double)KN_CLAMP_ALPHA * g));
    }
}

void kn_ref_clamped_bwd_row(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double g = clamped_gate((double)gate[i]), by = clamped_up((double)up[i]),
               x = (double)KN_CLAMP_ALPHA * g, s = sigmoid(x);
        bool in = gate[i] <= KN_CLAMP_LIMIT, inside = fabsf(up[i]) <= KN_CLAMP_LIMIT;

        dgate[i] = in ? (float)(dy[i] * by * s * (1 + x * (1 - s))) : 0;
        dup[i] = inside ? (float)(dy[i] * g * s) : 0;
    }
}

void kn_ref_softcap_row(float *y, const float *x, size_t count, float cap)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (float)((double)cap * tanh((double)x[i] / (double)cap));
}

/* d tanh(x) / d x = 1 - tanh(x)^2. */
void kn_ref_softcap_bwd_row(float *dx, const float *y, size_t count, float cap)
{
    for (size_t i = 0; i < count; i++) {
        double t = (double)y[i] / (double)cap;

        dx[i] = (float)(dx[i] * (1 - t * t));
    }
}

float kn_ref_max_row(const float *x, size_t count)
{
    float max = -INFINITY;

    for (size_t i = 0; i < count; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

float kn_ref_sumexp_row(const float *x, size_t count, float max)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += exp((double)x[i] - (double)max);
    return (float)sum;
}

void kn_ref_softmax_row(float *y, const float *x, size_t count, float max, float factor)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (float)(exp((double)x[i] - (double)max) * (double)factor);
}

float kn_ref_dot(const float *x, const float *y, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * y[i];
    return (float)sum;
}

float kn_ref_dot3(const float *x, const float *y, const float *z, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * y[i] * z[i];
    return (float)sum;
}
