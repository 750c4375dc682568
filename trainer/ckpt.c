/*
 * Checkpoints and Hugging Face folders: who writes what, in which order, and how it becomes
 * visible.
 *
 * Every collective step is `r = mine(...); r = tr_together(team, r, e);`, so a failure on one rank
 * is the same failure on all, and no rank is left waiting. A folder is filled under another name
 * and then renamed; where one of that name exists the two are exchanged in one system call, so at
 * no instant is there none.
 */
#include "trainer/ckpt.h"

#include "base/base.h"
#include "trainer/archive.h"
#include "trainer/folder.h"
#include "trainer/hf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { FORMAT = 1, MAX_STATE = 1 << 20 };

static const char *const weight_suffix[] = {"", NULL};
static const char *const state_suffix[] = {".exp_avg", ".exp_avg_sq", NULL};

/* ---- checksums ---- */

static int make_sums_file(const char *folder, size_t pieces, struct err *e)
{
    AUTO_FREE char *path = mem_printf("%s/checksums.bin", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), r = 0;

    if (fd < 0)
        return err_set(e, -errno, "create %s: %s", path, strerror(errno));
    if (ftruncate(fd, (off_t)(pieces * 4)) < 0)
        r = err_set(e, -errno, "create %s: %s", path, strerror(errno));
    close(fd);
    return r;
}

static void put_le32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

/* Write this rank's checksums, of what all ranks have written: piece i at byte 4 i. */
static int write_sums(struct tr_archive *a, const char *folder, const struct tr_team *team,
                      struct err *e)
{
    AUTO_FREE char *path = mem_printf("%s/checksums.bin", folder);
    size_t n = tr_archive_pieces(a);
    AUTO_FREE uint32_t *sums = mem_alloc(n * sizeof(*sums));
    int r = tr_archive_reopen(a, e), fd;

    if (r == 0)
        r = tr_archive_sum(a, sums, team->rank, team->size, e);
    if (r < 0)
        return r;
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, -errno, "open %s: %s", path, strerror(errno));
    for (size_t i = (size_t)team->rank; i < n && r == 0; i += (size_t)team->size) {
        unsigned char word[4];

        put_le32(word, sums[i]);
        if (pwrite(fd, word, sizeof(word), (off_t)(i * 4)) != (ssize_t)sizeof(word))
            r = err_set(e, -EIO, "write %s: %s", path, strerror(errno));
    }
    if (r == 0 && fsync(fd) < 0)
        r = err_set(e, -errno, "sync %s: %s", path, strerror(errno));
    close(fd);
    return r;
}

static int read_sums(uint32_t **ret, uint32_t *ret_crc, const char *folder, size_t pieces,
                     struct err *e)
{
    AUTO_FREE char *path = mem_printf("%s/checksums.bin", folder);
    AUTO_FREE char *bytes = NULL;
    uint32_t *sums;
    size_t n;
    int r = file_read_all(&bytes, &n, path, pieces * 4, e);

    if (r < 0)
        return r;
    if (n != pieces * 4)
        return err_set(e, -EBADMSG, "%s has %zu bytes, not %zu", path, n, pieces * 4);
    sums = mem_alloc((pieces + 1) * sizeof(*sums));
    for (size_t i = 0; i < pieces * 4; i++)
        sums[i / 4] |= (uint32_t)(unsigned char)bytes[i] << 8 * (i % 4);
    *ret_crc = (uint32_t)crc32(0, (const unsigned char *)bytes, (uInt)n);
    *ret = sums;
    return 0;
}

/* ---- trainer.json ---- */

static int write_state(const struct tr_archive *a, const char *folder,
                       const struct tr_ckpt_what *what, const struct tr_ckpt_state *state,
                       struct err *e)
{
    AUTO_FREE uint32_t *sums = NULL;
    AUTO_JSON *files = json_array(), *o = NULL;
    uint32_t crc;
    int r = read_sums(&sums, &crc, folder, tr_archive_pieces(a), e);

