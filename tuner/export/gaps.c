/* What several targets share: findings, how a layout is placed on nodes, gaps of the same kind. */
#include "tuner/export/internal.h"

#include <assert.h>

/* What was cut in the middle of a letter would be no text for JSON. */
static void mend(char *text)
{
    for (size_t i = 0, n = strlen(text); i < n;) {
        size_t letter = 1;

        while (letter < 4 && i + letter < n && (text[i + letter] & 0xc0) == 0x80)
            letter++;
        for (; letter && !str_is_utf8(text + i, letter); letter--)
            ;
        if (!letter)
            text[i] = '?';
        i += letter ? letter : 1;
    }
}

void tn_finding_add(struct tn_findings *findings, const char *setting, const char *fmt, ...)
{
    struct tn_finding *it;
    va_list ap;

    assert(findings->count >= 0 && findings->count <= TN_MAX_FINDINGS);
    if (findings->count == TN_MAX_FINDINGS) {
        it = &findings->v[findings->count - 1];
        findings->more += findings->more ? 1 : 2; /* the first time it takes another one's place */
        snprintf(it->setting, sizeof(it->setting), "...");
        snprintf(it->detail, sizeof(it->detail), "and %d more", findings->more);
        return;
    }
    it = &findings->v[findings->count++];
    snprintf(it->setting, sizeof(it->setting), "%s", setting);
    va_start(ap, fmt);
    vsnprintf(it->detail, sizeof(it->detail), fmt, ap);
    va_end(ap);
    mend(it->setting);
    mend(it->detail);
}

int tn_microbatches(const struct tn_export_in *in)
{
    assert(in->workload->global_batch % (in->layout->micro_batch * in->layout->dp) == 0);
    return in->workload->global_batch / (in->layout->micro_batch * in->layout->dp);
}

int tn_ranks_per_node(const struct tn_export_in *in)
{
    int per = in->cluster->devices_per_node, world = in->layout->world;

    if (world > pl_cluster_devices(in->cluster)) /* legal where the cluster oversubscribes */
        per = (world + in->cluster->nodes - 1) / in->cluster->nodes;
    assert(world > 0 && per > 0);
    return world < per ? world : per;
}

int tn_nodes(const struct tn_export_in *in)
{
    int per = tn_ranks_per_node(in);

    return (in->layout->world + per - 1) / per;
}

bool tn_cores_suffice(const struct tn_export_in *in)
{
    return (int64_t)tn_ranks_per_node(in) * in->layout->threads <= in->cluster->devices_per_node;
}

/* What rules of the trainer say, under the names that findings have for its keys. */
static void add_violation(struct tn_findings *findings, const struct pl_violation *violation)
{
    char setting[72];

    snprintf(setting, sizeof(setting), "%s%s", pl_layout_key_find(violation->key) ? "" : "model.",
             violation->key);
    tn_finding_add(findings, setting, "%s", violation->text);
}

static bool listed(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (str_eq(*names, name))
            return true;
    return false;
}

static void add_unsupported(struct tn_findings *findings, const struct tn_export_in *in,
                            const char *trainer, const char *const *keys, bool among)
{
    struct pl_problem problem = {in->model, in->cluster, in->workload, pl_trainer_find(trainer)};
    struct pl_verdict verdict;

    pl_layout_check(&verdict, &problem, in->layout);
    for (int i = 0; i < verdict.count; i++)
        if (str_eq(verdict.v[i].rule, "trainer-supports") &&
            listed(keys, verdict.v[i].key) == among)
            add_violation(findings, &verdict.v[i]);
}

void tn_gap_trainer(struct tn_findings *findings, const struct tn_export_in *in,
                    const char *trainer, const char *const *but)
{
    add_unsupported(findings, in, trainer, but, false);
}

void tn_rule_trainer(struct tn_findings *findings, const struct tn_export_in *in,
                     const char *trainer, const char *const *only)
{
    add_unsupported(findings, in, trainer, only, true);
}

void tn_gap_schedule(struct tn_findings *findings, const struct tn_export_in *in, bool gpipe,
                     bool v)
{
    int schedule = in->layout->schedule;

    if (in->layout->pp == 1)
        return;
    if (schedule == PL_GPIPE && !gpipe)
        tn_finding_add(findings, "schedule", "the target has no GPipe schedule");
    if (schedule == PL_ZERO_BUBBLE || schedule == PL_DUALPIPE || (pl_schedule_is_v(schedule) && !v))
        tn_finding_add(findings, "schedule", "the target has no %s schedule",
                       pl_layout_key_find("schedule")->names[schedule]);
}

void tn_gap_threads(struct tn_findings *findings, const struct tn_export_in *in)
{
    if (in->layout->threads > 1)
        tn_finding_add(findings, "threads",
                       "the target has no setting for %d compute threads per rank",
                       in->layout->threads);
}

void tn_gap_scope(struct tn_findings *findings, const struct tn_export_in *in)
{
    if (in->layout->zero_scope == PL_SCOPE_PLAIN)
        tn_finding_add(findings, "zero_scope",
                       "the target shards non-expert state over all replicas, never plain");
}

