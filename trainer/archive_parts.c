/* The rank's parts in the tensors of an archive. */
#include "trainer/archive.h"

#include "base/base.h"
#include "trainer/hf_names.h"
#include "trainer/shares.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

enum { CONVERT = 4096 };    /* elements converted at a time */
enum { AT_ONCE = 1 << 20 }; /* bytes summed and written at a time */

/* ---- parts --------------------------------------------------------------- */

/* A run of elements that is contiguous in the part and in the file. */
struct run {
    uint64_t at;     /* element of the whole tensor */
    int64_t from, n; /* elements of the part's data */
    bool padding;    /* not in the file */
};

/* The longest run that begins at ELEMENT of the part's data. ROWS x COLS is the whole tensor. */
static struct run run_at(const struct tr_part *part, int64_t element, int64_t rows, int64_t cols)
{
    int64_t b = part->first + element, r = part->row0 + b / part->cols,
            c = part->col0 + b % part->cols;
    int64_t left = part->count - element;
    struct run run = {.from = element};

    assert(left > 0 && part->first + part->count <= part->rows * part->cols);
    if (r >= rows) {
        run.padding = true;
        run.n = left;
        return run;
    }
    run.at = (uint64_t)r * (uint64_t)cols + (uint64_t)c;
    if (part->cols == cols) {
        run.n = rows * cols - (int64_t)run.at;
    } else {
        int64_t row_left = part->cols - b % part->cols;

        run.padding = c >= cols;
        run.n = run.padding ? row_left : row_left < cols - c ? row_left : cols - c;
    }
    if (run.n > left)
        run.n = left;
    assert(run.n > 0 && (run.padding || (int64_t)run.at + run.n <= rows * cols));
    return run;
}

/* Where runs go. */
struct target {
    const struct tr_archive *archive;
    const struct tr_st *file;
    const struct tr_st_tensor *tensor;
    size_t piece; /* the tensor's first */
};

/* N numbers IN, from element AT, and their share of the checksums: so much at a time that it is
 * written from the cache that it was summed in, ending at round bytes of the file. */
static int put_summed(const struct target *to, uint64_t at, size_t n, const float *in,
                      struct err *error)
{
    const struct tr_st_tensor *tensor = to->tensor;
    uint64_t begin = to->file->data_at + tensor->begin;

    assert(tensor->dtype == TR_F32 && begin % 4 == 0);
    while (n) {
        size_t some = (size_t)(AT_ONCE - (begin + at * 4) % AT_ONCE) / 4;
        int r;

        some = some < n ? some : n;
        tr_shares_add(to->archive->shares, to->piece, tensor->end - tensor->begin, at * 4, in,
                      some * 4);
        r = tr_st_write(to->file, tensor, at, some, in, error);
        if (r < 0)
            return r;
        at += some;
        in += some;
        n -= some;
    }
    return 0;
}

static int put_exact(const struct target *to, uint64_t at, size_t n, const float *in,
                     struct err *error)
{
    return to->archive->shares ? put_summed(to, at, n, in, error)
                               : tr_st_write(to->file, to->tensor, at, n, in, error);
}

static int put_run(const struct target *to, const struct tr_part *part, struct run run,
                   struct err *error)
{
    float wide[CONVERT];

    if (part->dtype == TR_F32)
        return put_exact(to, run.at, (size_t)run.n, (const float *)part->data + run.from, error);
    for (int64_t i = 0; i < run.n; i += CONVERT) {
        size_t n = (size_t)(run.n - i < CONVERT ? run.n - i : CONVERT);
        int r;

        tr_bf16_to_f32(wide, (const uint16_t *)part->data + run.from + i, n);
        r = put_exact(to, run.at + (uint64_t)i, n, wide, error);
        if (r < 0)
            return r;
    }
    return 0;
}

