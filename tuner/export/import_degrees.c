/* What every source asks about the degrees of parallelism and the batch that it reads. */
#include "tuner/export/internal.h"

#include <ctype.h>
#include <errno.h>
#include <strings.h>

int tn_import_whole(int64_t *ret, const char *value, int64_t min, int64_t max)
{
    char digits[24];
    size_t n = 0;

    for (const char *at = value; *at && n < sizeof(digits) - 1; at++)
        if (*at != '_' || at == value || !isdigit((unsigned char)at[-1]) ||
            !isdigit((unsigned char)at[1]))
            digits[n++] = *at;
    digits[n] = '\0';
    return str_to_i64(ret, digits, min, max);
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
        return err_set(error, -EINVAL, "%d sequences on each of %d replicas are too many", micro,
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
