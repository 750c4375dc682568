/* Operations on rows: normalisation, rotary positions, SwiGLU, softmax. */
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

void kn_ref_rope_row(float *x, size_t heads, size_t dim, const float *c, const float *s,
                     bool backward)
{
    size_t half = dim / 2;

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
