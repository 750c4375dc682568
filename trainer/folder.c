/*
 * Folders of tensors that all ranks fill: the steps that checkpoints and Hugging Face folders
 * share.
 *
 * A folder is filled under another name and then renamed; where the name exists, the two are
 * exchanged in one system call, so the name always exists.
 */
#include "trainer/folder.h"

#include "base/base.h"
#include "kernels/kernels.h"
#include "trainer/hf_names.h"
#include "trainer/mxfp4.h"
#include "trainer/stop.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int agree_alone(void *ctx, int status, char *text)
{
    (void)ctx;
    (void)text;
    return status;
}

static void share_alone(void *ctx, void *bytes, size_t size)
{
    (void)ctx;
    (void)bytes;
    (void)size;
}

const struct tr_team tr_team_alone = {
    .rank = 0, .size = 1, .agree = agree_alone, .share = share_alone};

int tr_team_agree(const struct tr_team *team, int status, struct err *error)
{
    struct err own = {0};
    char *text = error ? error->text : own.text;

    assert(status <= 0);
    if (status == 0)
        text[0] = '\0';
    status = team->agree(team->ctx, status, text);
    assert(status <= 0);
    if (status < 0 && error)
        error->code = status;
    return status;
}

bool tr_team_is_root(const struct tr_team *team)
{
    return team->rank == 0;
}

int tr_team_stale(const struct tr_team *team, const char *what, struct err *error)
{
    char host[128] = "";
    struct err none = {0};

    (void)gethostname(host, sizeof(host) - 1);
    error = error ? error : &none;
    if (error->code != -ENOMEM)
        error->code = -ESTALE;
    return err_wrap(error, "rank %d on host %s does not see %s of rank 0", team->rank, host, what);
}

/* ---- moving parts -------------------------------------------------------- */

/* Parts are read; or those are written that can be at any time; or the others, afterwards. */
enum move { GET, PUT, PUT_SECOND };

/* One part into ARCHIVE or out of it, in the folder's own form. */
static int move_foreign(const struct tr_archive *archive, const struct tr_ckpt_what *what,
                        const struct pl_param *whole, const struct tr_part *part, enum move move,
                        struct err *error)
{
    bool put = move != GET;
    enum tr_hf_family family;
    struct tr_hf_place place;
    int r = tr_hf_family_of(&family, what->model, error);

    if (r < 0)
        return r;
    tr_hf_place(&place, family, what->model, whole);
    if (put && tr_hf_place_is_second(&place) != (move == PUT_SECOND))
        return 0;
    for (int i = 0; put && r == 0; i++) {
        struct tr_hf_place copy = place;

        if (!tr_hf_copy(&copy, what->model, whole->tensor, i))
            break;
        r = tr_archive_put(archive, copy.name, part, error);
    }
    if (r < 0)
        return r;
    if (!put && place.stack && tr_mxfp4_has(archive, place.name))
        return tr_mxfp4_get(archive, &place, part, error);
    if (!tr_hf_place_is_plain(&place, whole))
        return put ? tr_archive_put_at(archive, &place, part, error)
                   : tr_archive_get_at(archive, &place, part, error);
    return put ? tr_archive_put(archive, place.name, part, error)
               : tr_archive_get(archive, place.name, part, whole->shape, error);
}

/* A part as the host has it: in ROOM, where it lies in memory that the host does not reach. */
static struct tr_part bring(void *room, const struct tr_ckpt_what *what, const struct tr_part *part)
{
    struct tr_part here = *part;

    if (!room)
        return here;
    here.data = room;
    kn_copy(what->pool, room, part->data, (size_t)part->count * tr_dtype_bytes(part->dtype));
    kn_wait(what->pool);
    return here;
}

static void take_back(const struct tr_ckpt_what *what, const struct tr_part *part,
                      const struct tr_part *here)
{
    if (here->data == part->data)
        return;
    kn_copy(what->pool, part->data, here->data, (size_t)part->count * tr_dtype_bytes(part->dtype));
    kn_wait(what->pool);
}

/* Of the largest part, where parts have to be brought; else 0. */
static size_t room_of(const struct tr_ckpt_what *what)
{
    size_t most = 0;

    for (size_t i = 0; i < what->count && kn_apart(what->pool); i++) {
        size_t bytes = (size_t)what->part[i].count * tr_dtype_bytes(what->part[i].dtype);

        most = bytes > most ? bytes : most;
    }
    return most;
}

