/*
 * Reader and writer of safetensors. The header is judged as a whole when it is read: tensors are
 * sorted by their begin and must then follow each other without hole or overlap up to the end of
 * the file, so later reads only check against a tensor's own size.
 */
#include "trainer/safetensors.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 100 << 20 }; /* the published limit: 100 MB */

static const struct {
    const char *name;
    size_t bytes;
} dtypes[TR_DTYPES] = {
    [TR_F32] = {"F32", 4},
    [TR_BF16] = {"BF16", 2},
    [TR_F16] = {"F16", 2},
};

size_t tr_dtype_bytes(enum tr_dtype t)
{
    return dtypes[t].bytes;
}

const char *tr_dtype_name(enum tr_dtype t)
{
    return dtypes[t].name;
}

int64_t tr_st_elements(const struct tr_st_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

struct tr_st *tr_st_free(struct tr_st *s)
{
    if (!s)
        return NULL;
    if (s->fd >= 0)
        close(s->fd);
    json_decref(s->metadata);
    free(s->tensor);
    free(s->path);
    free(s);
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

const struct tr_st_tensor *tr_st_find(const struct tr_st *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->tensor[i].name, name))
            return &s->tensor[i];
    return NULL;
}

const struct tr_st_tensor *tr_st_at(const struct tr_st *s, uint64_t offset)
{
    for (size_t i = 0; i < s->count; i++)
        if (offset >= s->tensor[i].begin && offset < s->tensor[i].end)
            return &s->tensor[i];
    return NULL;
}

/* ---- header in ---- */

static int parse_dtype(enum tr_dtype *ret, const char *path, const char *tensor, const json_t *v,
                       struct err *e)
{
    const char *name = json_string_value(v);

    for (int i = 0; name && i < TR_DTYPES; i++)
        if (!strcmp(name, dtypes[i].name)) {
            *ret = (enum tr_dtype)i;
            return 0;
        }
    return err_set(e, -EINVAL, "%s: tensor %s: dtype %.20s is not F32, BF16 or F16", path, tensor,
                   name ? name : "(none)");
}

static int parse_shape(struct tr_st_tensor *t, const char *path, const json_t *v, struct err *e)
{
    size_t n = json_array_size(v);
    int64_t elements = 1;

    if (!json_is_array(v) || n > TR_ST_DIMS)
        return err_set(e, -EINVAL, "%s: tensor %s: shape is not a list of at most %d numbers", path,
                       t->name, TR_ST_DIMS);
    for (size_t i = 0; i < n; i++) {
        json_int_t d = json_integer_value(json_array_get(v, i));

        if (!json_is_integer(json_array_get(v, i)) || d < 0 ||
            (d > 0 && elements > INT64_MAX / 8 / d))
            return err_set(e, -EINVAL, "%s: tensor %s: shape has an impossible size", path,
                           t->name);
        t->shape[i] = d;
        elements *= d;
    }
    t->ndim = (int)n;
    return 0;
}

static int parse_offsets(struct tr_st_tensor *t, const char *path, const json_t *v,
                         uint64_t data_bytes, struct err *e)
{
    json_int_t begin = json_integer_value(json_array_get(v, 0));
    json_int_t end = json_integer_value(json_array_get(v, 1));
    uint64_t want = (uint64_t)tr_st_elements(t) * dtypes[t->dtype].bytes;

    if (json_array_size(v) != 2 || !json_is_integer(json_array_get(v, 0)) ||
        !json_is_integer(json_array_get(v, 1)) || begin < 0 || end < begin)
        return err_set(e, -EINVAL, "%s: tensor %s: data_offsets is not [begin, end]", path,
                       t->name);
    t->begin = (uint64_t)begin;
    t->end = (uint64_t)end;
    if (t->end - t->begin != want)
        return err_set(e, -EINVAL,
                       "%s: tensor %s has %" PRIu64 " bytes where its shape needs %" PRIu64, path,
                       t->name, t->end - t->begin, want);
    if (t->end > data_bytes)
        return err_set(e, -EINVAL,
                       "%s: tensor %s ends at byte %" PRIu64 " of %" PRIu64
                       ": the file is truncated",
                       path, t->name, t->end, data_bytes);
    return 0;
}

static int parse_tensor(struct tr_st_tensor *t, const char *path, const char *name, const json_t *v,
                        uint64_t data_bytes, struct err *e)
{
    int r;

    if (strlen(name) >= sizeof(t->name))
        return err_set(e, -EINVAL, "%s: the tensor name %.40s... is too long", path, name);
    memcpy(t->name, name, strlen(name) + 1);
    if (!json_is_object(v))
        return err_set(e, -EINVAL, "%s: tensor %s is not described by an object", path, name);
    r = parse_dtype(&t->dtype, path, name, json_object_get(v, "dtype"), e);
    if (r == 0)
        r = parse_shape(t, path, json_object_get(v, "shape"), e);
    if (r == 0)
        r = parse_offsets(t, path, json_object_get(v, "data_offsets"), data_bytes, e);
    return r;
}

