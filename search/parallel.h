/* A range divided among threads. */
#ifndef SEARCH_PARALLEL_H
#define SEARCH_PARALLEL_H

#include <stddef.h>

/* Call FN(CONTEXT, from, to) so that the parts [from, to) cover [0, COUNT) once: some at the same
 * time, on as many threads as the process may use processors, with LEAST elements each at least: as
 * many as are worth a thread, which takes some 30 us to start. Returns when all have returned. */
void se_parallel(size_t count, size_t least, void (*fn)(void *context, size_t from, size_t to),
                 void *context);

#endif
