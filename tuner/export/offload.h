/* Between the files of Megatron's exports and imports: what is in host memory
 * (megatron_offload.c). */
#ifndef TUNER_EXPORT_OFFLOAD_H
#define TUNER_EXPORT_OFFLOAD_H

#include "tuner/export/dispatch.h"

/* What of the layout's offloading is switched on where Megatron starts with it; the rest is a gap
 * by the rule trainer-supports. */
bool tn_megatron_offloads_optimizer(const struct tn_export_in *in);
int tn_megatron_offloaded_layers(const struct tn_export_in *in);

/* The arguments of both, one a line. */
void tn_megatron_offload(struct str *out, const struct tn_export_in *in);

/* What arguments of Megatron-LM say of it, as far as they were read. */
struct tn_offload {
    bool optimizer, overlaps, precision_aware, modules, checkpoints, fraction_said;
    double fraction;
    int layers;
};

/* The field of the argument FLAG without a value, or NULL. */
bool *tn_megatron_offload_flag(struct tn_offload *offload, const char *flag);

/* Is FLAG one with a value, VALUE or NULL? Notes what it says. */
int tn_megatron_offload_word(bool *ret_known, struct tn_offload *offload, const char *flag,
                             const char *value, struct err *error);

/* All of them together in OUT, once all were read. */
void tn_megatron_offloaded(struct tn_imported *out, const struct tn_offload *offload);

/* SHARE, which SETTING says, in whole percent; what is lost is listed. */
int tn_offload_percent(struct tn_imported *out, const char *setting, double share);

#endif
