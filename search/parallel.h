/* A parallel for loop. */
#ifndef SEARCH_PARALLEL_H
#define SEARCH_PARALLEL_H

#include <stddef.h>

/* Split [0, COUNT) over at most as many threads as the process may use processors and call
 * FN(CONTEXT, from, to) on each part. LEAST is the least size of a part that is worth a thread,
 * which takes about 30 us to start. Returns when all parts are done. */
void se_parallel(size_t count, size_t least, void (*fn)(void *context, size_t from, size_t to),
                 void *context);

#endif
