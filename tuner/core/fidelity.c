/*
 * Which smaller problems a campaign's trainer can run.
 *
 * A trainer of the configuration runs what its command says. Where that says less than the whole
 * problem, a smaller one would be measured as something that it is not, so it is refused by name;
 * "auto" does without it. Workers and the simulator get the problem itself.
 */
#include <errno.h>

#include "tuner/core/launcher.h"
#include "tuner/core/spec.h"
#include "tuner/core/trainer.h"

/* Keys of a fidelity that change the problem. */
static const struct {
    const char *name;
    size_t offset;
} parts[] = {{"replicas", offsetof(struct pl_fidelity, replicas)},
             {"stage_layers", offsetof(struct pl_fidelity, stage_layers)},
             {"micro_batches", offsetof(struct pl_fidelity, micro_batches)}};

static int *part_of(struct pl_fidelity *fidelity, size_t part)
{
    return (int *)(void *)((char *)fidelity + parts[part].offset);
}

static bool shrinks(struct pl_fidelity *fidelity)
{
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (*part_of(fidelity, i) > 0)
            return true;
    return false;
}

/* Refuse key PART of fidelity number AT, or where the campaign says "auto" leave it out. */
static int without(struct tn_spec *spec, int at, size_t part, bool automatic, struct err *why,
                   struct err *error)
{
    bool one = json_is_object(json_object_get(json_object_get(spec->body, "trial"), "fidelity"));
    char pointer[64], number[16] = "";

    if (automatic) {
        *part_of(&spec->se.fidelity[at], part) = 0;
        snprintf(spec->fidelity_note, sizeof(spec->fidelity_note), "without %s: %.150s",
                 parts[part].name, why->text);
        return 0;
    }
    if (!one)
        snprintf(number, sizeof(number), "/%d", at);
    snprintf(pointer, sizeof(pointer), "/trial/fidelity%s/%s", number, parts[part].name);
    return err_at(error, -EINVAL, pointer, "%s", why->text);
}

int tn_batches_admit(const struct tn_spec *spec, const struct tn_service *svc, struct err *error)
{
    struct err why = {0};

    if (!spec->se.workload.nbatches || spec->launcher->elsewhere || !spec->trainer->reduces ||
        spec->trainer->reduces(svc, spec, "global_batch", &why) == 0)
        return 0;
    return err_at(error, -EINVAL, "/workload/global_batch", "%s", why.text);
}

int tn_fidelities_admit(struct tn_spec *spec, const struct tn_service *svc, struct err *error)
{
    const json_t *said = json_object_get(json_object_get(spec->body, "trial"), "fidelity");
    bool automatic = str_eq(json_string_value(said), "auto");
    int kept = 0;

    if (spec->se.nfidelities > 0 && spec->se.cluster[0].oversubscribe && !spec->launcher->elsewhere)
        snprintf(spec->fidelity_note, sizeof(spec->fidelity_note),
                 "the cluster is oversubscribed: ranks of smaller trials compete less for cores, "
                 "so throughput inferred from them is too high");
    if (spec->launcher->elsewhere || !spec->trainer->reduces)
        return 0;
    for (int i = 0; i < spec->se.nfidelities; i++) {
        struct pl_fidelity *f = &spec->se.fidelity[i];

        for (size_t p = 0; p < ARRAY_LEN(parts); p++) {
            struct err why = {0};
            int r = 0;

            if (*part_of(f, p) > 0 && spec->trainer->reduces(svc, spec, parts[p].name, &why) < 0)
                r = without(spec, i, p, automatic, &why, error);
            if (r < 0)
                return r;
        }
        if (!automatic || shrinks(f)) /* fewer steps alone save little of a start */
            spec->se.fidelity[kept++] = *f;
    }
    spec->se.nfidelities = kept;
    return 0;
}
