/* Sizing: the best layout of a job on each of several numbers of devices, by the cost model. */
#include <errno.h>

#include "tuner/api/api.h"

enum { SIZES = 32 };

static const double SIZE_S = 1.6, DAY_S = 86400;
static const double PAYS = 0.5; /* of what the first devices bring, if nobody says */

struct sizing {
    struct tn_api_job job;
    json_t *space; /* as asked for, or NULL: a space for each size is too large to keep */
    int devices[SIZES], n;
    double tokens, days, price, marginal; /* 0: not asked */
    json_t *answer;
    struct err e;
};

/* Of a cluster's nodes, powers of two and all. */
static void usual_devices(struct sizing *ret, const struct pl_cluster *cluster)
{
    int from = 1;

    while (cluster->nodes / from > 1 << (SIZES - 2))
        from *= 2;
    for (int nodes = from; nodes < cluster->nodes; nodes *= 2)
        ret->devices[ret->n++] = nodes * cluster->devices_per_node;
    ret->devices[ret->n++] = pl_cluster_devices(cluster);
}

static int parse_devices(struct sizing *ret, const json_t *body, struct err *error)
{
    int node = ret->job.cluster.devices_per_node;
    json_t *list = NULL, *v;
    size_t i;
    int r = jx_get_array(&list, body, "devices", SIZES, error);

    if (r < 0)
        return r;
    if (!list)
        usual_devices(ret, &ret->job.cluster);
    json_array_foreach(list, i, v) {
        json_int_t devices = json_integer_value(v);

        if (!json_is_integer(v) || devices < 1 || devices > 1 << 20)
            return err_at(error, -EINVAL, "/devices", "must be whole numbers from 1 to 1048576");
        if (devices % node)
            return err_at(error, -EINVAL, "/devices", "%d is not a multiple of a node's %d devices",
                          (int)devices, node);
        if (i && devices <= ret->devices[i - 1])
            return err_at(error, -EINVAL, "/devices", "%d after %d: name them in ascending order",
                          (int)devices, ret->devices[i - 1]);
        ret->devices[ret->n++] = (int)devices;
    }
    return ret->n ? 0 : err_at(error, -EINVAL, "/devices", "must name at least one device count");
}

static struct pl_cluster cluster_of(const struct sizing *sizing, int i)
{
    struct pl_cluster ret = sizing->job.cluster;

    ret.nodes = sizing->devices[i] / ret.devices_per_node;
    return ret;
}

static int parse_space(struct sizing *ret, const json_t *body, struct err *error)
{
    AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
    const json_t *json = json_object_get(body, "space");

    if (json_object_get(json, "world"))
        return err_at(error, -EINVAL, "/space/world", "world follows from devices: leave it out");
    for (int i = 0; i < ret->n; i++) {
        struct pl_problem problem = tn_api_job_problem(&ret->job);
        struct pl_cluster cluster = cluster_of(ret, i);

        problem.cluster = &cluster;
        if (pl_space_parse(space, json, &problem, error) < 0)
            return err_under(error, "/space");
    }
    ret->space = json_deep_copy(json); /* another thread reads it */
    return 0;
}

static int parse(struct sizing *ret, struct tn_service *svc, const json_t *body, struct err *error)
{
    static const char *const keys[] = {"model", "cluster", "workload", "space",       "trainer",
                                       "rules", "stack",   "devices",  "constraints", "tokens",
                                       "days",  "price",   "marginal", NULL};
    char text[160];
    int r = jx_keys(body, keys, error);

    ret->marginal = PAYS;
    if (r < 0 || (r = tn_api_job_parse(&ret->job, svc, body, error)) < 0 ||
        (r = jx_get_f64(&ret->tokens, body, "tokens", 1, 1e18, error)) < 0 ||
        (r = jx_get_f64(&ret->days, body, "days", 1e-3, 1e5, error)) < 0 ||
        (r = jx_get_f64(&ret->price, body, "price", 1e-6, 1e6, error)) < 0 ||
        (r = jx_get_f64(&ret->marginal, body, "marginal", 0.01, 1, error)) < 0)
        return r;
    if (ret->days > 0 && ret->tokens <= 0)
        return err_at(error, -EINVAL, "/days", "days need tokens, the total number to train on");
    if (ret->job.workload.nbatches)
        return err_at(error, -EINVAL, "/workload/global_batch",
                      "sizes are compared at one global_batch: name one of %s",
                      pl_batches_text(text, &ret->job.workload));
    if (ret->price > 0 && ret->tokens <= 0)
        return err_at(error, -EINVAL, "/price",
                      "a price needs tokens, the total number to train on");
    if (ret->price <= 0)
        ret->price = ret->job.cluster.price;
    r = parse_devices(ret, body, error);
    return r < 0 ? r : parse_space(ret, body, error);
}

