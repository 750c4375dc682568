#include "trainer/skip.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>

/* The last of COUNT values is above mean + SIGMA x standard deviation of those before it, which are
 * added from the oldest on: a resumed window has the same bits. */
static bool spike(const double *value, int count, double sigma)
{
    int n = count - 1;
    double mean = 0, squares = 0;

    assert(n >= 2);
    for (int i = 0; i < n; i++)
        mean += value[i];
    mean /= n;
    for (int i = 0; i < n; i++)
        squares += (value[i] - mean) * (value[i] - mean);
    return value[n] - mean > sigma * sqrt(squares / (n - 1));
}

/* Only the newest COUNT stay. */
static void keep(struct tr_skip *skip, int count)
{
    int old = skip->count - count;

    if (old <= 0)
        return;
    memmove(skip->loss, skip->loss + old, sizeof(*skip->loss) * (size_t)count);
    memmove(skip->norm, skip->norm + old, sizeof(*skip->norm) * (size_t)count);
    skip->count = count;
}

bool tr_skip_step(struct tr_skip *skip, double loss, double norm)
{
    bool skips;

    assert(skip->sigma > 0 && skip->interval >= TR_SKIP_MIN && skip->interval <= TR_SKIP_MAX);
    assert(skip->count <= skip->interval + 1 && isfinite(loss) && isfinite(norm));
    keep(skip, skip->interval);
    skip->loss[skip->count] = loss;
    skip->norm[skip->count++] = norm;
    skips = skip->count >= skip->interval / 2 && (spike(skip->loss, skip->count, skip->sigma) ||
                                                  spike(skip->norm, skip->count, skip->sigma));
    skip->skipped += skips;
    return skips;
}

void tr_skip_resume(struct tr_skip *skip, const struct tr_skip *saved)
{
    skip->skipped = saved->skipped;
    skip->count = skip->sigma > 0 ? saved->count : 0;
    assert(saved->count >= 0 && saved->count <= TR_SKIP_MAX + 1);
    memcpy(skip->loss, saved->loss, sizeof(*skip->loss) * (size_t)skip->count);
    memcpy(skip->norm, saved->norm, sizeof(*skip->norm) * (size_t)skip->count);
    keep(skip, skip->interval + 1);
}

/* ---- in checkpoints ------------------------------------------------------ */

static json_t *numbers(const double *value, int count)
{
    json_t *list = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_real(value[i]));
    return list;
}

json_t *tr_skip_json(const struct tr_skip *skip)
{
    if (!skip->count && !skip->skipped)
        return NULL;
    return json_pack("{s:i, s:o, s:o}", "skipped", skip->skipped, "loss",
                     numbers(skip->loss, skip->count), "grad_norm",
                     numbers(skip->norm, skip->count));
}

/* At most TR_SKIP_MAX + 1 finite numbers. */
static int read_numbers(double *ret, int *ret_count, const json_t *object, const char *key,
                        struct err *error)
{
    json_t *list = NULL, *v;
    size_t i;
    int r = jx_need(object, key, error);

    if (r == 0)
        r = jx_get_array(&list, object, key, TR_SKIP_MAX + 1, error);
    if (r < 0)
        return r;
    json_array_foreach(list, i, v) {
        if (!json_is_number(v) || !isfinite(json_number_value(v)))
            return err_set(error, -EINVAL, "item %zu of %s is not a number", i, key);
        ret[i] = json_number_value(v);
    }
    *ret_count = (int)json_array_size(list);
    return 0;
}

int tr_skip_parse(struct tr_skip *ret, const json_t *object, struct err *error)
{
    struct tr_skip skip = {0};
    json_t *o = NULL;
    int norms = 0, r = jx_get_object(&o, object, "skip_step", error);

    if (r == 0 && o)
        r = jx_get_int(&skip.skipped, o, "skipped", 0, INT_MAX, error);
    if (r == 0 && o)
        r = read_numbers(skip.loss, &skip.count, o, "loss", error);
    if (r == 0 && o)
        r = read_numbers(skip.norm, &norms, o, "grad_norm", error);
    if (r == 0 && norms != skip.count)
        r = err_set(error, -EINVAL, "skip_step has %d losses and %d gradient norms", skip.count,
                    norms);
    if (r == 0)
        *ret = skip;
    return r;
}
