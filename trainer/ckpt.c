/*
 * Checkpoints: who may write to their folder, and how one is read. ckpt_save.c writes them.
 *
 * Every collective step is `r = mine(...); r = tr_team_agree(team, r, e);`, so a failure on one
 * rank is the same failure on all, and no rank is left waiting.
 */
#include "trainer/ckpt.h"

#include "base/base.h"
#include "trainer/archive.h"
#include "trainer/ckpt_files.h"
#include "trainer/crc.h"
#include "trainer/folder.h"
#include "trainer/seal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

enum { MAX_STATE = 1 << 20 };

int tr_ckpt_sums(uint32_t **ret, uint32_t *ret_crc, const char *folder, size_t pieces,
                 struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/checksums.bin", folder);
    AUTO_FREE char *bytes = NULL;
    uint32_t *sums;
    size_t n;
    int r = file_read_all(&bytes, &n, path, pieces * 4, error);

    if (r < 0)
        return r;
    if (n != pieces * 4)
        return err_set(error, -EBADMSG, "%s has %zu bytes, not %zu", path, n, pieces * 4);
    sums = mem_alloc((pieces + 1) * sizeof(*sums));
    for (size_t i = 0; i < pieces * 4; i++)
        sums[i / 4] |= (uint32_t)(unsigned char)bytes[i] << 8 * (i % 4);
    *ret_crc = tr_crc32(0, bytes, n);
    *ret = sums;
    return 0;
}

/* ---- trainer.json -------------------------------------------------------- */

/* A key of one of two objects whose values differ in it. */
static const char *differing(const json_t *theirs, const json_t *ours)
{
    const json_t *side[] = {ours, theirs};
    const char *key;
    json_t *v;

    for (int i = 0; i < 2; i++)
        json_object_foreach((json_t *)side[i], key, v) {
            const json_t *other = json_object_get(side[!i], key);

            if (!other || !json_equal(v, other))
                return key;
        }
    return "";
}

static int other_model(const char *whose, const char *key, const json_t *theirs, const json_t *ours,
                       struct err *error)
{
    AUTO_FREE char *a = theirs ? jx_dump(theirs) : mem_strdup("absent");
    AUTO_FREE char *b = ours ? jx_dump(ours) : mem_strdup("absent");

    return err_set(error, -EINVAL, "the model of %s has %s %.60s where this run's has %.60s", whose,
                   key, a, b);
}

int tr_same_model(const json_t *theirs, const struct pl_model *model, const char *whose,
                  struct err *error)
{
    AUTO_JSON *ours = pl_model_json(model);
    const char *key;
    json_t *v;

    json_object_foreach(ours, key, v) {
        const json_t *w = json_object_get(theirs, key);

        if (!strcmp(key, "name") || !strcmp(key, "seq") || (w && json_equal(v, w)))
            continue;
        if (json_is_object(v) && json_is_object(w)) { /* moe */
            const char *inner = differing(w, v);
            AUTO_FREE char *path = mem_printf("%s.%s", key, inner);

            return other_model(whose, path, json_object_get(w, inner), json_object_get(v, inner),
                               error);
        }
        return other_model(whose, key, w, v, error);
    }
    json_object_foreach((json_t *)theirs, key, v) /* a word that has its default is in neither */
        if (strcmp(key, "name") != 0 && !json_object_get(ours, key))
            return other_model(whose, key, v, NULL, error);
    return 0;
}

/* A missing file or wrong content is damage: another checkpoint may be whole. A read error of the
 * disk, or lack of memory, is not. */
static int as_damage(int status, struct err *error)
{
    if (status == -EINVAL || status == -ENOENT || status == -ENODATA || status == -EFBIG ||
        status == -EILSEQ || status == -ERANGE || status == -ENOTDIR || status == -EISDIR ||
        status == -ENOTSUP)
        status = -EBADMSG;
    if (error)
        error->code = status;
    return status;
}

/* Before the seal, which would name itself where a key and its sum are gone. */
static int need_keys(const json_t *object, struct err *error)
{
    static const char *const needed[] = {"format", "v",    "step",  "samples",
                                         "seed",   "data", "model", "files"};

    if (!json_is_object(object))
        return err_set(error, -EINVAL, "not an object");
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (!json_object_get(object, needed[i]) || json_is_null(json_object_get(object, needed[i])))
            return err_set(error, -EINVAL, "key \"%s\" is missing", needed[i]);
    return 0;
}