static int room_make(void **ret, size_t bytes, struct err *error)
{
    *ret = bytes ? kn_alloc(bytes) : NULL;
    if (bytes && !*ret)
        return err_set(error, -ENOMEM, "no memory of the host for a part of %zu bytes", bytes);
    return 0;
}

/* ---- writing the tensors ------------------------------------------------- */

static int put_parts(const struct tr_archive *archive, const struct tr_ckpt_what *what,
                     bool weights_only, enum move move, struct err *error)
{
    size_t most = room_of(what);
    struct pl_params all;
    void *room;
    int r = room_make(&room, most, error);

    tr_archive_whole(&all, what->model);
    for (size_t i = 0; i < what->count && r == 0; i++) {
        const struct tr_part *p = &what->part[i];
        char name[TR_ST_NAME + 16];
        struct tr_part here;

        if (!p->save || (weights_only && p->kind != TR_PART_WEIGHT))
            continue;
        here = bring(room, what, p);
        snprintf(name, sizeof(name), "%s%s", p->name, tr_part_suffix[p->kind]);
        r = what->foreign
                ? move_foreign(archive, what, tr_archive_param(&all, p->name), &here, move, error)
                : tr_archive_put(archive, name, &here, error);
    }
    pl_params_done(&all);
    if (room)
        kn_free(room, most);
    return r < 0 ? r : tr_archive_sync(archive, error);
}

/* model.safetensors.index.json, where the weights are in several files: all files but optimizer's.
 */
int tr_folder_index(const struct tr_archive *archive, size_t nfiles, const char *folder,
                    struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/model.safetensors.index.json", folder);
    AUTO_FREE char *text = NULL;
    AUTO_JSON *map = json_object(), *index = NULL;
    uint64_t bytes = 0;

    if (nfiles < 2)
        return 0;
    for (size_t i = 0; i < nfiles; i++) {
        bytes += archive->file[i]->data_bytes;
        for (size_t k = 0; k < archive->file[i]->count; k++)
            json_object_set_new(map, archive->file[i]->tensor[k].name,
                                json_string(strrchr(archive->file[i]->path, '/') + 1));
    }
    index =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    text = jx_dump(index);
    return file_write_atomic(path, text, strlen(text), 0644, error);
}

int tr_folder_json(const char *folder, const char *name, const json_t *json, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/%s", folder, name);
    AUTO_FREE char *text = json_dumps(json, JSON_INDENT(2));

    return file_write_atomic(path, text, strlen(text), 0644, error);
}

/* By making a folder, as saving will: access() ignores quotas and what a file server makes of our
 * user. */
int tr_folder_room(const char *folder, struct err *error)
{
    AUTO_FREE char *probe = mem_printf("%s/.room.XXXXXX", folder);
    int r = file_mkdirs(folder, 0755, error);

    if (r == 0 && (!mkdtemp(probe) || rmdir(probe) < 0))
        r = err_set(error, -errno, "write to folder %s: %s", folder, strerror(errno));
    return r;
}

int tr_folder_same(const char *folder, const struct tr_team *team, struct err *error)
{
    char name[] = ".same.XXXXXX";
    AUTO_FREE char *mine = mem_printf("%s/%s", folder, name);
    int fd = -1, r = 0;

    if (tr_team_is_root(team)) {
        fd = mkostemp(mine, O_CLOEXEC);
        r = fd < 0 ? err_set(error, -errno, "write to folder %s: %s", folder, strerror(errno)) : 0;
        if (fd >= 0)
            close(fd);
        memcpy(name, mine + strlen(mine) + 1 - sizeof(name), sizeof(name));
    }
    r = tr_team_agree(team, r, error);
    if (r == 0)
        team->share(team->ctx, name, sizeof(name));
    if (r == 0 && !tr_team_is_root(team)) {
        AUTO_FREE char *theirs = mem_printf("%s/%s", folder, name);

        if (access(theirs, F_OK) < 0) {
            err_set(error, -errno, "folder %s is a different one on this rank: %s", folder,
                    strerror(errno));
            r = tr_team_stale(team, "the folder", error);
        }
    }
    r = tr_team_agree(team, r, error);
    if (tr_team_is_root(team) && fd >= 0)
        unlink(mine);
    return r;
}

/* A name that no host has ever looked up: over a network file system, one that was used before may
 * still mean, on another host, the folder that has been renamed since. */
