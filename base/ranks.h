/*
 * What the launcher's environment says about this process: the only way to know it before MPI is
 * started, or without MPI.
 */
#ifndef BASE_RANKS_H
#define BASE_RANKS_H

struct ranks {
    const char *by;    /* the variable that told the rank; NULL: no launcher is known */
    int rank, size;    /* of the job; 0 of 1 where it is not told */
    int local, locals; /* rank and number of ranks on this host; -1 where it is not told */
};

void ranks_from_env(struct ranks *ret);

#endif