/* trainer.json of checkpoint PATH as an object whose seal, if it has one, is whole; RET_CRC is of
 * its bytes. */
static int load_state(json_t **ret, uint32_t *ret_crc, const char *path, struct err *error)
{
    AUTO_FREE char *file = mem_printf("%s/trainer.json", path);
    AUTO_FREE char *text = NULL;
    AUTO_JSON *o = NULL;
    size_t n;
    int r = file_read_all(&text, &n, file, MAX_STATE, error);

    if (r == 0) {
        r = jx_parse(&o, text, n, error);
        if (r == 0)
            r = need_keys(o, error);
        if (r == 0 && tr_sealed(o))
            r = tr_seal_check(o, error);
        if (r < 0)
            err_wrap(error, "%s", file);
    }
    if (r < 0)
        return as_damage(r, error);
    *ret_crc = tr_crc32(0, text, n);
    *ret = TAKE(o);
    return 0;
}

static int check_format(int *ret, const json_t *object, struct err *error)
{
    const char *format = "";
    int v = 0, r = jx_get_str(&format, object, "format", 64, error);

    if (r == 0)
        r = jx_get_int(&v, object, "v", 1, INT32_MAX, error);
    if (r == 0 && !str_eq(format, "partune-checkpoint"))
        r = err_set(error, -EINVAL, "format \"%s\" is not partune-checkpoint", format);
    if (r == 0 && v == TR_CKPT_FORMAT && !tr_sealed(object))
        r = err_set(error, -EINVAL, "key \"sums\" is missing");
    if (r < 0)
        return as_damage(r, error);
    if (v > TR_CKPT_FORMAT)
        return err_set(error, -EINVAL, "format version %d is newer than this program's %d", v,
                       TR_CKPT_FORMAT);
    *ret = v;
    return 0;
}

static int parse_schedule(struct tr_ckpt_state *state, const json_t *object, struct err *error)
{
    int style = 0, wsd = 0;
    int r = jx_get_enum(&style, object, "lr_decay_style", tr_lr_style_names, error);

    if (r == 0)
        r = jx_get_enum(&wsd, object, "lr_wsd_decay_style", tr_wsd_style_names, error);
    if (r == 0)
        r = jx_get_int(&state->lr_wsd_decay_steps, object, "lr_wsd_decay_steps", 0, INT32_MAX,
                       error);
    state->lr_decay_style = (enum tr_lr_style)style;
    state->lr_wsd_decay_style = (enum tr_wsd_style)wsd;
    return r;
}

static int parse_state(struct tr_ckpt_state *state, const json_t *object, struct err *error)
{
    int64_t samples = 0;
    int r;

    state->loss = (double)NAN;
    r = jx_get_int(&state->step, object, "step", 0, INT32_MAX, error);
    if (r == 0) /* files of earlier versions lack it */
        r = jx_get_int(&state->lr_decay_steps, object, "lr_decay_steps", 0, INT32_MAX, error);
    if (r == 0)
        r = parse_schedule(state, object, error);
    if (r == 0)
        r = jx_get_i64(&samples, object, "samples", 0, INT64_MAX, error);
    if (r == 0)
        r = jx_get_i64(&state->seed, object, "seed", INT64_MIN, INT64_MAX, error);
    if (r == 0)
        r = jx_get_f64(&state->loss, object, "loss", -1e300, 1e300, error);
    if (r == 0)
        r = jx_copy_str(state->data, sizeof(state->data), object, "data", error);
    if (r == 0)
        r = tr_identity_parse(&state->sources, json_object_get(object, "sources"), error);
    if (r == 0)
        r = tr_skip_parse(&state->skip, object, error);
    if (r == 0 && state->skip.skipped > state->step)
        r = err_set(error, -EINVAL, "skip_step has %d skipped steps of %d", state->skip.skipped,
                    state->step);
    state->samples = (uint64_t)samples;
    return as_damage(r, error);
}