uint64_t tr_folder_number(const struct tr_team *team)
{
    uint64_t number = rng_mix((uint64_t)clock_wall_ms() ^ rng_mix((uint64_t)getpid()));

    team->share(team->ctx, &number, sizeof(number));
    return number;
}

char *tr_folder_name(const char *prefix, uint64_t number)
{
    return mem_printf("%s.%08" PRIx32, prefix, (uint32_t)number);
}

/* Remove what earlier saves under names with PREFIX have left. */
static int sweep(const char *prefix, struct err *error)
{
    AUTO_FREE char *folder = mem_strdup(prefix);
    char *slash = strrchr(folder, '/');
    const char *base = slash ? prefix + (slash + 1 - folder) : prefix;
    size_t n = strlen(base);
    struct dirent *it;
    DIR *d;
    int r = 0;

    if (slash)
        slash[slash == folder] = '\0';
    d = opendir(slash ? folder : ".");
    while (d && r == 0 && (it = readdir(d))) {
        AUTO_FREE char *path = mem_printf("%s%s", prefix, it->d_name + strnlen(it->d_name, n));

        if (!strncmp(it->d_name, base, n) && (it->d_name[n] == '.' || it->d_name[n] == '\0'))
            r = file_remove_tree(path, error);
    }
    if (d)
        closedir(d);
    return r;
}

int tr_folder_make(struct tr_archive *archive, const char *prefix, const char *folder,
                   struct err *error)
{
    int r = prefix ? sweep(prefix, error) : 0;

    if (r == 0)
        r = file_mkdirs(folder, 0755, error);
    return r < 0 ? r : tr_archive_create(archive, error);
}

int tr_folder_put(struct tr_archive *archive, const struct tr_ckpt_what *what, bool weights_only,
                  const struct tr_team *team, struct err *error)
{
    if (!tr_team_is_root(team) && tr_archive_attach(archive, error) < 0)
        return tr_team_stale(team, "the folder", error);
    return put_parts(archive, what, weights_only, PUT, error);
}

int tr_folder_put_second(struct tr_archive *archive, const struct tr_ckpt_what *what,
                         struct err *error)
{
    int r = tr_archive_reopen(archive, error);

    return r < 0 ? r : put_parts(archive, what, true, PUT_SECOND, error);
}

/* Give the finished folder FROM its name TO, for good. */
int tr_folder_publish(const char *from, const char *to, struct err *error)
{
    AUTO_FREE char *inside = mem_printf("%s/.", from);
    AUTO_FREE char *old = mem_printf("%s.old", to);
    int r = file_sync_parent(inside);

    if (r < 0)
        return err_set(error, r, "sync %s: %s", from, strerror(-r));
    if (!file_exists(to)) {
        r = rename(from, to) < 0 ? -errno : 0;
    } else if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        r = 0; /* FROM is now the former one */
    } else {
        r = file_remove_tree(old, error); /* a file system that cannot exchange */
        if (r == 0 && (rename(to, old) < 0 || rename(from, to) < 0))
            r = -errno;
    }
    if (r == 0)
        r = file_sync_parent(to);
    if (r < 0)
        return err_set(error, r, "rename %s to %s: %s", from, to, strerror(-r));
    file_remove_tree(old, NULL);
    return file_remove_tree(from, error);
}

/* Fill the parts from ARCHIVE. With WEIGHTS_ONLY those of the optimizer are left alone. */
int tr_folder_get(const struct tr_archive *archive, const struct tr_ckpt_what *what,
                  bool weights_only, struct err *error)
{
    size_t most = room_of(what);
    struct pl_params all;
    void *room;
    int r = room_make(&room, most, error);

    tr_archive_whole(&all, what->model);
    for (size_t i = 0; i < what->count && r == 0; i++) {
        const struct tr_part *p = &what->part[i];
        const struct pl_param *whole = tr_archive_param(&all, p->name);
        char name[TR_ST_NAME + 16];
        struct tr_part here;

        if (weights_only && p->kind != TR_PART_WEIGHT)
            continue;
        here = bring(room, what, p);
        snprintf(name, sizeof(name), "%s%s", p->name, tr_part_suffix[p->kind]);
        tr_stop_check();
        if (whole && what->foreign)
            r = move_foreign(archive, what, whole, &here, GET, error);
        else
            r = whole ? tr_archive_get(archive, name, &here, whole->shape, error)
                      : err_set(error, -EINVAL, "tensor %s is not part of the model", p->name);
        take_back(what, p, &here);
    }
    pl_params_done(&all);
    if (room)
        kn_free(room, most);
    return r;
}
