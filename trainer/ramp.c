#include "trainer/ramp.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>

static const char AT[] = "/train/rampup_batch_size";
/* Counts that a double holds exactly. */
static const int64_t most = (int64_t)1 << 53;

static int read_numbers(int64_t *ret, const char *text, struct err *error)
{
    AUTO_FREE char *copy = mem_strdup(text);
    char *rest = copy, *word;
    int n = 0;
    bool good = true;

    for (; good && (word = strsep(&rest, ",")) != NULL; n++)
        good = n < TR_RAMP_NUMBERS && str_to_i64(&ret[n], word, 1, most) == 0;
    if (!good || n != TR_RAMP_NUMBERS)
        return err_at(error, -EINVAL, AT,
                      "rampup_batch_size \"%.60s\" is not START,INCREMENT,SAMPLES: three integers "
                      "in 1..%lld",
                      text, (long long)most);
    return 0;
}

int tr_ramp_parse(struct tr_ramp *ret, const char *text, int global_batch, struct err *error)
{
    int64_t number[TR_RAMP_NUMBERS];
    int r = read_numbers(number, text, error);

    if (r < 0)
        return r;
    if (number[0] >= global_batch)
        return err_at(error, -EINVAL, AT,
                      "rampup_batch_size begins with %lld sequences, not less than global_batch %d",
                      (long long)number[0], global_batch);
    if ((global_batch - number[0]) % number[1])
        return err_at(error, -EINVAL, AT,
                      "rampup_batch_size grows by %lld, which does not divide global_batch %d - "
                      "start %lld = %lld",
                      (long long)number[1], global_batch, (long long)number[0],
                      (long long)(global_batch - number[0]));
    *ret = (struct tr_ramp){number[0], number[1], number[2], global_batch};
    return 0;
}

/* Sizes follow each other by one increment, and the last is the global batch, which is divisible:
 * where the first two are, all are. */
int tr_ramp_check(const struct tr_ramp *ramp, const struct pl_layout *layout, struct err *error)
{
    int64_t share = (int64_t)layout->micro_batch * layout->dp;

    for (int i = 0; i < 2; i++) {
        int64_t size = ramp->start + i * ramp->increment;

        if (size % share)
            return err_at(error, -EINVAL, AT,
                          "illegal layout: rampup-batch-divides: a batch of %lld in "
                          "rampup_batch_size %lld,%lld,%lld is not a multiple of micro_batch %d x "
                          "dp %d",
                          (long long)size, (long long)ramp->start, (long long)ramp->increment,
                          (long long)ramp->samples, layout->micro_batch, layout->dp);
        if (layout->vp > 1 && size / share % layout->pp)
            return err_at(error, -EINVAL, AT,
                          "illegal layout: rampup-interleave-microbatches: %lld micro-batches (a "
                          "batch of %lld in rampup_batch_size / (micro_batch %d x dp %d)) are not "
                          "a multiple of pp %d, which vp %d needs",
                          (long long)(size / share), (long long)size, layout->micro_batch,
                          layout->dp, layout->pp, layout->vp);
    }
    return 0;
}

/* In double, rounded where Megatron-LM rounds: its shares of the samples need not be whole. */
int tr_ramp_batch(const struct tr_ramp *ramp, uint64_t samples)
{
    int64_t increments = (ramp->global_batch - ramp->start) / ramp->increment;
    double share = (double)ramp->samples / (double)increments;
    int64_t batch;

    assert(increments >= 1 && share > 0);
    if (samples > (uint64_t)ramp->samples)
        return (int)ramp->global_batch;
    batch = ramp->start + ramp->increment * (int64_t)((double)samples / share);
    assert(batch >= ramp->start && batch <= ramp->global_batch);
    return (int)batch;
}
