#include "plan/plan.h"

#include <errno.h>
#include <limits.h>

#include "base/base.h"

enum { MAX_NODES = 1 << 20, MAX_PER_NODE = 4096 };

/* TFLOP/s, 0 for one that is not known. */
static int get_tflops(double *ret, const json_t *json, const char *key, struct err *error)
{
    const double least = 1e-6;
    char pointer[32];
    int r = jx_get_f64(ret, json, key, 0, 1e6, error);

    if (r < 0 || *ret == 0.0 || *ret >= least)
        return r;
    snprintf(pointer, sizeof(pointer), "/%s", key);
    return err_at(error, -ERANGE, pointer, "\"%s\" is %g; it must be 0 or at least %g", key, *ret,
                  least);
}

static int parse_watts(struct pl_device *device, const json_t *json, struct err *error)
{
    int r;

    if ((r = jx_get_f64(&device->busy_watts, json, "busy_watts", 1e-3, 1e6, error)) < 0 ||
        (r = jx_get_f64(&device->idle_watts, json, "idle_watts", 1e-3, 1e6, error)) < 0)
        return r;
    return device->idle_watts > device->busy_watts
               ? err_at(error, -ERANGE, "/idle_watts",
                        "idle_watts %g must be at most busy_watts (%g)", device->idle_watts,
                        device->busy_watts)
               : 0;
}

/* What the driver holds of the memory. */
static int parse_driver(struct pl_device *device, const json_t *json, struct err *error)
{
    double held;
    int r;

    if ((r = jx_get_f64(&device->context_gib, json, "context_gib", 0, 1e6, error)) < 0 ||
        (r = jx_get_f64(&device->library_gib, json, "library_gib", 0, 1e6, error)) < 0 ||
        (r = jx_get_f64(&device->nccl_gib, json, "nccl_gib", 0, 1e6, error)) < 0)
        return r;
    held = device->context_gib + device->library_gib + device->nccl_gib;
    return held < device->memory_gib
               ? 0
               : err_at(error, -ERANGE, "/context_gib",
                        "context_gib, library_gib and nccl_gib are %g together; they must be less "
                        "than memory_gib (%g), of which they are parts",
                        held, device->memory_gib);
}

static int parse_device(struct pl_device *device, const json_t *json, struct err *error)
{
    static const char *const keys[] = {
        "name",      "kind",       "peak_tflops", "gemm_tflops", "gemm_tflops_fp8",
        "sustained", "memory_gib", "memory_gbs",  "context_gib", "library_gib",
        "nccl_gib",  "busy_watts", "idle_watts",  NULL};
    static const char *const peaks[] = {"fp32", "bf16", "fp8", "fp4", NULL};
    static const char *const kinds[] = {"gpu", "cpu", NULL};
    json_t *peak = NULL;
    int r, kind = 0;

    snprintf(device->name, sizeof(device->name), "device");
    device->sustained = PL_SUSTAINED;
    if ((r = jx_keys(json, keys, error)) < 0 || (r = jx_need(json, "memory_gib", error)) < 0 ||
        (r = jx_need(json, "memory_gbs", error)) < 0 ||
        (r = jx_copy_str(device->name, sizeof(device->name), json, "name", error)) < 0 ||
        (r = jx_get_enum(&kind, json, "kind", kinds, error)) < 0 ||
        (r = get_tflops(&device->gemm_tflops, json, "gemm_tflops", error)) < 0 ||
        (r = get_tflops(&device->gemm_tflops_fp8, json, "gemm_tflops_fp8", error)) < 0 ||
        (r = jx_get_f64(&device->sustained, json, "sustained", 0.05, 1, error)) < 0 ||
        (r = jx_get_f64(&device->memory_gib, json, "memory_gib", 1e-4, 1e6, error)) < 0 ||
        (r = jx_get_f64(&device->memory_gbs, json, "memory_gbs", 1e-3, 1e6, error)) < 0 ||
        (r = parse_driver(device, json, error)) < 0 || (r = parse_watts(device, json, error)) < 0 ||
        (r = jx_get_object(&peak, json, "peak_tflops", error)) < 0)
        return r;
    device->cpu = kind == 1;
    if (peak && ((r = jx_keys(peak, peaks, error)) < 0 ||
                 (r = get_tflops(&device->tflops_fp32, peak, "fp32", error)) < 0 ||
                 (r = get_tflops(&device->tflops_bf16, peak, "bf16", error)) < 0 ||
                 (r = get_tflops(&device->tflops_fp8, peak, "fp8", error)) < 0 ||
                 (r = get_tflops(&device->tflops_fp4, peak, "fp4", error)) < 0))
        return err_under(error, "/peak_tflops");
    if (device->tflops_fp32 <= 0 && device->tflops_bf16 <= 0 && device->gemm_tflops <= 0)
        return err_at(error, -EINVAL, "/peak_tflops",
                      "a device needs a peak in fp32 or bf16, or gemm_tflops");
    if (device->tflops_bf16 > 0 && device->gemm_tflops > device->tflops_bf16 && !device->cpu)
        return err_at(error, -ERANGE, "/gemm_tflops", "gemm_tflops %g is above the peak of %g",
                      device->gemm_tflops, device->tflops_bf16);
    if (device->gemm_tflops_fp8 > device->tflops_fp8)
        return err_at(error, -ERANGE, "/gemm_tflops_fp8",
                      "gemm_tflops_fp8 %g is above the peak in fp8 (%g)", device->gemm_tflops_fp8,
                      device->tflops_fp8);
    return 0;
}

