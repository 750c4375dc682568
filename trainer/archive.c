/* Archives: several files as one set of tensors, the rank's parts in them, and checksums by piece.
 */
#include "trainer/archive.h"

#include "base/base.h"
#include "trainer/hf_names.h"
#include "trainer/stop.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 1 << 20 };                /* bytes under one checksum */
enum { CONVERT = 4096 };                 /* elements converted at a time */
#define SPLIT_BYTES UINT64_C(5000000000) /* as Hugging Face splits */

/* ---- description --------------------------------------------------------- */

static struct tr_st *add_file(struct tr_archive *archive, struct tr_st *owned_file)
{
    MEM_GROW(archive->file, archive->count, archive->cap);
    return archive->file[archive->count++] = owned_file;
}

/* All parameters of the model: the table of a run on one rank, which holds every tensor whole. */
void tr_archive_whole(struct pl_params *ret, const struct pl_model *model)
{
    struct pl_layout l;

    pl_layout_replicas(&l, 1);
    pl_params_build(ret, model, &l, 0);
}

const struct pl_param *tr_archive_param(const struct pl_params *all, const char *name)
{
    for (int i = 0; i < all->n + all->fixed; i++)
        if (!strcmp(all->p[i].name, name))
            return &all->p[i];
    return NULL;
}

static uint64_t param_bytes(const struct pl_param *param, enum tr_dtype dtype)
{
    return param->shape[0] * param->shape[1] * tr_dtype_bytes(dtype);
}

/* Tensors to describe: of the rows of ALL under each SUFFIX, with OPTIMIZER those of its state. */
struct wanted {
    const struct pl_params *all;
    const char *const *suffix;
    const enum pl_optimizer *optimizer; /* NULL: all */
};

static bool is_wanted(const struct wanted *wanted, const struct pl_param *param, const char *suffix)
{
    for (int k = 0; wanted->optimizer && k < TR_PART_KINDS; k++)
        if (str_eq(suffix, tr_part_suffix[k]))
            return tr_part_exists((enum tr_part_kind)k, *wanted->optimizer, param->tensor);
    return true;
}

/* Rows of ALL that have a tensor with SUFFIX: state is of what gradients move. */
static int rows(const struct pl_params *all, const char *suffix)
{
    return *suffix ? all->n : all->n + all->fixed;
}

/* How many files of at most SPLIT bytes hold all tensors, none of them divided. */
static int count_files(const struct wanted *wanted, enum tr_dtype dtype, uint64_t split)
{
    uint64_t used = 0;
    int n = 1;

    for (const char *const *suffix = wanted->suffix; *suffix; suffix++)
        for (int i = 0; i < rows(wanted->all, *suffix); i++) {
            uint64_t b = param_bytes(&wanted->all->p[i], dtype);

            if (!is_wanted(wanted, &wanted->all->p[i], *suffix))
                continue;
            if (used && used + b > split) {
                n++;
                used = 0;
            }
            used += b;
        }
    return n;
}

static struct tr_st *next_file(struct tr_archive *archive, const char *folder, const char *base,
                               int number, int files)
{
    AUTO_FREE char *path =
        files == 1 ? mem_printf("%s/%s.safetensors", folder, base)
                   : mem_printf("%s/%s-%05d-of-%05d.safetensors", folder, base, number, files);
    AUTO_JSON *meta = json_pack("{s:s}", "format", "pt"); /* readers of the format ask for it */

    return add_file(archive, tr_st_new(path, meta));
}

static void add_param(struct tr_st *file, const struct pl_param *param, const char *suffix,
                      enum tr_dtype dtype)
{
    AUTO_FREE char *name = mem_printf("%s%s", param->name, suffix);
    int64_t rows = (int64_t)param->shape[0], columns = (int64_t)param->shape[1];
    int64_t shape[3] = {rows, columns, columns};

    if (param->dims == 3) {
        shape[0] = param->expert;
        shape[1] = rows / param->expert;
    }
    tr_st_add(file, name, dtype, param->dims, shape);
}

