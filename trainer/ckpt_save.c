/*
 * How a checkpoint is written and becomes visible: a folder is filled under another name and then
 * renamed; where the name exists, the two are exchanged in one system call, so the name always
 * exists.
 */
#include "trainer/ckpt_save.h"

#include "base/base.h"
#include "trainer/ckpt_dir.h"
#include "trainer/ckpt_files.h"
#include "trainer/crc.h"
#include "trainer/folder.h"
#include "trainer/hf.h"
#include "trainer/seal.h"
#include "trainer/shares.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <math.h>

#define SAVING ".saving" /* begins the name of a folder that is being filled */

static const char *const weight_suffix[] = {"", NULL};
/* Files that are no tensors: each is there or not. */
static const char *const small_file[] = {"config.json", "model.safetensors.index.json"};

/* ---- checksums ----------------------------------------------------------- */

/* checksums.bin of FOLDER, from what all ranks have left there. */
static int write_sums(const struct tr_archive *archive, const char *folder,
                      const struct tr_team *team, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/checksums.bin", folder);
    size_t n = tr_archive_pieces(archive);
    AUTO_FREE uint32_t *sums = mem_alloc(n * sizeof(*sums));
    int r = tr_shares_collect(sums, archive, folder, team->size, error);

    for (size_t i = 0; i < n; i++)
        sums[i] = htole32(sums[i]);
    return r < 0 ? r : file_write_atomic(path, sums, n * sizeof(*sums), 0644, error);
}

/* ---- trainer.json -------------------------------------------------------- */

/* {name, bytes, crc} of each small file of FOLDER. */
static int sum_small_files(json_t *list, const char *folder, struct err *error)
{
    for (size_t i = 0; i < ARRAY_LEN(small_file); i++) {
        AUTO_FREE char *path = mem_printf("%s/%s", folder, small_file[i]);
        AUTO_FREE char *text = NULL;
        size_t n;
        int r = file_read_all(&text, &n, path, TR_CKPT_SMALL_MAX, error);

        if (r == -ENOENT)
            continue;
        if (r < 0)
            return r;
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I}", "name", small_file[i], "bytes",
                                        (json_int_t)n, "crc", (json_int_t)tr_crc32(0, text, n)));
    }
    return 0;
}

static json_t *list_tensor_files(const struct tr_archive *archive)
{
    json_t *files = json_array();

    for (size_t i = 0; i < archive->count; i++)
        json_array_append_new(
            files,
            json_pack("{s:s, s:I}", "name", strrchr(archive->file[i]->path, '/') + 1, "bytes",
                      (json_int_t)(archive->file[i]->data_at + archive->file[i]->data_bytes)));
    return files;
}

static int write_state(const struct tr_archive *archive, const char *folder,
                       const struct tr_ckpt_what *what, const struct tr_ckpt_state *state,
                       struct err *error)
{
    AUTO_FREE uint32_t *sums = NULL;
    AUTO_JSON *small = json_array(), *o = NULL;
    json_t *skip;
    uint32_t crc;
    int r = tr_ckpt_sums(&sums, &crc, folder, tr_archive_pieces(archive), error);

    if (r == 0)
        r = sum_small_files(small, folder, error);
    if (r < 0)
        return r;
    o = json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:i, s:I, s:I, s:s, s:o, s:o, s:o, s:O, s:I}",
                  "format", "partune-checkpoint", "v", TR_CKPT_FORMAT, "step", state->step,
                  "lr_decay_steps", state->lr_decay_steps, "lr_decay_style",
                  tr_lr_style_names[state->lr_decay_style], "lr_wsd_decay_style",
                  tr_wsd_style_names[state->lr_wsd_decay_style], "lr_wsd_decay_steps",
                  state->lr_wsd_decay_steps, "samples", (json_int_t)state->samples, "seed",
                  (json_int_t)state->seed, "data", state->data, "loss",
                  isfinite(state->loss) ? json_real(state->loss) : json_null(), "model",
                  pl_model_json(what->model), "files", list_tensor_files(archive), "small_files",
                  small, "checksums_crc", (json_int_t)crc);
    json_object_set_new(o, "optimizer", json_string(pl_optimizer_names[what->optimizer]));
    json_object_set_new(o, "sources", tr_identity_json(&state->sources));
    skip = tr_skip_json(&state->skip);
    if (skip)
        json_object_set_new(o, "skip_step", skip);
    tr_seal(o);
    return tr_folder_json(folder, "trainer.json", o, error);
}

