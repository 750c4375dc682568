/* Data set folders: meta.json checked as a whole, blocks summed as they are written, published by
 * one rename. */
#include "trainer/dataset.h"

#include "base/base.h"
#include "trainer/crc.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FORMAT_VERSION = 1, META_MAX = 1 << 16, VOCAB_MAX = 1 << 30, YOUNG_S = 60 };

/* While it is written a data set is a folder ".NAME.unfinished.PID", with a lock on a file of it.
 */
#define TEMPORARY ".unfinished."
#define LOCKED "train.bin"

/* ---- reading ------------------------------------------------------------- */

static int split_meta(uint32_t *ret_crc, struct tr_stream *stream, const json_t *splits,
                      const char *name, struct err *error)
{
    AUTO_FREE char *at = mem_printf("/splits/%s", name);
    json_t *o = NULL;
    int64_t tokens = 0, crc = 0;
    int r = jx_need(splits, name, error);

    if (r == 0)
        r = jx_get_object(&o, splits, name, error);
    if (r == 0 && ((r = jx_need(o, "tokens", error)) < 0 || (r = jx_need(o, "crc32", error)) < 0))
        return err_under(error, at);
    if (r == 0)
        r = jx_get_i64(&tokens, o, "tokens", 0, INT64_C(1) << 50, error);
    if (r == 0)
        r = jx_get_i64(&crc, o, "crc32", 0, UINT32_MAX, error);
    if (r < 0)
        return err_under(error, at);
    stream->tokens = (uint64_t)tokens;
    *ret_crc = (uint32_t)crc;
    return 0;
}

static int known_format(const json_t *object, struct err *error)
{
    const char *format = "";
    int v = 0, block = 0, r = jx_need(object, "format", error);

    if (r == 0)
        r = jx_get_str(&format, object, "format", 64, error);
    if (r == 0)
        r = jx_get_int(&v, object, "v", 0, INT32_MAX, error);
    if (r == 0)
        r = jx_get_int(&block, object, "block", 0, INT32_MAX, error);
    if (r == 0 && (!str_eq(format, "partune-dataset") || v != FORMAT_VERSION || block != TR_BLOCK))
        r = err_at(error, -EINVAL, "/format",
                   "format %s version %d block %d is not partune-dataset version %d", format, v,
                   block, FORMAT_VERSION);
    return r;
}

/* "tokenizer" is absent from data sets of bytes or raw ids. */
static int tokenizer_meta(struct tr_tokenizer_id *ret, const json_t *meta, int vocab,
                          struct err *error)
{
    json_t *object = NULL;
    int64_t crc = 0;
    int r = jx_get_object(&object, meta, "tokenizer", error);

    if (r < 0 || !object)
        return r;
    if ((r = jx_need(object, "name", error)) == 0)
        r = jx_copy_str(ret->name, sizeof(ret->name), object, "name", error);
    if (r == 0 && (r = jx_need(object, "crc32", error)) == 0)
        r = jx_get_i64(&crc, object, "crc32", 0, UINT32_MAX, error);
    if (r == 0 && (r = jx_need(object, "eod", error)) == 0)
        r = jx_get_int(&ret->eod, object, "eod", 0, vocab - 1, error);
    ret->crc32 = (uint32_t)crc;
    return r < 0 ? err_under(error, "/tokenizer") : 0;
}

int tr_dataset_meta(struct tr_dataset *ret, enum tr_id *ret_id, uint32_t ret_crc[TR_SPLITS],
                    const char *text, size_t len, struct err *error)
{
    AUTO_JSON *o = NULL;
    struct tr_dataset d = {.vocab = 0};
    json_t *splits = NULL;
    int id = -1, r = jx_parse(&o, text, len, error);

    if (r == 0)
        r = known_format(o, error);
    if (r == 0 && ((r = jx_need(o, "vocab", error)) < 0 || (r = jx_need(o, "id", error)) < 0 ||
                   (r = jx_need(o, "splits", error)) < 0 || (r = jx_need(o, "name", error)) < 0))
        return r;
    if (r == 0)
        r = jx_get_int(&d.vocab, o, "vocab", 1, VOCAB_MAX, error);
    if (r == 0)
        r = jx_get_enum(&id, o, "id", tr_id_names, error);
    if (r == 0)
        r = jx_copy_str(d.name, sizeof(d.name), o, "name", error);
    if (r == 0)
        r = jx_get_i64(&d.documents, o, "documents", 0, INT64_MAX, error);
    if (r == 0)
        r = tokenizer_meta(&d.tokenizer, o, d.vocab, error);
    if (r == 0)
        r = jx_get_object(&splits, o, "splits", error);
    for (int i = 0; i < TR_SPLITS && r == 0; i++)
        r = split_meta(&ret_crc[i], &d.split[i], splits, tr_split_names[i], error);
    if (r < 0)
        return r;
    *ret_id = (enum tr_id)id;
    *ret = d;
    return 0;
}