/* Moments of one optimizer are no start for another. */
static int same_optimizer(const json_t *object, enum pl_optimizer ours, struct err *error)
{
    int theirs = PL_ADAMW; /* files of earlier versions do not say it */
    int r = jx_get_enum(&theirs, object, "optimizer", pl_optimizer_names, error);

    if (r < 0)
        return as_damage(r, error);
    if (theirs == (int)ours)
        return 0;
    return err_set(error, -EINVAL,
                   "the checkpoint was trained with the optimizer %s, this run has %s: resume with "
                   "--optimizer %s, or start afresh from its weights with --init and its folder",
                   pl_optimizer_names[theirs], pl_optimizer_names[ours],
                   pl_optimizer_names[theirs]);
}

static int peek(struct tr_ckpt_state *ret, json_t **ret_json, uint32_t *ret_crc, const char *path,
                const struct pl_model *model, enum pl_optimizer optimizer, struct err *error)
{
    struct tr_ckpt_state s = {0};
    AUTO_JSON *o = NULL;
    int r = load_state(&o, ret_crc, path, error);

    if (r < 0)
        return r;
    r = check_format(&s.format, o, error);
    if (r == 0)
        r = parse_state(&s, o, error);
    if (r == 0)
        r = tr_same_model(json_object_get(o, "model"), model, "the checkpoint", error);
    if (r == 0)
        r = same_optimizer(o, optimizer, error);
    if (r < 0)
        return err_wrap(error, "%s/trainer.json", path);
    *ret = s;
    *ret_json = TAKE(o);
    return 0;
}

int tr_ckpt_peek(struct tr_ckpt_state *ret, const char *path, const struct pl_model *model,
                 enum pl_optimizer optimizer, struct err *error)
{
    AUTO_JSON *o = NULL;
    uint32_t crc;

    return peek(ret, &o, &crc, path, model, optimizer, error);
}

int tr_ckpt_check_dir(const char *dir, struct err *error)
{
    return tr_folder_room(dir, error);
}

int tr_ckpt_open(struct tr_lock **ret, char **ret_warning, const char *dir,
                 const struct tr_team *team, struct err *error)
{
    struct tr_lock *lock = NULL;
    char *warning = NULL;
    int r = 0;

    if (tr_team_is_root(team)) {
        r = tr_ckpt_check_dir(dir, error);
        if (r == 0)
            r = tr_lock_dir(&lock, &warning, dir, error);
    }
    r = tr_team_agree(team, r, error);
    if (r == 0)
        r = tr_folder_same(dir, team, error);
    if (r < 0) {
        tr_lock_free(lock);
        free(warning);
        return err_wrap(error, "checkpoints in %s", dir);
    }
    *ret = lock;
    *ret_warning = warning;
    return 0;
}

/* ---- load ---------------------------------------------------------------- */

/* A checkpoint whose small files are read and whose tensors are open. */
struct opened {
    struct tr_ckpt_state state;
    struct tr_archive a;
    json_t *json;      /* trainer.json */
    uint32_t *sums;    /* (pieces of the archive) */
    uint32_t crc;      /* of trainer.json, which says the sums of all else */
    uint32_t sums_crc; /* of checksums.bin as it is read here */
};

static void opened_done(struct opened *opened)
{
    tr_archive_done(&opened->a);
    json_decref(opened->json);
    free(opened->sums);
    *opened = (struct opened){0};
}

static int open_file(struct tr_archive *archive, const char *path, const json_t *file,
                     struct err *error)
{
    const char *name = "";
    const struct tr_st *s;
    int64_t bytes = -1;
    int r = jx_need(file, "name", error);

    if (r == 0)
        r = jx_get_str(&name, file, "name", 200, error);
    if (r == 0)
        r = jx_get_i64(&bytes, file, "bytes", 0, INT64_MAX, error);
    if (r == 0 && strchr(name, '/'))
        r = err_set(error, -EINVAL, "trainer.json lists a file outside its folder: %s", name);
    if (r == 0)
        r = tr_archive_open(archive, path, name, error);
    if (r < 0)
        return r;
    s = archive->file[archive->count - 1];
    if (bytes >= 0 && (uint64_t)bytes != s->data_at + s->data_bytes)
        return err_set(error, -EBADMSG, "%s has %" PRIu64 " bytes where trainer.json says %" PRId64,
                       s->path, s->data_at + s->data_bytes, bytes);
    return 0;
}

