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

/* Buffers that the host reads or writes: data, what routes tokens, sums of few numbers, and what
 * MPI or a file takes. */
static const bool shared[PL_BUFS] = {
    [PL_BUF_BALANCE] = true,        [PL_BUF_XENT] = true,      [PL_BUF_MTP_TOKENS] = true,
    [PL_BUF_MOE_ROUTER] = true,     [PL_BUF_MOE_STATS] = true, [PL_BUF_MOE_POOL] = true,
    [PL_BUF_MOE_LOAD] = true,       [PL_BUF_TOKENS] = true,    [PL_BUF_POSITIONS] = true,
    [PL_BUF_COLL_TP] = true,        [PL_BUF_COLL_DP] = true,   [PL_BUF_COLL_EDP] = true,
    [PL_BUF_SNAPSHOT] = true,       [PL_BUF_ROUTES] = true,    [PL_BUF_MTP_ROUTES] = true,
    [PL_BUF_SCRATCH_ROUTES] = true,
};

static struct tr_memory *memory_of(struct tr_device *device, const struct pl_buffer *buffer)
{
    return shared[buffer->id] ? &device->shared : &device->own;
}

static int map(struct tr_device *device, struct err *error)
{
    for (int i = 0; i < device->list.n; i++)
        if (device->list.b[i].id != PL_BUF_KERNEL)
            memory_of(device, &device->list.b[i])->bytes += device->list.b[i].bytes;
    device->own.base = kn_alloc_own(device->own.bytes);
    if (!device->own.base)
        return err_set(error, -ENOMEM, "the system cannot map %zu bytes", device->own.bytes);
    device->shared.base = kn_alloc(device->shared.bytes);
    if (!device->shared.base)
        return err_set(error, -ENOMEM, "the system cannot map %zu bytes", device->shared.bytes);
    return 0;
}

int tr_device_init(enum pl_mem_class *ret_class, double *ret_asked, struct tr_device *device,
                   const struct pl_model *model, const struct pl_layout *layout,
                   const struct pl_workload *workload, int rank, uint64_t budget, struct err *error)
{
    size_t own = 0, both = 0;
    int r;

    *device = (struct tr_device){.used.rank = rank};
    pl_buffers_build(&device->list, model, layout, workload, rank);
    r = tr_device_fits(ret_class, ret_asked, &device->list, budget, error);
    if (r == 0) {
        *ret_class = PL_MEM_WEIGHTS;
        r = map(device, error);
        *ret_asked = (double)(device->own.bytes + device->shared.bytes);
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
        device->view[i] = memory_of(device, b)->base + (shared[b->id] ? both : own);
        *(shared[b->id] ? &both : &own) += b->bytes;
    }
    assert(own == device->own.bytes && both == device->shared.bytes); /* views tile the mappings */
    return 0;
}

void tr_device_done(struct tr_device *device)
{
    if (device->own.base)
        kn_free_own(device->own.base, device->own.bytes);
    if (device->shared.base)
        kn_free(device->shared.base, device->shared.bytes);
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
