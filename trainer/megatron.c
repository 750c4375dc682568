/* The whole index file is checked before a token is read: its numbers are offsets into another
 * file. */
#include "trainer/megatron.h"

#include "base/base.h"
#include "trainer/crc.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

enum { HEAD = 9 + 8 + 1 + 8 + 8 };
#define VALIDATION_SHARE 0.05

static uint64_t le64(const unsigned char *from)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | from[i];
    return v;
}

static int32_t le32(const unsigned char *from)
{
    return (int32_t)((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                     (uint32_t)from[3] << 24);
}

static int read_head(struct tr_megatron_index *index, const unsigned char *bytes, size_t len,
                     const char *path, struct err *error)
{
    static const int ids[] = {-1,        TR_ID_U8, TR_ID_I8, TR_ID_I16, TR_ID_I32,
                              TR_ID_I64, -1,       -1,       TR_ID_U16};
    unsigned code;
    uint64_t rest;

    if (len < HEAD)
        return err_set(error, -EBADMSG, "%s is truncated: %zu bytes are less than a header", path,
                       len);
    if (memcmp(bytes, "MMIDIDX\0\0", 9) != 0)
        return err_set(error, -EBADMSG,
                       "%s is not a Megatron index: it does not begin with MMIDIDX", path);
    if (le64(bytes + 9) != 1)
        return err_set(error, -EBADMSG, "%s has version %" PRIu64 ", not 1", path, le64(bytes + 9));
    code = bytes[17];
    if (code >= ARRAY_LEN(ids) || ids[code] < 0)
        return err_set(error, -EBADMSG, "%s: type code %u is not an integer type of token ids",
                       path, code);
    index->id = (enum tr_id)ids[code];
    index->sequences = le64(bytes + 18);
    index->documents = le64(bytes + 26);
    rest = len - HEAD;
    if (index->sequences > rest / 12 || index->documents != (rest - 12 * index->sequences) / 8 ||
        rest != 12 * index->sequences + 8 * index->documents)
        return err_set(error, -EBADMSG,
                       "%s: %zu bytes do not hold %" PRIu64 " sequences and %" PRIu64 " documents",
                       path, len, index->sequences, index->documents);
    return 0;
}

static int check_documents(const struct tr_megatron_index *index, const unsigned char *docs,
                           const char *path, struct err *error)
{
    uint64_t last = 0;

    for (uint64_t i = 0; i < index->documents; i++) {
        uint64_t at = le64(docs + 8 * i);

        if (at < last || at > index->sequences)
            return err_set(error, -EBADMSG,
                           "%s: document %" PRIu64 " begins at sequence %" PRIu64 " of %" PRIu64,
                           path, i, at, index->sequences);
        last = at;
    }
    return 0;
}

int tr_megatron_index(struct tr_megatron_index *ret, const unsigned char *bytes, size_t len,
                      double share, const char *path, struct err *error)
{
    struct tr_megatron_index x = {.tokens = 0};
    const unsigned char *sizes = bytes + HEAD, *at;
    uint64_t total = 0;
    int r = read_head(&x, bytes, len, path, error);

    if (r < 0)
        return r;
    at = sizes + 4 * x.sequences;
    for (uint64_t i = 0; i < x.sequences; i++) {
        int32_t size = le32(sizes + 4 * i);
        uint64_t want = x.tokens * tr_id_bytes(x.id);

        if (size < 0)
            return err_set(error, -EBADMSG, "%s: sequence %" PRIu64 " has %d tokens", path, i,
                           size);
        if (le64(at + 8 * i) != want)
            return err_set(error, -EBADMSG,
                           "%s: sequence %" PRIu64 " begins at byte %" PRIu64 ", not %" PRIu64,
                           path, i, le64(at + 8 * i), want);
        x.tokens +=
            (uint64_t)size; /* at most 2^31 x 2^60 / 12: jumps of want above stop it long before */
    }
    r = check_documents(&x, at + 8 * x.sequences, path, error);
    if (r < 0)
        return r;
    x.cut = 0;
    for (uint64_t i = 0; i < x.sequences; i++) {
        total += (uint64_t)le32(sizes + 4 * i);
        if ((double)(x.tokens - total) < share * (double)x.tokens)
            break;
        x.cut = total;
    }
    assert(total <= x.tokens && x.cut <= total);
    *ret = x;
    return 0;
}

static int open_index(struct tr_megatron_index *ret, uint32_t *ret_crc, const char *prefix,
                      struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s.idx", prefix);
    struct tr_stream file;
    int r = tr_stream_map(&file, path, TR_ID_U8, 0, error);

    if (r < 0)
        return r;
    r = tr_megatron_index(ret, file.map, file.bytes, VALIDATION_SHARE, path, error);
    *ret_crc = tr_crc32(0, file.map, file.bytes);
    tr_stream_done(&file);
    return r;
}

int tr_megatron_open(struct tr_stream ret[TR_SPLITS], uint32_t *ret_crc, const char *prefix,
                     struct err *error)
{
    AUTO_FREE char *bin = mem_printf("%s.bin", prefix);
    struct tr_megatron_index x;
    int r = open_index(&x, ret_crc, prefix, error);

    for (int i = 0; i < TR_SPLITS && r == 0; i++)
        r = tr_stream_map(&ret[i], bin, x.id, x.tokens, error);
    if (r < 0) {
        tr_stream_done(&ret[TR_SPLIT_TRAIN]);
        return r;
    }
    if (x.cut == 0) /* a single sequence is all training */
        x.cut = x.tokens;
    ret[TR_SPLIT_TRAIN].tokens = x.cut;
    ret[TR_SPLIT_VALIDATION].first = x.cut;
    ret[TR_SPLIT_VALIDATION].tokens = x.tokens - x.cut;
    return 0;
}
