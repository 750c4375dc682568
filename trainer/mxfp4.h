/*
 * Weights in MXFP4 (OCP Microscaling Formats 1.0: elements E2M1, a scale E8M0 for each 32), as
 * GPT-OSS publishes those of its experts. Private to the files of folders and their tests.
 *
 * A tensor X of the folder, a stack of E matrices (in, out), is there as two:
 *
 *   X_blocks   U8 (E, out, in / 32, 16)   32 elements a block, two a byte, the first in the low
 *                                         four bits
 *   X_scales   U8 (E, out, in / 32)       s: its block's elements times 2^(s - 127); 255 is NaN
 *
 * An element's bits are sign, two of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and
 * their negatives. So a row of X_blocks is a column of X: transformers decodes and transposes
 * (convert_moe_packed_tensors of integrations/mxfp4.py). Values are its values, exact in fp32 and
 * bf16, with infinity where an element times its scale exceeds them.
 */
#ifndef TRAINER_MXFP4_H
#define TRAINER_MXFP4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/archive.h"

enum { TR_MXFP4_BLOCK = 32, TR_MXFP4_BYTES = 16 }; /* elements and bytes of a block */

/* The values of COUNT blocks: RET has room for 32 each, BLOCKS has 16 bytes each. No scale is 255.
 */
void tr_mxfp4_decode(float *ret, const uint8_t *blocks, const uint8_t *scales, size_t count);

/* Is tensor NAME in the files as blocks or scales? */
bool tr_mxfp4_has(const struct tr_archive *archive, const char *name);

/* Is NAME that of the blocks or scales of a row of ALL, a table of the folder's tensors? */
struct pl_params;
bool tr_mxfp4_belongs(const struct pl_params *all, const char *name);

/* Fill PART from the blocks of the tensor that is at PLACE: what the part has is read, some blocks
 * at a time. Refused by tensor: one that is missing, has another dtype or shape, or a NaN. */
struct tr_hf_place;
int tr_mxfp4_get(const struct tr_archive *archive, const struct tr_hf_place *place,
                 const struct tr_part *part, struct err *error);

#endif
