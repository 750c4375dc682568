#include "trainer/prepare.h"

#include "base/base.h"
#include "trainer/jsonl.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <zlib.h>

enum { RUN = 4096, CHUNK = 1 << 16, SNIFF = 8192 };

struct work {
    const struct tr_prepare *p;
    struct tr_dataset_writer *w;
    struct tr_prepared done;
    uint64_t tokens; /* seen so far */
    uint64_t taken;  /* bytes of input */
};

static bool full(const struct work *k)
{
    return k->p->max_bytes && k->taken >= k->p->max_bytes;
}

static bool held_out(const struct tr_prepare *p, uint64_t number)
{
    uint64_t h = rng_mix(rng_mix(p->seed ^ UINT64_C(0x76616c6964)) + number);

    return (double)(h >> 11) * 0x1p-53 < p->validation;
}

/* N ids to the split of their document, or to those of the runs that they are in. */
static int add(struct work *k, const unsigned char *ids, size_t n, struct err *e)
{
    size_t each = tr_id_bytes(k->p->id);

    while (n) {
        uint64_t number = k->p->by_document ? (uint64_t)k->done.documents : k->tokens / RUN;
        size_t room = k->p->by_document ? n : RUN - (size_t)(k->tokens % RUN),
               some = n < room ? n : room;
        int r = tr_dataset_add(k->w, held_out(k->p, number) ? TR_SPLIT_VALIDATION : TR_SPLIT_TRAIN,
                               ids, some, e);

        if (r < 0)
            return r;
        k->tokens += some;
        ids += some * each;
        n -= some;
    }
    return 0;
}

static int check_ids(const struct work *k, const unsigned char *p, size_t n, const char *path,
                     uint64_t at, struct err *e)
{
    size_t each = tr_id_bytes(k->p->id);

    for (size_t i = 0; i < n && k->p->id != TR_ID_U8; i++) {
        uint32_t id = (uint32_t)p[i * each] | (uint32_t)p[i * each + 1] << 8;

        if (each == 4)
            id |= (uint32_t)p[i * each + 2] << 16 | (uint32_t)p[i * each + 3] << 24;
        if (id >= (uint32_t)k->p->vocab)
            return err_set(e, -ERANGE,
                           "%s: the id %u at byte %" PRIu64 " is outside the vocabulary of %d",
                           path, id, at + i * each, k->p->vocab);
    }
    return 0;
}

static bool is_text(const unsigned char *p, size_t n)
{
    return !memchr(p, 0, n < SNIFF ? n : SNIFF);
}

/* The chunks of an open file. A chunk of ids is cut to whole ids; what is over comes first in the
 * next. */
static int add_open(struct work *k, gzFile f, const char *path, bool *ret_skip, struct err *e)
{
    static const unsigned char end = 0;
    size_t each = tr_id_bytes(k->p->id), kept = 0;
    AUTO_FREE unsigned char *buf = mem_alloc(CHUNK + 8);
    uint64_t at = 0;
    bool text = k->p->id == TR_ID_U8;

    for (;;) {
        int got = gzread(f, buf + kept, CHUNK), code, r;
        size_t n = kept + (size_t)(got > 0 ? got : 0), ids = n / each;

        if (got < 0 || (got == 0 && !gzeof(f)))
            return err_set(e, -EIO, "read %s: %s", path, gzerror(f, &code));
        if (got == 0)
            break;
        if (at == 0 && text && !is_text(buf, n)) {
            *ret_skip = true;
            return 0;
        }
        r = check_ids(k, buf, ids, path, at, e);
        if (r == 0)
            r = add(k, buf, ids, e);
        if (r < 0)
            return r;
        at += ids * each;
        k->taken += ids * each;
        kept = n - ids * each;
        memmove(buf, buf + ids * each, kept);
        if (full(k))
            break;
    }
    if (kept && !full(k))
        return err_set(e, -EINVAL, "%s: %" PRIu64 " bytes are not whole ids of %zu bytes", path,
                       at + kept, each);
    return text && at ? add(k, &end, 1, e) : 0;
}