static int parse_host(struct pl_host *host, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"memory_gib", "memory_gbs", "link_gbs", NULL};
    int r;

    if ((r = jx_keys(json, keys, error)) < 0 ||
        (r = jx_get_f64(&host->memory_gib, json, "memory_gib", 1e-4, 1e6, error)) < 0 ||
        (r = jx_get_f64(&host->memory_gbs, json, "memory_gbs", 1e-3, 1e6, error)) < 0)
        return r;
    return jx_get_f64(&host->link_gbs, json, "link_gbs", 1e-3, 1e5, error);
}

static int parse_span(int *ret, const json_t *json, struct err *error)
{
    const json_t *span = json_object_get(json, "span");
    int r = jx_need(json, "span", error);

    if (r < 0)
        return r;
    if (json_is_string(span) && !strcmp(json_string_value(span), "all")) {
        *ret = INT_MAX;
        return 0;
    }
    if (!json_is_integer(span))
        return err_at(error, -EINVAL, "/span", "span must be a number of ranks or \"all\"");
    return jx_get_int(ret, json, "span", 2, INT_MAX, error);
}

/* All but its span. */
static int parse_rates(struct pl_link *link, const json_t *json, struct err *error)
{
    int r;

    link->latency_us = 10;
    if ((r = jx_need(json, "gbs", error)) < 0 ||
        (r = jx_get_f64(&link->gbs, json, "gbs", 1e-4, 1e5, error)) < 0 ||
        (r = jx_get_f64(&link->share, json, "share", 0, 1, error)) < 0 ||
        (r = jx_get_bool(&link->per_pair, json, "per_pair", error)) < 0 ||
        (r = jx_get_f64(&link->oversubscription, json, "oversubscription", 1, 1e3, error)) < 0 ||
        (r = jx_get_bool(&link->rails, json, "rails", error)) < 0 ||
        (r = jx_get_f64(&link->latency_us, json, "latency_us", 0, 1e6, error)) < 0 ||
        (r = jx_copy_str(link->kind, sizeof(link->kind), json, "kind", error)) < 0)
        return r;
    return 0;
}

static int parse_link(struct pl_link *link, const json_t *json, struct err *error)
{
    static const char *const keys[] = {
        "span",  "gbs",        "share", "per_pair", "oversubscription",
        "rails", "latency_us", "kind",  NULL};
    int r;

    if ((r = jx_keys(json, keys, error)) < 0 || (r = parse_span(&link->span, json, error)) < 0)
        return r;
    return parse_rates(link, json, error);
}

int pl_link_parse(struct pl_link *ret, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"gbs",   "share",      "per_pair", "oversubscription",
                                       "rails", "latency_us", "kind",     NULL};
    struct pl_link link = {.span = INT_MAX};
    int r;

    if ((r = jx_keys(json, keys, error)) < 0 || (r = parse_rates(&link, json, error)) < 0)
        return r;
    *ret = link;
    return 0;
}

