/*
 * The type in which Megatron-LM accumulates and reduces gradients, to and from the key grad_dtype.
 *
 * Its own data parallelism has one buffer for both (main_grad): in fp32 with --bf16, unless
 * --grad-reduce-in-bf16 or --main-grads-dtype says bf16 (megatron/training/arguments.py);
 * Megatron-Bridge's grad_reduce_in_fp32 says the same. Megatron-FSDP reads neither: it accumulates
 * in --megatron-fsdp-main-grads-dtype, whose default is the weights' type, and reduces in that or
 * in --megatron-fsdp-grad-comm-dtype. PyTorch's FSDP2 gets no policy: both are the weights' type.
 */
#include "tuner/export/grads.h"

#include <errno.h>

void tn_megatron_grads(struct str *out, const struct pl_layout *layout, bool fsdp)
{
    bool half = layout->grad_dtype == PL_GRADS_BF16;

    if (layout->precision == PL_FP32)
        return;
    if (fsdp) /* reduces in it, too, unless it is told otherwise */
        str_addf(out, "--megatron-fsdp-main-grads-dtype %s\n", half ? "bf16" : "fp32");
    else if (half)
        str_add(out, "--grad-reduce-in-bf16\n");
}

bool *tn_megatron_grads_flag(struct tn_grads *grads, const char *flag)
{
    if (str_eq(flag, "--grad-reduce-in-bf16"))
        return &grads->in_bf16;
    return str_eq(flag, "--accumulate-allreduce-grads-in-fp32") ? &grads->in_fp32 : NULL;
}

int tn_megatron_grads_word(bool *ret_known, struct tn_grads *grads, const char *flag,
                           const char *value, struct err *error)
{
    static const char *const types[] = {"fp32", "bf16", "fp16", "auto", NULL};
    struct {
        const char *flag;
        char *field;
    } rows[] = {
        {"--main-grads-dtype", grads->main},
        {"--megatron-fsdp-main-grads-dtype", grads->fsdp_main},
        {"--megatron-fsdp-grad-comm-dtype", grads->fsdp_comm},
    };
    size_t row = 0, type = 0;

    while (row < ARRAY_LEN(rows) && !str_eq(rows[row].flag, flag))
        row++;
    *ret_known = row < ARRAY_LEN(rows);
    if (!*ret_known)
        return 0;
    while (types[type] && !str_eq(types[type], value))
        type++;
    if (!types[type])
        return err_set(error, -EINVAL, "%s must be fp32, bf16, fp16 or auto, not `%.40s`", flag,
                       value ? value : "");
    snprintf(rows[row].field, sizeof(grads->main), "%s", types[type]);
    return 0;
}

void tn_grads_differ(struct tn_imported *out, const char *name, const char *reduce,
                     const char *accumulate)
{
    tn_finding_add(&out->ignored, name,
                   "gradients are reduced in %s, but accumulated in %s: grad_dtype is the latter",
                   reduce, accumulate);
}

static int fsdp_type(struct tn_imported *out, const struct tn_grads *grads)
{
    const char *main =
        *grads->fsdp_main && !str_eq(grads->fsdp_main, "auto") ? grads->fsdp_main : "bf16";

    if (*grads->fsdp_comm && !str_eq(grads->fsdp_comm, "auto") && !str_eq(grads->fsdp_comm, main))
        tn_grads_differ(out, "--megatron-fsdp-grad-comm-dtype", grads->fsdp_comm, main);
    if (grads->in_fp32 || grads->in_bf16)
        tn_finding_add(&out->ignored,
                       grads->in_fp32 ? "--accumulate-allreduce-grads-in-fp32"
                                      : "--grad-reduce-in-bf16",
                       "Megatron-FSDP reads --megatron-fsdp-main-grads-dtype, here %s", main);
    return str_eq(main, "fp32") ? PL_GRADS_FP32 : PL_GRADS_BF16;
}

void tn_megatron_grads_read(struct tn_imported *out, const struct tn_grads *grads, bool fsdp,
                            bool torch)
{
    bool half = str_eq(grads->main, "bf16") || grads->fp16;

    if (!fsdp && (*grads->fsdp_main || *grads->fsdp_comm))
        tn_finding_add(&out->ignored,
                       *grads->fsdp_main ? "--megatron-fsdp-main-grads-dtype"
                                         : "--megatron-fsdp-grad-comm-dtype",
                       "applies only with --use-megatron-fsdp");
    if (out->layout.precision == PL_FP32) /* where the switch has no effect, which is told */
        out->layout.grad_dtype = grads->in_bf16 ? PL_GRADS_BF16 : PL_GRADS_FP32;
    else if (fsdp)
        out->layout.grad_dtype = fsdp_type(out, grads);
    else if (torch || grads->in_bf16 || (half && !grads->in_fp32))
        out->layout.grad_dtype = PL_GRADS_BF16;
}