    if (r < 0)
        return r;
    for (size_t i = 0; i < a->count; i++)
        json_array_append_new(
            files, json_pack("{s:s, s:I}", "name", strrchr(a->file[i]->path, '/') + 1, "bytes",
                             (json_int_t)(a->file[i]->data_at + a->file[i]->data_bytes)));
    o = json_pack("{s:s, s:i, s:i, s:I, s:I, s:s, s:o, s:o, s:O, s:I}", "format",
                  "partune-checkpoint", "v", FORMAT, "step", state->step, "samples",
                  (json_int_t)state->samples, "seed", (json_int_t)state->seed, "data", state->data,
                  "loss", isfinite(state->loss) ? json_real(state->loss) : json_null(), "model",
                  pl_model_json(what->model), "files", files, "checksums_crc", (json_int_t)crc);
    return tr_folder_json(folder, "trainer.json", o, e);
}

int tr_same_model(const json_t *theirs, const struct pl_model *m, const char *whose, struct err *e)
{
    AUTO_JSON *ours = pl_model_json(m);
    const char *key;
    json_t *v;

    json_object_foreach(ours, key, v) {
        const json_t *w = json_object_get(theirs, key);

        if (!strcmp(key, "name") || !strcmp(key, "seq") || (w && json_equal(v, w)))
            continue;
        AUTO_FREE char *a = w ? jx_dump(w) : mem_strdup("absent"), *b = jx_dump(v);

        return err_set(e, -EINVAL, "the model of %s has %s %.60s where this run's has %.60s", whose,
                       key, a, b);
    }
    return 0;
}

static int load_state(json_t **ret, const char *path, struct err *e)
{
    AUTO_FREE char *file = mem_printf("%s/trainer.json", path);
    const char *format = "";
    int v = 0, r = jx_load(ret, file, MAX_STATE, e);

    if (r == 0)
        r = jx_get_str(&format, *ret, "format", 64, e);
    if (r == 0)
        r = jx_get_int(&v, *ret, "v", 0, INT32_MAX, e);
    if (r == 0 && (!str_eq(format, "partune-checkpoint") || v != FORMAT))
        r = err_set(e, -EINVAL, "format %s version %d is not partune-checkpoint version %d", format,
                    v, FORMAT);
    return r < 0 ? err_wrap(e, "checkpoint %s", path) : 0;
}

static int parse_state(struct tr_ckpt_state *s, const json_t *o, struct err *e)
{
    int64_t samples = 0;
    int r = jx_need(o, "step", e);

    s->loss = (double)NAN;
    if (r == 0)
        r = jx_get_int(&s->step, o, "step", 0, INT32_MAX, e);
    if (r == 0)
        r = jx_get_i64(&samples, o, "samples", 0, INT64_MAX, e);
    if (r == 0)
        r = jx_get_i64(&s->seed, o, "seed", INT64_MIN, INT64_MAX, e);
    if (r == 0)
        r = jx_get_f64(&s->loss, o, "loss", -1e300, 1e300, e);
    if (r == 0)
        r = jx_copy_str(s->data, sizeof(s->data), o, "data", e);
    s->samples = (uint64_t)samples;
    return r;
}

static int peek(struct tr_ckpt_state *ret, json_t **ret_json, const char *path,
                const struct pl_model *m, struct err *e)
{
    struct tr_ckpt_state s = {0};
    int r = load_state(ret_json, path, e);

    if (r < 0)
        return r;
    r = parse_state(&s, *ret_json, e);
    if (r == 0)
        r = tr_same_model(json_object_get(*ret_json, "model"), m, "the checkpoint", e);
    if (r < 0)
        return err_wrap(e, "checkpoint %s", path);
    *ret = s;
    return 0;
}

int tr_ckpt_peek(struct tr_ckpt_state *ret, const char *path, const struct pl_model *m,
                 struct err *e)
{
    AUTO_JSON *o = NULL;

    return peek(ret, &o, path, m, e);
}

/* ---- folders of checkpoints ---- */

