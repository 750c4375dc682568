/*
 * What the writer (ckpt_save.c) and the reader (ckpt.c) of a checkpoint's files share. Private to
 * these two.
 */
#ifndef TRAINER_CKPT_FILES_H
#define TRAINER_CKPT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Of trainer.json. Format 1 has no seal and no sums of the small files: it is read, with a warning.
 */
enum { TR_CKPT_FORMAT = 2 };

/* Bytes of a file that is no tensor. */
enum { TR_CKPT_SMALL_MAX = 64 << 20 };

/* checksums.bin of FOLDER, which must hold PIECES sums (caller frees), and the CRC-32 of its bytes.
 */
int tr_ckpt_sums(uint32_t **ret, uint32_t *ret_crc, const char *folder, size_t pieces,
                 struct err *error);

#endif