static int read_sums(struct tr_stream *stream, const char *path, uint32_t crc, struct err *error)
{
    size_t blocks = (stream->bytes + TR_BLOCK - 1) / TR_BLOCK, n;
    AUTO_FREE char *bytes = NULL;
    int r = file_read_all(&bytes, &n, path, blocks * 4 + 4, error);

    if (r < 0)
        return r;
    if (n != blocks * 4 || tr_crc32(0, bytes, n) != crc)
        return err_set(error, -EBADMSG, "%s is damaged: %zu bytes for %zu blocks", path, n, blocks);
    stream->sum = mem_alloc((blocks + 1) * sizeof(*stream->sum));
    stream->seen = mem_alloc(blocks + 1);
    for (size_t i = 0; i < n; i++)
        stream->sum[i / 4] |= (uint32_t)(unsigned char)bytes[i] << 8 * (i % 4);
    return 0;
}

static int open_split(struct tr_stream *stream, const char *folder, int split, enum tr_id id,
                      uint32_t crc, struct err *error)
{
    AUTO_FREE char *bin = mem_printf("%s/%s.bin", folder, tr_split_names[split]);
    AUTO_FREE char *sum = mem_printf("%s/%s.sum", folder, tr_split_names[split]);
    uint64_t tokens = stream->tokens;
    int r = tr_stream_map(stream, bin, id, tokens, error);

    if (r == 0 && stream->tokens != tokens) /* an empty split with something in its file */
        r = err_set(error, -EBADMSG, "%s is too long: it has %zu bytes and must be empty", bin,
                    stream->bytes);
    return r < 0 ? r : read_sums(stream, sum, crc, error);
}

int tr_dataset_open(struct tr_dataset *ret, const char *folder, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/meta.json", folder);
    AUTO_FREE char *text = NULL;
    struct tr_dataset d;
    enum tr_id id;
    uint32_t crc[TR_SPLITS];
    size_t n;
    int r = file_read_all(&text, &n, path, META_MAX, error);

    if (r < 0)
        return r;
    r = tr_dataset_meta(&d, &id, crc, text, n, error);
    if (r < 0)
        return error && *error->pointer ? err_wrap(error, "%s: %s", path, error->pointer)
                                        : err_wrap(error, "%s", path);
    d.crc32 = tr_crc32(0, text, n);
    for (int i = 0; i < TR_SPLITS && r == 0; i++)
        r = open_split(&d.split[i], folder, i, id, crc[i], error);
    if (r < 0) {
        tr_dataset_done(&d);
        return r;
    }
    *ret = d;
    return 0;
}

void tr_dataset_done(struct tr_dataset *dataset)
{
    for (int i = 0; i < TR_SPLITS; i++)
        tr_stream_done(&dataset->split[i]);
}

