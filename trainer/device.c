#include "base/base.h"
#include "kernels/kernels.h"
#include "trainer/device.h"

#include <assert.h>
#include <errno.h>

int tr_device_fits(enum pl_mem_class *ret_class, double *ret_asked, const struct pl_buffers *list,
                   uint64_t budget, struct err *error)
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
            error, -ENOMEM, "%s: %s of %llu bytes does not fit: %llu bytes with it, budget %llu",
            pl_mem_class_names[b->cls], pl_buf_names[b->id], (unsigned long long)b->bytes,
            (unsigned long long)total, (unsigned long long)budget);
    }
    return 0;
}

static int map(struct tr_device *device, struct err *error)
{
    for (int i = 0; i < device->list.n; i++)
        if (device->list.b[i].id != PL_BUF_KERNEL)
            device->mapped_bytes += device->list.b[i].bytes;
    device->base = kn_alloc(device->mapped_bytes);
    if (!device->base)
        return err_set(error, -ENOMEM, "the system cannot map %zu bytes", device->mapped_bytes);
    return 0;
}

int tr_device_init(enum pl_mem_class *ret_class, double *ret_asked, struct tr_device *device,
                   const struct pl_model *model, const struct pl_layout *layout,
                   const struct pl_workload *workload, int rank, uint64_t budget, struct err *error)
{
    size_t at = 0;
    int r;

    *device = (struct tr_device){.used.rank = rank};
    pl_buffers_build(&device->list, model, layout, workload, rank);
    r = tr_device_fits(ret_class, ret_asked, &device->list, budget, error);
    if (r == 0) {
        *ret_class = PL_MEM_WEIGHTS;
        r = map(device, error);
        *ret_asked = (double)device->mapped_bytes;
    }
    if (r < 0) {
        tr_device_done(device);
        return r;
    }
    device->view = mem_alloc(sizeof(*device->view) * (size_t)device->list.n);
    for (int i = 0; i < device->list.n; i++) {
        const struct pl_buffer *b = &device->list.b[i];

        device->used.bytes[b->cls] += (double)b->bytes;
        device->used.total += (double)b->bytes;
        if (b->id == PL_BUF_KERNEL)
            continue;
        device->view[i] = device->base + at;
        at += b->bytes;
    }
    assert(at == device->mapped_bytes); /* views tile the mapping */
    return 0;
}

void tr_device_done(struct tr_device *device)
{
    if (device->base)
        kn_free(device->base, device->mapped_bytes);
    free(device->view);
    pl_buffers_done(&device->list);
    *device = (struct tr_device){0};
}

void *tr_device_get(const struct tr_device *device, enum pl_buf id, int chunk, int slot)
{
    for (int i = 0; i < device->list.n; i++) {
        const struct pl_buffer *b = &device->list.b[i];

        if (b->id == id && b->chunk == chunk && b->slot == slot)
            return device->view[i];
    }
    return NULL;
}

size_t tr_device_bytes(const struct tr_device *device, enum pl_buf id)
{
    for (int i = 0; i < device->list.n; i++)
        if (device->list.b[i].id == id)
            return device->list.b[i].bytes;
    return 0;
}