static int parse_links(struct pl_cluster *cluster, const json_t *links, struct err *error)
{
    char at[32];
    int n = (int)json_array_size(links);

    for (int i = 0; i < n; i++) {
        snprintf(at, sizeof(at), "/links/%d", i);
        if (parse_link(&cluster->link[i], json_array_get(links, (size_t)i), error) < 0)
            return err_under(error, at);
        if (i && cluster->link[i].span <= cluster->link[i - 1].span)
            return err_at(error, -EINVAL, at, "links must have ascending spans");
    }
    cluster->nlinks = n;
    if (pl_cluster_devices(cluster) > 1 &&
        (!n || cluster->link[n - 1].span < pl_cluster_devices(cluster)))
        return err_at(error, -EINVAL, "/links",
                      "no link spans all %d devices: the last one needs \"span\": \"all\"",
                      pl_cluster_devices(cluster));
    return 0;
}

/* "stamp" is where a measured profile comes from, "source" where the facts of a copied one do, of
 * which "assumed" lists those without one: for people and the trainer, not for the model. */
static const char *const object_keys[] = {
    "name",  "nodes",  "devices_per_node", "device",
    "host",  "links",  "oversubscribe",    "measured",
    "stamp", "source", "assumed",          "price_per_device_hour",
    NULL};

static int parse_object(struct pl_cluster *cluster, const json_t *json, struct err *error)
{
    json_t *device = NULL, *host = NULL, *links = NULL, *texts = NULL;
    int r;

    snprintf(cluster->name, sizeof(cluster->name), "custom");
    cluster->nodes = 1;
    if ((r = jx_keys(json, object_keys, error)) < 0 ||
        (r = jx_need(json, "devices_per_node", error)) < 0 ||
        (r = jx_need(json, "device", error)) < 0 ||
        (r = jx_copy_str(cluster->name, sizeof(cluster->name), json, "name", error)) < 0 ||
        (r = jx_get_int(&cluster->nodes, json, "nodes", 1, MAX_NODES, error)) < 0 ||
        (r = jx_get_int(&cluster->devices_per_node, json, "devices_per_node", 1, MAX_PER_NODE,
                        error)) < 0 ||
        (r = jx_get_bool(&cluster->oversubscribe, json, "oversubscribe", error)) < 0 ||
        (r = jx_get_bool(&cluster->measured, json, "measured", error)) < 0 ||
        (r = jx_get_f64(&cluster->price, json, "price_per_device_hour", 1e-6, 1e6, error)) < 0 ||
        (r = jx_get_object(&device, json, "device", error)) < 0 ||
        (r = jx_get_object(&host, json, "host", error)) < 0 ||
        (r = jx_get_array(&texts, json, "source", 16, error)) < 0 ||
        (r = jx_get_array(&texts, json, "assumed", 16, error)) < 0 ||
        (r = jx_get_array(&links, json, "links", PL_MAX_LINKS, error)) < 0)
        return r;
    if (parse_device(&cluster->device, device, error) < 0)
        return err_under(error, "/device");
    if (host && parse_host(&cluster->host, host, error) < 0)
        return err_under(error, "/host");
    return parse_links(cluster, links, error);
}

/* Is WORD one of the parts, between hyphens, of NAME? Letter case does not count. */
static bool has_part(const char *name, const char *word, size_t len)
{
    for (const char *part = name;; part++) {
        size_t n = strcspn(part, "-_ ");

        if (n == len && !strncasecmp(part, word, n))
            return true;
        part += n;
        if (!*part)
            return false;
    }
}

/* Does the part of LEN bytes at PART name a device, as "dgx" does not? */
static bool names_device(const char *part, size_t len)
{
    static const char *const families[] = {"tpu", "gaudi", "trainium", NULL};

    if (strcspn(part, "0123456789") < len)
        return true;
    for (const char *const *family = families; *family; family++)
        if (strlen(*family) == len && !strncasecmp(*family, part, len))
            return true;
    return false;
}

