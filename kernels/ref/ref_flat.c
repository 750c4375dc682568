/* Operations on flat arrays, and those of optimizers. */
#include "kernels/ref/ref.h"

void kn_ref_to_f32(float *y, const kn_bf16 *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = kn_from_bf16(x[i]);
}

void kn_ref_to_bf16(kn_bf16 *y, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = kn_round_bf16(x[i]);
}

void kn_ref_add(float *y, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = a[i] + b[i];
}

void kn_ref_scale(float *y, const float *x, float alpha, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = alpha * x[i];
}

void kn_ref_axpy(float *y, float alpha, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (float)(y[i] + (double)alpha * x[i]);
}

void kn_ref_combine(float *y, float a, const float *x, float b, const float *z, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = (float)((double)a * x[i] + (double)b * z[i]);
}

double kn_ref_sumsq(const float *x, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

void kn_ref_adamw(const struct kn_adamw *hyper, float *w, float *m, float *v, const float *g,
                  size_t count)
{
    double b1 = hyper->beta1, b2 = hyper->beta2;
    double c1 = 1 - pow(b1, (double)hyper->step), c2 = 1 - pow(b2, (double)hyper->step);

    for (size_t i = 0; i < count; i++) {
        double gi = (double)g[i] * hyper->grad_scale;
        double mi = b1 * m[i] + (1 - b1) * gi;
        double vi = b2 * v[i] + (1 - b2) * gi * gi;

        m[i] = (float)mi;
        v[i] = (float)vi;
        w[i] = (float)(w[i] * (1 - (double)hyper->lr * hyper->weight_decay) -
                       hyper->lr / c1 * mi / (sqrt(vi / c2) + hyper->eps));
    }
}

void kn_ref_lamb(const struct kn_adamw *hyper, const float *w, float *m, float *v, float *g,
                 size_t count)
{
    double b1 = hyper->beta1, b2 = hyper->beta2;
    double c1 = 1 - pow(b1, (double)hyper->step), c2 = 1 - pow(b2, (double)hyper->step);

    for (size_t i = 0; i < count; i++) {
        double gi = (double)g[i] * hyper->grad_scale;
        double mi = b1 * m[i] + (1 - b1) * gi;
        double vi = b2 * v[i] + (1 - b2) * gi * gi;

        m[i] = (float)mi;
        v[i] = (float)vi;
        g[i] = (float)(mi / c1 / (sqrt(vi / c2) + hyper->eps) + (double)hyper->weight_decay * w[i]);
    }
}

void kn_ref_momentum(const struct kn_momentum *hyper, const float *w, float *m, float *g,
                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double gi = (double)hyper->grad_scale * g[i] + (double)hyper->weight_decay * w[i];
        double mi = (double)hyper->mu * m[i] + gi;

        m[i] = (float)mi;
        g[i] = (float)(hyper->nesterov ? gi + hyper->mu * mi : mi);
    }
}

double kn_ref_fma_loop(size_t rounds)
{
    enum { CHAINS = 8 };
    volatile float sink;
    float a[CHAINS] = {0, 1, 2, 3, 4, 5, 6, 7};

    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < CHAINS; j++)
            a[j] = a[j] * 0.999f + 0.001f;
    for (int j = 0; j < CHAINS; j++)
        sink = a[j];
    (void)sink;
    return 2.0 * CHAINS * (double)rounds;
}