static int by_begin(const void *a, const void *b)
{
    const struct tr_st_tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int check_tiling(struct tr_st *s, struct err *e)
{
    uint64_t at = 0;

    if (s->count)
        qsort(s->tensor, s->count, sizeof(*s->tensor), by_begin);
    for (size_t i = 0; i < s->count; i++) {
        const struct tr_st_tensor *t = &s->tensor[i];

        if (t->begin < at)
            return err_set(e, -EINVAL, "%s: tensor %s overlaps tensor %s", s->path, t->name,
                           t[-1].name);
        if (t->begin > at)
            return err_set(e, -EINVAL, "%s: a hole of %" PRIu64 " bytes before tensor %s", s->path,
                           t->begin - at, t->name);
        at = t->end;
    }
    if (at != s->data_bytes)
        return err_set(e, -EINVAL, "%s: %" PRIu64 " bytes after the last tensor", s->path,
                       s->data_bytes - at);
    return 0;
}

static int parse_entries(struct tr_st *s, json_t *header, struct err *e)
{
    const char *name;
    json_t *v;

    s->tensor = mem_try_alloc(mem_mul(json_object_size(header) + 1, sizeof(*s->tensor), 1));
    if (!s->tensor)
        return err_set(e, -ENOMEM, "%s: no memory for the header", s->path);
    json_object_foreach(header, name, v) {
        int r = 0;

        if (!strcmp(name, "__metadata__")) {
            if (!json_is_object(v))
                return err_set(e, -EINVAL, "%s: __metadata__ is not an object", s->path);
            s->metadata = json_incref(v);
            continue;
        }
        r = parse_tensor(&s->tensor[s->count], s->path, name, v, s->data_bytes, e);
        if (r < 0)
            return r;
        s->count++;
    }
    return check_tiling(s, e);
}

int tr_st_parse(struct tr_st **ret, const char *header, size_t n, uint64_t file_data_bytes,
                const char *path, struct err *e)
{
    AUTO(tr_st) *s = tr_st_new(path, NULL);
    AUTO_JSON *v = NULL;
    int r;

    s->data_bytes = file_data_bytes;
    s->data_at = 8 + n;
    r = jx_parse(&v, header, n, e);
    if (r < 0)
        return err_wrap(e, "%s: header", path);
    if (!json_is_object(v))
        return err_set(e, -EINVAL, "%s: the header is not a JSON object", path);
    r = parse_entries(s, v, e);
    if (r < 0)
        return r;
    *ret = TAKE(s);
    return 0;
}

/* ---- bytes ---- */

static int read_at(int fd, void *out, size_t n, uint64_t at)
{
    char *p = out;

    while (n) {
        ssize_t got = pread(fd, p, n, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -ENODATA;
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static int write_at(int fd, const void *in, size_t n, uint64_t at)
{
    const char *p = in;

    while (n) {
        ssize_t put = pwrite(fd, p, n, (off_t)at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        p += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

static int open_header(struct tr_st **ret, int fd, const char *path, struct err *e)
{
    unsigned char word[8];
    uint64_t n = 0, size;
    AUTO_FREE char *text = NULL;
    struct stat st;
    int r;

    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode) || size < 8)
        return err_set(e, -EINVAL, "%s: %" PRIu64 " bytes are too few for a safetensors file", path,
                       size);
    r = read_at(fd, word, sizeof(word), 0);
    if (r < 0)
        return err_set(e, r, "read %s: %s", path, strerror(-r));
    for (int i = 7; i >= 0; i--)
        n = n << 8 | word[i];
    if (n > MAX_HEADER || n > size - 8)
        return err_set(e, -EINVAL, "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64, path,
                       n, size);
    text = mem_try_alloc((size_t)n + 1);
    if (!text)
        return err_set(e, -ENOMEM, "%s: no memory for a header of %" PRIu64 " bytes", path, n);
    r = read_at(fd, text, (size_t)n, 8);
    if (r < 0)
        return err_set(e, r, "read %s: %s", path, strerror(-r));
    return tr_st_parse(ret, text, (size_t)n, size - 8 - n, path, e);
}

int tr_st_open(struct tr_st **ret, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r;

    if (fd < 0)
        return err_set(e, -errno, "open %s: %s", path, strerror(errno));
    r = open_header(ret, fd, path, e);
    if (r < 0) {
        close(fd);
        return r;
    }
    (*ret)->fd = fd;
    return 0;
}

/* N elements in file form to fp32; in place is not possible, types differ in size. */
static void widen(enum tr_dtype t, float *out, const void *in, size_t n)
{
    if (t == TR_BF16)
        tr_bf16_to_f32(out, in, n);
    else
        tr_f16_to_f32(out, in, n);
}

static void narrow(enum tr_dtype t, void *out, const float *in, size_t n)
{
    if (t == TR_BF16)
        tr_f32_to_bf16(out, in, n);
    else
        tr_f32_to_f16(out, in, n);
}

static uint64_t place(const struct tr_st *s, const struct tr_st_tensor *t, uint64_t first, size_t n)
{
    assert(s->fd >= 0 && first + n <= (uint64_t)tr_st_elements(t));
    (void)n;
    return s->data_at + t->begin + first * dtypes[t->dtype].bytes;
}

int tr_st_read(const struct tr_st *s, const struct tr_st_tensor *t, uint64_t first, size_t n,
               float *out, struct err *e)
{
    uint64_t at = place(s, t, first, n);
    uint16_t half[1024];
    int r = 0;

    if (t->dtype == TR_F32)
        r = read_at(s->fd, out, n * 4, at);
    for (size_t done = 0; t->dtype != TR_F32 && done < n && r == 0;) {
        size_t some = n - done < ARRAY_LEN(half) ? n - done : ARRAY_LEN(half);

        r = read_at(s->fd, half, some * 2, at + done * 2);
        if (r == 0)
            widen(t->dtype, out + done, half, some);
        done += some;
    }
    if (r < 0)
        return err_set(e, r, "%s: read tensor %s: %s", s->path, t->name, strerror(-r));
    return 0;
}

int tr_st_write(const struct tr_st *s, const struct tr_st_tensor *t, uint64_t first, size_t n,
                const float *in, struct err *e)
{
    uint64_t at = place(s, t, first, n);
    uint16_t half[1024];
    int r = 0;

    if (t->dtype == TR_F32)
        r = write_at(s->fd, in, n * 4, at);
    for (size_t done = 0; t->dtype != TR_F32 && done < n && r == 0;) {
        size_t some = n - done < ARRAY_LEN(half) ? n - done : ARRAY_LEN(half);

        narrow(t->dtype, half, in + done, some);
        r = write_at(s->fd, half, some * 2, at + done * 2);
        done += some;
    }
    if (r < 0)
        return err_set(e, r, "%s: write tensor %s: %s", s->path, t->name, strerror(-r));
    return 0;
}

/* ---- header out ---- */

void tr_st_add(struct tr_st *s, const char *name, enum tr_dtype dtype, int ndim,
               const int64_t *shape)
{
    struct tr_st_tensor *t;

    assert(strlen(name) < TR_ST_NAME && ndim <= TR_ST_DIMS);
    if ((s->count & (s->count - 1)) == 0) /* room is the next power of two */
        s->tensor = mem_realloc(s->tensor, (s->count ? 2 * s->count : 1) * sizeof(*s->tensor));
    t = &s->tensor[s->count++];
    *t = (struct tr_st_tensor){.dtype = dtype, .ndim = ndim, .begin = s->data_bytes};
    memcpy(t->name, name, strlen(name) + 1);
    memcpy(t->shape, shape, (size_t)ndim * sizeof(*shape));
    t->end = t->begin + (uint64_t)tr_st_elements(t) * dtypes[dtype].bytes;
    s->data_bytes = t->end;
}

char *tr_st_header(struct tr_st *s, size_t *ret_size)
{
    struct str h = {0};
    uint64_t n;

    str_addn(&h, "\0\0\0\0\0\0\0\0{", 9);
    if (s->metadata) {
        AUTO_FREE char *text = jx_dump(s->metadata);

        str_addf(&h, "\"__metadata__\":%s%s", text, s->count ? "," : "");
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct tr_st_tensor *t = &s->tensor[i];

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
    s->data_at = h.len;
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

int tr_st_create(struct tr_st *s, struct err *e)
{
    size_t n;
    AUTO_FREE char *h = tr_st_header(s, &n);
    int r;

    s->fd = open(s->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (s->fd < 0)
        return err_set(e, -errno, "create %s: %s", s->path, strerror(errno));
    r = reserve(s->fd, n + s->data_bytes);
    if (r == 0)
        r = write_at(s->fd, h, n, 0);
    if (r < 0)
        return err_set(e, r, "create %s: %s", s->path, strerror(-r));
    return 0;
}

int tr_st_attach(struct tr_st *s, struct err *e)
{
    size_t n;

    free(tr_st_header(s, &n)); /* lays the tensors out */
    s->fd = open(s->path, O_RDWR | O_CLOEXEC);
    if (s->fd < 0)
        return err_set(e, -errno, "open %s: %s", s->path, strerror(errno));
    return 0;
}

int tr_st_sync(struct tr_st *s, struct err *e)
{
    if (fsync(s->fd) < 0)
        return err_set(e, -errno, "sync %s: %s", s->path, strerror(errno));
    return 0;
}

int tr_st_reopen(struct tr_st *s, struct err *e)
{
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_set(e, -errno, "open %s: %s", s->path, strerror(errno));
    close(s->fd);
    s->fd = fd;
    return 0;
}
