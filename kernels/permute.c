/* Moving tokens to their experts and back. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 16 };

void kn_sort_by_key(int32_t *offsets, int32_t *src, int32_t *place, const int32_t *key,
                    size_t count, size_t groups)
{
    assert(count <= INT32_MAX);
    memset(offsets, 0, (groups + 1) * sizeof(*offsets));
    for (size_t i = 0; i < count; i++) {
        assert(key[i] < (int32_t)groups);
        if (key[i] >= 0)
            offsets[key[i] + 1]++;
    }
    for (size_t g = 0; g < groups; g++)
        offsets[g + 1] += offsets[g];
    /* offsets[g] serves as the cursor of group g; afterwards it is the end of g, the start of g
     * + 1. */
    for (size_t i = 0; i < count; i++) {
        place[i] = key[i] >= 0 ? offsets[key[i]]++ : -1;
        if (src && key[i] >= 0)
            src[place[i]] = (int32_t)i;
    }
    memmove(offsets + 1, offsets, groups * sizeof(*offsets));
    offsets[0] = 0;
    assert((size_t)offsets[groups] <= count); /* all but the dropped ones */
}

struct move {
    enum kn_type t;
    void *y;
    const void *x, *dy;
    float *dw;
    const int32_t *src, *place;
    const float *w;
    size_t k, d;
    bool add;
};

static void *row_at(const struct move *move, const void *rows, size_t i)
{
    return kn_ptr(move->t, rows, i * move->d);
}

static const void *token_of(const void *arg, size_t i)
{
    const struct move *m = arg;

    return row_at(m, m->x, (size_t)m->src[i] / m->k);
}

static void permute_rows(void *arg, const struct kn_share *share)
{
    const struct move *m = arg;

    kn_gather_rows(m->y, token_of, m, m->d * kn_type_size(m->t), share);
}

void kn_host_permute(struct kn_pool *pool, enum kn_type type, void *y, const void *x,
                     const int32_t *src, size_t count, size_t k, size_t dim)
{
    struct move m = {.t = type, .y = y, .x = x, .src = src, .k = k, .d = dim};

    assert(k >= 1);
    kn_parallel(pool, count, 1, GRAIN, permute_rows, &m);
}

static void fetch_choices(const struct move *move, size_t row)
{
    for (size_t c = row * move->k; c < (row + 1) * move->k; c++)
        if (move->place[c] >= 0)
            kn_prefetch_row(row_at(move, move->x, (size_t)move->place[c]),
                            move->d * kn_type_size(move->t));
}

/* y = [y +] the weighted rows of one token, two at a time where there are two. */
static void combine_choices(const struct move *move, size_t row, float *y, float *buf)
{
    const float *held = NULL; /* a row that waits for a second */
    float weight = 0;
    bool begun = move->add;
    size_t d = move->d;

    for (size_t c = row * move->k; c < (row + 1) * move->k; c++) {
        const float *x;

        if (move->place[c] < 0)
            continue;
        x = kn_in(move->t, row_at(move, move->x, (size_t)move->place[c]), buf + (held ? d : 0), d);
        if (begun) {
            kn_ops()->axpy(y, move->w ? move->w[c] : 1, x, d);
        } else if (held) {
            kn_ops()->combine(y, weight, held, move->w ? move->w[c] : 1, x, d);
            held = NULL;
            begun = true;
        } else {
            held = x;
            weight = move->w ? move->w[c] : 1;
        }
    }
    if (held)
        kn_ops()->scale(y, held, weight, d);
    else if (!begun)
        memset(y, 0, d * sizeof(float));
}

static void unpermute_rows(void *arg, const struct kn_share *share)
{
    const struct move *m = arg;

    for (size_t r = share->lo; r < share->hi; r++) {
        void *to = row_at(m, m->y, r);
        float *y = kn_out(m->t, to, share->scratch);

        if (r + 1 < share->hi)
            fetch_choices(m, r + 1);
        if (m->add && m->t != KN_F32)
            kn_ops()->to_f32(y, to, m->d);
        combine_choices(m, r, y, share->scratch + m->d);
        kn_out_done(m->t, to, y, m->d);
    }
}

void kn_host_unpermute(struct kn_pool *pool, enum kn_type type, void *y, const void *x,
                       const int32_t *place, const float *w, size_t rows, size_t k, size_t dim,
                       bool add)
{
    struct move m = {
        .t = type, .y = y, .x = x, .place = place, .w = w, .k = k, .d = dim, .add = add};

    assert(3 * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, unpermute_rows, &m);
}

static void unpermute_bwd_rows(void *arg, const struct kn_share *share)
{
    const struct move *m = arg;
    size_t d = m->d;

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *dy = kn_in(m->t, kn_ptr(m->t, m->dy, r * d), share->scratch, d);

        for (size_t c = r * m->k; c < (r + 1) * m->k; c++) {
            int32_t at = m->place[c];

            if (m->dw && at < 0)
                m->dw[c] = 0;
            if (at < 0)
                continue;
            if (m->dw) /* first, since dx may be x */
                m->dw[c] = kn_ops()->dot(
                    dy, kn_in(m->t, kn_ptr(m->t, m->x, (size_t)at * d), share->scratch + d, d), d);
            void *to = kn_ptr(m->t, m->y, (size_t)at * d);
            float *dx = kn_out(m->t, to, share->scratch + d);
            kn_ops()->scale(dx, dy, m->w ? m->w[c] : 1, d);
            kn_out_done(m->t, to, dx, d);
        }
    }
}

void kn_host_unpermute_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw,
                           const void *dy, const void *x, const int32_t *place, const float *w,
                           size_t rows, size_t k, size_t dim)
{
    struct move m = {
        .t = type, .y = dx, .dw = dw, .dy = dy, .x = x, .place = place, .w = w, .k = k, .d = dim};

    assert(2 * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, unpermute_bwd_rows, &m);
}