/* Step of "step-00000012", or of "step-00000012.old", which is there for an instant where a file
 * system cannot exchange two names; -1: another name. */
static int step_of(const char *name)
{
    char digits[32] = "";
    int64_t n;

    if (!str_starts(name, "step-") || strlen(name) >= sizeof(digits))
        return -1;
    snprintf(digits, sizeof(digits), "%s", name + 5);
    if (str_ends(digits, ".old"))
        digits[strlen(digits) - 4] = '\0';
    return str_to_i64(&n, digits, 0, INT32_MAX) < 0 ? -1 : (int)n;
}

static bool complete(const char *dir, const char *name)
{
    AUTO_FREE char *state = mem_printf("%s/%s/trainer.json", dir, name);

    return file_exists(state);
}

/* Highest complete step in DIR below BELOW into NAME; false if none. */
static bool highest(char name[64], const char *dir, int below)
{
    DIR *d = opendir(dir);
    struct dirent *it;
    int best = -1;

    while (d && (it = readdir(d))) {
        int n = step_of(it->d_name);

        if (n < below && (n > best || (n == best && !str_ends(it->d_name, ".old"))) &&
            complete(dir, it->d_name)) {
            best = n;
            snprintf(name, 64, "%.63s", it->d_name);
        }
    }
    if (d)
        closedir(d);
    return best >= 0;
}

int tr_ckpt_latest(char **ret, const char *dir, struct err *e)
{
    AUTO_FREE char *link = mem_printf("%s/latest", dir);
    AUTO_FREE char *text = NULL;
    char name[64];

    if (file_read_all(&text, NULL, link, 63, NULL) == 0) {
        text[strcspn(text, "\n")] = '\0';
        if (step_of(text) >= 0 && complete(dir, text)) {
            *ret = mem_printf("%s/%s", dir, text);
            return 0;
        }
    }
    if (!highest(name, dir, INT32_MAX))
        return err_set(e, -ENOENT, "no checkpoint in %s", dir);
    *ret = mem_printf("%s/%s", dir, name);
    return 0;
}

/* Remove checkpoints below the KEEP newest ones. Each loses its name first, so none is ever seen
 * half removed. */
static void retire(const char *dir, int keep, int newest)
{
    char name[64];
    int below = newest + 1;

    for (int kept = 0; highest(name, dir, below); kept++) {
        below = step_of(name);
        if (kept < keep)
            continue;
        AUTO_FREE char *from = mem_printf("%s/%s", dir, name);
        AUTO_FREE char *to = mem_printf("%s/.removing", dir);

        file_remove_tree(to, NULL);
        if (rename(from, to) < 0)
            return;
        file_remove_tree(to, NULL);
    }
}

/* ---- save ---- */

/* Rank 0's last steps: small files, the name, the pointer, retention. */
static int finish(const struct tr_archive *a, size_t model_files, const char *dir,
                  const char *saving, const char *path, const struct tr_ckpt_what *what,
                  const struct tr_ckpt_state *state, struct err *e)
{
    AUTO_FREE char *pointer = mem_printf("%s/latest", dir);
    AUTO_JSON *config = NULL;
    const char *name = strrchr(path, '/') + 1;
    int r = tr_folder_index(a, model_files, saving, e);

    if (r == 0 && tr_hf_config(&config, what->model, NULL) == 0)
        r = tr_folder_json(saving, "config.json", config, e);
    if (r == 0)
        r = write_state(a, saving, what, state, e);
    if (r == 0)
        r = tr_folder_publish(saving, path, e);
    if (r == 0)
        r = file_write_atomic(pointer, name, strlen(name), 0644, e);
    return r;
}

int tr_ckpt_room(const char *dir, struct err *e)
{
    return tr_folder_room(dir, e);
}

static double total_bytes(const struct tr_archive *a)
{
    double n = 0;

    for (size_t i = 0; i < a->count; i++)
        n += (double)(a->file[i]->data_at + a->file[i]->data_bytes);
    return n;
}