int tr_dataset_verify(const struct tr_dataset *dataset, struct err *error)
{
    int32_t ids[4096];

    for (int i = 0; i < TR_SPLITS; i++) {
        const struct tr_stream *s = &dataset->split[i];

        for (uint64_t at = 0; at < s->tokens; at += ARRAY_LEN(ids)) {
            uint64_t left = s->tokens - at;
            int r =
                tr_stream_read(ids, s, at, left < ARRAY_LEN(ids) ? (size_t)left : ARRAY_LEN(ids),
                               dataset->vocab, error);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* ---- writing ------------------------------------------------------------- */

struct out {
    FILE *bin, *sum;
    uint64_t bytes;
    uint32_t block_crc, sums_crc;
};

struct tr_dataset_writer {
    char *folder, *temporary;
    int lock; /* on a file of the temporary folder, as long as somebody fills it */
    char name[64];
    enum tr_id id;
    int vocab;
    struct tr_tokenizer_id tokenizer;
    bool replace;
    struct out out[TR_SPLITS];
};

struct tr_dataset_writer *tr_dataset_writer_free(struct tr_dataset_writer *writer)
{
    if (!writer)
        return NULL;
    for (int i = 0; i < TR_SPLITS; i++) {
        if (writer->out[i].bin)
            fclose(writer->out[i].bin);
        if (writer->out[i].sum)
            fclose(writer->out[i].sum);
    }
    if (writer->temporary)
        file_remove_tree(writer->temporary, NULL);
    if (writer->lock >= 0)
        close(writer->lock);
    free(writer->temporary);
    free(writer->folder);
    free(writer);
    return NULL;
}

static int create(FILE **ret, const char *folder, const char *name, const char *tail,
                  struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/%s.%s", folder, name, tail);

    *ret = fopen(path, "we");
    return *ret ? 0 : err_set(error, -errno, "create %s: %s", path, strerror(errno));
}

/* Folder NAME of PARENT was left by a killed writer: no process holds its lock. One that
 * was made just now may not have a file to lock yet. */
static bool left_behind(const char *parent, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s/" LOCKED, parent, name);
    AUTO_FREE char *folder = mem_printf("%s/%s", parent, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    bool gone;

    if (fd < 0)
        return errno == ENOENT && stat(folder, &st) == 0 && time(NULL) - st.st_mtime > YOUNG_S;
    gone = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return gone;
}

/* Remove what killed writers left next to FOLDER. No data set has a name that begins with a dot. */
static void clear_leftovers(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    AUTO_FREE char *parent =
        slash ? mem_printf("%.*s", (int)(slash - folder), folder) : mem_strdup(".");
    DIR *d = opendir(slash == folder ? "/" : parent);
    const struct dirent *it;

    while (d && (it = readdir(d))) {
        if (it->d_name[0] != '.' || !strstr(it->d_name, TEMPORARY))
            continue;
        if (left_behind(parent, it->d_name)) {
            AUTO_FREE char *path = mem_printf("%s/%s", parent, it->d_name);

            file_remove_tree(path, NULL);
        }
    }
    if (d)
        closedir(d);
}

/* "a/b" as "a/.b.unfinished.PID". */
static char *temporary_name(const char *folder)
{
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;

    return mem_printf("%.*s.%s" TEMPORARY "%ld", (int)(name - folder), folder, name,
                      (long)getpid());
}

static int take_lock(struct tr_dataset_writer *writer, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/" LOCKED, writer->temporary);

    writer->lock = open(path, O_RDWR | O_CLOEXEC);
    if (writer->lock < 0)
        return err_set(error, -errno, "open %s: %s", path, strerror(errno));
    flock(writer->lock,
          LOCK_EX | LOCK_NB); /* a file system without locks: nothing is ever cleared */
    return 0;
}

int tr_dataset_writer_new(struct tr_dataset_writer **ret, const char *folder, const char *name,
                          enum tr_id id, int vocab, bool replace, struct err *error)
{
    AUTO(tr_dataset_writer) *w = mem_alloc(sizeof(*w));
    int r;

    w->lock = -1;
    if (file_exists(folder) && !replace)
        return err_set(error, -EEXIST, "%s exists; --force replaces it", folder);
    clear_leftovers(folder);
    w->folder = mem_strdup(folder);
    w->temporary = temporary_name(folder);
    snprintf(w->name, sizeof(w->name), "%s", name);
    w->id = id;
    w->vocab = vocab;
    w->replace = replace;
    r = file_mkdirs(w->temporary, 0755, error);
    for (int i = 0; i < TR_SPLITS && r == 0; i++) {
        r = create(&w->out[i].bin, w->temporary, tr_split_names[i], "bin", error);
        if (r == 0)
            r = create(&w->out[i].sum, w->temporary, tr_split_names[i], "sum", error);
    }
    if (r == 0)
        r = take_lock(w, error);
    if (r < 0)
        return r;
    *ret = TAKE(w);
    return 0;
}

void tr_dataset_made_by(struct tr_dataset_writer *writer, const struct tr_tokenizer_id *tokenizer)
{
    assert(tokenizer->eod >= 0 && tokenizer->eod < writer->vocab);
    writer->tokenizer = *tokenizer;
}

static int close_block(struct out *out)
{
    unsigned char word[4];

    for (int i = 0; i < 4; i++)
        word[i] = (unsigned char)(out->block_crc >> 8 * i);
    out->sums_crc = tr_crc32(out->sums_crc, word, sizeof(word));
    out->block_crc = 0;
    return fwrite(word, sizeof(word), 1, out->sum) == 1 ? 0 : -EIO;
}

int tr_dataset_add(struct tr_dataset_writer *writer, enum tr_split split, const void *ids,
                   size_t count, struct err *error)
{
    struct out *o = &writer->out[split];
    const unsigned char *p = ids;
    size_t left = count * tr_id_bytes(writer->id);

    assert(o->bin && o->sum); /* not committed yet */
    while (left) {
        size_t room = TR_BLOCK - (size_t)(o->bytes % TR_BLOCK), some = left < room ? left : room;

        if (fwrite(p, some, 1, o->bin) != 1)
            return err_set(error, -errno, "write %s/%s.bin: %s", writer->temporary,
                           tr_split_names[split], strerror(errno));
        o->block_crc = tr_crc32(o->block_crc, p, some);
        o->bytes += some;
        p += some;
        left -= some;
        if (some == room && close_block(o) < 0)
            return err_set(error, -errno, "write %s/%s.sum: %s", writer->temporary,
                           tr_split_names[split], strerror(errno));
    }
    return 0;
}

uint64_t tr_dataset_written(const struct tr_dataset_writer *writer, enum tr_split split)
{
    return writer->out[split].bytes / tr_id_bytes(writer->id);
}

static int settle(FILE **file)
{
    int r = 0;

    if (fflush(*file) != 0 || fsync(fileno(*file)) < 0)
        r = -errno;
    if (fclose(*file) != 0 && r == 0)
        r = -errno;
    *file = NULL;
    return r;
}

static json_t *split_json(const struct tr_dataset_writer *writer, int split)
{
    return json_pack("{s:I, s:I}", "tokens",
                     (json_int_t)tr_dataset_written(writer, (enum tr_split)split), "crc32",
                     (json_int_t)writer->out[split].sums_crc);
}

static int write_meta(const struct tr_dataset_writer *writer, int64_t documents, uint64_t seed,
                      struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/meta.json", writer->temporary);
    AUTO_FREE char *text = NULL;
    AUTO_JSON *o = json_pack("{s:s, s:i, s:s, s:i, s:s, s:i, s:I, s:I, s:{s:o, s:o}}", "format",
                             "partune-dataset", "v", FORMAT_VERSION, "name", writer->name, "vocab",
                             writer->vocab, "id", tr_id_names[writer->id], "block", TR_BLOCK,
                             "documents", (json_int_t)documents, "seed", (json_int_t)seed, "splits",
                             "train", split_json(writer, TR_SPLIT_TRAIN), "validation",
                             split_json(writer, TR_SPLIT_VALIDATION));

    if (*writer->tokenizer.name)
        json_object_set_new(o, "tokenizer",
                            json_pack("{s:s, s:I, s:i}", "name", writer->tokenizer.name, "crc32",
                                      (json_int_t)writer->tokenizer.crc32, "eod",
                                      writer->tokenizer.eod));
    text = json_dumps(o, JSON_INDENT(2));
    return file_write_atomic(path, text, strlen(text), 0644, error);
}

static int publish(struct tr_dataset_writer *writer, struct err *error)
{
    if (rename(writer->temporary, writer->folder) < 0) {
        if ((errno != EEXIST && errno != ENOTEMPTY) || !writer->replace ||
            renameat2(AT_FDCWD, writer->temporary, AT_FDCWD, writer->folder, RENAME_EXCHANGE) < 0)
            return err_set(error, -errno, "rename %s to %s: %s", writer->temporary, writer->folder,
                           strerror(errno));
    }
    return file_sync_parent(writer->folder);
}

int tr_dataset_commit(struct tr_dataset_writer *writer, int64_t documents, uint64_t seed,
                      struct err *error)
{
    int r = 0;

    for (int i = 0; i < TR_SPLITS && r == 0; i++) {
        struct out *o = &writer->out[i];

        assert(o->bin && o->sum && o->bytes % tr_id_bytes(writer->id) == 0);
        if (o->bytes % TR_BLOCK)
            r = close_block(o);
        if (r == 0)
            r = settle(&o->bin);
        if (r == 0)
            r = settle(&o->sum);
        if (r < 0)
            return err_set(error, r, "write %s/%s: %s", writer->temporary, tr_split_names[i],
                           strerror(-r));
    }
    r = write_meta(writer, documents, seed, error);
    return r < 0 ? r : publish(writer, error);
}