static int get_run(const struct tr_st *file, const struct tr_st_tensor *tensor,
                   const struct tr_part *part, struct run run, struct err *error)
{
    float wide[CONVERT];

    if (run.padding) {
        size_t size = tr_dtype_bytes(part->dtype);

        memset((char *)part->data + (size_t)run.from * size, 0, (size_t)run.n * size);
        return 0;
    }
    if (part->dtype == TR_F32)
        return tr_st_read((float *)part->data + run.from, file, tensor, run.at, (size_t)run.n,
                          error);
    for (int64_t i = 0; i < run.n; i += CONVERT) {
        size_t n = (size_t)(run.n - i < CONVERT ? run.n - i : CONVERT);
        int r = tr_st_read(wide, file, tensor, run.at + (uint64_t)i, n, error);

        if (r < 0)
            return r;
        tr_f32_to_bf16((uint16_t *)part->data + run.from + i, wide, n);
    }
    return 0;
}

static int64_t columns(const struct tr_st_tensor *tensor)
{
    return tensor->ndim > 1 ? tensor->shape[tensor->ndim - 1] : 1;
}

int tr_archive_put(const struct tr_archive *archive, const char *name, const struct tr_part *part,
                   struct err *error)
{
    struct target to = {.archive = archive};
    const struct tr_st_tensor *t = to.tensor = tr_archive_find(&to.file, archive, name);

    if (!t)
        return err_set(error, -ENOENT, "tensor %s is not part of the model", name);
    if (archive->shares)
        to.piece = tr_archive_piece(archive, to.file, t);
    for (int64_t k = 0; k < part->count;) {
        struct run run = run_at(part, k, t->shape[0], columns(t));
        int r = run.padding ? 0 : put_run(&to, part, run, error);

        if (r < 0)
            return r;
        k += run.n;
    }
    return 0;
}

/* Rows of a matrix, or of a stack of STACK matrices, all of them; -1: the file has something else.
 */
static int64_t rows_of(const struct tr_st_tensor *tensor, uint64_t stack)
{
    if (stack)
        return tensor->ndim == 3 && (uint64_t)tensor->shape[0] == stack
                   ? tensor->shape[0] * tensor->shape[1]
                   : -1;
    return tensor->ndim == 1 || tensor->ndim == 2 ? tensor->shape[0] : -1;
}

/* The file and tensor of NAME, which has the SHAPE that the model needs, as a stack if STACK. */
static int find_shaped(const struct tr_st **ret_file, const struct tr_st_tensor **ret_tensor,
                       const struct tr_archive *archive, const char *name, const uint64_t shape[2],
                       uint64_t stack, struct err *error)
{
    const struct tr_st_tensor *t = tr_archive_find(ret_file, archive, name);

    if (!t)
        return err_set(error, -ENOENT, "tensor %s is missing", name);
    if (rows_of(t, stack) != (int64_t)shape[0] || (uint64_t)columns(t) != shape[1])
        return err_set(error, -EINVAL,
                       "%s: tensor %s is %" PRId64 " x %" PRId64 " where the model needs %" PRIu64
                       " x %" PRIu64,
                       (*ret_file)->path, name, t->ndim ? t->shape[0] : 0, columns(t), shape[0],
                       shape[1]);
    *ret_tensor = t;
    return 0;
}

int tr_archive_get(const struct tr_archive *archive, const char *name, const struct tr_part *part,
                   const uint64_t shape[2], struct err *error)
{
    const struct tr_st *s;
    const struct tr_st_tensor *t;
    int r = find_shaped(&s, &t, archive, name, shape, 0, error);

    for (int64_t k = 0; r == 0 && k < part->count;) {
        struct run run = run_at(part, k, t->shape[0], columns(t));

        r = get_run(s, t, part, run, error);
        k += run.n;
    }
    return r;
}

/* ---- parts at other places ----------------------------------------------- */

/* The first row of which column COLUMN of PART is element ELEMENT of the slice or a later one. */
static int64_t row_from(const struct tr_part *part, int64_t element, int64_t column)
{
    return element <= column ? 0 : (element - column + part->cols - 1) / part->cols;
}

