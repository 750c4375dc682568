/*
 * Reader and writer of safetensors. The header is checked as a whole when it is read: tensors are
 * sorted by their begin and must then follow each other without hole or overlap up to the end of
 * the file, so later reads only check against a tensor's own size.
 */
#include "trainer/safetensors.h"

#include "base/base.h"
#include "trainer/bounce.h"
#include "trainer/crc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 100 << 20 }; /* the published limit: 100 MB */
enum { HALVES = 8192 };          /* elements of a narrower type that are moved at a time */

static const struct {
    const char *name;
    size_t bytes;
} dtypes[TR_DTYPES] = {
    [TR_F32] = {"F32", 4},
    [TR_BF16] = {"BF16", 2},
    [TR_F16] = {"F16", 2},
    [TR_U8] = {"U8", 1},
};

size_t tr_dtype_bytes(enum tr_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *tr_dtype_name(enum tr_dtype dtype)
{
    return dtypes[dtype].name;
}

int64_t tr_st_elements(const struct tr_st_tensor *tensor)
{
    int64_t n = 1;

    for (int i = 0; i < tensor->ndim; i++)
        n *= tensor->shape[i];
    return n;
}

struct tr_st *tr_st_free(struct tr_st *file)
{
    if (!file)
        return NULL;
    if (file->fd >= 0)
        close(file->fd);
    json_decref(file->metadata);
    free(file->tensor);
    free(file->path);
    free(file);
    return NULL;
}

struct tr_st *tr_st_new(const char *path, const json_t *metadata)
{
    struct tr_st *s = mem_alloc(sizeof(*s));

    s->path = mem_strdup(path);
    s->fd = -1;
    if (metadata)
        s->metadata = json_deep_copy(metadata);
    return s;
}

const struct tr_st_tensor *tr_st_find(const struct tr_st *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->tensor[i].name, name))
            return &file->tensor[i];
    return NULL;
}

/* ---- header in ----------------------------------------------------------- */

static int parse_dtype(enum tr_dtype *ret, const char *path, const char *tensor, const json_t *json,
                       struct err *error)
{
    const char *name = json_string_value(json);

    for (int i = 0; name && i < TR_DTYPES; i++)
        if (!strcmp(name, dtypes[i].name)) {
            *ret = (enum tr_dtype)i;
            return 0;
        }
    return err_set(error, -EINVAL, "%s: tensor %s: dtype %.20s is not F32, BF16, F16 or U8", path,
                   tensor, name ? name : "(none)");
}

static int parse_shape(struct tr_st_tensor *tensor, const char *path, const json_t *json,
                       struct err *error)
{
    size_t n = json_array_size(json);
    int64_t elements = 1;

    if (!json_is_array(json) || n > TR_ST_DIMS)
        return err_set(error, -EINVAL, "%s: tensor %s: shape is not a list of at most %d numbers",
                       path, tensor->name, TR_ST_DIMS);
    for (size_t i = 0; i < n; i++) {
        json_int_t d = json_integer_value(json_array_get(json, i));

        if (!json_is_integer(json_array_get(json, i)) || d < 0 ||
            (d > 0 && elements > INT64_MAX / 8 / d))
            return err_set(error, -EINVAL,
                           "%s: tensor %s: a size in shape is negative or too large", path,
                           tensor->name);
        tensor->shape[i] = d;
        elements *= d;
    }
    tensor->ndim = (int)n;
    return 0;
}

static int parse_offsets(struct tr_st_tensor *tensor, const char *path, const json_t *json,
                         uint64_t data_bytes, struct err *error)
{
    json_int_t begin = json_integer_value(json_array_get(json, 0));
    json_int_t end = json_integer_value(json_array_get(json, 1));
    uint64_t want = (uint64_t)tr_st_elements(tensor) * dtypes[tensor->dtype].bytes;

    if (json_array_size(json) != 2 || !json_is_integer(json_array_get(json, 0)) ||
        !json_is_integer(json_array_get(json, 1)) || begin < 0 || end < begin)
        return err_set(error, -EINVAL, "%s: tensor %s: data_offsets is not [begin, end]", path,
                       tensor->name);
    tensor->begin = (uint64_t)begin;
    tensor->end = (uint64_t)end;
    if (tensor->end - tensor->begin != want)
        return err_set(error, -EINVAL,
                       "%s: tensor %s has %" PRIu64 " bytes where its shape needs %" PRIu64, path,
                       tensor->name, tensor->end - tensor->begin, want);
    if (tensor->end > data_bytes)
        return err_set(error, -EINVAL,
                       "%s: tensor %s ends at byte %" PRIu64 " of %" PRIu64
                       ": the file is truncated",
                       path, tensor->name, tensor->end, data_bytes);
    return 0;
}

