/* The table of targets, and how one of them writes its file: rules, gaps, comments, body. */
#include "tuner/export/internal.h"

#include <assert.h>
#include <errno.h>

static const struct tn_exporter *const exporters[] = {
#define EXPORTER(name) &tn_export_##name,
#include "tuner/export/exporters.def"
    NULL,
};

const struct tn_exporter *const *tn_exporters(void)
{
    return exporters;
}

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

int tn_exporter_unknown(const char *name, struct err *error)
{
    AUTO_STR targets = {0}, scripts = {0};

    for (size_t i = 0; exporters[i]; i++)
        str_addf(&targets, "%s%s", i ? ", " : "", exporters[i]->name);
    for (size_t i = 0; tn_wrappers[i]; i++)
        str_addf(&scripts, "%s%s+", i ? ", " : "", tn_wrappers[i]->name);
    return err_set(
        error, -ENOENT,
        "unknown export target \"%.64s\": there are %s; %s before one of them makes a job "
        "script",
        name, targets.text, scripts.text);
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

        for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++)
            if (tn_exporter_carries(x, key))
                json_array_append_new(carries, json_string(key->name));
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

    assert(!in->workload->nbatches && !in->layout->global_batch);
    *ret_findings = (struct tn_findings){0};
    if (!x)
        return tn_exporter_unknown(target, error);
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
    assert(gaps.count <= TN_MAX_FINDINGS);
    tn_gap_uncarried(&gaps, in, x);
    *ret_findings = gaps;
    if (gaps.count && !allow_loss)
        return refuse(error, x, "cannot express", &gaps);
    if (x->comment) {
        if (str_eq(x->extension, "sh"))
            str_add(&out, "#!/bin/bash\n");
        tn_export_comments(&out, x, in, &gaps);
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
