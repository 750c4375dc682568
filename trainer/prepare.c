#include "trainer/prepare.h"

#include "base/base.h"
#include "trainer/jsonl.h"
#include "trainer/utf8.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

enum { RUN = 4096, CHUNK = 1 << 16, SNIFF = 8192, PACKED = 1 << 14, DOCUMENT_MAX = 1 << 30 };

struct work {
    const struct tr_prepare *p;
    struct tr_dataset_writer *w;
    struct tr_prepared done;
    uint64_t tokens;                                 /* seen so far */
    uint64_t taken;                                  /* bytes of input */
    unsigned char packed[PACKED * sizeof(uint32_t)]; /* ids of a tokenizer */
    size_t npacked;
};

static bool of_text(const struct work *work)
{
    return work->p->tokenizer || work->p->id == TR_ID_U8;
}

static bool full(const struct work *work)
{
    return work->p->max_bytes && work->taken >= work->p->max_bytes;
}

static bool held_out(const struct tr_prepare *prepare, uint64_t number)
{
    uint64_t h = rng_mix(rng_mix(prepare->seed ^ UINT64_C(0x76616c6964)) + number);

    return (double)(h >> 11) * 0x1p-53 < prepare->validation;
}

/* COUNT ids to the split of their document, or to those of the runs that they are in. */
static int add(struct work *work, const unsigned char *ids, size_t count, struct err *error)
{
    size_t each = tr_id_bytes(work->p->id);

    while (count) {
        uint64_t number =
            work->p->by_document ? (uint64_t)work->done.documents : work->tokens / RUN;
        size_t room = work->p->by_document ? count : RUN - (size_t)(work->tokens % RUN),
               some = count < room ? count : room;
        int r = tr_dataset_add(work->w,
                               held_out(work->p, number) ? TR_SPLIT_VALIDATION : TR_SPLIT_TRAIN,
                               ids, some, error);

        if (r < 0)
            return r;
        assert(some > 0 && some <= count);
        work->tokens += some;
        ids += some * each;
        count -= some;
    }
    return 0;
}

static int check_ids(const struct work *work, const unsigned char *bytes, size_t size,
                     const char *path, uint64_t at, struct err *error)
{
    size_t each = tr_id_bytes(work->p->id);

    for (size_t i = 0; i < size && work->p->id != TR_ID_U8; i++) {
        uint32_t id = (uint32_t)bytes[i * each] | (uint32_t)bytes[i * each + 1] << 8;

        if (each == 4)
            id |= (uint32_t)bytes[i * each + 2] << 16 | (uint32_t)bytes[i * each + 3] << 24;
        if (id >= (uint32_t)work->p->vocab)
            return err_set(error, -ERANGE,
                           "%s: the id %u at byte %" PRIu64 " is outside the vocabulary of %d",
                           path, id, at + i * each, work->p->vocab);
    }
    return 0;
}

static bool is_text(const unsigned char *bytes, size_t len)
{
    return !memchr(bytes, 0, len < SNIFF ? len : SNIFF);
}

/* The chunks of an open file. A chunk of ids is cut to whole ids; what is over comes first in the
 * next. */
static int add_open(bool *ret_skip, struct work *work, struct tr_gzip *file, struct err *error)
{
    static const unsigned char end = 0;
    size_t each = tr_id_bytes(work->p->id), kept = 0;
    AUTO_FREE unsigned char *buf = mem_alloc(CHUNK + 8);
    uint64_t at = 0;
    bool text = work->p->id == TR_ID_U8;

    for (;;) {
        int got = tr_gzip_read(buf + kept, file, CHUNK, error), r;
        size_t n = kept + (size_t)(got > 0 ? got : 0), ids = n / each;

        if (got < 0)
            return got;
        if (got == 0)
            break;
        if (at == 0 && text && !is_text(buf, n)) {
            *ret_skip = true;
            return 0;
        }
        r = check_ids(work, buf, ids, file->path, at, error);
        if (r == 0)
            r = add(work, buf, ids, error);
        if (r < 0)
            return r;
        at += ids * each;
        work->taken += ids * each;
        kept = n - ids * each;
        memmove(buf, buf + ids * each, kept);
        if (full(work))
            break;
    }
    if (kept && !full(work))
        return err_set(error, -EINVAL, "%s: %" PRIu64 " bytes are not whole ids of %zu bytes",
                       file->path, at + kept, each);
    return text && at ? add(work, &end, 1, error) : 0;
}

/* ---- by a tokenizer ------------------------------------------------------ */

static int flush(struct work *work, struct err *error)
{
    int r = add(work, work->packed, work->npacked, error);

    work->npacked = 0;
    return r;
}

static int pack(void *arg, const uint32_t *ids, size_t count, struct err *error)
{
    struct work *work = arg;
    size_t each = tr_id_bytes(work->p->id);
    int r = 0;

    for (size_t i = 0; i < count && r == 0; i++) {
        unsigned char *to = work->packed + each * work->npacked++;

        assert(ids[i] < (uint32_t)work->p->vocab);
        for (size_t k = 0; k < each; k++)
            to[k] = (unsigned char)(ids[i] >> 8 * k);
        if (work->npacked == PACKED)
            r = flush(work, error);
    }
    return r;
}

static int encode(struct work *work, const char *text, size_t len, struct err *error)
{
    struct tr_tokenizer *tokenizer = work->p->tokenizer;
    uint32_t eod = (uint32_t)tokenizer->id.eod;
    AUTO_STR repaired = {0};
    int r;

    if (!str_is_utf8(text, len)) {
        tr_utf8_repair(&repaired, text, len);
        text = repaired.text;
        len = repaired.len;
    }
    r = tokenizer->encode(tokenizer, text, len, pack, work, error);
    if (r == 0)
        r = pack(work, &eod, 1, error);
    work->done.dropped = tokenizer->dropped;
    return r < 0 ? r : flush(work, error); /* before the next document: its split may be another */
}

