/* Between the files of Megatron's exports and imports: the key grad_dtype (grads.c). */
#ifndef TUNER_EXPORT_GRADS_H
#define TUNER_EXPORT_GRADS_H

#include "tuner/export/internal.h"

/* The arguments of LAYOUT's grad_dtype, one a line. FSDP: gradients are Megatron-FSDP's. */
void tn_megatron_grads(struct str *out, const struct pl_layout *layout, bool fsdp);

/* What arguments of Megatron-LM say of gradients, as far as they were read. */
struct tn_grads {
    bool in_bf16, in_fp32; /* --grad-reduce-in-bf16, --accumulate-allreduce-grads-in-fp32 */
    bool fp16;             /* --fp16, where nothing else makes them fp32 */
    char main[8];          /* --main-grads-dtype; empty: not said, as are these */
    char fsdp_main[8], fsdp_comm[8]; /* --megatron-fsdp-main-grads-dtype, -grad-comm-dtype */
};

/* The field of the argument FLAG without a value, or NULL. */
bool *tn_megatron_grads_flag(struct tn_grads *grads, const char *flag);

/* Is FLAG one with a value, VALUE or NULL? Notes what it says; -EINVAL where it is no type. */
int tn_megatron_grads_word(bool *ret_known, struct tn_grads *grads, const char *flag,
                           const char *value, struct err *error);

/* All of them together in OUT, whose precision is set, once all were read. TORCH: gradients
 * are PyTorch's FSDP2's. */
void tn_megatron_grads_read(struct tn_imported *out, const struct tn_grads *grads, bool fsdp,
                            bool torch);

/* Two settings say different types, REDUCE by its NAME and ACCUMULATE, where grad_dtype is one. */
void tn_grads_differ(struct tn_imported *out, const char *name, const char *reduce,
                     const char *accumulate);

#endif