/* What its makers and its renters call it besides, and the profile. */
static const char *alias_of(const char *part, size_t len)
{
    static const char *const names[][2] = {{"trn2", "trainium2"},
                                           {"ironwood", "tpu7x"},
                                           {"trillium", "tpu-v6e"},
                                           {"max1550", "aurora-pvc"},
                                           {"mi250", "frontier-mi250x"}};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strlen(names[i][0]) == len && !strncasecmp(names[i][0], part, len))
            return names[i][1];
    return NULL;
}

/* What to offer for NAME, which is no profile. Profiles of the device that it names, if it names
 * one; for a device without a profile nothing, however alike two names look (b100, b200); else the
 * nearest spelling. */
static void offer(struct str *out, const char *name)
{
    static const char *const others[] = {
        "a800",  "b100",  "gh200",  "vr200",  "l4",   "l40", "l40s", "p100",  "t4",  "v100",
        "mi100", "mi210", "mi300a", "gaudi2", "trn1", "v4",  "v5e",  "ponte", "max", NULL};
    const char *const *presets = pl_cluster_presets();
    const char *near = str_nearest(name, presets);
    int found = 0;

    for (const char *part = name; *part; part += *part != '\0') {
        size_t n = strcspn(part, "-_ ");
        const char *alias = alias_of(part, n);
        bool device = names_device(part, n);

        for (const char *const *preset = presets; *preset; preset++)
            if (alias ? str_eq(alias, *preset) : device && has_part(*preset, part, n))
                str_addf(out, found++ ? ", \"%s\"" : "; did you mean \"%s\"", *preset);
        for (const char *const *other = others; *other; other++)
            if (has_part(*other, part, n))
                near = NULL;
        part += n;
    }
    if (!found && near)
        str_addf(out, "; did you mean \"%s\"", near);
    str_add(out, found || near ? "?" : "; describe the machine by \"device\" and \"links\"");
}

static int from_profile(struct pl_cluster *cluster, const char *name,
                        const struct pl_cluster *local, struct err *error)
{
    AUTO_JSON *v = NULL;
    AUTO_STR offered = {0};
    const char *text;
    int r;

    if (!strcmp(name, "local")) {
        if (local)
            *cluster = *local;
        else
            pl_cluster_here(cluster);
        return 0;
    }
    text = pl_cluster_preset(name);
    if (!text) {
        offer(&offered, name);
        return err_set(error, -EINVAL,
                       "unknown cluster profile \"%.64s\"%.120s (partune presets clusters)", name,
                       str_text(&offered));
    }
    if ((r = jx_parse(&v, text, strlen(text), error)) < 0)
        return r;
    return parse_object(cluster, v, error);
}

/* A smaller node than the profile's cuts the links inside it; those that join nodes, be it to a
 * domain larger than a node, stay. */
static void shrink_node(struct pl_cluster *cluster, int before)
{
    int now = cluster->devices_per_node, kept = 0;

    for (int i = 0; i < cluster->nlinks; i++) {
        struct pl_link link = cluster->link[i];

        if (link.span <= before && link.span > now)
            link.span = now;
        if (link.span > (kept ? cluster->link[kept - 1].span : 1))
            cluster->link[kept++] = link;
    }
    cluster->nlinks = kept;
}

/* {"profile": name} with the size and the flags that may differ from site to site; NAMED: and with
 * a name of its own. */
static int parse_reference(struct pl_cluster *cluster, const json_t *json,
                           const struct pl_cluster *local, bool named, struct err *error)
{
    static const char *const keys[] = {"name",
                                       "profile",
                                       "nodes",
                                       "devices_per_node",
                                       "oversubscribe",
                                       "busy_watts",
                                       "idle_watts",
                                       "price_per_device_hour",
                                       NULL};
    const char *profile = NULL, *name = NULL;
    int r, before;

    if ((r = jx_keys(json, named ? keys : keys + 1, error)) < 0 ||
        (r = jx_get_str(&name, json, "name", sizeof(cluster->name) - 1, error)) < 0 ||
        (r = jx_get_str(&profile, json, "profile", 64, error)) < 0)
        return r;
    if (from_profile(cluster, profile ? profile : "local", local, error) < 0)
        return err_under(error, "/profile");
    if (name)
        snprintf(cluster->name, sizeof(cluster->name), "%s", name);
    before = cluster->devices_per_node;
    if ((r = jx_get_int(&cluster->nodes, json, "nodes", 1, MAX_NODES, error)) < 0 ||
        (r = jx_get_int(&cluster->devices_per_node, json, "devices_per_node", 1, MAX_PER_NODE,
                        error)) < 0 ||
        (r = jx_get_bool(&cluster->oversubscribe, json, "oversubscribe", error)) < 0 ||
        (r = parse_watts(&cluster->device, json, error)) < 0 ||
        (r = jx_get_f64(&cluster->price, json, "price_per_device_hour", 1e-6, 1e6, error)) < 0)
        return r;
    if (cluster->devices_per_node < before)
        shrink_node(cluster, before);
    return 0;
}

