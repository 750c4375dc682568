/*
 * Today's production configuration as a layout: Megatron-LM scripts and arguments, DeepSpeed JSON,
 * torchtitan TOML and Python.
 *
 * What the source says in its own units is converted (virtual stages, tokens, accumulation); what
 * has no word here is listed as ignored, never guessed. World size is not in these files, so the
 * caller gives it.
 */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>
#include <strings.h>

static const char *const names[] = {"megatron", "deepspeed", "torchtitan", NULL};

const char *const *tn_importers(void)
{
    return names;
}

int tn_import_degrees(const struct pl_layout *layout, struct err *error)
{
    int64_t dense = (int64_t)layout->tp * layout->cp, expert = (int64_t)layout->etp * layout->ep;

    /* Each factor is below 2^25: a product of two cannot overflow, and is bounded before the next.
     */
    if (dense > layout->world || expert > layout->world || layout->world % (dense * layout->pp) ||
        layout->world % (expert * layout->pp))
        return err_set(
            error, -EINVAL,
            "%d devices are not a multiple of tp %d x cp %d x pp %d (or etp %d x ep %d x pp)",
            layout->world, layout->tp, layout->cp, layout->pp, layout->etp, layout->ep);
    return 0;
}

int tn_import_global_batch(struct tn_imported *out, int micro, int replicas, struct err *error)
{
    int64_t all = (int64_t)micro * replicas;

    if (all > 1 << 24)
        return err_set(error, -EINVAL, "%d sequences on each of %d replicas are absurd", micro,
                       replicas);
    out->global_batch = (int)all;
    return 0;
}

void tn_import_split_experts(struct pl_layout *layout, const struct pl_model *model)
{
    if (pl_model_is_moe(model) && layout->tp > 1 && layout->ep == 1)
        layout->etp = layout->tp;
}

/* Is one of WORDS a part of NAME between signs that are no letters? "tp" is in "model.tp_size". */
static bool has_part(const char *name, const char *const *words)
{
    while (*name) {
        size_t n = 0;

        while (isalpha((unsigned char)name[n]))
            n++;
        for (int i = 0; n && words[i]; i++)
            if (strlen(words[i]) == n && !strncasecmp(words[i], name, n))
                return true;
        name += n ? n : 1;
    }
    return false;
}

bool tn_import_is_degree(const char *name, const char *value)
{
    static const char *const parts[] = {"tp",    "pp",      "cp",    "ep",       "sp",   "dp",
                                        "mp",    "etp",     "vp",    "vpp",      "fsdp", "degree",
                                        "world", "degrees", "shard", "sharding", NULL};
    static const char *const zero[] = {"zero", NULL};
    bool sharded = has_part(name, zero);
    const char *p = value ? value : "";
    int64_t largest = 0;

    if (!sharded && !strcasestr(name, "parallel") && !has_part(name, parts))
        return false;
    for (p += strspn(p, " ["); *p; p += strspn(p, " ,]")) { /* one number, or a list of them */
        size_t n = strspn(p, "0123456789");
        int64_t v = 1 << 30;

        if (!n || !strchr(" ,]", p[n]))
            return false;
        if (n < 10)
            v = strtol(p, NULL, 10);
        largest = v > largest ? v : largest;
        p += n;
    }
    return largest > (sharded ? 0 : 1);
}

static void value_text(char buf[24], const struct pl_layout_key *key, int value)
{
    if (key->names)
        snprintf(buf, 24, "%s", key->names[value]);
    else
        snprintf(buf, 24, "%d", value);
}

/* The canonical form says nothing of what has no effect, as expert parallelism of a dense model. */
static void list_without_effect(struct tn_imported *out, const struct pl_layout *said)
{
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int was = pl_layout_get(said, k), is = pl_layout_get(&out->layout, k);
        char a[24], b[24];

        if (k->part == PL_DERIVED || was == is || str_eq(k->name, "zero_scope"))
            continue;
        value_text(a, k, was);
        value_text(b, k, is);
        tn_finding_add(&out->ignored, k->name, "%s has no effect here, taken as %s", a, b);
    }
}

int tn_import(struct tn_imported *ret, const char *source, const char *text, int world,
              const struct pl_model *model, struct err *error)
{
    struct tn_imported out = {0};
    struct pl_workload w = {.global_batch = 1, .seq = model->seq};
    struct pl_layout *l = &out.layout, said;
    int r;

    pl_layout_default(l, &w);
    l->world = world;
    if (str_eq(source, "megatron"))
        r = tn_import_megatron(&out, text, model, error);
    else if (str_eq(source, "deepspeed"))
        r = tn_import_deepspeed(&out, text, model, error);
    else if (str_eq(source, "torchtitan"))
        r = tn_import_torchtitan(&out, text, model, error);
    else
        return err_set(error, -ENOENT, "there is no import source \"%.64s\"", source);
    if (r < 0)
        return r;
    if (l->zero)
        l->zero_scope = PL_SCOPE_EP_AWARE;
    r = tn_import_degrees(l, error);
    if (r < 0)
        return r;
    pl_layout_derive(l);
    said = *l;
    pl_layout_canonical(l, model);
    list_without_effect(&out, &said);
    *ret = out;
    return 0;
}