static int encode_open(bool *ret_skip, struct work *work, struct tr_gzip *file, struct err *error)
{
    AUTO_STR text = {0};
    AUTO_FREE char *piece = mem_alloc(CHUNK);
    int got, r;

    while (!full(work) && (got = tr_gzip_read(piece, file, CHUNK, error)) != 0) {
        if (got < 0)
            return got;
        if (text.len == 0 && !is_text((const unsigned char *)piece, (size_t)got)) {
            *ret_skip = true;
            return 0;
        }
        if (text.len + (size_t)got > DOCUMENT_MAX)
            return err_set(error, -EFBIG,
                           "%s is longer than %d bytes, the most that a tokenizer takes as one "
                           "document; JSON lines hold several",
                           file->path, DOCUMENT_MAX);
        str_addn(&text, piece, (size_t)got);
        work->taken += (size_t)got;
    }
    r = text.len ? encode(work, text.text, text.len, error) : 0;
    return r < 0 ? err_wrap(error, "%s", file->path) : 0;
}

/* ---- files --------------------------------------------------------------- */

/* As many of the LEN bytes at TEXT as are left without NULs, which end documents of bytes. */
static size_t without_nul(char *text, size_t len)
{
    size_t kept = 0;

    for (size_t i = 0; i < len; i++)
        if (text[i])
            text[kept++] = text[i];
    return kept;
}

/* The document of a line; max_bytes counts the line. */
static int add_document(bool *ret_stop, void *arg, char *text, size_t len, size_t line,
                        struct err *error)
{
    static const unsigned char end = 0;
    struct work *k = arg;
    int r;

    if (k->p->tokenizer) {
        r = encode(k, text, len, error);
    } else {
        r = add(k, (const unsigned char *)text, without_nul(text, len), error);
        if (r == 0)
            r = add(k, &end, 1, error);
    }
    k->done.documents++;
    k->taken += line;
    *ret_stop = full(k);
    return r;
}

/* A .json of one object over many lines can be read as text, but is hardly meant as a corpus:
 * reported once, at the end. */
static void count_as_text(struct work *work, const char *path)
{
    work->done.json_as_text += of_text(work) && tr_jsonl_is(path, true);
}

static int add_file(struct work *work, const char *path, struct err *error)
{
    bool lines = of_text(work) && tr_jsonl_is(path, work->p->any_json);
    struct tr_gzip f;
    bool skip = false;
    int r = tr_gzip_open(&f, path, error);

    if (r < 0)
        return r;
    if (lines)
        r = tr_jsonl_read(&f, work->p->json_key, add_document, work, error);
    else if (work->p->tokenizer)
        r = encode_open(&skip, work, &f, error);
    else
        r = add_open(&skip, work, &f, error);
    if (r == 0 && !skip && !full(work))
        r = tr_gzip_check_end(&f, error);
    tr_gzip_close(&f);
    if (skip)
        work->done.skipped++;
    else
        work->done.files++;
    if (!skip && !lines) {
        work->done.documents++;
        count_as_text(work, path);
    }
    return r;
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

static int add_path(struct work *work, const char *path, bool operand, struct err *error);

static int add_folder(struct work *work, const char *path, struct err *error)
{
    struct dirent **list;
    int n = scandir(path, &list, not_dots, by_bytes), r = 0;

    if (n < 0)
        return err_set(error, -errno, "folder %s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        AUTO_FREE char *inside = mem_printf("%s/%s", path, list[i]->d_name);

        if (r == 0 && !full(work))
            r = add_path(work, inside, false, error);
        free(list[i]);
    }
    free(list);
    return r;
}

static int add_path(struct work *work, const char *path, bool operand, struct err *error)
{
    struct stat st;

    if ((operand ? stat : lstat)(path, &st) < 0)
        return err_set(error, -errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return add_folder(work, path, error);
    if (S_ISREG(st.st_mode))
        return add_file(work, path, error);
    if (operand)
        return err_set(error, -EINVAL, "%s is neither a file nor a folder", path);
    return 0;
}

static int add_all(struct work *work, struct err *error)
{
    int r = 0;

    for (int i = 0; i < work->p->npaths && r == 0 && !full(work); i++)
        r = add_path(work, work->p->path[i], true, error);
    if (r == 0 && tr_dataset_written(work->w, TR_SPLIT_TRAIN) == 0)
        r = err_set(error, -ENODATA,
                    "nothing to train on: %" PRId64 " files read, %" PRId64 " skipped as not text",
                    work->done.files, work->done.skipped);
    return r;
}

int tr_prepare(struct tr_prepared *ret, const struct tr_prepare *prepare, struct err *error)
{
    AUTO(tr_dataset_writer) *w = NULL;
    AUTO_FREE struct work *work = mem_alloc(sizeof(*work));
    int r;

    assert(!prepare->tokenizer || prepare->tokenizer->vocab == prepare->vocab);
    r = tr_dataset_writer_new(&w, prepare->folder, prepare->name, prepare->id, prepare->vocab,
                              prepare->replace, error);
    if (r < 0)
        return r;
    if (prepare->tokenizer)
        tr_dataset_made_by(w, &prepare->tokenizer->id);
    work->p = prepare;
    work->w = w;
    r = add_all(work, error);
    if (r == 0)
        r = tr_dataset_commit(w, work->done.documents, prepare->seed, error);
    if (r < 0)
        return r;
    for (int i = 0; i < TR_SPLITS; i++)
        work->done.tokens[i] = tr_dataset_written(w, (enum tr_split)i);
    *ret = work->done;
    return 0;
}
