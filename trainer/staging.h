/*
 * Messages of memory that the host does not reach, and so MPI does not (kn_alloc_own): through
 * buffers that both reach. A message leaves when its copy is made; what has arrived is copied when
 * the request is found complete.
 *
 * Buffers are the host's, outside the plan of the device's memory. They are made when first needed
 * and kept: as many as messages were under way together.
 */
#ifndef TRAINER_STAGING_H
#define TRAINER_STAGING_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

struct kn_pool;
struct tr_staged;

struct tr_staging {
    const char *own; /* (bytes) that memory; 0 bytes: there is none */
    size_t bytes;
    struct tr_staged *flying, *idle;
};

static inline bool tr_staging_has(const struct tr_staging *staging, const void *memory)
{
    return staging->bytes && (const char *)memory >= staging->own &&
           (const char *)memory < staging->own + staging->bytes;
}

/* Frees the buffers, none of which is under way. */
void tr_staging_done(struct tr_staging *staging);

/*
 * Of BYTES of that memory: to be sent, what FROM holds after the operations of POOL so far; or to
 * be received, for TO. The message is to use *RET_BUFFER. Then tell its request. NULL: there is no
 * memory for it.
 */
struct tr_staged *tr_stage_send(void **ret_buffer, struct tr_staging *staging, struct kn_pool *pool,
                                const void *from, size_t bytes);
struct tr_staged *tr_stage_receive(void **ret_buffer, struct tr_staging *staging, void *to,
                                   size_t bytes);
void tr_staged_as(struct tr_staged *staged, MPI_Request req);

/* Before the COUNT requests REQ are tested, and after all of them are complete: what was received
 * by one of them is where it belongs. */
void tr_staging_mark(struct tr_staging *staging, const MPI_Request *req, int count);
void tr_staging_land(struct tr_staging *staging, struct kn_pool *pool);

#endif
