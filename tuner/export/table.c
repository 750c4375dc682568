/* The table of targets, and what is the same for all of them: refusals, provenance, comments. */
#include "tuner/export/internal.h"

#include <errno.h>
#include <math.h>

static const struct tn_exporter *const exporters[] = {
#define EXPORTER(name) &tn_export_##name,
#include "tuner/export/exporters.def"
    NULL,
};

const struct tn_exporter *const *tn_exporters(void)
{
    return exporters;
}

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

/* ---- what targets share -------------------------------------------------- */

int tn_microbatches(const struct tn_export_in *in)
{
    return in->workload->global_batch / (in->layout->micro_batch * in->layout->dp);
}

int tn_ranks_per_node(const struct tn_export_in *in)
{
    int per = in->cluster->devices_per_node, world = in->layout->world;

    if (world > pl_cluster_devices(in->cluster)) /* legal where the cluster oversubscribes */
        per = (world + in->cluster->nodes - 1) / in->cluster->nodes;
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
    struct pl_verdict verdict;

    pl_layout_check(&verdict, in->model, in->cluster, in->layout, in->workload,
                    pl_trainer_find(trainer));
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
                     bool zero_bubble)
{
    if (in->layout->pp == 1)
        return;
    if (in->layout->schedule == PL_GPIPE && !gpipe)
        tn_finding_add(findings, "schedule", "the target has no GPipe schedule");
    if (in->layout->schedule == PL_ZERO_BUBBLE && !zero_bubble)
        tn_finding_add(findings, "schedule", "the target has no zero-bubble schedule");
}

