#include "base/base.h"
#include "kernels/kernels.h"
#include "trainer/device.h"

#include <errno.h>

int tr_device_fits(const struct pl_buffers *list, uint64_t budget, enum pl_mem_class *ret_class,
                   double *ret_asked, struct err *e)
{
    uint64_t total = 0;

    for (int i = 0; i < list->n; i++) {
        const struct pl_buffer *b = &list->b[i];

        total += b->bytes;
        if (total <= budget)
            continue;
        *ret_class = b->cls;
        *ret_asked = (double)total;
        return err_set(
            e, -ENOMEM, "%s: %s of %llu bytes does not fit: %llu bytes with it, budget %llu",
            pl_mem_class_names[b->cls], pl_buf_names[b->id], (unsigned long long)b->bytes,
            (unsigned long long)total, (unsigned long long)budget);
    }
    return 0;
}

static int map(struct tr_device *d, struct err *e)
{
    for (int i = 0; i < d->list.n; i++)
        if (d->list.b[i].id != PL_BUF_KERNEL)
            d->mapped_bytes += d->list.b[i].bytes;
    d->base = kn_alloc(d->mapped_bytes);
    if (!d->base)
        return err_set(e, -ENOMEM, "the system refuses to map %zu bytes", d->mapped_bytes);
    return 0;
}

int tr_device_init(struct tr_device *d, const struct pl_model *m, const struct pl_layout *l,
                   const struct pl_workload *w, int rank, uint64_t budget,
                   enum pl_mem_class *ret_class, double *ret_asked, struct err *e)
{
    size_t at = 0;
    int r;

    *d = (struct tr_device){.used.rank = rank};
    pl_buffers_build(&d->list, m, l, w, rank);
    r = tr_device_fits(&d->list, budget, ret_class, ret_asked, e);
    if (r == 0) {
        *ret_class = PL_MEM_WEIGHTS;
        r = map(d, e);
        *ret_asked = (double)d->mapped_bytes;
    }
    if (r < 0) {
        tr_device_done(d);
        return r;
    }
    d->view = mem_alloc(sizeof(*d->view) * (size_t)d->list.n);
    for (int i = 0; i < d->list.n; i++) {
        const struct pl_buffer *b = &d->list.b[i];

        d->used.bytes[b->cls] += (double)b->bytes;
        d->used.total += (double)b->bytes;
        if (b->id == PL_BUF_KERNEL)
            continue;
        d->view[i] = d->base + at;
        at += b->bytes;
    }
    return 0;
}

void tr_device_done(struct tr_device *d)
{
    if (d->base)
        kn_free(d->base, d->mapped_bytes);
    free(d->view);
    pl_buffers_done(&d->list);
    *d = (struct tr_device){0};
}

void *tr_device_get(const struct tr_device *d, enum pl_buf id, int chunk, int slot)
{
    for (int i = 0; i < d->list.n; i++) {
        const struct pl_buffer *b = &d->list.b[i];

        if (b->id == id && b->chunk == chunk && b->slot == slot)
            return d->view[i];
    }
    return NULL;
}

size_t tr_device_bytes(const struct tr_device *d, enum pl_buf id)
{
    for (int i = 0; i < d->list.n; i++)
        if (d->list.b[i].id == id)
            return d->list.b[i].bytes;
    return 0;
}
