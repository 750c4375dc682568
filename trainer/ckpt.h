/*
 * Checkpoints: written under one layout, read under any.
 *
 * A checkpoint DIR/step-00000100 is a Hugging Face folder with more in it:
 *
 *     config.json             the model, Hugging Face keys; left out where it has no class for it
 *     model.safetensors       weights under their HF names, fp32, unpadded, merged over all meshes;
 *                             over 5 GB model-0000i-of-0000n.safetensors and
 *                             model.safetensors.index.json
 *     optimizer.safetensors   NAME.exp_avg and NAME.exp_avg_sq, or NAME.momentum_buffer
 *                             (tr_part_exists); split in the same way
 *     checksums.bin           CRC-32 of each piece (at most 1 MiB of one tensor, or a header) of
 *                             the files above, in order
 *     trainer.json            format version, step, samples consumed, seed, model, list of files
 *                             with the CRC-32 of checksums.bin and of the small files; sealed
 *                             (seal.h)
 *
 * So every byte that counts is covered by a checksum, those of trainer.json by its own seal.
 *
 * The place of each tensor in the files is a pure function of the model, so every rank writes its
 * own parts by pwrite without talking to the others. Order: a folder DIR/.saving.xxxxxxxx is made,
 * filled and synced by all ranks, rank 0 renames it to its final name, syncs DIR and replaces the
 * file DIR/latest. A kill at any point leaves the previous checkpoint as it was; what it leaves of
 * the new one is removed by the next save.
 *
 * Parts (struct tr_part) describe what a rank holds: rectangles of HF tensors, and of those a run
 * of elements, which is what a sharded optimizer has. The list of parts is the same for weights and
 * for state but for `data`.
 *
 * This module does not use MPI: the caller provides how ranks agree (struct tr_team).
 */
#ifndef TRAINER_CKPT_H
#define TRAINER_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "plan/plan.h"
#include "trainer/lock.h"
#include "trainer/lr.h"
#include "trainer/safetensors.h"
#include "trainer/skip.h"
#include "trainer/sources.h"

/* What the numbers of a part are. */
enum tr_part_kind {
    TR_PART_WEIGHT,     /* NAME */
    TR_PART_EXP_AVG,    /* NAME.exp_avg: first moment of AdamW and LAMB */
    TR_PART_EXP_AVG_SQ, /* NAME.exp_avg_sq: the second */
    TR_PART_MOMENTUM,   /* NAME.momentum_buffer: of SGD, and of Muon's matrices */
    TR_PART_KINDS
};

/* What is added to a tensor's name. */
extern const char *const tr_part_suffix[TR_PART_KINDS];
/* TENSOR has numbers of this KIND under OPTIMIZER. */
bool tr_part_exists(enum tr_part_kind kind, enum pl_optimizer optimizer, enum pl_tensor tensor);

/*
 * Elements of one tensor that this rank holds.
 *
 * The rank has rows [row0, row0 + rows) and columns [col0, col0 + cols) of the tensor as a dense
 * row-major block of rows x cols; DATA points at element FIRST of that block and COUNT elements are
 * here (the whole block: 0 and rows * cols). Rows and columns past the tensor's own are padding:
 * skipped on save, zeroed on load.
 *
 * With bf16 weights an element comes twice as TR_PART_WEIGHT: the fp32 master, which is saved, and
 * the weight, which is only loaded; the file has fp32 in any case, so precision may change at a
 * resume.
 */
struct tr_part {
    const char *name; /* of the parameter table; borrowed */
    enum tr_part_kind kind;
    int64_t row0, rows, col0, cols;
    int64_t first, count;
    enum tr_dtype dtype; /* of DATA: TR_F32 or TR_BF16 */
    void *data;
    bool save; /* exactly one rank says true for each element of a tensor; all load */
};

/* How ranks agree. All ranks call both functions. AGREE takes 0 or a negative errno from each and
 * gives all of them the smallest; TEXT (480 bytes) then holds the text of one rank that had it.
 * With one rank: tr_team_alone. */
struct tr_team {
    int rank, size;
    int (*agree)(void *ctx, int status, char *text);
    void (*share)(void *ctx, void *bytes, size_t size); /* rank 0's BYTES to all of them */
    void *ctx;
};

extern const struct tr_team tr_team_alone;

/* The worst result of all ranks, with its text, on every rank: no rank continues before it knows
 * that all have succeeded. Collective. */
int tr_team_agree(const struct tr_team *team, int status, struct err *error);
bool tr_team_is_root(const struct tr_team *team); /* rank 0, which does what only one may do */
/* For a rank whose view of the files is not rank 0's: ERROR, which says what it found, becomes
 * -ESTALE and names the rank, its host and WHAT of rank 0 it does not see. Returns the code. */
int tr_team_stale(const struct tr_team *team, const char *what, struct err *error);