int tr_ckpt_save(char **ret_path, double *ret_bytes, const char *dir, int keep,
                 const struct tr_ckpt_what *what, const struct tr_ckpt_state *state,
                 const struct tr_team *team, struct err *e)
{
    AUTO_FREE char *saving = mem_printf("%s/.saving", dir);
    AUTO_FREE char *path = mem_printf("%s/step-%08d", dir, state->step);
    struct tr_archive a = {0};
    size_t model_files;
    int r;

    tr_archive_describe(&a, saving, "model", TR_F32, what->model, weight_suffix, what->split_bytes);
    model_files = a.count;
    if (what->state)
        tr_archive_describe(&a, saving, "optimizer", TR_F32, what->model, state_suffix,
                            what->split_bytes);
    r = tr_folder_fill(&a, saving, what, false, team, e);
    if (r == 0 && tr_lead(team))
        r = make_sums_file(saving, tr_archive_pieces(&a), e);
    r = tr_together(team, r, e);
    if (r == 0)
        r = tr_together(team, write_sums(&a, saving, team, e), e);
    if (r == 0) {
        if (tr_lead(team)) {
            r = finish(&a, model_files, dir, saving, path, what, state, e);
            if (r == 0 && keep > 0)
                retire(dir, keep, state->step);
        }
        r = tr_together(team, r, e);
    }
    if (r == 0 && ret_bytes)
        *ret_bytes = total_bytes(&a);
    tr_archive_done(&a);
    if (r < 0)
        return err_wrap(e, "save %s", path);
    if (ret_path)
        *ret_path = TAKE(path);
    return 0;
}

/* ---- load ---- */

static int open_listed(struct tr_archive *a, const char *path, const json_t *files, struct err *e)
{
    size_t i;
    json_t *f;

    if (!json_array_size(files))
        return err_set(e, -EINVAL, "trainer.json lists no files");
    json_array_foreach(files, i, f) {
        const char *name = "";
        int r = jx_need(f, "name", e);

        if (r == 0)
            r = jx_get_str(&name, f, "name", 200, e);
        if (r == 0 && strchr(name, '/'))
            r = err_set(e, -EINVAL, "trainer.json lists a file outside its folder: %s", name);
        if (r == 0)
            r = tr_archive_open(a, path, name, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int verify(const struct tr_archive *a, const char *path, const json_t *state,
                  const struct tr_team *team, struct err *e)
{
    AUTO_FREE uint32_t *sums = NULL;
    uint32_t crc;
    int64_t expected = -1;
    int r = read_sums(&sums, &crc, path, tr_archive_pieces(a), e);

    if (r == 0)
        r = jx_get_i64(&expected, state, "checksums_crc", 0, UINT32_MAX, e);
    if (r == 0 && expected != (int64_t)crc)
        r = err_set(e, -EBADMSG, "%s/checksums.bin is damaged", path);
    if (r == 0)
        r = tr_archive_verify(a, sums, team->rank, team->size, e);
    return r;
}

static int load_mine(struct tr_ckpt_state *ret, const char *path, const struct tr_ckpt_what *what,
                     const struct tr_team *team, struct err *e)
{
    AUTO_JSON *o = NULL;
    struct tr_archive a = {0};
    int r = peek(ret, &o, path, what->model, e);

    if (r == 0)
        r = open_listed(&a, path, json_object_get(o, "files"), e);
    if (r == 0)
        r = verify(&a, path, o, team, e);
    if (r == 0)
        r = tr_folder_get(&a, what, false, e);
    tr_archive_done(&a);
    return r;
}

int tr_ckpt_load(struct tr_ckpt_state *ret, const char *path, const struct tr_ckpt_what *what,
                 const struct tr_team *team, struct err *e)
{
    struct tr_ckpt_state s = {0};
    int r = tr_together(team, load_mine(&s, path, what, team, e), e);

    if (r < 0)
        return err_wrap(e, "load %s", path);
    *ret = s;
    return 0;
}
