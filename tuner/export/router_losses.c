/* Megatron-LM's arguments about the losses of a router, compared with the campaign's model. */
#include "tuner/export/router_losses.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int tn_megatron_losses_word(bool *ret_known, struct tn_router_losses *losses, const char *flag,
                            const char *value, struct err *error)
{
    double *coeff = !strcmp(flag, "--moe-aux-loss-coeff") ? &losses->aux
                    : !strcmp(flag, "--moe-z-loss-coeff") ? &losses->z
                                                          : NULL;

    *ret_known = true;
    if (!strcmp(flag, "--moe-router-load-balancing-type")) {
        snprintf(losses->type, sizeof(losses->type), "%.20s", value ? value : "");
        return 0;
    }
    *ret_known = coeff;
    if (coeff && (!value || str_to_f64(coeff, value) < 0 || *coeff < 0))
        return err_set(error, -EINVAL, "%s must be a number of 0 or more, not `%.40s`", flag,
                       value ? value : "");
    return 0;
}

static void compare_balancing(struct tn_imported *out, const struct tn_router_losses *losses,
                              const struct pl_model *model)
{
    bool none = str_eq(losses->type, "none") || losses->aux <= 0;
    bool sequence = str_eq(losses->type, "seq_aux_loss");
    struct pl_model theirs = *model;
    enum pl_aux_loss as = sequence ? PL_AUX_SEQUENCE : PL_AUX_MEGATRON;
    double ours = model->moe.aux_loss_coef;

    if (!losses->type[0] && losses->aux < 0)
        return;
    theirs.moe.aux_loss = PL_AUX_MEGATRON;
    theirs.moe.aux_loss_coef = none ? 0 : losses->aux;
    theirs.moe.aux_loss_coef = pl_aux_loss_coef(&theirs, as);
    if (none && ours == 0)
        return;
    if (!none && !sequence && *losses->type && !str_eq(losses->type, "aux_loss"))
        tn_finding_add(&out->ignored, "--moe-router-load-balancing-type",
                       "%s: moe.aux_loss has no such value", losses->type);
    else if (as != model->moe.aux_loss || fabs(ours - theirs.moe.aux_loss_coef) > 1e-6 * ours)
        tn_finding_add(&out->ignored, "--moe-aux-loss-coeff",
                       "this is aux_loss \"%s\" with aux_loss_coef %.6g, but %s has \"%s\" with "
                       "%.6g: another model?",
                       pl_aux_loss_names[as], theirs.moe.aux_loss_coef, model->name,
                       pl_aux_loss_names[model->moe.aux_loss], ours);
}

static void compare_z_loss(struct tn_imported *out, const struct tn_router_losses *losses,
                           const struct pl_model *model)
{
    double ours = model->moe.z_loss_coef;

    if (losses->z >= 0 && fabs(ours - losses->z) > 1e-6 * ours)
        tn_finding_add(&out->ignored, "--moe-z-loss-coeff",
                       "this is moe.z_loss_coef %.6g, but %s has %.6g: another model?", losses->z,
                       model->name, ours);
}

void tn_megatron_losses_compare(struct tn_imported *out, const struct tn_router_losses *losses,
                                const struct pl_model *model)
{
    if (!pl_model_is_moe(model))
        return;
    compare_balancing(out, losses, model);
    compare_z_loss(out, losses, model);
}