/* The state of a run besides its tensors. */
struct tr_ckpt_state {
    int step;         /* optimizer steps done */
    uint64_t samples; /* sequences consumed: the data position */
    int64_t seed;
    char data[64];              /* name of the data set, or of several */
    struct tr_identity sources; /* of versions that did not save it: unknown */
    double loss;                /* of the last step; NaN unknown */
    int lr_decay_steps;         /* its learning rate's horizon; 0: unknown */
    /* Its schedule; zeros are the cosine of versions that had no other. */
    enum tr_lr_style lr_decay_style;
    enum tr_wsd_style lr_wsd_decay_style;
    int lr_wsd_decay_steps;
    struct tr_skip skip; /* how many steps were skipped, and the window */
    int format;          /* of the file that was read; 1 has no checksum of this state */
};

struct tr_ckpt_what {
    const struct pl_model *model;
    const struct tr_part *part;
    size_t count;
    bool foreign; /* in a folder of Hugging Face's: names and places by trainer/hf_names.h */
    bool state;   /* the optimizer's moments are among the parts (of all ranks) */
    enum pl_optimizer optimizer;
    uint64_t split_bytes; /* what a file may hold of more tensors; 0: 5 GB */
    struct kn_pool *pool; /* of whose memory the parts are; NULL: the host's */
};

/* Write DIR/step-…; -EIO, -ENOSPC … on all ranks alike if any fails, and DIR is then as before but
 * for .saving. KEEP > 0 removes all but the newest KEEP afterwards. RET_PATH (may be NULL) is freed
 * by the caller. */
int tr_ckpt_save(char **ret_path, double *ret_bytes, const char *dir, int keep,
                 const struct tr_ckpt_what *what, const struct tr_ckpt_state *state,
                 const struct tr_team *team, struct err *error);

/* Check that checkpoints can be written in DIR, which is created: an error now, not at the first
 * save. */
int tr_ckpt_check_dir(const char *dir, struct err *error);

/* The same for a run, before it resumes or saves: DIR is locked for it (lock.h), and is one and
 * the same folder on all ranks. -EBUSY names the run that has it, -ESTALE the rank that sees
 * another folder. RET and RET_WARNING are set on rank 0, NULL on the others; collective. */
int tr_ckpt_open(struct tr_lock **ret, char **ret_warning, const char *dir,
                 const struct tr_team *team, struct err *error);

/* Path of the newest checkpoint of DIR that has a trainer.json: what `latest` names, else the
 * highest step. -ENOENT if none. */
int tr_ckpt_latest(char **ret, const char *dir, struct err *error);

/* Continue from the newest whole checkpoint of DIR: what `latest` names, else the highest step,
 * else the next one. Rank 0 decides which, and all fill their parts from that one.
 *
 * Those that were found damaged on the way are renamed to NAME.damaged and never removed; RET_ASIDE
 * is then, on rank 0, a text that says so (else NULL; caller frees, as RET_PATH). -ENOENT: DIR has
 * none, nor has had one. -EBADMSG: it has some and none is whole; nothing is renamed. -ESTALE: a
 * rank, which the text names with its host, does not see what rank 0 chose. */
int tr_ckpt_resume(struct tr_ckpt_state *ret, char **ret_path, char **ret_aside, const char *dir,
                   const struct tr_ckpt_what *what, const struct tr_team *team, struct err *error);

/* Read the state alone. -EBADMSG names the file and the key that is damaged or missing. -EINVAL:
 * another model (naming the first key that differs), another OPTIMIZER, a newer format. */
int tr_ckpt_peek(struct tr_ckpt_state *ret, const char *path, const struct pl_model *model,
                 enum pl_optimizer optimizer, struct err *error);

/* Fill the parts from checkpoint PATH. Checksums are verified first, shared between the ranks.
 * -EBADMSG names the file and the key or tensor that is damaged or missing, as rank 0 sees it;
 * -ESTALE the rank and host that sees something else under that path. Same answer on all ranks. */
int tr_ckpt_load(struct tr_ckpt_state *ret, const char *path, const struct tr_ckpt_what *what,
                 const struct tr_team *team, struct err *error);

/* --init: fill the parts of kind WEIGHT from a Hugging Face folder, of any file dtype. */
int tr_hf_load(const char *folder, const struct tr_ckpt_what *what, const struct tr_team *team,
               struct err *error);
/* --save-hf: write such a folder atomically (it must not exist, or be one of ours). DTYPE of the
 * file. */
int tr_hf_save(const char *folder, enum tr_dtype dtype, const struct tr_ckpt_what *what,
               const struct tr_team *team, struct err *error);
/* Check that it can be written: an error now, not after the training. Folders above it are created.
 */
int tr_hf_check_dir(const char *folder, struct err *error);
/* The same for a run, before it trains: FOLDER is locked for it (lock.h), and the folder that it
 * is to be in is one and the same for all ranks; collective. RET on rank 0, else NULL; RET_WARNING
 * as tr_lock_dir() gives it. */
int tr_hf_open(struct tr_lock **ret, char **ret_warning, const char *folder,
               const struct tr_team *team, struct err *error);

/* -EINVAL names the first key in which MODEL differs from the model of WHOSE, THEIRS; names and
 * lengths of sequences are no matter. */
int tr_same_model(const json_t *theirs, const struct pl_model *model, const char *whose,
                  struct err *error);

#endif
