/*
 * Today's production configuration as a layout: Megatron-LM scripts and arguments, YAML of
 * Megatron-Bridge and Primus, DeepSpeed JSON, torchtitan TOML and Python.
 *
 * What the source says in its own units is converted (virtual stages, tokens, accumulation); what
 * has no word here is listed as ignored, never guessed. World size is not in these files, so the
 * caller gives it.
 */
#include "tuner/export/internal.h"

#include <errno.h>

/* The canonical form says nothing of what has no effect, as expert parallelism of a dense model. */
static void list_without_effect(struct tn_imported *out, const struct pl_layout *said)
{
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int was = pl_layout_get(said, k), is = pl_layout_get(&out->layout, k);
        char a[16], b[16];

        if (k->part == PL_DERIVED || was == is || str_eq(k->name, "zero_scope"))
            continue;
        tn_finding_add(&out->ignored, k->name, "%s has no effect here, taken as %s",
                       pl_layout_value_text(a, k, was), pl_layout_value_text(b, k, is));
    }
}

int tn_import(struct tn_imported *ret, const struct tn_job *job, const struct pl_model *model,
              struct err *error)
{
    const char *source = job->source, *text = job->text;
    struct tn_imported out = {0};
    struct pl_workload w = {.global_batch = 1, .seq = model->seq};
    struct pl_layout *l = &out.layout, said;
    int r;

    pl_layout_default(l, &w);
    l->world = job->world;
    if (str_eq(source, "megatron"))
        r = tn_import_megatron(&out, job, model, error);
    else if (job->call)
        r = tn_import_uncalled(error);
    else if (str_eq(source, "deepspeed"))
        r = tn_import_deepspeed(&out, text, model, error);
    else if (str_eq(source, "torchtitan"))
        r = tn_import_torchtitan(&out, text, model, error);
    else
        return err_set(error, -ENOENT, "unknown import source \"%.64s\"", source);
    if (r < 0)
        return r;
    if (l->zero)
        l->zero_scope = PL_SCOPE_EP_AWARE;
    r = tn_import_degrees(l, error);
    if (r < 0)
        return r;
    pl_layout_derive(l);
    said = *l;
    if ((int64_t)l->dp * l->cp == 1 && !(model->moe.experts && l->edp > 1))
        l->zero = 0; /* one rank has nothing to share */
    pl_layout_canonical(l, model);
    list_without_effect(&out, &said);
    *ret = out;
    return 0;
}
