/*
 * The safetensors file format.
 *
 *     8 bytes   n, length of the header, little endian
 *     n bytes   JSON object: "__metadata__": {text: text}, and for each tensor
 *               "name": {"dtype": "F32", "shape": [rows, cols], "data_offsets": [begin, end]}
 *               padded with spaces so that data begins at a multiple of 8
 *     the rest  the tensors, row-major, little endian; offsets count from here, leave no hole and
 *               do not overlap
 *
 * Reading refuses, by tensor: unknown dtype, a size that is not shape times dtype, offsets outside
 * the file, overlaps and holes. Reading and writing go by pread/pwrite of element ranges, so
 * several processes can fill one file without talking to each other.
 */
#ifndef TRAINER_SAFETENSORS_H
#define TRAINER_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

/* TR_U8 is of packed numbers: it is read by the byte. */
enum tr_dtype { TR_F32, TR_BF16, TR_F16, TR_U8, TR_DTYPES };

enum { TR_ST_NAME = 120, TR_ST_DIMS = 4 };

struct tr_st_tensor {
    char name[TR_ST_NAME];
    enum tr_dtype dtype;
    int ndim;
    int64_t shape[TR_ST_DIMS];
    uint64_t begin, end; /* bytes from the start of the data */
};

struct tr_st {
    char *path;
    int fd;           /* -1: only a description */
    uint64_t data_at; /* file offset of the data */
    uint64_t data_bytes;
    uint32_t header_crc;         /* CRC-32 of what is before the data; of a file to be written */
    struct tr_bounce *bounce;    /* large writes go past the page cache; NULL: none. Borrowed */
    struct tr_st_tensor *tensor; /* ascending begin */
    size_t count;
    json_t *metadata; /* object or NULL */
};

size_t tr_dtype_bytes(enum tr_dtype dtype);
const char *tr_dtype_name(enum tr_dtype dtype); /* as in a file */
int64_t tr_st_elements(const struct tr_st_tensor *tensor);

/* Parse the header text alone; FILE_DATA_BYTES is the size of what follows it. PATH is for
 * messages. */
int tr_st_parse(struct tr_st **ret, const char *header, size_t len, uint64_t file_data_bytes,
                const char *path, struct err *error);
int tr_st_open(struct tr_st **ret, const char *path, struct err *error);
struct tr_st *tr_st_free(struct tr_st *file);

AUTO_DEFINE(tr_st)

const struct tr_st_tensor *tr_st_find(const struct tr_st *file, const char *name);

/* Read elements [first, first + count) of TENSOR as fp32, whatever the file's type; -EINVAL: U8. */
int tr_st_read(float *ret, const struct tr_st *file, const struct tr_st_tensor *tensor,
               uint64_t first, size_t count, struct err *error);
/* The same of a U8 tensor, as they are. */
int tr_st_read_bytes(uint8_t *ret, const struct tr_st *file, const struct tr_st_tensor *tensor,
                     uint64_t first, size_t count, struct err *error);
/* Write elements [first, first + count) of TENSOR, rounded to nearest even where the file's type is
 * narrower. */
int tr_st_write(const struct tr_st *file, const struct tr_st_tensor *tensor, uint64_t first,
                size_t count, const float *in, struct err *error);

/* Describe a file to be written: tensors in the order of adding. METADATA is borrowed, may be NULL.
 */
struct tr_st *tr_st_new(const char *path, const json_t *metadata);
void tr_st_add(struct tr_st *file, const char *name, enum tr_dtype dtype, int ndim,
               const int64_t *shape);
/* Make the file at its full size with its header; the data reads as zeros. Open afterwards. */
int tr_st_create(struct tr_st *file, struct err *error);
/* Open the file that another process created from the same description. */
int tr_st_attach(struct tr_st *file, struct err *error);
int tr_st_sync(struct tr_st *file, struct err *error); /* fsync */
/* Open the file again: over a network file system only an open that follows is sure to see what
 * other hosts have written and synced. */
int tr_st_reopen(struct tr_st *file, struct err *error);

/* To a narrower type: round to nearest even, NaN stays NaN. */
void tr_f32_to_bf16(uint16_t *ret, const float *in, size_t count);
void tr_bf16_to_f32(float *ret, const uint16_t *in, size_t count);
void tr_f16_to_f32(float *ret, const uint16_t *in, size_t count);
void tr_f32_to_f16(uint16_t *ret, const float *in, size_t count);

#endif
