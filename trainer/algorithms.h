/*
 * Algorithms of matrix products between calibrations and the trials of a machine: what
 * gpu_products.c chose is in the profile's stamp, as "algorithms", and every run on that kind of
 * GPU with that version of the library uses it. All ranks use the same, or none does: some of them
 * compute the same rows, and must get the same bits.
 *
 *   "algorithms": {"library": "cuBLASLt 13.1.0", "products": [
 *      {"mnk": [8192, 4096, 14336], "ld": [14336, 4096, 4096], "op": "NN", "add": false,
 *       "types": ["bf16", "bf16", "bf16"], "words": "HEX", "number": 3, "tried": 8,
 *       "tflops": 712.3, "heuristic_tflops": 688.1}, ...]}
 *
 * op says of A and B whether they are transposed (T), row-major; words are the library's own.
 */
#ifndef TRAINER_ALGORITHMS_H
#define TRAINER_ALGORITHMS_H

#include "base/base.h"
#include "trainer/gpu_rates.h"

/* The section of RATES; NULL: the library chose nothing. New reference. */
json_t *tr_algorithms_json(const struct tr_gpu_rates *rates);

/* Use those of profiles/local.json in DATA_DIR, as rank 0 has it, where the backend has a library.
 * RET_WHY: on rank 0 one line where the profile has some that are not used; else empty. Collective
 * over MPI_COMM_WORLD. */
void tr_algorithms_use(char *ret_why, size_t size, const char *data_dir);

/* How many are in use. */
int tr_algorithms_used(void);

#endif
