/* Checksums of an archive by piece. */
#include "trainer/archive.h"

#include "base/base.h"
#include "trainer/crc.h"
#include "trainer/stop.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

static size_t tensor_pieces(const struct tr_st_tensor *tensor)
{
    return (size_t)((tensor->end - tensor->begin + TR_PIECE - 1) / TR_PIECE);
}

/* Of the header of FILE and its first COUNT tensors. */
static size_t file_pieces(const struct tr_st *file, size_t count)
{
    size_t n = 1;

    for (size_t i = 0; i < count; i++)
        n += tensor_pieces(&file->tensor[i]);
    return n;
}

size_t tr_archive_pieces(const struct tr_archive *archive)
{
    size_t n = 0;

    for (size_t i = 0; i < archive->count; i++)
        n += file_pieces(archive->file[i], archive->file[i]->count);
    return n;
}

size_t tr_archive_piece(const struct tr_archive *archive, const struct tr_st *file,
                        const struct tr_st_tensor *tensor)
{
    size_t n = 0;

    for (size_t i = 0; archive->file[i] != file; i++)
        n += file_pieces(archive->file[i], archive->file[i]->count);
    return tensor ? n + file_pieces(file, (size_t)(tensor - file->tensor)) : n;
}

static int sum_bytes(uint32_t *ret, const struct tr_st *file, uint64_t at, uint64_t size,
                     struct err *error)
{
    unsigned char buf[1 << 14];
    uint32_t crc = 0;

    while (size) {
        size_t want = size < sizeof(buf) ? (size_t)size : sizeof(buf);
        ssize_t got = pread(file->fd, buf, want, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_set(error, got ? -errno : -ENODATA, "read %s at byte %" PRIu64 ": %s",
                           file->path, at, got ? strerror(errno) : "the file is too short");
        crc = tr_crc32(crc, buf, got);
        at += (uint64_t)got;
        size -= (uint64_t)got;
    }
    *ret = (uint32_t)crc;
    return 0;
}

/* One visit of the pieces of rank RANK of SIZE. */
struct visit {
    const uint32_t *sums;
    int rank, size;
    size_t piece;
};

/* Bytes [at, end) of the file as pieces of at most STEP bytes; TENSOR is NULL for the header. */
static int verify_range(struct visit *visit, const struct tr_st *file,
                        const struct tr_st_tensor *tensor, uint64_t at, uint64_t end, uint64_t step,
                        struct err *error)
{
    for (; at < end; at += step, visit->piece++) {
        uint32_t sum;
        int r;

        if (visit->piece % (size_t)visit->size != (size_t)visit->rank)
            continue;
        tr_stop_check();
        r = sum_bytes(&sum, file, at, end - at > step ? step : end - at, error);
        if (r < 0)
            return r;
        if (sum != visit->sums[visit->piece])
            return err_set(error, -EBADMSG, "%s: %s%s is damaged at or after byte %" PRIu64,
                           file->path, tensor ? "tensor " : "the header",
                           tensor ? tensor->name : "", at);
    }
    return 0;
}

int tr_archive_verify(const struct tr_archive *archive, const uint32_t *sums, int rank, int size,
                      struct err *error)
{
    struct visit visit = {.sums = sums, .rank = rank, .size = size};

    assert(rank >= 0 && rank < size);
    for (size_t i = 0; i < archive->count; i++) {
        const struct tr_st *s = archive->file[i];
        int r = verify_range(&visit, s, NULL, 0, s->data_at, s->data_at, error);

        for (size_t k = 0; k < s->count && r == 0; k++)
            r = verify_range(&visit, s, &s->tensor[k], s->data_at + s->tensor[k].begin,
                             s->data_at + s->tensor[k].end, TR_PIECE, error);
        if (r < 0)
            return r;
    }
    assert(visit.piece == tr_archive_pieces(archive)); /* as many as the sums have room for */
    return 0;
}