static void describe(struct tr_archive *archive, const char *folder, const char *base,
                     enum tr_dtype dtype, const struct wanted *wanted, uint64_t split_bytes)
{
    uint64_t split = split_bytes ? split_bytes : SPLIT_BYTES;
    struct tr_st *s;
    int n = count_files(wanted, dtype, split), i = 1;

    s = next_file(archive, folder, base, i, n);
    for (const char *const *suffix = wanted->suffix; *suffix; suffix++)
        for (int k = 0; k < rows(wanted->all, *suffix); k++) {
            const struct pl_param *p = &wanted->all->p[k];

            if (!is_wanted(wanted, p, *suffix))
                continue;
            if (s->data_bytes && s->data_bytes + param_bytes(p, dtype) > split)
                s = next_file(archive, folder, base, ++i, n);
            add_param(s, p, *suffix, dtype);
        }
    assert(i == n); /* the names say how many files there are */
}

void tr_archive_describe_all(struct tr_archive *archive, const char *folder, const char *base,
                             enum tr_dtype dtype, const struct pl_params *all,
                             const char *const *suffix, uint64_t split_bytes)
{
    describe(archive, folder, base, dtype, &(struct wanted){all, suffix, NULL}, split_bytes);
}

void tr_archive_describe_state(struct tr_archive *archive, const char *folder,
                               const struct pl_model *model, enum pl_optimizer optimizer,
                               uint64_t split_bytes)
{
    static const char *const suffix[] = {".exp_avg", ".exp_avg_sq", ".momentum_buffer", NULL};
    struct pl_params all;

    tr_archive_whole(&all, model);
    describe(archive, folder, "optimizer", TR_F32, &(struct wanted){&all, suffix, &optimizer},
             split_bytes);
    pl_params_done(&all);
}

void tr_archive_describe(struct tr_archive *archive, const char *folder, const char *base,
                         enum tr_dtype dtype, const struct pl_model *model,
                         const char *const *suffix, uint64_t split_bytes)
{
    struct pl_params all;

    tr_archive_whole(&all, model);
    tr_archive_describe_all(archive, folder, base, dtype, &all, suffix, split_bytes);
    pl_params_done(&all);
}

int tr_archive_create(struct tr_archive *archive, struct err *error)
{
    for (size_t i = 0; i < archive->count; i++) {
        int r = tr_st_create(archive->file[i], error);

        if (r < 0)
            return r;
    }
    return 0;
}

int tr_archive_attach(struct tr_archive *archive, struct err *error)
{
    for (size_t i = 0; i < archive->count; i++) {
        int r = tr_st_attach(archive->file[i], error);

        if (r < 0)
            return r;
    }
    return 0;
}

int tr_archive_sync(const struct tr_archive *archive, struct err *error)
{
    for (size_t i = 0; i < archive->count; i++) {
        int r = tr_st_sync(archive->file[i], error);

        if (r < 0)
            return r;
    }
    return 0;
}

int tr_archive_reopen(struct tr_archive *archive, struct err *error)
{
    for (size_t i = 0; i < archive->count; i++) {
        int r = tr_st_reopen(archive->file[i], error);

        if (r < 0)
            return r;
    }
    return 0;
}

const struct tr_st_tensor *tr_archive_find(const struct tr_st **ret_file,
                                           const struct tr_archive *archive, const char *name)
{
    for (size_t i = 0; i < archive->count; i++) {
        const struct tr_st_tensor *t = tr_st_find(archive->file[i], name);

        if (t) {
            if (ret_file)
                *ret_file = archive->file[i];
            return t;
        }
    }
    return NULL;
}