/* The document of a line; max_bytes counts the line. */
static int add_document(void *arg, const char *text, size_t n, size_t line, bool *ret_stop,
                        struct err *e)
{
    static const unsigned char end = 0;
    struct work *k = arg;
    int r = add(k, (const unsigned char *)text, n, e);

    if (r == 0)
        r = add(k, &end, 1, e);
    k->done.documents++;
    k->taken += line;
    *ret_stop = full(k);
    return r;
}

/* A .json of one object over many lines is as good a text as any, but not what a corpus is meant to
 * be: said once, at the end. */
static void count_as_text(struct work *k, const char *path)
{
    k->done.json_as_text += k->p->id == TR_ID_U8 && tr_jsonl_is(path, true);
}

static int add_file(struct work *k, const char *path, struct err *e)
{
    bool lines = k->p->id == TR_ID_U8 && tr_jsonl_is(path, k->p->any_json);
    gzFile f = gzopen(path, "rbe");
    bool skip = false;
    int r, code, closed;

    if (!f)
        return err_set(e, errno ? -errno : -ENOMEM, "open %s: %s", path, strerror(errno));
    r = lines ? tr_jsonl_read(f, path, k->p->json_key, add_document, k, e)
              : add_open(k, f, path, &skip, e);
    gzerror(f, &code);
    closed = gzclose(f);
    if (r == 0 && !skip && !full(k) && (code == Z_BUF_ERROR || closed == Z_BUF_ERROR))
        r = err_set(e, -EIO, "%s ends in the middle of its packed data", path);
    if (skip)
        k->done.skipped++;
    else
        k->done.files++;
    if (!skip && !lines) {
        k->done.documents++;
        count_as_text(k, path);
    }
    return r;
}

static int not_dots(const struct dirent *d)
{
    return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_path(struct work *k, const char *path, bool operand, struct err *e);

static int add_folder(struct work *k, const char *path, struct err *e)
{
    struct dirent **list;
    int n = scandir(path, &list, not_dots, by_bytes), r = 0;

    if (n < 0)
        return err_set(e, -errno, "folder %s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        AUTO_FREE char *inside = mem_printf("%s/%s", path, list[i]->d_name);

        if (r == 0 && !full(k))
            r = add_path(k, inside, false, e);
        free(list[i]);
    }
    free(list);
    return r;
}

static int add_path(struct work *k, const char *path, bool operand, struct err *e)
{
    struct stat st;

    if ((operand ? stat : lstat)(path, &st) < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return add_folder(k, path, e);
    if (S_ISREG(st.st_mode))
        return add_file(k, path, e);
    if (operand)
        return err_set(e, -EINVAL, "%s is neither a file nor a folder", path);
    return 0;
}

static int add_all(struct work *k, struct err *e)
{
    int r = 0;

    for (int i = 0; i < k->p->npaths && r == 0 && !full(k); i++)
        r = add_path(k, k->p->path[i], true, e);
    if (r == 0 && tr_dataset_written(k->w, TR_SPLIT_TRAIN) == 0)
        r = err_set(e, -ENODATA,
                    "nothing to train on: %" PRId64 " files read, %" PRId64 " skipped as no text",
                    k->done.files, k->done.skipped);
    return r;
}

int tr_prepare(struct tr_prepared *ret, const struct tr_prepare *p, struct err *e)
{
    AUTO(tr_dataset_writer) *w = NULL;
    struct work k = {.p = p};
    int r;

    r = tr_dataset_writer_new(&w, p->folder, p->name, p->id, p->vocab, p->replace, e);
    if (r < 0)
        return r;
    k.w = w;
    r = add_all(&k, e);
    if (r == 0)
        r = tr_dataset_commit(w, k.done.documents, p->seed, e);
    if (r < 0)
        return r;
    for (int i = 0; i < TR_SPLITS; i++)
        k.done.tokens[i] = tr_dataset_written(w, (enum tr_split)i);
    *ret = k.done;
    return 0;
}
