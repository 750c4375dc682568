/* Hugging Face folders, read and written: config.json, one or several weight files, their index. */
#include "trainer/ckpt.h"

#include "base/base.h"
#include "trainer/archive.h"
#include "trainer/folder.h"
#include "trainer/hf.h"
#include "trainer/hf_names.h"
#include "trainer/mxfp4.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static const char *const weight_suffix[] = {"", NULL};

static int open_indexed(struct tr_archive *archive, const char *folder, const char *index,
                        struct err *error)
{
    AUTO_JSON *o = NULL, *seen = json_object();
    const json_t *map;
    const char *tensor;
    json_t *file;
    int r = jx_load(&o, index, 64 << 20, error);

    if (r < 0)
        return r;
    map = json_object_get(o, "weight_map");
    if (!json_is_object(map))
        return err_set(error, -EINVAL, "%s has no weight_map", index);
    json_object_foreach((json_t *)map, tensor, file) {
        const char *name = json_string_value(file);

        if (!name || strchr(name, '/'))
            return err_set(error, -EINVAL, "%s: the file of tensor %.100s is not in the folder",
                           index, tensor);
        if (json_object_get(seen, name))
            continue;
        json_object_set_new(seen, name, json_true());
        r = tr_archive_open(archive, folder, name, error);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A tensor that our model lacks would be a part of theirs that we leave out. */
static int refuse_extra(const struct tr_archive *archive, enum tr_hf_family family,
                        const struct pl_model *model, struct err *error)
{
    struct pl_params all;
    int r = 0;

    tr_hf_tensors(&all, family, model);
    for (size_t i = 0; i < archive->count && r == 0; i++)
        for (size_t k = 0; k < archive->file[i]->count && r == 0; k++) {
            const char *name = archive->file[i]->tensor[k].name;
            const struct pl_param *param = tr_archive_param(&all, name);

            if (param && param->dims == 3 && tr_mxfp4_has(archive, name))
                r = err_set(error, -EINVAL, "%s: tensor %s is there in mxfp4, too",
                            archive->file[i]->path, name);
            else if (!param && !tr_mxfp4_belongs(&all, name) &&
                     !tr_hf_ignorable(family, name, model->tied))
                r = err_set(error, -EINVAL, "%s: tensor %s is not part of the model",
                            archive->file[i]->path, name);
        }
    pl_params_done(&all);
    return r;
}

static int hf_load_mine(const char *folder, const struct tr_ckpt_what *what, struct err *error)
{
    AUTO_FREE char *index = mem_printf("%s/model.safetensors.index.json", folder);
    struct tr_ckpt_what foreign = *what;
    struct tr_archive a = {0};
    enum tr_hf_family family;
    int r = tr_hf_family_of(&family, what->model, error);

    if (r < 0)
        return r;
    foreign.foreign = true;
    if (file_exists(index))
        r = open_indexed(&a, folder, index, error);
    else
        r = tr_archive_open(&a, folder, "model.safetensors", error);
    if (r == 0)
        r = refuse_extra(&a, family, what->model, error);
    if (r == 0)
        r = tr_folder_get(&a, &foreign, true, error);
    tr_archive_done(&a);
    return r;
}

int tr_hf_load(const char *folder, const struct tr_ckpt_what *what, const struct tr_team *team,
               struct err *error)
{
    int r = tr_team_agree(team, hf_load_mine(folder, what, error), error);

    return r < 0 ? err_wrap(error, "init from %s", folder) : 0;
}

static int hf_finish(const struct tr_archive *archive, const char *saving, const char *folder,
                     json_t *config, struct err *error)
{
    int r = tr_folder_index(archive, archive->count, saving, error);

    if (r == 0)
        r = tr_folder_json(saving, "config.json", config, error);
    return r < 0 ? r : tr_folder_publish(saving, folder, error);
}

/* The first folder found in FOLDER, as -EEXIST. */
static int refuse_folders_in(const char *folder, struct err *error)
{
    DIR *d = opendir(folder);
    struct dirent *it;
    struct stat st;
    int r = d ? 0 : err_set(error, -errno, "read folder %s: %s", folder, strerror(errno));

    while (r == 0 && (it = readdir(d)))
        if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0 &&
            fstatat(dirfd(d), it->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            r = err_set(error, -EEXIST, "%s contains the folder %s, which would be lost", folder,
                        it->d_name);
    if (d)
        closedir(d);
    return r;
}

/* Only what looks like a model may be replaced, and nothing that somebody may still need: a
 * checkpoint looks like one, and whole folders of them may be inside. */
static int may_replace(const char *folder, struct err *error)
{
    AUTO_FREE char *config = mem_printf("%s/config.json", folder);
    AUTO_FREE char *state = mem_printf("%s/trainer.json", folder);

    if (!file_exists(folder))
        return 0;
    if (!file_exists(config))
        return err_set(error, -EEXIST, "%s exists and is not a model directory", folder);
    if (file_exists(state))
        return err_set(error, -EEXIST, "%s is a checkpoint: choose another folder", folder);
    return refuse_folders_in(folder, error);
}

/* PATH without slashes at its end: the folder is filled next to its place, not in it. */
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

int tr_hf_check_dir(const char *path, struct err *error)
{
    AUTO_FREE char *folder = plain(path), *parent = parent_of(path);
    int r = may_replace(folder, error);

    return r < 0 ? r : tr_folder_room(parent, error);
}

/* Claim FOLDER, which may not exist yet and is replaced as a whole, by a file next to it. */
static int lock_folder(struct tr_lock **ret, char **ret_warning, const char *folder,
                       const char *parent, struct err *error)
{
    const char *slash = strrchr(folder, '/');
    AUTO_FREE char *path = mem_printf("%s/.%s.lock", parent, slash ? slash + 1 : folder);

    return tr_lock_file(ret, ret_warning, path, folder, error);
}

int tr_hf_open(struct tr_lock **ret, char **ret_warning, const char *path,
               const struct tr_team *team, struct err *error)
{
    AUTO_FREE char *folder = plain(path), *parent = parent_of(path), *warning = NULL;
    AUTO(tr_lock) *mine = NULL;
    int r = 0;

    if (tr_team_is_root(team)) {
        r = tr_hf_check_dir(path, error);
        if (r == 0)
            r = lock_folder(&mine, &warning, folder, parent, error);
    }
    r = tr_team_agree(team, r, error);
    if (r == 0)
        r = tr_folder_same(parent, team, error);
    if (r < 0)
        return r;
    *ret = TAKE(mine);
    *ret_warning = TAKE(warning);
    return 0;
}

int tr_hf_save(const char *path, enum tr_dtype dtype, const struct tr_ckpt_what *what,
               const struct tr_team *team, struct err *error)
{
    AUTO_FREE char *folder = plain(path), *prefix = mem_printf("%s.saving", folder);
    AUTO_FREE char *saving = tr_folder_name(prefix, tr_folder_number(team));
    AUTO_JSON *config = NULL;
    struct tr_ckpt_what foreign = *what;
    struct pl_params tensors;
    struct tr_archive a = {0};
    enum tr_hf_family family = TR_HF_LLAMA;
    int r = tr_hf_config(&config, what->model, error);

    if (r == 0)
        r = tr_hf_family_of(&family, what->model, error);
    if (r == 0)
        r = may_replace(folder, error);
    r = tr_team_agree(team, r, error);
    if (r < 0)
        return err_wrap(error, "save %s", folder);
    json_object_set_new(config, "torch_dtype",
                        json_string(dtype == TR_BF16  ? "bfloat16"
                                    : dtype == TR_F16 ? "float16"
                                                      : "float32"));
    foreign.foreign = true;
    tr_hf_tensors(&tensors, family, what->model);
    tr_archive_describe_all(&a, saving, "model", dtype, &tensors, weight_suffix, what->split_bytes);
    pl_params_done(&tensors);
    if (tr_team_is_root(team))
        r = tr_folder_make(&a, prefix, saving, error);
    r = tr_team_agree(team, r, error);
    if (r == 0)
        r = tr_team_agree(team, tr_folder_put(&a, &foreign, true, team, error), error);
    if (r == 0 && family == TR_HF_GPT_OSS)
        r = tr_team_agree(team, tr_folder_put_second(&a, &foreign, error), error);
    if (r == 0)
        r = tr_team_agree(
            team, tr_team_is_root(team) ? hf_finish(&a, saving, folder, config, error) : 0, error);
    tr_archive_done(&a);
    return r < 0 ? err_wrap(error, "save %s", folder) : 0;
}
