/* What a Megatron-LM command line says of recomputation (recompute.c). */
#ifndef TUNER_EXPORT_RECOMPUTE_H
#define TUNER_EXPORT_RECOMPUTE_H

#include "tuner/export/internal.h"

/* What the arguments say. */
struct tn_recompute {
    int granularity;  /* --recompute-granularity: PL_RECOMPUTE_... */
    bool activations; /* --recompute-activations */
    bool method_said, block;
    int layers; /* --recompute-num-layers; 0: not said, as are these */
    bool modules_said;
    bool moe_layer; /* --moe-layer-recompute, its name before there were modules */
    /* before there were granularities, and in Megatron-DeepSpeed */
    bool checkpoint;       /* --checkpoint-activations */
    int checkpoint_layers; /* --checkpoint-num-layers, --activations-checkpoint-num-layers */
    char checkpoint_method[8];
};

/* The field of the argument FLAG without a value, or NULL; and with a number, or NULL. */
bool *tn_megatron_recompute_flag(struct tn_recompute *recompute, const char *flag);
int *tn_megatron_recompute_number(struct tn_recompute *recompute, const char *flag);

/* Does FLAG take one word that tn_megatron_recompute_word reads? */
bool tn_megatron_recompute_takes_word(const char *flag);

/* Is FLAG one with words, VALUE or NULL? Notes what they say, modules in OUT's layout; -EINVAL
 * where they are none. */
int tn_megatron_recompute_word(bool *ret_known, struct tn_recompute *recompute,
                               struct tn_imported *out, const char *flag, const char *value,
                               struct err *error);

/* All of them together in OUT, once all were read. */
void tn_megatron_recompute_read(struct tn_imported *out, const struct tn_recompute *recompute);

#endif