/* What looks like several clusters, or several sizes of one: say how those are asked for. */
static int refuse_several(const json_t *json, struct err *error)
{
    if (json_is_array(json))
        return err_set(error, -EINVAL,
                       "a list is for campaigns (partune submit): name one cluster; to compare "
                       "campaigns of several, partune compare ID ID; for one job on two of them, "
                       "plan with {\"parts\": [A, B]}");
    if (json_is_array(json_object_get(json, "nodes")))
        return err_at(error, -EINVAL, "/nodes",
                      "nodes is one number: for several sizes of a job list numbers of devices in "
                      "space.world, or compare them without trials (partune size)");
    if (json_object_get(json, "parts"))
        return err_at(error, -EINVAL, "/parts",
                      "a cluster of several parts is for plans only (partune plan, POST /v1/plan): "
                      "name one cluster here");
    if (json_object_get(json, "between"))
        return err_at(error, -EINVAL, "/between",
                      "between joins the two clusters of \"parts\", which is missing: "
                      "{\"parts\": [A, B], \"between\": {\"gbs\": 25}}");
    return 0;
}

static int parse(struct pl_cluster *ret, const json_t *json, const struct pl_cluster *local,
                 bool named, struct err *error)
{
    struct pl_cluster cluster = {0};
    int r;

    if (!json || json_is_null(json))
        r = from_profile(&cluster, "local", local, error);
    else if (json_is_string(json))
        r = from_profile(&cluster, json_string_value(json), local, error);
    else if (refuse_several(json, error) < 0)
        r = -EINVAL;
    else if (json_object_get(json, "device"))
        r = parse_object(&cluster, json, error);
    else
        r = parse_reference(&cluster, json, local, named, error);
    if (r == 0 && (int64_t)cluster.nodes * cluster.devices_per_node > INT_MAX / 4)
        r = err_at(error, -ERANGE, "/nodes", "%d nodes of %d devices exceed what partune supports",
                   cluster.nodes, cluster.devices_per_node);
    if (r == 0)
        *ret = cluster;
    return r;
}

int pl_cluster_parse(struct pl_cluster *ret, const json_t *json, const struct pl_cluster *local,
                     struct err *error)
{
    return parse(ret, json, local, false, error);
}

int pl_cluster_parse_named(struct pl_cluster *ret, const json_t *json,
                           const struct pl_cluster *local, struct err *error)
{
    return parse(ret, json, local, true, error);
}

static json_t *device_json(const struct pl_device *device)
{
    json_t *v = json_object(), *peak = json_object();

    json_object_set_new(v, "name", json_string(device->name));
    json_object_set_new(v, "kind", json_string(device->cpu ? "cpu" : "gpu"));
    if (device->tflops_fp32 > 0)
        json_object_set_new(peak, "fp32", json_real(device->tflops_fp32));
    if (device->tflops_bf16 > 0)
        json_object_set_new(peak, "bf16", json_real(device->tflops_bf16));
    if (device->tflops_fp8 > 0)
        json_object_set_new(peak, "fp8", json_real(device->tflops_fp8));
    if (device->tflops_fp4 > 0)
        json_object_set_new(peak, "fp4", json_real(device->tflops_fp4));
    json_object_set_new(v, "peak_tflops", peak);
    if (device->gemm_tflops > 0)
        json_object_set_new(v, "gemm_tflops", json_real(device->gemm_tflops));
    if (device->gemm_tflops_fp8 > 0)
        json_object_set_new(v, "gemm_tflops_fp8", json_real(device->gemm_tflops_fp8));
    json_object_set_new(v, "sustained", json_real(device->sustained));
    json_object_set_new(v, "memory_gib", json_real(device->memory_gib));
    json_object_set_new(v, "memory_gbs", json_real(device->memory_gbs));
    if (device->context_gib > 0)
        json_object_set_new(v, "context_gib", json_real(device->context_gib));
    if (device->library_gib > 0)
        json_object_set_new(v, "library_gib", json_real(device->library_gib));
    if (device->nccl_gib > 0)
        json_object_set_new(v, "nccl_gib", json_real(device->nccl_gib));
    if (device->busy_watts > 0)
        json_object_set_new(v, "busy_watts", json_real(device->busy_watts));
    if (device->idle_watts > 0)
        json_object_set_new(v, "idle_watts", json_real(device->idle_watts));
    return v;
}

