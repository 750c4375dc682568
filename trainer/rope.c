/* Frequencies of the rotation; rope.h has the formulas. */
#include "trainer/rope.h"

#include "base/base.h"

#include <assert.h>
#include <math.h>

enum tr_rope tr_rope_of(const struct pl_model *model, int layer)
{
    return model->rope_theta_local > 0 && pl_layer_has_window(model, layer) ? TR_ROPE_LOCAL
                                                                            : TR_ROPE_MAIN;
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* Where both factors are the same, no pair is between them. */
static double llama3(const struct pl_rope_scaling *scaling, double frequency)
{
    double turns = scaling->original_seq * frequency / (2 * M_PI), low = scaling->low_freq_factor,
           high = scaling->high_freq_factor;
    double share = high > low ? clamp((turns - low) / (high - low), 0, 1) : turns > high;

    return share * frequency + (1 - share) * frequency / scaling->factor;
}

/* The pair that turns TURNS times in original_seq positions, as a real number. */
static double pair_of(const struct pl_model *model, double turns)
{
    return pl_rotary_dim(model) * log(model->rope_scaling.original_seq / (turns * 2 * M_PI)) /
           (2 * log(model->rope_theta));
}

/* Zero is no number of turns: transformers takes the default then. */
static double or_else(double value, double otherwise)
{
    return value > 0 ? value : otherwise;
}

static double yarn(const struct pl_model *model, double frequency, int pair)
{
    const struct pl_rope_scaling *scaling = &model->rope_scaling;
    double low = pair_of(model, or_else(scaling->beta_fast, 32));
    double high = pair_of(model, or_else(scaling->beta_slow, 1));
    double share;

    if (scaling->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, pl_rotary_dim(model) - 1);
    if (low >= high && low <= high)
        high += 0.001;
    share = 1 - clamp((pair - low) / (high - low), 0, 1);
    return share * frequency + (1 - share) * frequency / scaling->factor;
}

double tr_rope_score_factor(const struct pl_model *model)
{
    const struct pl_rope_scaling *scaling = &model->rope_scaling;
    double mscale =
        pl_model_is_mla(model) && scaling->kind == PL_ROPE_YARN && scaling->mscale_all_dim > 0
            ? pl_yarn_term(scaling->factor, scaling->mscale_all_dim)
            : 1;

    return mscale * mscale;
}

double tr_rope_frequencies(double *ret_frequency, const struct pl_model *model, enum tr_rope kind)
{
    const struct pl_rope_scaling *scaling = &model->rope_scaling;
    enum pl_rope_kind by = kind == TR_ROPE_LOCAL ? PL_ROPE_PLAIN : scaling->kind;
    double theta = kind == TR_ROPE_LOCAL ? model->rope_theta_local : model->rope_theta;
    int dim = pl_rotary_dim(model);

    assert(theta > 0 && dim % 2 == 0 && (by == PL_ROPE_PLAIN || scaling->factor >= 1));
    for (int i = 0; i < dim / 2; i++) {
        double plain = pow(theta, -2.0 * i / dim);

        ret_frequency[i] = by == PL_ROPE_LINEAR   ? plain / scaling->factor
                           : by == PL_ROPE_LLAMA3 ? llama3(scaling, plain)
                           : by == PL_ROPE_YARN   ? yarn(model, plain, i)
                                                  : plain;
    }
    return by == PL_ROPE_YARN ? pl_yarn_amplitude(scaling) : 1;
}
