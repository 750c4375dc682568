#include "trainer/lr.h"

#include "base/base.h"

#include <assert.h>
#include <math.h>

const char *const tr_lr_style_names[] = {
    "cosine", "linear", "wsd", "constant", "inverse-square-root", NULL};
const char *const tr_wsd_style_names[] = {"exponential", "linear", "cosine", "minus_sqrt", NULL};

int tr_lr_word(const char *const *names, const char *word)
{
    for (int i = 0; names[i]; i++)
        if (str_eq(names[i], word))
            return i;
    return -1;
}

/* What is left of the peak at share T of the decay. */
static double wsd(enum tr_wsd_style style, double t)
{
    switch (style) {
    case TR_WSD_EXPONENTIAL:
        return 2 * pow(0.5, t) - 1;
    case TR_WSD_LINEAR:
        return 1 - t;
    case TR_WSD_COSINE:
        return 0.5 * (1 + cos(M_PI * t));
    case TR_WSD_MINUS_SQRT:
        return 1 - sqrt(t);
    }
    return 1;
}

static double left(const struct tr_lr *lr, int step)
{
    int start = lr->decay_steps - lr->wsd_steps;
    double t = (double)(step - lr->warmup_steps) / (lr->decay_steps - lr->warmup_steps);

    switch (lr->style) {
    case TR_LR_LINEAR:
        return 1 - t;
    case TR_LR_WSD:
        return step <= start ? 1 : wsd(lr->wsd_style, (double)(step - start) / lr->wsd_steps);
    default:
        return 0.5 * (1 + cos(M_PI * t));
    }
}

double tr_lr_at(const struct tr_lr *lr, int step)
{
    assert(step >= 1 && lr->min_lr <= lr->lr);
    if (step <= lr->warmup_steps)
        return lr->lr * step / lr->warmup_steps;
    if (lr->style == TR_LR_CONSTANT)
        return lr->lr;
    if (step > lr->decay_steps)
        return lr->min_lr;
    if (lr->style == TR_LR_INVERSE_SQRT)
        return fmax(lr->min_lr, lr->lr * sqrt(fmax(lr->warmup_steps, 1) / (double)step));
    return lr->min_lr + (lr->lr - lr->min_lr) * left(lr, step);
}
