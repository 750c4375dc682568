/* Archives: several files as one set of tensors. archive_parts.c moves parts in and out of them,
 * archive_sums.c has their checksums. */
#include "trainer/archive.h"

#include "base/base.h"
#include "trainer/shares.h"

#include <assert.h>
#include <errno.h>

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
    tr_shares_free(archive->shares);
    *archive = (struct tr_archive){0};
}