void tn_gap_threads(struct tn_findings *findings, const struct tn_export_in *in)
{
    if (in->layout->threads > 1)
        tn_finding_add(findings, "threads",
                       "the target has no setting for %d compute threads a rank",
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
    if (in->layout->precision == PL_FP8)
        tn_finding_add(findings, "precision",
                       "fp8 needs a recipe of the target's own: bf16 is written");
}

void tn_gap_split_experts(struct tn_findings *findings, const struct tn_export_in *in,
                          const char *target)
{
    const struct pl_layout *l = in->layout;

    if (pl_model_is_moe(in->model) && l->tp > 1 && l->ep == 1 && l->etp == 1)
        tn_finding_add(findings, "etp", "without expert parallelism %s splits experts by tp, too",
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

void tn_gap_uncarried(struct tn_findings *findings, const struct tn_export_in *in,
                      const struct tn_exporter *exporter)
{
    struct pl_layout standard;

    untold(&standard, in);
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(in->layout, k);

        if (k->part == PL_DERIVED || k == &pl_layout_keys[PL_KEY_WORLD] ||
            value == pl_layout_get(&standard, k) || listed(exporter->carries, k->name) ||
            is_named(findings, k->name))
            continue;
        if (k->names)
            tn_finding_add(findings, k->name, "%s has no setting for %s %s", exporter->name,
                           k->name, k->names[value]);
        else
            tn_finding_add(findings, k->name, "%s has no setting for %s %d", exporter->name,
                           k->name, value);
    }
}

static bool has_ratio(const struct tn_export_in *in)
{
    return in->verdict && isfinite(in->ratio) && isfinite(in->ratio_lo) && isfinite(in->ratio_hi);
}

static const char *measured_in(const struct tn_export_in *in)
{
    return in->basis == TN_VERIFIED ? "verification" : "search";
}

/* Only a measurement verifies anything. */
static const char *verified(const struct tn_export_in *in)
{
    return in->verdict && !in->simulated ? in->verdict : NULL;
}

json_t *tn_export_provenance(const struct tn_export_in *in, const struct tn_findings *lost)
{
    json_t *p = json_pack("{s:s, s:s, s:s, s:i, s:s, s:s}", "generator", "partune " PACKAGE_VERSION,
                          "campaign", in->campaign, "campaign_name", in->campaign_name, "trial",
                          in->trial, "cluster", in->cluster->name, "date", in->date);

    if (in->simulated)
        json_object_set_new(p, "simulated", json_true());
    if (isfinite(in->tokens_per_s)) {
        json_object_set_new(p, "tokens_per_s", json_real(in->tokens_per_s));
        if (isfinite(in->lo) && isfinite(in->hi))
            json_object_set_new(p, "tokens_per_s_95", json_pack("[f, f]", in->lo, in->hi));
        json_object_set_new(p, in->simulated ? "simulated_in" : "measured_in",
                            json_string(measured_in(in)));
        json_object_set_new(p, "interval_of",
                            json_string(in->basis == TN_MEASURED ? "the mean" : "one more run"));
    }
    if (in->basis == TN_ESTIMATE)
        json_object_set_new(p, in->simulated ? "tokens_per_s_simulated" : "tokens_per_s_measured",
                            json_real(in->measured));
    json_object_set_new(p, "verified", json_string(verified(in) ? verified(in) : "no"));
    if (has_ratio(in))
        json_object_set_new(p, "ratio_to_baseline",
                            json_pack("[f, f, f]", in->ratio, in->ratio_lo, in->ratio_hi));
    if (in->fingerprint)
        json_object_set_new(p, "fingerprint", json_string(in->fingerprint));
    if (lost && lost->count) {
        json_t *list = json_array();

        for (int i = 0; i < lost->count; i++)
            json_array_append_new(list,
                                  json_sprintf("%s: %s", lost->v[i].setting, lost->v[i].detail));
        json_object_set_new(p, "lost", list);
    }
    return p;
}

/* Bytes at BYTES that are no visible text to one of the formats: controls, those of Latin 1 among
 * them, the separators of lines and paragraphs, and what is no character. */
static size_t unprintable(const unsigned char *bytes)
{
    if (*bytes < ' ' || *bytes == 0x7f)
        return 1;
    if (bytes[0] == 0xc2 && bytes[1] >= 0x80 && bytes[1] < 0xa0)
        return 2;
    if (bytes[0] == 0xe2 && bytes[1] == 0x80 && (bytes[2] == 0xa8 || bytes[2] == 0xa9))
        return 3;
    return bytes[0] == 0xef && bytes[1] == 0xbf && bytes[2] >= 0xbe ? 3 : 0;
}

void tn_add_clean(struct str *out, const char *text)
{
    while (*text) {
        size_t skip = unprintable((const unsigned char *)text);

        str_addc(out, skip ? ' ' : *text);
        text += skip ? skip : 1;
    }
}

/* The fastest of many noisy numbers is too high on average: where nothing was measured again, what
 * the search believes of the layout stands first. */
static void add_expected(struct str *out, const char *mark, const struct tn_export_in *in)
{
    const char *of = in->basis == TN_MEASURED ? "" : " of one more run";

    if (!isfinite(in->tokens_per_s))
        return;
    if (in->simulated)
        str_addf(out, "%s expected by the simulator", mark);
    else
        str_addf(out, "%s %s the %s", mark,
                 in->basis == TN_ESTIMATE ? "expected by all trials of" : "measured in",
                 measured_in(in));
    str_addf(out, ": %.6g tokens/s", in->tokens_per_s);
    if (isfinite(in->lo) && isfinite(in->hi))
        str_addf(out, ", 95 %% interval%s %.6g to %.6g", of, in->lo, in->hi);
    if (in->basis == TN_ESTIMATE)
        str_addf(out, "; this layout %s %.6g there", in->simulated ? "was given" : "measured",
                 in->measured);
    str_addc(out, '\n');
}

static void add_verified(struct str *out, const char *mark, const struct tn_export_in *in)
{
    const char *not_yet = in->simulated ? "no (a simulated campaign verifies nothing)"
                                        : "no (partune verify has not been run)";

    str_addf(out, "%s verified: %s", mark, verified(in) ? verified(in) : not_yet);
    if (has_ratio(in))
        str_addf(out, "; %s%.4g times the baseline, 95 %% interval %.4g to %.4g",
                 in->simulated ? "by the simulator " : "", in->ratio, in->ratio_lo, in->ratio_hi);
    str_addc(out, '\n');
}

static void add_comments(struct str *out, const char *mark, const struct tn_exporter *exporter,
                         const struct tn_export_in *in, const struct tn_findings *lost)
{
    str_addf(out, "%s %s, for %s\n", mark, exporter->title, exporter->version);
    str_addf(out, "%s made by partune " PACKAGE_VERSION " on %s from campaign %s (", mark, in->date,
             in->campaign);
    tn_add_clean(out, in->campaign_name);
    str_addf(out, "), trial %d, on ", in->trial);
    tn_add_clean(out, in->cluster->name);
    str_addc(out, '\n');
    if (in->simulated)
        str_addf(out, "%s SIMULATED: no training job has run this layout\n", mark);
    add_expected(out, mark, in);
    add_verified(out, mark, in);
    if (in->fingerprint) {
        str_addf(out, "%s software: ", mark);
        tn_add_clean(out, in->fingerprint);
        str_addc(out, '\n');
    }
    for (int i = 0; i < lost->count; i++)
        str_addf(out, "%s LOST %s: %s\n", mark, lost->v[i].setting, lost->v[i].detail);
}

/* ---- finding and writing ------------------------------------------------- */

static const struct tn_exporter *find_plain(const char *name)
{
    for (size_t i = 0; exporters[i]; i++)
        if (!strcmp(exporters[i]->name, name))
            return exporters[i];
    return NULL;
}

const struct tn_exporter *tn_exporter_find(const struct tn_wrapper **ret_wrapper, const char *name)
{
    const char *plus = strchr(name, '+');

    *ret_wrapper = NULL;
    if (!plus)
        return find_plain(name);
    for (size_t i = 0; tn_wrappers[i]; i++) {
        size_t n = strlen(tn_wrappers[i]->name);

        if ((size_t)(plus - name) == n && !memcmp(tn_wrappers[i]->name, name, n)) {
            *ret_wrapper = tn_wrappers[i];
            return find_plain(plus + 1);
        }
    }
    return NULL;
}

const char *tn_wrapper_extension(const struct tn_wrapper *wrapper)
{
    return wrapper->extension;
}

json_t *tn_exporters_json(void)
{
    json_t *list = json_array();

    for (size_t i = 0; exporters[i]; i++) {
        const struct tn_exporter *x = exporters[i];
        json_t *carries = json_array(), *wrappers = json_array();

        for (size_t k = 0; x->carries[k]; k++)
            json_array_append_new(carries, json_string(x->carries[k]));
        for (size_t k = 0; tn_wrappers[k]; k++)
            json_array_append_new(wrappers, json_string(tn_wrappers[k]->name));
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "name", x->name, "title",
                            x->title, "version", x->version, "media_type", x->media_type,
                            "extension", x->extension, "carries", carries, "wrappers", wrappers));
    }
    return list;
}