/* NULL where nothing is known. */
static json_t *host_json(const struct pl_host *host)
{
    json_t *v = json_object();

    if (host->memory_gib > 0)
        json_object_set_new(v, "memory_gib", json_real(host->memory_gib));
    if (host->memory_gbs > 0)
        json_object_set_new(v, "memory_gbs", json_real(host->memory_gbs));
    if (host->link_gbs > 0)
        json_object_set_new(v, "link_gbs", json_real(host->link_gbs));
    if (json_object_size(v))
        return v;
    json_decref(v);
    return NULL;
}

json_t *pl_link_json(const struct pl_link *link)
{
    json_t *span = link->span == INT_MAX ? json_string("all") : json_integer(link->span);
    json_t *v =
        json_pack("{s:o s:f s:f}", "span", span, "gbs", link->gbs, "latency_us", link->latency_us);

    if (link->share > 0)
        json_object_set_new(v, "share", json_real(link->share));
    if (link->per_pair)
        json_object_set_new(v, "per_pair", json_true());
    if (link->oversubscription > 1)
        json_object_set_new(v, "oversubscription", json_real(link->oversubscription));
    if (link->rails)
        json_object_set_new(v, "rails", json_true());
    if (link->kind[0])
        json_object_set_new(v, "kind", json_string(link->kind));
    return v;
}

json_t *pl_cluster_json(const struct pl_cluster *cluster)
{
    json_t *v = json_pack("{s:s s:i s:i s:o}", "name", cluster->name, "nodes", cluster->nodes,
                          "devices_per_node", cluster->devices_per_node, "device",
                          device_json(&cluster->device));
    json_t *links = json_array(), *host = host_json(&cluster->host);

    if (host)
        json_object_set_new(v, "host", host);
    for (int i = 0; i < cluster->nlinks; i++)
        json_array_append_new(links, pl_link_json(&cluster->link[i]));
    json_object_set_new(v, "links", links);
    json_object_set_new(v, "oversubscribe", json_boolean(cluster->oversubscribe));
    json_object_set_new(v, "measured", json_boolean(cluster->measured));
    if (cluster->price > 0)
        json_object_set_new(v, "price_per_device_hour", json_real(cluster->price));
    return v;
}

int pl_cluster_devices(const struct pl_cluster *cluster)
{
    return cluster->nodes * cluster->devices_per_node;
}

double pl_cluster_reached(const struct pl_cluster *cluster, double usual)
{
    return cluster->measured ? 1 : usual;
}

bool pl_cluster_is_cpu(const struct pl_cluster *cluster)
{
    return cluster->device.cpu;
}

/* A group of SIZE ranks STRIDE apart lies within (SIZE - 1) x STRIDE + 1 consecutive ranks. Groups
 * whose extent divides the span never straddle its boundary; others are given the next link. */
const struct pl_link *pl_cluster_link(const struct pl_cluster *cluster, int size, int stride)
{
    static const struct pl_link none = {.span = INT_MAX, .gbs = 1e3, .kind = "none"};
    int64_t extent = (int64_t)size * stride;

    for (int i = 0; i < cluster->nlinks; i++)
        if (extent <= cluster->link[i].span)
            return &cluster->link[i];
    return cluster->nlinks ? &cluster->link[cluster->nlinks - 1] : &none;
}

int pl_cluster_domain(const struct pl_cluster *cluster)
{
    int node = cluster->devices_per_node, span = pl_cluster_link(cluster, node, 1)->span;

    return span > node && span < INT_MAX ? span : node;
}