/* ---- the steps ----------------------------------------------------------- */

void tr_save_init(struct tr_save *ret, const char *dir, int keep, const struct tr_ckpt_what *what,
                  int step, uint64_t number, const struct tr_team *team)
{
    AUTO_FREE char *prefix = mem_printf("%s/" SAVING, dir);

    assert(step >= 0 && keep >= 0);
    *ret = (struct tr_save){.dir = dir,
                            .keep = keep,
                            .what = *what,
                            .state.step = step,
                            .folder = tr_folder_name(prefix, number),
                            .path = mem_printf("%s/step-%08d", dir, step),
                            .team = team};
}

void tr_save_done(struct tr_save *save)
{
    tr_archive_done(&save->archive);
    free(save->folder);
    free(save->path);
}

double tr_save_bytes(const struct tr_save *save)
{
    double n = 0;

    for (size_t i = 0; i < save->archive.count; i++)
        n += (double)(save->archive.file[i]->data_at + save->archive.file[i]->data_bytes);
    return n;
}

int tr_save_make(struct tr_save *save, bool sweep, struct err *error)
{
    AUTO_FREE char *prefix = mem_printf("%s/" SAVING, save->dir);
    const struct tr_ckpt_what *what = &save->what;

    assert(save->archive.count == 0);
    tr_archive_describe(&save->archive, save->folder, "model", TR_F32, what->model, weight_suffix,
                        what->split_bytes);
    save->model_files = save->archive.count;
    if (what->state)
        tr_archive_describe_state(&save->archive, save->folder, what->model, what->optimizer,
                                  what->split_bytes);
    if (!tr_team_is_root(save->team))
        return 0;
    return tr_folder_make(&save->archive, sweep ? prefix : NULL, save->folder, error);
}

int tr_save_put(struct tr_save *save, struct err *error)
{
    struct tr_archive *archive = &save->archive;
    int r;

    archive->shares = tr_shares_new(archive);
    for (size_t i = 0; i < archive->count; i++)
        archive->file[i]->bounce = save->bounce;
    r = tr_folder_put(archive, &save->what, false, save->team, error);
    if (r == 0 && tr_team_is_root(save->team))
        tr_shares_headers(archive->shares, archive);
    if (r == 0)
        r = tr_shares_leave(archive->shares, save->folder, save->team->rank, error);
    archive->shares = tr_shares_free(archive->shares);
    return r;
}

int tr_save_publish(struct tr_save *save, struct err *error)
{
    AUTO_FREE char *pointer = mem_printf("%s/latest", save->dir);
    AUTO_JSON *config = NULL;
    const char *name = strrchr(save->path, '/') + 1;
    int r;

    if (!tr_team_is_root(save->team))
        return 0;
    r = write_sums(&save->archive, save->folder, save->team, error);
    if (r == 0)
        r = tr_folder_index(&save->archive, save->model_files, save->folder, error);
    if (r == 0 && tr_hf_config(&config, save->what.model, NULL) == 0)
        r = tr_folder_json(save->folder, "config.json", config, error);
    if (r == 0)
        r = write_state(&save->archive, save->folder, &save->what, &save->state, error);
    if (r == 0)
        r = tr_folder_publish(save->folder, save->path, error);
    if (r == 0)
        r = file_write_atomic(pointer, name, strlen(name), 0644, error);
    if (r == 0 && save->keep > 0)
        tr_ckpt_retire(save->dir, save->keep, save->state.step);
    return r;
}

int tr_ckpt_save(char **ret_path, double *ret_bytes, const char *dir, int keep,
                 const struct tr_ckpt_what *what, const struct tr_ckpt_state *state,
                 const struct tr_team *team, struct err *error)
{
    struct tr_save save;
    int r;

    tr_save_init(&save, dir, keep, what, state->step, tr_folder_number(team), team);
    save.state = *state;
    r = tr_team_agree(team, tr_save_make(&save, true, error), error);
    if (r == 0)
        r = tr_team_agree(team, tr_save_put(&save, error), error);
    if (r == 0)
        r = tr_team_agree(team, tr_save_publish(&save, error), error);
    if (r < 0)
        err_wrap(error, "save %s", save.path);
    else if (ret_bytes)
        *ret_bytes = tr_save_bytes(&save);
    if (r == 0 && ret_path)
        *ret_path = TAKE(save.path);
    tr_save_done(&save);
    return r;
}
