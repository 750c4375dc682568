#include "trainer/shares.h"

#include "base/base.h"
#include "trainer/bounce.h"
#include "trainer/crc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct tr_shares {
    uint32_t *of; /* (pieces) */
    size_t pieces;
    /* The piece that is being added to: LINEAR is L of what came, as if it ended at byte AT. */
    size_t piece;
    uint64_t at, end;
    uint32_t linear;
};

/* ---- the arithmetic ------------------------------------------------------ */

/* L with SIZE bytes behind what LINEAR is of. */
static uint32_t extend(uint32_t linear, const void *in, size_t size)
{
    return ~tr_crc32(~linear, in, size);
}

/* The same with SIZE zero bytes. */
static uint32_t extend_zeros(uint32_t linear, uint64_t size)
{
    return linear ? tr_crc32_combine(linear, 0, size) : 0;
}

static uint32_t crc_of_zeros(uint64_t size)
{
    return ~extend_zeros(~UINT32_C(0), size);
}

/* ---- of one rank --------------------------------------------------------- */

struct tr_shares *tr_shares_new(const struct tr_archive *archive)
{
    struct tr_shares *shares = mem_alloc(sizeof(*shares));

    shares->pieces = tr_archive_pieces(archive);
    shares->of = mem_alloc((shares->pieces + 1) * sizeof(*shares->of));
    return shares;
}

struct tr_shares *tr_shares_free(struct tr_shares *shares)
{
    if (shares)
        free(shares->of);
    free(shares);
    return NULL;
}

void tr_shares_headers(struct tr_shares *shares, const struct tr_archive *archive)
{
    for (size_t i = 0; i < archive->count; i++) {
        const struct tr_st *file = archive->file[i];

        shares->of[tr_archive_piece(archive, file, NULL)] ^=
            file->header_crc ^ crc_of_zeros(file->data_at);
    }
}

/* What came of a piece is its share. */
static void end_piece(struct tr_shares *shares)
{
    assert(shares->piece < shares->pieces && shares->at <= shares->end);
    shares->of[shares->piece] ^= extend_zeros(shares->linear, shares->end - shares->at);
    shares->linear = 0;
    shares->at = shares->end;
}

void tr_shares_add(struct tr_shares *shares, size_t first, uint64_t bytes, uint64_t at,
                   const void *in, size_t size)
{
    const char *p = in;

    assert(at + size <= bytes);
    while (size) {
        size_t piece = first + (size_t)(at / TR_PIECE);
        uint64_t begin = at / TR_PIECE * TR_PIECE,
                 end = bytes - begin < TR_PIECE ? bytes : begin + TR_PIECE;
        size_t some = size < end - at ? size : (size_t)(end - at);

        if (piece != shares->piece || at < shares->at) {
            end_piece(shares);
            shares->piece = piece;
            shares->end = end;
        } else {
            shares->linear = extend_zeros(shares->linear, at - shares->at);
        }
        shares->linear = extend(shares->linear, p, some);
        p += some;
        size -= some;
        shares->at = at += some;
    }
}

/* ---- of all -------------------------------------------------------------- */

/* Of each share that is not 0, eight bytes: the piece's number and the share; then, in four, the
 * CRC-32 of these bytes. */
enum { ENTRY = 8, SEAL = 4 };

static char *path_of(const char *folder, int rank)
{
    return mem_printf("%s/shares.%05d", folder, rank);
}

static void put_le32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t get_le32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

int tr_shares_leave(struct tr_shares *shares, const char *folder, int rank, struct err *error)
{
    AUTO_FREE char *path = path_of(folder, rank);
    AUTO_FREE unsigned char *bytes = NULL;
    size_t n = 0;
    int fd, r;

    end_piece(shares);
    for (size_t i = 0; i < shares->pieces; i++)
        n += shares->of[i] ? ENTRY : 0;
    bytes = mem_alloc(n + SEAL);
    n = 0;
    for (size_t i = 0; i < shares->pieces; i++) {
        if (shares->of[i] == 0)
            continue;
        assert(i <= UINT32_MAX);
        put_le32(bytes + n, (uint32_t)i);
        put_le32(bytes + n + 4, shares->of[i]);
        n += ENTRY;
    }
    put_le32(bytes + n, tr_crc32(0, bytes, n));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(error, -errno, "create %s: %s", path, strerror(errno));
    r = tr_write_at(fd, bytes, n + SEAL, 0);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    return r < 0 ? err_set(error, r, "write %s: %s", path, strerror(-r)) : 0;
}

static int add_file(uint32_t *sums, size_t pieces, const char *path, struct err *error)
{
    AUTO_FREE char *text = NULL;
    const unsigned char *bytes;
    size_t n;
    int r = file_read_all(&text, &n, path, pieces * ENTRY + SEAL, error);

    if (r < 0)
        return r;
    bytes = (const unsigned char *)text;
    if (n % ENTRY != SEAL || get_le32(bytes + n - SEAL) != tr_crc32(0, bytes, n - SEAL))
        return err_set(error, -EBADMSG, "%s is damaged", path);
    for (size_t i = 0; i < n - SEAL; i += ENTRY) {
        assert(get_le32(bytes + i) < pieces);
        sums[get_le32(bytes + i)] ^= get_le32(bytes + i + 4);
    }
    if (unlink(path) < 0)
        return err_set(error, -errno, "remove %s: %s", path, strerror(errno));
    return 0;
}

/* The sum of each piece if all of its bytes were 0. */
static void begin_with_zeros(uint32_t *sums, const struct tr_archive *archive)
{
    const uint32_t whole = crc_of_zeros(TR_PIECE);

    for (size_t i = 0; i < archive->count; i++) {
        const struct tr_st *file = archive->file[i];

        *sums++ = crc_of_zeros(file->data_at);
        for (size_t k = 0; k < file->count; k++) {
            uint64_t left = file->tensor[k].end - file->tensor[k].begin;

            for (; left >= TR_PIECE; left -= TR_PIECE)
                *sums++ = whole;
            if (left)
                *sums++ = crc_of_zeros(left);
        }
    }
}

int tr_shares_collect(uint32_t *sums, const struct tr_archive *archive, const char *folder,
                      int size, struct err *error)
{
    size_t pieces = tr_archive_pieces(archive);
    int r = 0;

    begin_with_zeros(sums, archive);
    for (int rank = 0; rank < size && r == 0; rank++) {
        AUTO_FREE char *path = path_of(folder, rank);

        r = add_file(sums, pieces, path, error);
    }
    return r;
}