static int refuse(struct err *error, const struct tn_exporter *exporter, const char *what,
                  const struct tn_findings *findings)
{
    AUTO_STR s = {0};

    for (int i = 0; i < findings->count; i++)
        str_addf(&s, "%s%s (%s)", i ? "; " : "", findings->v[i].setting, findings->v[i].detail);
    return err_set(error, -EINVAL, "%s %s: %s", exporter->name, what, str_text(&s));
}

/* torchrun and its like start the same number of processes on every node. */
static void even_nodes(struct tn_findings *findings, const struct tn_export_in *in)
{
    int world = in->layout->world, per = tn_ranks_per_node(in);

    if (world % per)
        tn_finding_add(findings, "world", "%d processes do not fill nodes of %d evenly", world,
                       per);
}

int tn_export(char **ret, const char **ret_media_type, struct tn_findings *ret_findings,
              const char *target, const struct tn_export_in *in, bool allow_loss, struct err *error)
{
    const struct tn_wrapper *wrapper;
    const struct tn_exporter *x = tn_exporter_find(&wrapper, target);
    struct tn_findings gaps = {0}, broken = {0};
    AUTO_STR out = {0};

    *ret_findings = (struct tn_findings){0};
    if (!x)
        return err_set(error, -ENOENT, "there is no export target \"%.64s\"", target);
    if (x->rules)
        x->rules(&broken, in);
    if (x->even_nodes || (wrapper && !x->by_rank))
        even_nodes(&broken, in);
    if (broken.count) {
        *ret_findings = broken;
        return refuse(error, x, "refuses this layout", &broken);
    }
    if (x->gaps)
        x->gaps(&gaps, in);
    tn_gap_uncarried(&gaps, in, x);
    *ret_findings = gaps;
    if (gaps.count && !allow_loss)
        return refuse(error, x, "cannot express", &gaps);
    if (x->comment) {
        if (str_eq(x->extension, "sh"))
            str_add(&out, "#!/bin/bash\n");
        add_comments(&out, x->comment, x, in, &gaps);
    }
    x->write(&out, in, &gaps);
    *ret_media_type = x->media_type;
    if (wrapper) {
        AUTO_STR job = {0};

        wrapper->write(&job, in, x, str_text(&out));
        *ret_media_type = wrapper->media_type;
        *ret = str_take(&job);
        return 0;
    }
    *ret = str_take(&out);
    return 0;
}
