/* Which experts each token of a run chose, recorded and replayed. */
#ifndef TESTS_MPI_CHOICES_H
#define TESTS_MPI_CHOICES_H

#include "tests/mpi/draw.h"
#include "trainer/rank.h"

enum { CHOICES_STEPS = 10, CHOICES_LAYERS = DRAW_LAYERS + DRAW_MTP };

struct choices {
    int32_t expert[CHOICES_STEPS][CHOICES_LAYERS][DRAW_BATCH][DRAW_SEQ][DRAW_TOP_K];
};

struct watch {
    const struct choices *want; /* NULL: record */
    struct choices *out;
    int step;
    uint64_t shuffle; /* samples of a batch are rotated by so many */
    bool off;         /* neither record nor replay */
    double tie;       /* scores may decide otherwise if changed by so much; 0: by anything */
    /* choices that are not among the wanted ones, of all, and those that are no ties */
    double differ, all, wrong;
};

/* For `routed` and `replay` of struct tr_rank; ARG is a struct watch. */
void choices_record(void *arg, const struct tr_rank *rank, int layer, const int32_t *idx);
bool choices_replay(void *arg, const struct tr_rank *rank, int layer,
                    const struct kn_router *router, const float *probs, int32_t *idx);

#endif
