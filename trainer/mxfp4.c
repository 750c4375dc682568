/* Weights in MXFP4, decoded while they are read: a run of one row at a time, block by block. */
#include "trainer/mxfp4.h"

#include "base/base.h"
#include "trainer/hf_names.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

enum { BLOCK = TR_MXFP4_BLOCK, BYTES = TR_MXFP4_BYTES };
enum { MOST = 128 }; /* blocks read at a time */
enum { NOT_A_SCALE = 255 };

static const char *const suffix[] = {"_blocks", "_scales"};

/* 2^(scale - 127), by its bits: 2^-127 is subnormal. */
static float power(uint8_t scale)
{
    uint32_t bits = scale ? (uint32_t)scale << 23 : UINT32_C(1) << 22;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

void tr_mxfp4_decode(float *ret, const uint8_t *blocks, const uint8_t *scales, size_t count)
{
    static const float values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

    for (size_t i = 0; i < count; i++) {
        float scale = power(scales[i]);

        for (size_t k = 0; k < BYTES; k++) {
            uint8_t two = blocks[i * BYTES + k];

            *ret++ = values[two & 15] * scale;
            *ret++ = values[two >> 4] * scale;
        }
    }
}

bool tr_mxfp4_has(const struct tr_archive *archive, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(suffix); i++) {
        AUTO_FREE char *whole = mem_printf("%s%s", name, suffix[i]);
        const struct tr_st *file;

        if (tr_archive_find(&file, archive, whole))
            return true;
    }
    return false;
}

bool tr_mxfp4_belongs(const struct pl_params *all, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(suffix); i++) {
        AUTO_FREE char *bare = NULL;
        const struct pl_param *param;

        if (!str_ends(name, suffix[i]))
            continue;
        bare = mem_printf("%.*s", (int)(strlen(name) - strlen(suffix[i])), name);
        param = tr_archive_param(all, bare);
        return param && param->dims == 3;
    }
    return false;
}

/* ---- the two tensors ------------------------------------------------------ */

struct source {
    const struct tr_st *file[2]; /* blocks, scales */
    const struct tr_st_tensor *tensor[2];
    uint64_t expert;             /* the matrix of the stack */
    uint64_t rows, cols, across; /* of a matrix; blocks of a row */
};

static int find_one(struct source *source, int which, const struct tr_archive *archive,
                    const struct tr_hf_place *place, struct err *error)
{
    AUTO_FREE char *name = mem_printf("%s%s", place->name, suffix[which]);
    const int64_t shape[] = {(int64_t)place->stack, (int64_t)source->rows, (int64_t)source->across,
                             BYTES};
    const struct tr_st_tensor *t = tr_archive_find(&source->file[which], archive, name);
    int dims = which ? 3 : 4;
    bool fits;

    if (!t)
        return err_set(error, -ENOENT, "tensor %s is missing", name);
    if (t->dtype != TR_U8)
        return err_set(error, -EINVAL, "%s: tensor %s is %s where mxfp4 needs U8",
                       source->file[which]->path, name, tr_dtype_name(t->dtype));
    fits = t->ndim == dims;
    for (int i = 0; i < dims && fits; i++)
        fits = t->shape[i] == shape[i];
    if (!fits)
        return err_set(error, -EINVAL,
                       "%s: tensor %s has not the shape (%" PRId64 ", %" PRId64 ", %" PRId64
                       "%s) that the model needs",
                       source->file[which]->path, name, shape[0], shape[1], shape[2],
                       which ? "" : ", 16");
    source->tensor[which] = t;
    return 0;
}

/* PLACE is that of the tensor as transformers decodes it: (experts, in, out). */
static int find_both(struct source *ret, const struct tr_archive *archive,
                     const struct tr_hf_place *place, struct err *error)
{
    uint64_t in = place->shape[0] / place->stack;
    int r;

    *ret = (struct source){
        .expert = place->across / in, .rows = place->shape[1], .cols = in, .across = in / BLOCK};
    if (in % BLOCK)
        return err_set(error, -EINVAL,
                       "tensor %s is in mxfp4, whose blocks of %d do not divide its %" PRIu64
                       " inputs",
                       place->name, BLOCK, in);
    r = find_one(ret, 0, archive, place, error);
    return r < 0 ? r : find_one(ret, 1, archive, place, error);
}

