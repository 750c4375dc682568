/* Keys whose heads have a part of their own and one that all share: latent attention. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 16 };

struct keys {
    enum kn_type t, yt;
    void *k, *dx, *dy;
    const void *x, *y, *dk;
    size_t lddx, ldy, lddy, heads, own, shared;
};

/* Elements of a row of keys. */
static size_t width(const struct keys *keys)
{
    return keys->heads * (keys->own + keys->shared);
}

static void join_rows(void *arg, const struct kn_share *share)
{
    const struct keys *s = arg;
    size_t own = s->own * kn_type_size(s->t), shared = s->shared * kn_type_size(s->t);

    for (size_t r = share->lo; r < share->hi; r++) {
        char *to = kn_ptr(s->t, s->k, r * width(s));
        const char *from = kn_ptr(s->t, s->x, r * s->heads * s->own);
        const void *all = kn_ptr(s->t, s->y, r * s->ldy);

        for (size_t h = 0; h < s->heads; h++, to += own + shared, from += own) {
            memcpy(to, from, own);
            memcpy(to + own, all, shared);
        }
        kn_row_done(share, r);
    }
}

void kn_host_keys_join(struct kn_pool *pool, enum kn_type type, void *k, const void *x,
                       const void *y, size_t ldy, size_t rows, size_t heads, size_t own,
                       size_t shared)
{
    struct keys s = {.t = type,
                     .k = k,
                     .x = x,
                     .y = y,
                     .ldy = ldy,
                     .heads = heads,
                     .own = own,
                     .shared = shared};

    assert(ldy >= shared);
    kn_parallel(pool, rows, 1, GRAIN, join_rows, &s);
}

static void split_rows(void *arg, const struct kn_share *share)
{
    const struct keys *s = arg;
    size_t own = s->own * kn_type_size(s->t);
    float *buf = share->scratch + s->shared;

    for (size_t r = share->lo; r < share->hi; r++) {
        char *to = kn_ptr(s->t, s->dx, r * s->lddx);
        void *all = kn_ptr(s->yt, s->dy, r * s->lddy);
        float *sum = kn_out(s->yt, all, share->scratch);

        memset(sum, 0, s->shared * sizeof(*sum));
        for (size_t h = 0; h < s->heads; h++) {
            size_t at = r * width(s) + h * (s->own + s->shared);
            const void *part = kn_ptr(s->t, s->dk, at + s->own);

            memcpy(to + h * own, kn_ptr(s->t, s->dk, at), own);
            kn_ops()->add(sum, sum, kn_in(s->t, part, buf, s->shared), s->shared);
        }
        kn_out_done(s->yt, all, sum, s->shared);
        kn_row_done(share, r);
    }
}

void kn_host_keys_split(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx,
                        enum kn_type yt, void *dy, size_t lddy, const void *dk, size_t rows,
                        size_t heads, size_t own, size_t shared)
{
    struct keys s = {.t = type,
                     .yt = yt,
                     .dx = dx,
                     .lddx = lddx,
                     .dy = dy,
                     .lddy = lddy,
                     .dk = dk,
                     .heads = heads,
                     .own = own,
                     .shared = shared};

    assert(lddx >= heads * own && lddy >= shared);
    assert(2 * shared * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, split_rows, &s);
}
