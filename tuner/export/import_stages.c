/*
 * Pipelines as Megatron-LM and torchtitan say them, as the keys vp and stages.
 *
 * Megatron-LM has three ways (megatron/core/transformer/transformer_config.py and
 * pipeline_parallel_layer_layout.py): a whole layout, of which each field is a virtual stage; the
 * layers of the first and the last stage; embedding and loss counted as layers. The last two come
 * with a number of virtual stages, or with the layers of one.
 */
#include "tuner/export/internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { MAX_STAGES_TEXT = 1 << 16 };

/*
 * A pipeline layout such as "E|(t|)*3,m|m||L" written out: X*N and (…)*N repeat, and commas only
 * separate for the eye. *POS is left behind the group.
 */
static int write_out(struct str *out, const char **pos, int depth, struct err *error)
{
    size_t last = out->len; /* where the element begins that a * would repeat */

    for (; **pos && **pos != ')'; ++*pos) {
        if (**pos == ',' || **pos == ' ')
            continue;
        if (**pos == '*') {
            AUTO_FREE char *piece = mem_strdup(str_text(out) + last);
            char *end;
            long times = strtol(*pos + 1, &end, 10);

            if (end == *pos + 1 || times < 1 || times > MAX_STAGES_TEXT)
                return err_set(error, -EINVAL, "the pipeline layout repeats %.20s times", *pos + 1);
            for (; times > 1 && out->len <= MAX_STAGES_TEXT; times--)
                str_add(out, piece);
            *pos = end - 1;
        } else if (**pos == '(' && depth < 8) {
            int r;

            last = out->len;
            ++*pos;
            r = write_out(out, pos, depth + 1, error);
            if (r < 0)
                return r;
            if (**pos != ')')
                return err_set(error, -EINVAL, "unclosed bracket in the pipeline layout");
        } else {
            last = out->len;
            str_addc(out, **pos);
        }
        if (out->len > MAX_STAGES_TEXT)
            return err_set(error, -EINVAL, "the pipeline layout is not terminated");
    }
    return 0;
}

int tn_megatron_layout(struct str *ret, const char *value, struct err *error)
{
    int r;

    str_trunc(ret, 0);
    r = write_out(ret, &value, 0, error);
    if (r == 0 && *value)
        return err_set(error, -EINVAL, "unopened bracket in the pipeline layout");
    if (r == 0 && !ret->len)
        return err_set(error, -EINVAL, "--pipeline-model-parallel-layout is empty");
    return r;
}

int tn_import_stages(struct tn_imported *out, const char *setting, const struct pl_model *model,
                     const int *layers, int runs, struct err *error)
{
    struct pl_layout *l = &out->layout;
    int sum = 0, r;

    assert(l->pp > 0);
    if (runs % l->pp)
        return err_set(error, -EINVAL, "%s has %d stages, not a multiple of pp %d", setting, runs,
                       l->pp);
    l->vp = runs / l->pp;
    for (int i = 0; i < runs; i++)
        sum += layers[i];
    if (sum != model->layers) {
        tn_finding_add(&out->ignored, setting, "%d layers, but %s has %d: another model?", sum,
                       model->name, model->layers);
        return 0;
    }
    r = pl_stages_list(&l->stages, layers, runs, error);
    if (r == 0)
        l->stages = pl_stages_canonical(l, model->layers);
    return r;
}

static int whole_layout(struct tn_imported *out, const char *text, const struct pl_model *model,
                        struct err *error)
{
    AUTO_FREE int *layers = mem_alloc(PL_MAX_RUNS * sizeof(*layers));
    int runs = 1, between = 0;

    for (; *text; text++) {
        if (*text == '|' && runs == PL_MAX_RUNS)
            return err_set(error, -EINVAL, "the pipeline layout has more than %d stages",
                           PL_MAX_RUNS);
        if (*text == '|')
            runs++;
        else if (*text == 't')
            layers[runs - 1]++;
        else if (*text == 'm')
            between = runs;
        else if (*text != 'E' && *text != 'L')
            return err_set(error, -EINVAL, "unknown letter %.1s in the pipeline layout", text);
    }
    if (between && between < runs)
        tn_finding_add(&out->ignored, "--pipeline-model-parallel-layout",
                       "m in stage %d of %d: here, multi-token prediction layers are in the last "
                       "one",
                       between, runs);
    return tn_import_stages(out, "--pipeline-model-parallel-layout", model, layers, runs, error);
}