/* ---- reading ------------------------------------------------------------- */

static int check_scales(const struct source *source, const uint8_t *scales, size_t count,
                        struct err *error)
{
    for (size_t i = 0; i < count; i++)
        if (scales[i] == NOT_A_SCALE)
            return err_set(error, -EINVAL, "%s: tensor %s has the scale 255, which is NaN",
                           source->file[1]->path, source->tensor[1]->name);
    return 0;
}

/* Elements [column, column + count) of ROW of the stack's rows, at most MOST blocks of them. */
static int read_row(float *ret, const struct source *source, uint64_t row, uint64_t column,
                    size_t count, struct err *error)
{
    uint8_t blocks[MOST * BYTES], scales[MOST];
    float wide[MOST * BLOCK];
    size_t skip = (size_t)(column % BLOCK), many = (skip + count + BLOCK - 1) / BLOCK;
    uint64_t first = row * source->across + column / BLOCK;
    int r;

    assert(many <= MOST);
    r = tr_st_read_bytes(blocks, source->file[0], source->tensor[0], first * BYTES, many * BYTES,
                         error);
    if (r == 0)
        r = tr_st_read_bytes(scales, source->file[1], source->tensor[1], first, many, error);
    if (r == 0)
        r = check_scales(source, scales, many, error);
    if (r < 0)
        return r;
    tr_mxfp4_decode(wide, blocks, scales, many);
    memcpy(ret, wide + skip, count * sizeof(*ret));
    return 0;
}

/* COUNT elements of PART's data from element AT: VALUES, or zeros where it is NULL. */
static void store(const struct tr_part *part, int64_t at, const float *values, size_t count)
{
    size_t size = tr_dtype_bytes(part->dtype);
    char *to = (char *)part->data + (size_t)at * size;

    if (!values)
        memset(to, 0, count * size);
    else if (part->dtype == TR_F32)
        memcpy(to, values, count * size);
    else
        tr_f32_to_bf16((uint16_t *)(void *)to, values, count);
}

/* A run of PART's data from element AT, in one row; RET: of how many elements. What is beyond the
 * matrix is padding. */
static int get_run(size_t *ret, const struct source *source, const struct tr_hf_place *place,
                   const struct tr_part *part, int64_t at, struct err *error)
{
    enum { RUN = (MOST - 1) * BLOCK }; /* wherever it begins in a block */
    float values[RUN];
    uint64_t first = (uint64_t)(part->first + at), cols = (uint64_t)part->cols,
             row = (uint64_t)part->row0 + first / cols,
             column = (uint64_t)part->col0 + first % cols,
             mine = source->rows / (place->group ? place->group : 1), left = cols - first % cols;
    bool padding = row >= mine || column >= source->cols;
    int r = 0;

    if (left > (uint64_t)(part->count - at))
        left = (uint64_t)(part->count - at);
    if (left > RUN)
        left = RUN;
    if (!padding && left > source->cols - column)
        left = source->cols - column;
    if (!padding)
        r = read_row(values, source, source->expert * source->rows + tr_hf_place_row(place, row),
                     column, (size_t)left, error);
    if (r == 0)
        store(part, at, padding ? NULL : values, (size_t)left);
    *ret = (size_t)left;
    return r;
}

int tr_mxfp4_get(const struct tr_archive *archive, const struct tr_hf_place *place,
                 const struct tr_part *part, struct err *error)
{
    struct source source;
    size_t n = 0;
    int r;

    assert(place->stack && place->transposed && !place->turned);
    assert(part->first >= 0 && part->first + part->count <= part->rows * part->cols);
    r = find_both(&source, archive, place, error);
    for (int64_t k = 0; r == 0 && k < part->count; k += (int64_t)n)
        r = get_run(&n, &source, place, part, k, error);
    return r;
}