static int parse_tensor(struct tr_st_tensor *tensor, const char *path, const char *name,
                        const json_t *json, uint64_t data_bytes, struct err *error)
{
    int r;

    if (strlen(name) >= sizeof(tensor->name))
        return err_set(error, -EINVAL, "%s: the tensor name %.40s... is too long", path, name);
    memcpy(tensor->name, name, strlen(name) + 1);
    if (!json_is_object(json))
        return err_set(error, -EINVAL, "%s: tensor %s is not described by an object", path, name);
    r = parse_dtype(&tensor->dtype, path, name, json_object_get(json, "dtype"), error);
    if (r == 0)
        r = parse_shape(tensor, path, json_object_get(json, "shape"), error);
    if (r == 0)
        r = parse_offsets(tensor, path, json_object_get(json, "data_offsets"), data_bytes, error);
    return r;
}

static int by_begin(const void *left, const void *right)
{
    const struct tr_st_tensor *x = left, *y = right;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int check_tiling(struct tr_st *file, struct err *error)
{
    uint64_t at = 0;

    if (file->count)
        qsort(file->tensor, file->count, sizeof(*file->tensor), by_begin);
    for (size_t i = 0; i < file->count; i++) {
        const struct tr_st_tensor *t = &file->tensor[i];

        if (t->begin < at)
            return err_set(error, -EINVAL, "%s: tensor %s overlaps tensor %s", file->path, t->name,
                           t[-1].name);
        if (t->begin > at)
            return err_set(error, -EINVAL, "%s: a gap of %" PRIu64 " bytes before tensor %s",
                           file->path, t->begin - at, t->name);
        at = t->end;
    }
    if (at != file->data_bytes)
        return err_set(error, -EINVAL, "%s: %" PRIu64 " bytes after the last tensor", file->path,
                       file->data_bytes - at);
    return 0;
}

static int parse_entries(struct tr_st *file, json_t *header, struct err *error)
{
    const char *name;
    json_t *v;

    file->tensor = mem_try_alloc(mem_mul(json_object_size(header) + 1, sizeof(*file->tensor), 1));
    if (!file->tensor)
        return err_set(error, -ENOMEM, "%s: no memory for the header", file->path);
    json_object_foreach(header, name, v) {
        int r = 0;

        if (!strcmp(name, "__metadata__")) {
            if (!json_is_object(v))
                return err_set(error, -EINVAL, "%s: __metadata__ is not an object", file->path);
            file->metadata = json_incref(v);
            continue;
        }
        r = parse_tensor(&file->tensor[file->count], file->path, name, v, file->data_bytes, error);
        if (r < 0)
            return r;
        file->count++;
    }
    return check_tiling(file, error);
}

int tr_st_parse(struct tr_st **ret, const char *header, size_t len, uint64_t file_data_bytes,
                const char *path, struct err *error)
{
    AUTO(tr_st) *s = tr_st_new(path, NULL);
    AUTO_JSON *v = NULL;
    int r;

    s->data_bytes = file_data_bytes;
    s->data_at = 8 + len;
    r = jx_parse(&v, header, len, error);
    if (r < 0)
        return err_wrap(error, "%s: header", path);
    if (!json_is_object(v))
        return err_set(error, -EINVAL, "%s: the header is not a JSON object", path);
    r = parse_entries(s, v, error);
    if (r < 0)
        return r;
    *ret = TAKE(s);
    return 0;
}

/* ---- bytes --------------------------------------------------------------- */

static int read_at(int fd, void *out, size_t size, uint64_t at)
{
    char *p = out;

    while (size) {
        ssize_t got = pread(fd, p, size, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -ENODATA;
        p += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

static int open_header(struct tr_st **ret, int fd, const char *path, struct err *error)
{
    unsigned char word[8];
    uint64_t n = 0, size;
    AUTO_FREE char *text = NULL;
    struct stat st;
    int r;

    if (fstat(fd, &st) < 0)
        return err_set(error, -errno, "%s: %s", path, strerror(errno));
    size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode) || size < 8)
        return err_set(error, -EINVAL, "%s: %" PRIu64 " bytes are too few for a safetensors file",
                       path, size);
    r = read_at(fd, word, sizeof(word), 0);
    if (r < 0)
        return err_set(error, r, "read %s: %s", path, strerror(-r));
    for (int i = 7; i >= 0; i--)
        n = n << 8 | word[i];
    if (n > MAX_HEADER || n > size - 8)
        return err_set(error, -EINVAL, "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64,
                       path, n, size);
    text = mem_try_alloc((size_t)n + 1);
    if (!text)
        return err_set(error, -ENOMEM, "%s: no memory for a header of %" PRIu64 " bytes", path, n);
    r = read_at(fd, text, (size_t)n, 8);
    if (r < 0)
        return err_set(error, r, "read %s: %s", path, strerror(-r));
    return tr_st_parse(ret, text, (size_t)n, size - 8 - n, path, error);
}

int tr_st_open(struct tr_st **ret, const char *path, struct err *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r;

    if (fd < 0)
        return err_set(error, -errno, "open %s: %s", path, strerror(errno));
    r = open_header(ret, fd, path, error);
    if (r < 0) {
        close(fd);
        return r;
    }
    (*ret)->fd = fd;
    return 0;
}

/* COUNT elements in file form to fp32; in place is not possible, types differ in size. */
static void widen(enum tr_dtype dtype, float *out, const void *in, size_t count)
{
    assert(dtype == TR_BF16 || dtype == TR_F16);
    if (dtype == TR_BF16)
        tr_bf16_to_f32(out, in, count);
    else
        tr_f16_to_f32(out, in, count);
}

static void narrow(enum tr_dtype dtype, void *out, const float *in, size_t count)
{
    assert(dtype == TR_BF16 || dtype == TR_F16);
    if (dtype == TR_BF16)
        tr_f32_to_bf16(out, in, count);
    else
        tr_f32_to_f16(out, in, count);
}

static uint64_t place(const struct tr_st *file, const struct tr_st_tensor *tensor, uint64_t first,
                      size_t count)
{
    assert(file->fd >= 0 && first + count <= (uint64_t)tr_st_elements(tensor));
    assert(tensor->end <= file->data_bytes); /* other writers align nothing */
    (void)count;
    return file->data_at + tensor->begin + first * dtypes[tensor->dtype].bytes;
}

int tr_st_read(float *ret, const struct tr_st *file, const struct tr_st_tensor *tensor,
               uint64_t first, size_t count, struct err *error)
{
    uint64_t at = place(file, tensor, first, count);
    uint16_t half[HALVES];
    int r = 0;

    if (tensor->dtype == TR_U8)
        return err_set(error, -EINVAL, "%s: tensor %s is U8, which is no type of weights",
                       file->path, tensor->name);
    if (tensor->dtype == TR_F32)
        r = read_at(file->fd, ret, count * 4, at);
    for (size_t done = 0; tensor->dtype != TR_F32 && done < count && r == 0;) {
        size_t some = count - done < ARRAY_LEN(half) ? count - done : ARRAY_LEN(half);

        r = read_at(file->fd, half, some * 2, at + done * 2);
        if (r == 0)
            widen(tensor->dtype, ret + done, half, some);
        done += some;
    }
    if (r < 0)
        return err_set(error, r, "%s: read tensor %s: %s", file->path, tensor->name, strerror(-r));
    return 0;
}

int tr_st_read_bytes(uint8_t *ret, const struct tr_st *file, const struct tr_st_tensor *tensor,
                     uint64_t first, size_t count, struct err *error)
{
    int r;

    assert(tensor->dtype == TR_U8);
    r = read_at(file->fd, ret, count, place(file, tensor, first, count));
    if (r < 0)
        return err_set(error, r, "%s: read tensor %s: %s", file->path, tensor->name, strerror(-r));
    return 0;
}

int tr_st_write(const struct tr_st *file, const struct tr_st_tensor *tensor, uint64_t first,
                size_t count, const float *in, struct err *error)
{
    uint64_t at = place(file, tensor, first, count);
    uint16_t half[HALVES];
    int r = 0;

    if (tensor->dtype == TR_F32)
        r = file->bounce ? tr_bounce_write(file->bounce, file->fd, in, count * 4, at)
                         : tr_write_at(file->fd, in, count * 4, at);
    for (size_t done = 0; tensor->dtype != TR_F32 && done < count && r == 0;) {
        size_t some = count - done < ARRAY_LEN(half) ? count - done : ARRAY_LEN(half);

        narrow(tensor->dtype, half, in + done, some);
        r = tr_write_at(file->fd, half, some * 2, at + done * 2);
        done += some;
    }
    if (r < 0)
        return err_set(error, r, "%s: write tensor %s: %s", file->path, tensor->name, strerror(-r));
    return 0;
}

/* ---- header out ---------------------------------------------------------- */

void tr_st_add(struct tr_st *file, const char *name, enum tr_dtype dtype, int ndim,
               const int64_t *shape)
{
    struct tr_st_tensor *t;

    assert(strlen(name) < TR_ST_NAME && ndim <= TR_ST_DIMS);
    if ((file->count & (file->count - 1)) == 0) /* room is the next power of two */
        file->tensor =
            mem_realloc(file->tensor, (file->count ? 2 * file->count : 1) * sizeof(*file->tensor));
    t = &file->tensor[file->count++];
    *t = (struct tr_st_tensor){.dtype = dtype, .ndim = ndim, .begin = file->data_bytes};
    memcpy(t->name, name, strlen(name) + 1);
    memcpy(t->shape, shape, (size_t)ndim * sizeof(*shape));
    t->end = t->begin + (uint64_t)tr_st_elements(t) * dtypes[dtype].bytes;
    file->data_bytes = t->end;
}

/* Header as it is in the file, length word included; data_at and header_crc are set. Caller frees.
 */
static char *header_text(size_t *ret_size, struct tr_st *file)
{
    struct str h = {0};
    uint64_t n;

    str_addn(&h, "\0\0\0\0\0\0\0\0{", 9);
    if (file->metadata) {
        AUTO_FREE char *text = jx_dump(file->metadata);

        str_addf(&h, "\"__metadata__\":%s%s", text, file->count ? "," : "");
    }
    for (size_t i = 0; i < file->count; i++) {
        const struct tr_st_tensor *t = &file->tensor[i];

        str_addf(&h, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", t->name,
                 dtypes[t->dtype].name);
        for (int d = 0; d < t->ndim; d++)
            str_addf(&h, "%s%" PRId64, d ? "," : "", t->shape[d]);
        str_addf(&h, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->end);
    }
    str_addc(&h, '}');
    while (h.len % 8)
        str_addc(&h, ' ');
    n = h.len - 8;
    for (int i = 0; i < 8; i++)
        h.text[i] = (char)(n >> 8 * i & 0xff);
    file->data_at = h.len;
    file->header_crc = tr_crc32(0, h.text, h.len);
    *ret_size = h.len;
    return str_take(&h);
}

/* Space is reserved, so that a full disk is known before the first number is written. */
static int reserve(int fd, uint64_t bytes)
{
    int r = posix_fallocate(fd, 0, (off_t)bytes);

    if (r == EOPNOTSUPP || r == EINVAL)
        return ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
    return -r;
}

int tr_st_create(struct tr_st *file, struct err *error)
{
    size_t n;
    AUTO_FREE char *h = header_text(&n, file);
    int r;

    assert(file->fd < 0); /* a description until now */
    file->fd = open(file->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file->fd < 0)
        return err_set(error, -errno, "create %s: %s", file->path, strerror(errno));
    r = reserve(file->fd, n + file->data_bytes);
    if (r == 0)
        r = tr_write_at(file->fd, h, n, 0);
    if (r < 0)
        return err_set(error, r, "create %s: %s", file->path, strerror(-r));
    return 0;
}

int tr_st_attach(struct tr_st *file, struct err *error)
{
    size_t n;

    assert(file->fd < 0);
    free(header_text(&n, file)); /* lays the tensors out */
    file->fd = open(file->path, O_RDWR | O_CLOEXEC);
    if (file->fd < 0)
        return err_set(error, -errno, "open %s: %s", file->path, strerror(errno));
    return 0;
}

int tr_st_sync(struct tr_st *file, struct err *error)
{
    if (fsync(file->fd) < 0)
        return err_set(error, -errno, "sync %s: %s", file->path, strerror(errno));
    return 0;
}

int tr_st_reopen(struct tr_st *file, struct err *error)
{
    int fd = open(file->path, O_RDWR | O_CLOEXEC);

    assert(file->fd >= 0);
    if (fd < 0)
        return err_set(error, -errno, "open %s: %s", file->path, strerror(errno));
    close(file->fd);
    file->fd = fd;
    return 0;
}