static json_t *real_or_null(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

/* What SIZE makes of the tokens to be trained on; LO and HI days are those of its interval. */
static void add_duration(json_t *item, const struct sizing *sizing, const struct pl_size *size)
{
    bool known = size->fits && sizing->tokens > 0;
    double days = known ? sizing->tokens / size->tokens_per_s / DAY_S : 0;
    double hours = 24 * days * size->devices;

    json_object_set_new(item, "days", real_or_null(known, days));
    json_object_set_new(item, "days_lo",
                        real_or_null(known, known ? sizing->tokens / size->hi / DAY_S : 0));
    json_object_set_new(item, "days_hi",
                        real_or_null(known, known ? sizing->tokens / size->lo / DAY_S : 0));
    json_object_set_new(item, "device_hours", real_or_null(known, hours));
    json_object_set_new(item, "cost",
                        real_or_null(known && sizing->price > 0, hours * sizing->price));
}

static json_t *size_item(const struct sizing *sizing, const struct pl_size *size)
{
    bool fits = size->fits;
    char text[160];
    json_t *item =
        json_pack("{s:i, s:i, s:o, s:o, s:b, s:o}", "devices", size->devices, "nodes",
                  size->devices / sizing->job.cluster.devices_per_node, "layout",
                  fits ? pl_layout_json(&size->layout) : json_null(), "text",
                  fits ? json_string(pl_layout_text(text, &size->layout)) : json_null(), "exact",
                  size->exact, "reason", fits ? json_null() : json_string(size->reason.text));

    json_object_set_new(item, "memory_bytes", real_or_null(fits, size->bytes));
    json_object_set_new(item, "tokens_per_s", real_or_null(fits, size->tokens_per_s));
    json_object_set_new(item, "lo", real_or_null(fits, size->lo));
    json_object_set_new(item, "hi", real_or_null(fits, size->hi));
    json_object_set_new(item, "mfu", real_or_null(fits && size->mfu >= 0, size->mfu));
    json_object_set_new(item, "efficiency", real_or_null(fits, size->efficiency));
    json_object_set_new(item, "marginal", real_or_null(fits, size->marginal));
    add_duration(item, sizing, size);
    return item;
}

/* Devices of the size of that index; null: there is none. */
static json_t *devices_or_null(const struct pl_size *sizes, int index)
{
    return index < 0 ? json_null() : json_integer(sizes[index].devices);
}

/* The I-th size, which takes its share of the time at most. */
static void look_at(struct pl_size *ret, const struct sizing *sizing, int i,
                    const atomic_bool *unwanted)
{
    AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
    struct pl_problem problem = tn_api_job_problem(&sizing->job);
    struct pl_cluster cluster = cluster_of(sizing, i);
    struct tn_patience patience;

    problem.cluster = &cluster;
    *ret = (struct pl_size){.devices = sizing->devices[i]};
    tn_patience_start(&patience, SIZE_S / sizing->n, unwanted);
    if (pl_space_parse(space, sizing->space, &problem, &ret->reason) == 0)
        pl_size_of(ret, space, &problem, sizing->job.headroom, &patience.plan);
}

static void size_work(struct web_request *rq, void *arg)
{
    struct sizing *x = arg;
    AUTO_FREE struct pl_size *sizes = mem_alloc((size_t)x->n * sizeof(*sizes));
    double wanted = x->days > 0 ? x->tokens / (x->days * DAY_S) : 0;
    json_t *items = json_array();

    for (int i = 0; i < x->n; i++)
        look_at(&sizes[i], x, i, web_unwanted(rq));
    pl_sizes_compare(sizes, x->n);
    for (int i = 0; i < x->n; i++)
        json_array_append_new(items, size_item(x, &sizes[i]));
    x->answer = json_pack(
        "{s:o, s:o, s:o, s:o}", "items", items, "fewest",
        devices_or_null(sizes, wanted > 0 ? pl_sizes_fewest(sizes, x->n, wanted, false) : -1),
        "fewest_sure",
        devices_or_null(sizes, wanted > 0 ? pl_sizes_fewest(sizes, x->n, wanted, true) : -1),
        "pays", devices_or_null(sizes, pl_sizes_paying(sizes, x->n, x->marginal)));
}

static void size_done(struct web_request *rq, void *arg)
{
    struct sizing *x = arg;

    json_decref(x->space);
    tn_api_answer(rq, x->answer ? 0 : tn_api_unwanted(&x->e), 200, x->answer, &x->e);
}

void tn_api_size(struct web_request *rq)
{
    struct sizing *x = arena_alloc(web_arena(rq), sizeof(*x));

    if (parse(x, tn_api_svc(rq), web_body(rq), &x->e) < 0) {
        web_reply_error(rq, &x->e);
        return;
    }
    web_offload(rq, size_work, size_done, x);
}