void tn_gap_precision(struct tn_findings *findings, const struct tn_export_in *in)
{
    if (in->layout->precision >= PL_FP8)
        tn_finding_add(findings, "precision", "%s needs the target's own recipe: written as bf16",
                       pl_precision_names[in->layout->precision]);
}

void tn_gap_split_experts(struct tn_findings *findings, const struct tn_export_in *in,
                          const char *target)
{
    const struct pl_layout *l = in->layout;

    if (pl_model_is_moe(in->model) && l->tp > 1 && l->ep == 1 && l->etp == 1)
        tn_finding_add(findings, "etp", "without expert parallelism, %s splits experts by tp, too",
                       target);
}

void tn_gap_fsdp_overlap(struct tn_findings *findings, const struct tn_export_in *in,
                         const char *target)
{
    const struct pl_layout *l = in->layout;
    bool replicas = (int64_t)l->dp * l->cp > 1; /* it works over both */

    if (replicas && !l->overlap_grad_reduce)
        tn_finding_add(findings, "overlap_grad_reduce",
                       "%s always overlaps the reduction of gradients", target);
    if (!replicas && l->overlap_grad_reduce)
        tn_finding_add(findings, "overlap_grad_reduce", "%s reduces over dp x cp only, which is 1",
                       target);
    if (replicas && l->zero >= 2 && !l->overlap_param_gather)
        tn_finding_add(findings, "overlap_param_gather", "%s always gathers parameters ahead",
                       target);
    if (!replicas && l->overlap_param_gather)
        tn_finding_add(findings, "overlap_param_gather", "%s gathers over dp x cp only, which is 1",
                       target);
    if (replicas && l->zero < 2 && l->overlap_param_gather)
        tn_finding_add(findings, "overlap_param_gather", "%s has no such setting below zero 2",
                       target);
}

void tn_gap_global_batch(struct tn_findings *findings, const struct tn_export_in *in)
{
    if (tn_microbatches(in) > 1)
        tn_finding_add(
            findings, "workload.global_batch",
            "the file has no global batch: accumulate %d micro-batches in the script, or "
            "a step has %d sequences instead of %d",
            tn_microbatches(in), in->layout->micro_batch * in->layout->dp,
            in->workload->global_batch);
}

void tn_gap_flag(struct tn_findings *findings, const struct tn_export_in *in, const char *key,
                 int value, const char *target)
{
    (void)in;
    if (value)
        tn_finding_add(findings, key, "%s has no such setting", target);
}

/* What a target gets that is told nothing. Schedule and scope are those of the degrees and the
 * stage, which have gaps of their own. */
static void untold(struct pl_layout *ret, const struct tn_export_in *in)
{
    pl_layout_default(ret, &(struct pl_workload){.precision = PL_FP32});
    if (in->layout->vp > 1)
        ret->schedule = PL_INTERLEAVED;
    if (in->layout->zero)
        ret->zero_scope = PL_SCOPE_EP_AWARE;
}

static bool is_named(const struct tn_findings *findings, const char *setting)
{
    for (int i = 0; i < findings->count; i++)
        if (str_eq(findings->v[i].setting, setting))
            return true;
    return false;
}

static void documents(struct tn_findings *findings, const struct pl_workload *workload)
{
    const struct {
        bool set;
        const char *setting;
    } words[] = {{workload->reset_attention_mask, "workload.reset_attention_mask"},
                 {workload->reset_position_ids, "workload.reset_position_ids"},
                 {workload->eod_mask_loss, "workload.eod_mask_loss"}};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (words[i].set)
            tn_finding_add(
                findings, words[i].setting,
                "document boundaries (eod %d) are not written: set them in the script or file that "
                "starts the trainer",
                workload->eod);
}

bool tn_exporter_carries(const struct tn_exporter *exporter, const struct pl_layout_key *key)
{
    if (!exporter->carries)
        return key->trainers & pl_trainer_find(exporter->trainer)->by;
    return listed(exporter->carries, key->name);
}

void tn_gap_uncarried(struct tn_findings *findings, const struct tn_export_in *in,
                      const struct tn_exporter *exporter)
{
    struct pl_layout standard;

    if (in->workload->optimizer != PL_ADAMW && !str_eq(exporter->name, "partune"))
        tn_finding_add(findings, "workload.optimizer",
                       "%s is not written: set it in the script or file that starts the trainer",
                       pl_optimizer_names[in->workload->optimizer]);
    if (!str_eq(exporter->name, "partune"))
        documents(findings, in->workload);
    untold(&standard, in);
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(in->layout, k);
        char digits[16];

        if (k->part == PL_DERIVED || k == &pl_layout_keys[PL_KEY_WORLD] ||
            value == pl_layout_get(&standard, k) || tn_exporter_carries(exporter, k) ||
            is_named(findings, k->name))
            continue;
        tn_finding_add(findings, k->name, "%s has no setting for %s %s", exporter->name, k->name,
                       pl_layout_value_text(digits, k, value));
    }
}