static int open_listed(struct tr_archive *archive, const char *path, const json_t *files,
                       struct err *error)
{
    size_t i;
    json_t *f;

    if (!json_array_size(files))
        return err_set(error, -EINVAL, "trainer.json lists no files");
    json_array_foreach(files, i, f) {
        int r = open_file(archive, path, f, error);

        if (r < 0)
            return r;
    }
    return 0;
}

/* The small files are what trainer.json says of them. */
static int check_small_files(const char *path, const json_t *list, struct err *error)
{
    size_t i;
    json_t *f;

    json_array_foreach(list, i, f) {
        const char *name = json_string_value(json_object_get(f, "name"));
        json_int_t bytes = json_integer_value(json_object_get(f, "bytes"));
        json_int_t crc = json_integer_value(json_object_get(f, "crc"));
        AUTO_FREE char *file = mem_printf("%s/%s", path, name ? name : "");
        AUTO_FREE char *text = NULL;
        size_t n;
        int r = file_read_all(&text, &n, file, TR_CKPT_SMALL_MAX, error);

        if (r < 0)
            return r;
        if ((json_int_t)n != bytes || crc != (json_int_t)tr_crc32(0, text, n))
            return err_set(error, -EBADMSG, "%s is damaged", file);
    }
    return 0;
}

/* Read all of PATH but the tensors. -EBADMSG: a file is damaged or missing. */
static int open_here(struct opened *opened, const char *path, const struct tr_ckpt_what *what,
                     struct err *error)
{
    int64_t expected = -1;
    int r = peek(&opened->state, &opened->json, &opened->crc, path, what->model, what->optimizer,
                 error);

    if (r < 0)
        return r;
    r = open_listed(&opened->a, path, json_object_get(opened->json, "files"), error);
    if (r == 0)
        r = tr_ckpt_sums(&opened->sums, &opened->sums_crc, path, tr_archive_pieces(&opened->a),
                         error);
    if (r == 0)
        r = jx_get_i64(&expected, opened->json, "checksums_crc", 0, UINT32_MAX, error);
    if (r == 0 && expected != (int64_t)opened->sums_crc)
        r = err_set(error, -EBADMSG, "%s/checksums.bin is damaged", path);
    return as_damage(r, error);
}

/* Rank 0 decides: only what it finds is damage. Another rank that finds something else sees another
 * folder, or an old view of this one. */
static int open_alike(struct opened *opened, const char *path, const struct tr_ckpt_what *what,
                      const struct tr_team *team, struct err *error)
{
    uint32_t crc = 0;
    int r = 0;

    if (tr_team_is_root(team)) {
        r = open_here(opened, path, what, error);
        if (r == 0)
            r = as_damage(
                check_small_files(path, json_object_get(opened->json, "small_files"), error),
                error);
        crc = opened->crc;
    }
    r = tr_team_agree(team, r, error);
    if (r < 0)
        return r;
    team->share(team->ctx, &crc, sizeof(crc));
    if (!tr_team_is_root(team)) {
        r = open_here(opened, path, what, error);
        if (r == 0 && opened->crc != crc)
            r = err_set(error, -ESTALE, "%s/trainer.json differs", path);
        if (r < 0)
            r = tr_team_stale(team, "the checkpoint", error);
    }
    return tr_team_agree(team, r, error);
}

int tr_ckpt_load(struct tr_ckpt_state *ret, const char *path, const struct tr_ckpt_what *what,
                 const struct tr_team *team, struct err *error)
{
    struct opened o = {0};
    int r = open_alike(&o, path, what, team, error);

    if (r == 0) {
        r = tr_archive_verify(&o.a, o.sums, team->rank, team->size, error);
        r = tr_team_agree(team, as_damage(r, error), error);
    }
    if (r == 0)
        r = tr_team_agree(team, tr_folder_get(&o.a, what, false, error), error);
    if (r == 0)
        *ret = o.state;
    opened_done(&o);
    return r < 0 ? err_wrap(error, "load %s", path) : 0;
}
