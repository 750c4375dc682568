/*
 * What Megatron-LM and Megatron-Bridge keep in host memory: the hybrid optimizer's share of the
 * state (megatron/core/optimizer/cpu_offloading), and activations of the first layers
 * (cpu_offloading of model_parallel_config.py). Modules of layers, which are offloaded one by one
 * (fine_grained_activation_offloading), have no key.
 */
#include "tuner/export/offload.h"

#include <errno.h>
#include <math.h>

bool tn_megatron_offloads_optimizer(const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    return l->offload_optimizer && l->zero < 2 && in->workload->optimizer == PL_ADAMW &&
           (!l->fp8_param_gather || l->precision == PL_FP8);
}

int tn_megatron_offloaded_layers(const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    bool starts = l->pp == 1 && l->recompute == PL_RECOMPUTE_NONE &&
                  tn_megatron_graphed(in) != PL_GRAPHS_MODULES &&
                  l->offload_activations < in->model->layers;

    return starts ? l->offload_activations : 0;
}

void tn_megatron_offload(struct str *out, const struct tn_export_in *in)
{
    if (tn_megatron_offloads_optimizer(in)) /* by the path of the precision-aware one */
        str_addf(out,
                 "--optimizer-cpu-offload\n--optimizer-offload-fraction %.2f\n"
                 "--overlap-cpu-optimizer-d2h-h2d\n--use-precision-aware-optimizer\n",
                 in->layout->offload_optimizer / 100.0);
    if (tn_megatron_offloaded_layers(in))
        str_addf(out, "--cpu-offloading-num-layers %d\n", tn_megatron_offloaded_layers(in));
}

bool *tn_megatron_offload_flag(struct tn_offload *offload, const char *flag)
{
    const struct {
        const char *flag;
        bool *field;
    } rows[] = {
        {"--optimizer-cpu-offload", &offload->optimizer},
        {"--overlap-cpu-optimizer-d2h-h2d", &offload->overlaps},
        {"--use-precision-aware-optimizer", &offload->precision_aware},
        {"--fine-grained-activation-offloading", &offload->modules},
        {"--checkpoint-in-cpu", &offload->checkpoints},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_eq(rows[i].flag, flag))
            return rows[i].field;
    return NULL;
}

int tn_megatron_offload_word(bool *ret_known, struct tn_offload *offload, const char *flag,
                             const char *value, struct err *error)
{
    int64_t layers = 0;

    *ret_known = true;
    if (str_eq(flag, "--optimizer-offload-fraction")) {
        offload->fraction_said = true;
        if (!value || str_to_f64(&offload->fraction, value) < 0 || offload->fraction < 0 ||
            offload->fraction > 1)
            return err_set(error, -EINVAL, "%s must be 0 to 1, not `%.40s`", flag,
                           value ? value : "");
        return 0;
    }
    *ret_known = str_eq(flag, "--cpu-offloading-num-layers");
    if (!*ret_known)
        return 0;
    if (!value || str_to_i64(&layers, value, 0, 1 << 16) < 0)
        return err_set(error, -EINVAL, "%s must be a number of layers, not `%.40s`", flag,
                       value ? value : "");
    offload->layers = (int)layers;
    return 0;
}

int tn_offload_percent(struct tn_imported *out, const char *setting, double share)
{
    double percent = round(100 * share);

    if (fabs(100 * share - percent) > 1e-6)
        tn_finding_add(&out->ignored, setting, "%g taken as %.0f percent", share, percent);
    return (int)percent;
}

void tn_megatron_offloaded(struct tn_imported *out, const struct tn_offload *offload)
{
    double fraction = offload->fraction_said ? offload->fraction : 1; /* the default */

    out->layout.offload_activations = offload->layers;
    if (offload->optimizer)
        out->layout.offload_optimizer =
            tn_offload_percent(out, "--optimizer-offload-fraction", fraction);
    else if (offload->fraction_said)
        tn_finding_add(&out->ignored, "--optimizer-offload-fraction",
                       "applies only with --optimizer-cpu-offload");
    if (offload->optimizer && !offload->overlaps)
        tn_finding_add(&out->ignored, "--optimizer-cpu-offload",
                       "without --overlap-cpu-optimizer-d2h-h2d: taken as with it");
    if (!offload->optimizer && offload->precision_aware)
        tn_finding_add(&out->ignored, "--use-precision-aware-optimizer",
                       "not a setting of the layout");
    if (offload->modules)
        tn_finding_add(&out->ignored, "--fine-grained-activation-offloading",
                       "modules have no key: offload_activations counts whole layers");
    if (offload->checkpoints)
        tn_finding_add(&out->ignored, "--checkpoint-in-cpu",
                       "what is recomputed from has no key: offload_activations counts layers that "
                       "are not recomputed");
}
