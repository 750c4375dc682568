/*
 * Counts the allocations of our own code: a program linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc sends them here. Those inside shared libraries
 * (MPI, Jansson) are not seen.
 */
#ifndef TESTS_MPI_ALLOCATIONS_H
#define TESTS_MPI_ALLOCATIONS_H

#include <stdbool.h>

extern bool allocations_counted; /* while true */
extern long allocations;

#endif
