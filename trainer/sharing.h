/* Which ranks of a job compute on one GPU. */
#ifndef TRAINER_SHARING_H
#define TRAINER_SHARING_H

#include "trainer/comm.h"

struct tr_sharing {
    int ranks;  /* that use this rank's GPU, itself among them; 0: it uses none. Of a GPU that is
                 * divided (MIG), those that use its instance */
    int on_gpu; /* of a divided one those that use any instance of it; else the same */
    bool first; /* no rank before this one uses it */
};

/* Collective. */
void tr_sharing(struct tr_sharing *ret, struct tr_comms *comms);

/* -EINVAL where ranks share a GPU and DEVICE (--device) does not allow it. Collective. */
int tr_sharing_check(struct tr_comms *comms, const char *device, struct err *error);

#endif