int tr_archive_open(struct tr_archive *archive, const char *folder, const char *name,
                    struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/%s", folder, name);
    struct tr_st *s;
    int r = tr_st_open(&s, path, error);

    if (r < 0)
        return r;
    for (size_t i = 0; i < s->count; i++)
        if (tr_archive_find(NULL, archive, s->tensor[i].name)) {
            r = err_set(error, -EINVAL, "%s: tensor %s is also in another file", path,
                        s->tensor[i].name);
            tr_st_free(s);
            return r;
        }
    add_file(archive, s);
    return 0;
}

void tr_archive_done(struct tr_archive *archive)
{
    for (size_t i = 0; i < archive->count; i++)
        tr_st_free(archive->file[i]);
    free(archive->file);
    *archive = (struct tr_archive){0};
}

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

static int put_run(const struct tr_st *file, const struct tr_st_tensor *tensor,
                   const struct tr_part *part, struct run run, struct err *error)
{
    float wide[CONVERT];

    if (part->dtype == TR_F32)
        return tr_st_write(file, tensor, run.at, (size_t)run.n,
                           (const float *)part->data + run.from, error);
    for (int64_t i = 0; i < run.n; i += CONVERT) {
        size_t n = (size_t)(run.n - i < CONVERT ? run.n - i : CONVERT);
        int r;

        tr_bf16_to_f32(wide, (const uint16_t *)part->data + run.from + i, n);
        r = tr_st_write(file, tensor, run.at + (uint64_t)i, n, wide, error);
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
    const struct tr_st *s;
    const struct tr_st_tensor *t = tr_archive_find(&s, archive, name);

    if (!t)
        return err_set(error, -ENOENT, "tensor %s is not part of the model", name);
    for (int64_t k = 0; k < part->count;) {
        struct run run = run_at(part, k, t->shape[0], columns(t));
        int r = run.padding ? 0 : put_run(s, t, part, run, error);

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

/* Columns of the folder's tensor are our rows: move what PART has of our COLUMN, through WIDE. Rows
 * that are apart there are written one by one: another rank may write those between. */
static int move_column(const struct tr_st *file, const struct tr_st_tensor *tensor,
                       const struct tr_hf_place *place, const struct tr_part *part, int64_t column,
                       float *wide, bool put, struct err *error)
{
    int64_t first = row_from(part, part->first, column),
            n = row_from(part, part->first + part->count, column) - first, real = n,
            step = place->block == 1 ? (int64_t)place->group : 1;
    uint64_t row = (uint64_t)(part->row0 + first);
    uint64_t at = (place->across + (uint64_t)(part->col0 + column)) * (uint64_t)columns(tensor) +
                  tr_hf_place_row(place, row);
    int r = 0;

    if (step == 1 && row + (uint64_t)n > place->block) /* the rest is padding */
        real = row < place->block ? (int64_t)(place->block - row) : 0;
    memset(wide, 0, sizeof(*wide) * (size_t)(n * step));
    if (!put && real)
        r = tr_st_read(wide, file, tensor, at, (size_t)((real - 1) * step + 1), error);
    for (int64_t i = 0; i < n && r == 0; i++)
        move_value(part, (first + i) * part->cols + column - part->first, &wide[i * step], put);
    if (put && real && step == 1)
        return tr_st_write(file, tensor, at, (size_t)real, wide, error);
    for (int64_t i = 0; put && i < real && r == 0; i++)
        r = tr_st_write(file, tensor, at + (uint64_t)(i * step), 1, &wide[i * step], error);
    return r;
}

static int move_part(const struct tr_archive *archive, const struct tr_hf_place *place,
                     const struct tr_part *part, bool put, struct err *error)
{
    const struct tr_st *file;
    const struct tr_st_tensor *tensor;
    int r = find_shaped(&file, &tensor, archive, place->name, place->shape, place->stack, error);

    assert(part->first >= 0 && part->first + part->count <= part->rows * part->cols);
    if (r == 0 && place->transposed) {
        size_t step = place->block == 1 ? place->group : 1;
        AUTO_FREE float *wide = mem_alloc(sizeof(*wide) * step * (size_t)(part->rows + 1));

        for (int64_t c = 0; c < part->cols && r == 0; c++)
            r = move_column(file, tensor, place, part, c, wide, put, error);
        return r;
    }
    for (int64_t k = 0; r == 0 && k < part->count;) {
        int64_t column = (part->first + k) % part->cols;
        uint64_t row = (uint64_t)(part->row0 + (part->first + k) / part->cols),
                 there = tr_hf_place_row(place, row);
        struct run run = {.at = there * (uint64_t)columns(tensor) + (uint64_t)(part->col0 + column),
                          .from = k,
                          .n = part->cols - column};

        if (run.n > part->count - k)
            run.n = part->count - k;
        r = put ? put_run(file, tensor, part, run, error) : get_run(file, tensor, part, run, error);
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

/* ---- checksums ----------------------------------------------------------- */

static size_t tensor_pieces(const struct tr_st_tensor *tensor)
{
    return (size_t)((tensor->end - tensor->begin + PIECE - 1) / PIECE);
}

size_t tr_archive_pieces(const struct tr_archive *archive)
{
    size_t n = 0;

    for (size_t i = 0; i < archive->count; i++) {
        n++;
        for (size_t k = 0; k < archive->file[i]->count; k++)
            n += tensor_pieces(&archive->file[i]->tensor[k]);
    }
    return n;
}

static int sum_bytes(uint32_t *ret, const struct tr_st *file, uint64_t at, uint64_t size,
                     struct err *error)
{
    unsigned char buf[1 << 14];
    uLong crc = crc32(0, NULL, 0);

    while (size) {
        size_t want = size < sizeof(buf) ? (size_t)size : sizeof(buf);
        ssize_t got = pread(file->fd, buf, want, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_set(error, got ? -errno : -ENODATA, "read %s at byte %" PRIu64 ": %s",
                           file->path, at, got ? strerror(errno) : "the file is too short");
        crc = crc32(crc, buf, (uInt)got);
        at += (uint64_t)got;
        size -= (uint64_t)got;
    }
    *ret = (uint32_t)crc;
    return 0;
}

/* One visit of the pieces: SUMS is filled, or compared with. */
struct visit {
    uint32_t *sums;
    bool compare;
    int rank, size;
    size_t piece;
};

/* Bytes [at, end) of the file as pieces of at most STEP bytes; TENSOR is NULL for the header. */
static int visit_range(struct visit *visit, const struct tr_st *file,
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
        if (!visit->compare)
            visit->sums[visit->piece] = sum;
        else if (sum != visit->sums[visit->piece])
            return err_set(error, -EBADMSG, "%s: %s%s is damaged at or after byte %" PRIu64,
                           file->path, tensor ? "tensor " : "the header",
                           tensor ? tensor->name : "", at);
    }
    return 0;
}

static int visit_all(struct visit *visit, const struct tr_archive *archive, struct err *error)
{
    assert(visit->rank >= 0 && visit->rank < visit->size);
    for (size_t i = 0; i < archive->count; i++) {
        const struct tr_st *s = archive->file[i];
        int r = visit_range(visit, s, NULL, 0, s->data_at, s->data_at, error);

        for (size_t k = 0; k < s->count && r == 0; k++)
            r = visit_range(visit, s, &s->tensor[k], s->data_at + s->tensor[k].begin,
                            s->data_at + s->tensor[k].end, PIECE, error);
        if (r < 0)
            return r;
    }
    assert(visit->piece == tr_archive_pieces(archive)); /* as many as the sums have room for */
    return 0;
}

int tr_archive_sum(const struct tr_archive *archive, uint32_t *sums, int rank, int size,
                   struct err *error)
{
    struct visit v = {.sums = sums, .rank = rank, .size = size};

    return visit_all(&v, archive, error);
}

int tr_archive_verify(const struct tr_archive *archive, uint32_t *sums, int rank, int size,
                      struct err *error)
{
    struct visit v = {.sums = sums, .compare = true, .rank = rank, .size = size};

    return visit_all(&v, archive, error);
}