/* FIRST and LAST layers in the stages at the ends, those between alike; over the chunks evenly. */
static int ends(struct tn_imported *out, const struct tn_megatron_stages *said,
                const struct pl_model *model, struct err *error)
{
    AUTO_FREE int *layers = mem_alloc(PL_MAX_RUNS * sizeof(*layers));
    const struct pl_layout *l = &out->layout;
    int stages = l->pp - (said->first > 0) - (said->last > 0),
        rest = model->layers - said->first - said->last;

    if ((int64_t)l->pp * l->vp > PL_MAX_RUNS)
        return err_set(error, -EINVAL, "pp %d x vp %d is more than %d virtual stages", l->pp, l->vp,
                       PL_MAX_RUNS);
    if (stages < 0 || rest < 0 || (rest > 0) != (stages > 0) || said->first % l->vp ||
        said->last % l->vp || (stages && rest % (stages * l->vp)))
        return err_set(error, -EINVAL,
                       "%d layers do not divide over pp %d x vp %d with %d in the first stage and "
                       "%d in the last (0: as in those between)",
                       model->layers, l->pp, l->vp, said->first, said->last);
    for (int run = 0; run < l->pp * l->vp; run++) {
        int stage = run % l->pp, n = stages ? rest / stages : 0;

        if (stage == 0 && said->first)
            n = said->first;
        else if (stage == l->pp - 1 && said->last)
            n = said->last;
        layers[run] = n / l->vp;
    }
    return tn_import_stages(out, "--decoder-first-pipeline-num-layers", model, layers,
                            l->pp * l->vp, error);
}

/* Virtual stages of a rank, from one of two flags. */
static int chunks(struct tn_imported *out, const struct tn_megatron_stages *said,
                  const struct pl_model *model, struct err *error)
{
    struct pl_layout *l = &out->layout;
    int64_t layers = (int64_t)model->layers + said->embedding + said->loss;

    if (said->layers_per_virtual) {
        if (said->first || said->last)
            return err_set(error, -EINVAL,
                           "layer counts of the first or last stage need "
                           "--num-virtual-stages-per-pipeline-rank");
        if (layers % ((int64_t)l->pp * said->layers_per_virtual))
            return err_set(error, -EINVAL,
                           "%lld layers are not a multiple of pp %d x %d layers per virtual stage",
                           (long long)layers, l->pp, said->layers_per_virtual);
        l->vp = (int)(layers / ((int64_t)l->pp * said->layers_per_virtual));
    } else if (said->virtual_stages) {
        l->vp = said->virtual_stages;
    }
    return 0;
}

static int counted(struct pl_layout *layout, const struct tn_megatron_stages *said,
                   const struct pl_model *model, struct err *error)
{
    int layers = model->layers + said->embedding + said->loss;

    if (!said->embedding && !said->loss)
        return 0;
    if (layers % ((int64_t)layout->pp * layout->vp))
        return err_set(error, -EINVAL,
                       "%d layers, embedding and loss counted, are not a multiple of pp %d x vp %d",
                       layers, layout->pp, layout->vp);
    layout->stages = said->embedding && said->loss ? PL_STAGES_BALANCED
                     : said->embedding             ? PL_STAGES_BALANCED_EMBEDDING
                                                   : PL_STAGES_BALANCED_LOSS;
    layout->stages = pl_stages_canonical(layout, model->layers);
    return 0;
}

int tn_import_megatron_stages(struct tn_imported *out, const struct tn_megatron_stages *said,
                              const struct pl_model *model, struct err *error)
{
    bool by_ends = said->first || said->last, by_count = said->embedding || said->loss;
    int r;

    if (!!said->layers_per_virtual + !!said->virtual_stages + !!said->whole.len > 1)
        return err_set(error, -EINVAL,
                       "at most one of --num-layers-per-virtual-pipeline-stage, "
                       "--num-virtual-stages-per-pipeline-rank and "
                       "--pipeline-model-parallel-layout can be given");
    if (by_ends + by_count + !!said->whole.len > 1)
        return err_set(error, -EINVAL,
                       "at most one of --pipeline-model-parallel-layout, "
                       "--decoder-first/last-pipeline-num-layers and "
                       "--account-for-embedding/loss-in-pipeline-split can be given");
    if (said->whole.len)
        return whole_layout(out, str_text(&said->whole), model, error);
    r = chunks(out, said, model, error);
    if (r == 0 && by_ends && out->layout.pp > 1)
        r = ends(out, said, model, error);
    return r == 0 ? counted(&out->layout, said, model, error) : r;
}

int tn_import_weighed_stages(struct tn_imported *out, const char *setting,
                             const struct pl_model *model, int runs, int first, int last,
                             struct err *error)
{
    AUTO_FREE int *layers = mem_alloc(PL_MAX_RUNS * sizeof(*layers));
    int sum = model->layers + first + last;

    if (runs < 1 || runs > PL_MAX_RUNS || first > sum / runs || last > sum / runs)
        return err_set(error, -EINVAL,
                       "%d stages of %d layers cannot have %d fewer in the first and %d in the "
                       "last",
                       runs, model->layers, first, last);
    for (int run = 0; run < runs; run++)
        layers[run] = sum / runs + (run < sum % runs) - (run ? 0 : first) -
                      (run == runs - 1 && run ? last : 0);
    if (runs == 1)
        layers[0] = model->layers;
    return tn_import_stages(out, setting, model, layers, runs, error);
}
