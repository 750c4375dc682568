/*
 * Several safetensors files that together hold the tensors of a model, and the parts of a rank in
 * them.
 *
 * Private to the files of checkpoints and folders, and their tests. The description of an archive
 * is a pure function of the tensors, so ranks that describe the same model agree on every offset.
 */
#ifndef TRAINER_ARCHIVE_H
#define TRAINER_ARCHIVE_H

#include "trainer/ckpt.h"

struct tr_archive {
    struct tr_st **file;
    size_t count, cap;
    struct tr_shares *shares; /* of what is put; NULL: nobody asks. Freed with the archive */
};

/* All parameters of the model: the table of a run on one rank, which holds every tensor whole. */
void tr_archive_whole(struct pl_params *ret, const struct pl_model *model);
/* The row of ALL called NAME, or NULL. */
const struct pl_param *tr_archive_param(const struct pl_params *all, const char *name);

/* Append the tensors of MODEL under names with SUFFIX ("", ".exp_avg") to files
 * FOLDER/BASE.safetensors, or BASE-0000i-of-0000n.safetensors where together they exceed
 * SPLIT_BYTES (0: 5 GB). Nothing is opened. */
void tr_archive_describe(struct tr_archive *archive, const char *folder, const char *base,
                         enum tr_dtype dtype, const struct pl_model *model,
                         const char *const *suffix, uint64_t split_bytes);
/* The same of the tensors in the rows of ALL. */
void tr_archive_describe_all(struct tr_archive *archive, const char *folder, const char *base,
                             enum tr_dtype dtype, const struct pl_params *all,
                             const char *const *suffix, uint64_t split_bytes);
/* The same of OPTIMIZER's state of the tensors of MODEL. */
void tr_archive_describe_state(struct tr_archive *archive, const char *folder,
                               const struct pl_model *model, enum pl_optimizer optimizer,
                               uint64_t split_bytes);
int tr_archive_create(struct tr_archive *archive, struct err *error); /* one rank, then */
int tr_archive_attach(struct tr_archive *archive, struct err *error); /* the others */
int tr_archive_sync(const struct tr_archive *archive, struct err *error);
int tr_archive_reopen(struct tr_archive *archive, struct err *error); /* as tr_st_reopen */

/* Open FOLDER/NAME as one more file. */
int tr_archive_open(struct tr_archive *archive, const char *folder, const char *name,
                    struct err *error);
void tr_archive_done(struct tr_archive *archive);

/* The file and tensor of NAME; NULL if absent. RET_FILE may be NULL. */
const struct tr_st_tensor *tr_archive_find(const struct tr_st **ret_file,
                                           const struct tr_archive *archive, const char *name);

/* Copy one part into the files or out of them. NAME is the tensor's in the files. -EINVAL names
 * tensor and sizes where the part does not fit the file's shape (SHAPE is the whole tensor's by the
 * model). */
int tr_archive_put(const struct tr_archive *archive, const char *name, const struct tr_part *part,
                   struct err *error);
int tr_archive_get(const struct tr_archive *archive, const char *name, const struct tr_part *part,
                   const uint64_t shape[2], struct err *error);

/* The same where the part's tensor lies at PLACE, for a part that has all of its elements. Parts at
 * a place that tr_hf_place_is_second() are put when those of all ranks at other places are. */
struct tr_hf_place;
int tr_archive_put_at(const struct tr_archive *archive, const struct tr_hf_place *place,
                      const struct tr_part *part, struct err *error);
int tr_archive_get_at(const struct tr_archive *archive, const struct tr_hf_place *place,
                      const struct tr_part *part, struct err *error);

/*
 * Checksums by piece: the header of each file, then each tensor in runs of at most 1 MiB, never
 * across two tensors, so that a damaged one has a name. Callers keep 4 bytes a piece, little
 * endian. shares.h makes the sums.
 */
enum { TR_PIECE = 1 << 20 };
size_t tr_archive_pieces(const struct tr_archive *archive);
/* The number of the first piece of TENSOR of FILE; of FILE's header where TENSOR is NULL. */
size_t tr_archive_piece(const struct tr_archive *archive, const struct tr_st *file,
                        const struct tr_st_tensor *tensor);
/* Read the pieces i with i % SIZE == RANK back. -EBADMSG names file, tensor and offset of the first
 * whose sum differs from SUMS (of all pieces). */
int tr_archive_verify(const struct tr_archive *archive, const uint32_t *sums, int rank, int size,
                      struct err *error);

#endif