/* Element K of what PART has, as or from VALUE. */
static void move_value(const struct tr_part *part, int64_t k, float *value, bool put)
{
    uint16_t *narrow = (uint16_t *)part->data + k;
    float *exact = (float *)part->data + k;

    if (put && part->dtype == TR_F32)
        *value = *exact;
    else if (put)
        tr_bf16_to_f32(value, narrow, 1);
    else if (part->dtype == TR_F32)
        *exact = *value;
    else
        tr_f32_to_bf16(narrow, value, 1);
}

/* Columns of the folder's tensor are our rows: move what PART has of our COLUMN, through WIDE.
 * Another tensor's numbers that lie between are written as well: as zeros by the first of the two,
 * as they are there by the second (tr_hf_place_is_second). */
static int move_column(const struct tr_st *file, const struct tr_st_tensor *tensor,
                       const struct tr_hf_place *place, const struct tr_part *part, int64_t column,
                       float *wide, bool put, struct err *error)
{
    int64_t first = row_from(part, part->first, column),
            n = row_from(part, part->first + part->count, column) - first, real = n,
            step = tr_hf_place_interleaves(place) ? (int64_t)place->group : 1;
    size_t across;
    uint64_t row = (uint64_t)(part->row0 + first);
    uint64_t at = (place->across + (uint64_t)(part->col0 + column)) * (uint64_t)columns(tensor) +
                  tr_hf_place_row(place, row);
    int r = 0;

    if (step == 1 && row + (uint64_t)n > place->block) /* the rest is padding */
        real = row < place->block ? (int64_t)(place->block - row) : 0;
    memset(wide, 0, sizeof(*wide) * (size_t)(n * step));
    across = real ? (size_t)((real - 1) * step + 1) : 0;
    if (!put || tr_hf_place_is_second(place))
        r = tr_st_read(wide, file, tensor, at, across, error);
    for (int64_t i = 0; i < n && r == 0; i++)
        move_value(part, (first + i) * part->cols + column - part->first, &wide[i * step], put);
    return put && r == 0 ? tr_st_write(file, tensor, at, across, wide, error) : r;
}

static int move_part(const struct tr_archive *archive, const struct tr_hf_place *place,
                     const struct tr_part *part, bool put, struct err *error)
{
    struct target at = {.archive = archive};
    int r =
        find_shaped(&at.file, &at.tensor, archive, place->name, place->shape, place->stack, error);

    assert(!archive->shares); /* no checkpoint has parts at other places */
    assert(part->first >= 0 && part->first + part->count <= part->rows * part->cols);
    if (r == 0 && place->transposed) {
        size_t step = tr_hf_place_interleaves(place) ? place->group : 1;
        AUTO_FREE float *wide = mem_alloc(sizeof(*wide) * step * (size_t)(part->rows + 1));

        for (int64_t c = 0; c < part->cols && r == 0; c++)
            r = move_column(at.file, at.tensor, place, part, c, wide, put, error);
        return r;
    }
    for (int64_t k = 0; r == 0 && k < part->count;) {
        int64_t column = (part->first + k) % part->cols;
        uint64_t row = (uint64_t)(part->row0 + (part->first + k) / part->cols),
                 there = tr_hf_place_row(place, row);
        struct run run = {.at = there * (uint64_t)columns(at.tensor) +
                                (uint64_t)(part->col0 + column),
                          .from = k,
                          .n = part->cols - column};

        if (run.n > part->count - k)
            run.n = part->count - k;
        r = put ? put_run(&at, part, run, error) : get_run(at.file, at.tensor, part, run, error);
        k += run.n;
    }
    return r;
}

int tr_archive_put_at(const struct tr_archive *archive, const struct tr_hf_place *place,
                      const struct tr_part *part, struct err *error)
{
    return move_part(archive, place, part, true, error);
}

int tr_archive_get_at(const struct tr_archive *archive, const struct tr_hf_place *place,
                      const struct tr_part *part, struct err *error)
{
    return move_part(archive, place, part, false, error);
}
