/* Hugging Face folders, read and written: config.json, one or several weight files, their index. */
#include "trainer/ckpt.h"

#include "base/base.h"
#include "trainer/archive.h"
#include "trainer/folder.h"
#include "trainer/hf.h"

#include <errno.h>

static const char *const weight_suffix[] = {"", NULL};

static int open_indexed(struct tr_archive *a, const char *folder, const char *index, struct err *e)
{
    AUTO_JSON *o = NULL, *seen = json_object();
    const json_t *map;
    const char *tensor;
    json_t *file;
    int r = jx_load(&o, index, 64 << 20, e);

    if (r < 0)
        return r;
    map = json_object_get(o, "weight_map");
    if (!json_is_object(map))
        return err_set(e, -EINVAL, "%s has no weight_map", index);
    json_object_foreach((json_t *)map, tensor, file) {
        const char *name = json_string_value(file);

        if (!name || strchr(name, '/'))
            return err_set(e, -EINVAL, "%s: tensor %.100s is in no file of the folder", index,
                           tensor);
        if (json_object_get(seen, name))
            continue;
        json_object_set_new(seen, name, json_true());
        r = tr_archive_open(a, folder, name, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A tensor that our model lacks would be a part of theirs that we leave out. */
static int refuse_extra(const struct tr_archive *a, const struct pl_model *m, struct err *e)
{
    struct pl_params all;
    int r = 0;

    tr_archive_whole(&all, m);
    for (size_t i = 0; i < a->count && r == 0; i++)
        for (size_t k = 0; k < a->file[i]->count && r == 0; k++) {
            const char *name = a->file[i]->tensor[k].name;

            if (!tr_archive_param(&all, name) && !str_ends(name, "rotary_emb.inv_freq") &&
                !(m->tied && str_eq(name, "lm_head.weight")))
                r = err_set(e, -EINVAL, "%s: tensor %s is not part of the model", a->file[i]->path,
                            name);
        }
    pl_params_done(&all);
    return r;
}

static int hf_load_mine(const char *folder, const struct tr_ckpt_what *what, struct err *e)
{
    AUTO_FREE char *index = mem_printf("%s/model.safetensors.index.json", folder);
    struct tr_archive a = {0};
    int r;

    if (file_exists(index))
        r = open_indexed(&a, folder, index, e);
    else
        r = tr_archive_open(&a, folder, "model.safetensors", e);
    if (r == 0)
        r = refuse_extra(&a, what->model, e);
    if (r == 0)
        r = tr_folder_get(&a, what, true, e);
    tr_archive_done(&a);
    return r;
}

int tr_hf_load(const char *folder, const struct tr_ckpt_what *what, const struct tr_team *team,
               struct err *e)
{
    int r = tr_together(team, hf_load_mine(folder, what, e), e);

    return r < 0 ? err_wrap(e, "init from %s", folder) : 0;
}

static int hf_finish(const struct tr_archive *a, const char *saving, const char *folder,
                     json_t *config, struct err *e)
{
    int r = tr_folder_index(a, a->count, saving, e);

    if (r == 0)
        r = tr_folder_json(saving, "config.json", config, e);
    return r < 0 ? r : tr_folder_publish(saving, folder, e);
}

/* Only what looks like a model may be replaced. */
static int may_replace(const char *folder, struct err *e)
{
    AUTO_FREE char *config = mem_printf("%s/config.json", folder);

    if (!file_exists(folder) || file_exists(config))
        return 0;
    return err_set(e, -EEXIST, "%s exists and is not a model's folder", folder);
}

/* PATH without slashes at its end: the folder is filled beside its place, not in it. */
static char *plain(const char *path)
{
    char *p = mem_strdup(path);

    for (size_t n = strlen(p); n > 1 && p[n - 1] == '/'; n--)
        p[n - 1] = '\0';
    return p;
}

/* The folder that PATH is in; caller frees. */
static char *parent_of(const char *path)
{
    char *parent = plain(path), *slash = strrchr(parent, '/');

    if (slash) {
        slash[slash == parent] = '\0';
        return parent;
    }
    free(parent);
    return mem_strdup(".");
}

int tr_hf_room(const char *path, struct err *e)
{
    AUTO_FREE char *folder = plain(path), *parent = parent_of(path);
    int r = may_replace(folder, e);

    return r < 0 ? r : tr_folder_room(parent, e);
}

/* Claim FOLDER, which may not exist yet and is replaced as a whole, by a file next to it. */
static int claim(struct tr_claim **ret, char **ret_warning, const char *folder, const char *parent,
                 struct err *e)
{
    const char *slash = strrchr(folder, '/');
    AUTO_FREE char *path = mem_printf("%s/.%s.lock", parent, slash ? slash + 1 : folder);

    return tr_claim_file(ret, ret_warning, path, folder, e);
}

int tr_hf_open(struct tr_claim **ret, char **ret_warning, const char *path,
               const struct tr_team *team, struct err *e)
{
    AUTO_FREE char *folder = plain(path), *parent = parent_of(path), *warning = NULL;
    AUTO(tr_claim) *mine = NULL;
    int r = 0;

    if (tr_lead(team)) {
        r = tr_hf_room(path, e);
        if (r == 0)
            r = claim(&mine, &warning, folder, parent, e);
    }
    r = tr_together(team, r, e);
    if (r == 0)
        r = tr_folder_same(parent, team, e);
    if (r < 0)
        return r;
    *ret = TAKE(mine);
    *ret_warning = TAKE(warning);
    return 0;
}

int tr_hf_save(const char *path, enum tr_dtype dtype, const struct tr_ckpt_what *what,
               const struct tr_team *team, struct err *e)
{
    AUTO_FREE char *folder = plain(path), *prefix = mem_printf("%s.saving", folder);
    AUTO_FREE char *saving = tr_folder_temporary(prefix, team);
    AUTO_JSON *config = NULL;
    struct tr_archive a = {0};
    int r = tr_hf_config(&config, what->model, e);

    if (r == 0)
        r = may_replace(folder, e);
    r = tr_together(team, r, e);
    if (r < 0)
        return err_wrap(e, "save %s", folder);
    json_object_set_new(config, "torch_dtype",
                        json_string(dtype == TR_BF16  ? "bfloat16"
                                    : dtype == TR_F16 ? "float16"
                                                      : "float32"));
    tr_archive_describe(&a, saving, "model", dtype, what->model, weight_suffix, what->split_bytes);
    r = tr_together(team, tr_folder_fill(&a, prefix, saving, what, true, team, e), e);
    if (r == 0)
        r = tr_together(team, tr_lead(team) ? hf_finish(&a, saving, folder, config, e) : 0, e);
    tr_archive_done(&a);
    return r < 0 ? err_wrap(e, "save %s", folder) : 0;
}
