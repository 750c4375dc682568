/* Where a file comes from: as JSON for formats that carry metadata, as comments for the others. */
#include "tuner/export/internal.h"

#include <assert.h>
#include <math.h>

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
 * the search predicts for the layout comes first. */
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

    str_addf(out, "%s verified: %s", mark,
             !verified(in)                  ? not_yet
             : str_eq(verified(in), "same") ? "same (this layout is the baseline)"
                                            : verified(in));
    if (has_ratio(in))
        str_addf(out, "; %s%.4g times the baseline, 95 %% interval %.4g to %.4g",
                 in->simulated ? "by the simulator " : "", in->ratio, in->ratio_lo, in->ratio_hi);
    str_addc(out, '\n');
}

void tn_export_comments(struct str *out, const struct tn_exporter *exporter,
                        const struct tn_export_in *in, const struct tn_findings *lost)
{
    const char *mark = exporter->comment;

    assert(mark);
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
