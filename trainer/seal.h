/*
 * JSON files that know whether they are whole.
 *
 * A sealed object has two more keys: "sums", which holds for each other key the CRC-32 of the key
 * and its value, and "sums_crc", the CRC-32 of all of those. So a value that was changed, taken
 * away or added is known by its name, which one checksum over the whole file could not say. Sums
 * are of values, not of bytes: indentation and the order of keys do not matter.
 */
#ifndef TRAINER_SEAL_H
#define TRAINER_SEAL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* Add "sums" and "sums_crc" to OBJECT, over all that it holds now. */
void tr_seal(json_t *object);

/* True if either key of a seal is there. */
bool tr_sealed(const json_t *object);

/* -EBADMSG naming the first key that is not as it was sealed. */
int tr_seal_check(const json_t *object, struct err *error);

#endif
