#include "plan/parts.h"

#include <errno.h>
#include <limits.h>

#include "base/base.h"
#include "plan/mesh.h"

bool pl_parts_are_in(const json_t *json)
{
    return json_object_get(json, "parts") != NULL;
}

/* ---- JSON ---------------------------------------------------------------- */

static int parse_part(struct pl_cluster *ret, const json_t *json, const struct pl_cluster *local,
                      struct err *error)
{
    int r = json_is_null(json) ? err_set(error, -EINVAL, "a part must be a cluster, not null")
                               : pl_cluster_parse(ret, json, local, error);

    if (r < 0)
        return r;
    if (ret->device.cpu)
        return err_at(error, -EINVAL, "/device",
                      "part %s has processor cores: parts need devices with their own memory",
                      ret->name);
    if (ret->oversubscribe)
        return err_at(error, -EINVAL, "/oversubscribe",
                      "oversubscribe is not supported in a cluster of parts");
    return 0;
}

static const struct pl_link *network(const struct pl_cluster *cluster)
{
    return cluster->nlinks ? &cluster->link[cluster->nlinks - 1] : NULL;
}

static bool is_slower(const struct pl_link *left, const struct pl_link *right)
{
    return left->gbs < right->gbs ||
           (!(left->gbs > right->gbs) && left->latency_us > right->latency_us);
}

/* Behind what is wrong with a link between the parts: what it is. */
static int explain_between(struct err *error)
{
    struct err what;

    if (!error)
        return -EINVAL;
    what = *error;
    return err_at(error, what.code, what.pointer,
                  "%.400s; between is the link from a device of one part to one of the other: "
                  "{\"gbs\": 10^9 bytes/s each way per device, \"latency_us\": microseconds}",
                  what.text);
}

static int parse_between(struct pl_parts *parts, const json_t *json, struct err *error)
{
    const struct pl_link *first = network(&parts->at[0]), *second = network(&parts->at[1]);
    json_t *between = NULL;
    int r = jx_get_object(&between, json, "between", error);

    if (r < 0)
        return explain_between(error);
    parts->between_given = between != NULL;
    if (between && pl_link_parse(&parts->between, between, error) < 0) {
        err_under(error, "/between");
        return explain_between(error);
    }
    if (between)
        return 0;
    if (!first || !second)
        return err_at(error, -EINVAL, "/between",
                      "a part of one device has no network: say which link joins the parts, "
                      "{\"gbs\": 10^9 bytes/s each way per device}");
    parts->between = is_slower(second, first) ? *second : *first;
    parts->between.span = INT_MAX;
    return 0;
}

static void whole_of(struct pl_cluster *ret, const struct pl_parts *parts)
{
    const struct pl_cluster *first = &parts->at[0], *second = &parts->at[1];
    int node = pl_gcd(first->devices_per_node, second->devices_per_node);

    *ret = (struct pl_cluster){.parts = parts, .devices_per_node = node};
    ret->nodes = (pl_cluster_devices(first) + pl_cluster_devices(second)) / node;
    snprintf(ret->name, sizeof(ret->name), "%.30s + %.30s", first->name, second->name);
    ret->device =
        first->device.memory_gib < second->device.memory_gib ? second->device : first->device;
    ret->device.busy_watts = ret->device.idle_watts = 0;
}

int pl_parts_parse(struct pl_cluster *ret_whole, struct pl_parts *parts, const json_t *json,
                   const struct pl_cluster *local, struct err *error)
{
    static const char *const keys[] = {"parts", "between", NULL};
    struct pl_parts read = {0};
    json_t *list = NULL;
    int64_t devices = 0;
    char at[32];
    int r;

    if ((r = jx_keys(json, keys, error)) < 0 ||
        (r = jx_get_array(&list, json, "parts", PL_PARTS, error)) < 0)
        return r;
    if (json_array_size(list) != PL_PARTS)
        return err_at(error, -EINVAL, "/parts", "parts must list %d clusters, found %zu", PL_PARTS,
                      json_array_size(list));
    for (int i = 0; i < PL_PARTS; i++) {
        snprintf(at, sizeof(at), "/parts/%d", i);
        if (parse_part(&read.at[i], json_array_get(list, (size_t)i), local, error) < 0)
            return err_under(error, at);
        devices += pl_cluster_devices(&read.at[i]);
    }
    if (devices > INT_MAX / 4)
        return err_at(error, -ERANGE, "/parts", "%lld devices exceed what partune supports",
                      (long long)devices);
    if ((r = parse_between(&read, json, error)) < 0)
        return r;
    *parts = read;
    whole_of(ret_whole, parts);
    return 0;
}

json_t *pl_parts_json(const struct pl_parts *parts)
{
    json_t *list = json_array(), *link = pl_link_json(&parts->between);

    for (int i = 0; i < PL_PARTS; i++)
        json_array_append_new(list, pl_cluster_json(&parts->at[i]));
    json_object_del(link, "span");
    return json_pack("{s:o, s:o, s:b}", "parts", list, "between", link, "between_given",
                     parts->between_given);
}

/* ---- stages -------------------------------------------------------------- */

int pl_parts_stages(const struct pl_parts *parts, int part, int ranks)
{
    return pl_cluster_devices(&parts->at[part]) / ranks;
}

void pl_parts_bridge(struct pl_cluster *ret, const struct pl_parts *parts, int part)
{
    *ret = parts->at[part];
    if (ret->nlinks == 1) { /* which joins a node's devices, too */
        ret->link[0].span = ret->devices_per_node;
        ret->nlinks = ret->devices_per_node > 1 ? 2 : 1;
    }
    ret->nlinks = ret->nlinks ? ret->nlinks : 1;
    ret->link[ret->nlinks - 1] = parts->between;
    ret->link[ret->nlinks - 1].span = INT_MAX;
}
