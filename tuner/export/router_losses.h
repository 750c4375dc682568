/* Between the files of Megatron's imports: the losses of a router (router_losses.c). */
#ifndef TUNER_EXPORT_ROUTER_LOSSES_H
#define TUNER_EXPORT_ROUTER_LOSSES_H

#include "tuner/export/internal.h"

/* What the arguments say, as far as they were read. */
struct tn_router_losses {
    char type[24]; /* --moe-router-load-balancing-type; empty: not said */
    double aux, z; /* --moe-aux-loss-coeff, --moe-z-loss-coeff; negative: not said */
};

/* Is FLAG one of them? Notes its VALUE, which may be NULL; -EINVAL where it is no coefficient. */
int tn_megatron_losses_word(bool *ret_known, struct tn_router_losses *losses, const char *flag,
                            const char *value, struct err *error);

/* The model is the campaign's: where the script's losses are others, OUT says what MODEL would have
 * to have. */
void tn_megatron_losses_compare(struct tn_imported *out, const struct tn_router_losses *losses,
                                const struct pl_model *model);

#endif
