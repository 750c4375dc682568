/*
 * Campaigns over several clusters: which of them a layout is on.
 *
 * Every cluster has a space of its own, so that a layout is legal, fits, takes its prior and its
 * price where it is. All of them are one list to the search, in which `cluster` is one more key,
 * a category.
 */
#include <assert.h>
#include <errno.h>

#include "base/base.h"
#include "search/kernel.h"
#include "search/search.h"

static int index_of(const struct se_spec *spec, const struct pl_layout *layout)
{
    assert(layout->cluster >= 0 && layout->cluster <= SE_MAX_CLUSTERS);
    assert(layout->cluster == 0 || layout->cluster <= spec->nclusters);
    return layout->cluster ? layout->cluster - 1 : 0;
}

const struct pl_cluster *se_cluster_of(const struct se_spec *spec, const struct pl_layout *layout)
{
    return &spec->cluster[index_of(spec, layout)];
}

const struct pl_space *se_space_of(const struct se_spec *spec, const struct pl_layout *layout)
{
    return &spec->space[index_of(spec, layout)];
}

struct pl_problem se_spec_problem(const struct se_spec *spec)
{
    return (struct pl_problem){&spec->model, &spec->cluster[0], &spec->workload,
                               spec->stacked.name ? &spec->stacked : spec->trainer};
}

struct pl_problem se_layout_problem(const struct se_spec *spec, const struct pl_layout *layout)
{
    struct pl_problem problem = se_spec_problem(spec);

    problem.cluster = se_cluster_of(spec, layout);
    return problem;
}

bool se_prices_known(const struct se_spec *spec)
{
    for (int i = 0; i < spec->nclusters; i++)
        if (!(spec->cluster[i].price > 0))
            return false;
    return spec->nclusters > 0;
}

int se_cluster_named(const struct se_spec *spec, const char *name)
{
    for (int i = 0; spec->nclusters > 1 && i < spec->nclusters; i++)
        if (str_eq(spec->cluster[i].name, name))
            return i;
    return -1;
}

/* ---- layouts as JSON and text -------------------------------------------- */

json_t *se_layout_json(const struct se_spec *spec, const struct pl_layout *layout)
{
    json_t *v = pl_layout_json(layout);

    if (spec->nclusters > 1)
        json_object_set_new(v, "cluster", json_string(se_cluster_of(spec, layout)->name));
    return v;
}

json_t *se_key_json(const struct se_spec *spec, int key, int value)
{
    if (key != SE_KEY_CLUSTER)
        return pl_layout_value_json(&pl_layout_keys[key], value);
    assert(value > 0 && value <= spec->nclusters);
    return json_string(spec->cluster[value - 1].name);
}

char *se_layout_text(char buf[160], const struct se_spec *spec, const struct pl_layout *layout)
{
    char text[160];

    pl_layout_text(text, layout);
    if (spec->nclusters > 1) { /* a text that is too long loses its end, not where it runs */
        const char *name = se_cluster_of(spec, layout)->name;
        int room = 160 - (int)strlen(name) - 5;

        snprintf(buf, 160, "%.*s on %s", room, text, name);
    } else {
        memcpy(buf, text, sizeof(text));
    }
    return buf;
}

int se_layout_parse(struct pl_layout *ret, const struct se_spec *spec, const json_t *json,
                    struct err *error)
{
    AUTO_JSON *keys = json_copy((json_t *)(uintptr_t)json);
    const json_t *name = json_object_get(json, "cluster");
    struct pl_problem problem = se_spec_problem(spec);
    int at = 0, r;

    if (spec->nclusters > 1 && name && !json_is_null(name)) {
        at = se_cluster_named(spec, json_string_value(name));
        if (at < 0)
            return err_at(error, -EINVAL, "/cluster",
                          "\"cluster\" must be the name of one of the campaign's clusters");
        problem.cluster = &spec->cluster[at];
    }
    if (spec->nclusters > 1)
        json_object_del(keys, "cluster");
    r = pl_layout_parse(ret, keys, &problem, error);
    if (r == 0 && spec->nclusters > 1)
        ret->cluster = at + 1;
    return r;
}

/* ---- a campaign's "cluster" ---------------------------------------------- */

/* Names are in texts of layouts, in addresses and in names of jobs. */
static int check_name(const struct se_spec *spec, int index, struct err *error)
{
    const char *name = spec->cluster[index].name;

    if (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "._-") != strlen(name))
        return err_at(error, -EINVAL, "/name",
                      "\"%s\" cannot tell clusters apart: use letters, digits, . _ and -", name);
    for (int i = 0; i < index; i++)
        if (str_eq(spec->cluster[i].name, name))
            return err_at(error, -EINVAL, "/name",
                          "two clusters are called %s: give one of them another \"name\"", name);
    return 0;
}

/* One of a list. */
static int parse_member(struct se_spec *spec, int index, const json_t *json,
                        const struct pl_cluster *local, struct err *error)
{
    int r;

    if (json_is_null(json))
        return err_at(error, -EINVAL, "", "null is not a cluster");
    r = pl_cluster_parse_named(&spec->cluster[index], json, local, error);
    return r < 0 ? r : check_name(spec, index, error);
}

int se_clusters_parse(struct se_spec *spec, const json_t *json, const struct pl_cluster *local,
                      struct err *error)
{
    size_t n = json_array_size(json);
    char at[16];

    spec->nclusters = 1;
    if (!json_is_array(json))
        return pl_cluster_parse(&spec->cluster[0], json, local, error);
    if (n < 1 || n > SE_MAX_CLUSTERS)
        return err_at(error, -EINVAL, "", "a list of clusters has 1 to %d, not %zu",
                      SE_MAX_CLUSTERS, n);
    for (size_t i = 0; i < n; i++) {
        int r = parse_member(spec, (int)i, json_array_get(json, i), local, error);

        if (r < 0) {
            snprintf(at, sizeof(at), "/%zu", i);
            return err_under(error, at);
        }
    }
    spec->nclusters = (int)n;
    return 0;
}

json_t *se_clusters_json(const struct se_spec *spec)
{
    json_t *list;

    if (spec->nclusters <= 1)
        return pl_cluster_json(&spec->cluster[0]);
    list = json_array();
    for (int i = 0; i < spec->nclusters; i++)
        json_array_append_new(list, pl_cluster_json(&spec->cluster[i]));
    return list;
}
