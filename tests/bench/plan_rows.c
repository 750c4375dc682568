#include "tests/bench/plan_rows.h"

#include <errno.h>

/*
 * Software by the family of rows that it made, or by words of their source where a family is a
 * mixture (fp8) or is not listed: a stack of plan/presets/stacks/, and what it does that layouts
 * and models of rows do not say. A stack is a release, not a row: all its rows share it.
 */
struct software {
    const char *families[4], *words[5];
    const char *stack;
    bool overlap, balanced, far_a2a_overlap;
    double network; /* share of the network's bandwidth that its authors measured */
};

static const struct software software[] = {
    /* The paper states its effective bandwidth: 12.9 TB/s bisection of the all-reduce on 3072
     * devices, whose links add up to 38.4. */
    {.families = {"sc21"}, .stack = "megatron-2021", .network = 0.34},
    {.families = {"korth", "megascale"}, .stack = "megatron-2022"},
    {.families = {"bloom"}, .words = {"BigScience", "DeepSpeed"}, .stack = "megatron-deepspeed"},
    {.families = {"vtrain"}, .stack = "megatron-2022"},
    {.families = {"mcore"}, .words = {"Megatron-Core"}, .stack = "megatron-core", .overlap = true},
    /* The exchange of experts overlaps the other micro-batch's compute where it leaves the domain
     * (overlap_moe_expert_parallel_comm for Qwen3 235B and DeepSeek-V3 on H100, not for 30B), and
     * each expert is sent as many tokens as any other (moe_router_force_load_balancing). */
    {.words = {"Megatron-Bridge"},
     .stack = "megatron-bridge",
     .overlap = true,
     .far_a2a_overlap = true,
     .balanced = true},
    {.families = {"dgxc"},
     .words = {"NeMo", "DGX"},
     .stack = "nemo",
     .overlap = true,
     .balanced = true},
    /* The same with experts, whose recipes do not. */
    {.families = {"pfold"}, .stack = "megatron-folding", .overlap = true},
    {.families = {"foundry"}, .words = {"foundry"}, .stack = "fsdp1-triton", .overlap = true},
    {.families = {"torchtitan"}, .words = {"torchtitan"}, .stack = "torchtitan", .overlap = true},
};

static bool is_one_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n && names[i]; i++)
        if (str_eq(names[i], name))
            return true;
    return false;
}

static bool has_one_of(const char *const *words, size_t n, const char *text)
{
    for (size_t i = 0; i < n && words[i]; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

/*
 * What a row of an unknown stack looks like: fully sharded is PyTorch's FSDP; a model that is cut
 * by tp or pp and computes all of its forward pass again keeps scores, since streaming attention
 * ended that, and is Megatron of 2022; anything else is today's Megatron.
 */
static const struct software *software_by_look(const struct row *r)
{
    static const struct software sharded = {.stack = "fsdp2", .overlap = true},
                                 other = {.stack = "transformer-engine", .overlap = true},
                                 unfused = {.stack = "megatron-2022"};
    const json_t *layout = json_object_get(r->doc, "layout");
    const char *recompute = json_string_value(json_object_get(layout, "recompute"));

    if (json_integer_value(json_object_get(layout, "zero")) >= 2)
        return &sharded;
    return recompute && !strcmp(recompute, "full") ? &unfused : &other;
}

/* Named stacks that overlap neither the reduction of gradients nor messages between stages with
 * compute: nanotron waits for each message, reduces after the last micro-batch and gathers after
 * the step, as do Aleph Alpha's trainer and DeepSpeed's optimizer for bf16. */
static const struct software *software_by_stack(const struct row *r)
{
    static const char *const names[] = {"nanotron", "aleph-", "megatron-deepspeed"};
    static const struct software plain = {.overlap = false};
    const json_t *named = json_object_get(r->doc, "stack");
    const char *stack =
        json_string_value(json_is_object(named) ? json_object_get(named, "like") : named);

    for (size_t i = 0; stack && i < ARRAY_LEN(names); i++)
        if (str_starts(stack, names[i]))
            return &plain;
    for (size_t i = 0; stack && i < ARRAY_LEN(software); i++)
        if (str_starts(stack, software[i].stack))
            return &software[i];
    return NULL;
}

static const struct software *software_of(const struct row *r)
{
    const char *source = json_string_value(json_object_get(r->doc, "source"));
    const struct software *by_stack = software_by_stack(r);

    if (by_stack)
        return by_stack;
    for (size_t i = 0; i < ARRAY_LEN(software); i++)
        if (is_one_of(software[i].families, ARRAY_LEN(software[i].families), r->family))
            return &software[i];
    for (size_t i = 0; source && i < ARRAY_LEN(software); i++)
        if (has_one_of(software[i].words, ARRAY_LEN(software[i].words), source))
            return &software[i];
    return software_by_look(r);
}

/* Words by which a row says how its software ran, in its name or its note. */
static bool says(const struct row *r, const char *word)
{
    const char *note = json_string_value(json_object_get(r->doc, "note"));

    return strstr(r->id, word) || (note && strstr(note, word));
}

/*
 * Whose memory the source measured, and how. torchtitan logs max_reserved of the allocator
 * (torchtitan/components/metrics.py); nanotron's benchmark table has max_memory_reserved of rank 0
 * (src/nanotron/helpers.py, create_table_log); BigScience read nvidia-smi of the nodes that hold
 * most (train/tr11-176B-ml/chronicles-prequel.md).
 */
static void set_gauge(struct row *r)
{
    bool nanotron = str_starts(r->trainer.stack.name, "nanotron");

    r->first_rank = nanotron;
    r->allocator = nanotron || str_starts(r->trainer.stack.name, "torchtitan");
}

/* The stack that the row names, or that its software is; and what the row says of itself. */
static int set_trainer(struct row *r, struct err *e)
{
    json_t *named = json_object_get(r->doc, "stack");
    AUTO_JSON *stack = named ? json_incref(named) : json_string(software_of(r)->stack);

    if (pl_stack_parse(&r->trainer, stack, pl_trainer_find("any"), e) < 0)
        return err_under(e, "/stack");
    if (r->moe) /* recipes with experts do not cut tp's collectives */
        r->trainer.tp_overlap = false;
    if (says(r, "async TP"))
        r->trainer.tp_overlap = true;
    /* from that day on the log's runs add up gradients in fp32 */
    r->trainer.summed_grads |= str_starts(r->id, "bloom-02-28");
    if (says(r, "h200")) /* its tables of H200 are of a release that compiles the loss */
        r->trainer.eager_loss = false;
    r->trainer.eager |= says(r, "-eager");
    set_gauge(r);
    return 0;
}

/* The rows' word for a model of several kinds of layers, in the product's words. A row has neither
 * groups nor the width of the convolution: those of the models that it is about (Nemotron-H). */
static void set_pattern(json_t *model)
{
    static const char *const words[][2] = {
        {"mamba_heads", "heads"}, {"mamba_head_dim", "head_dim"}, {"mamba_state", "state"}};
    json_t *hybrid = json_object_get(model, "hybrid");
    json_t *mamba = json_pack("{s:i s:i}", "groups", 8, "conv", 4);

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        json_object_set(mamba, words[i][1], json_object_get(hybrid, words[i][0]));
    json_object_set(model, "pattern", json_object_get(hybrid, "pattern"));
    json_object_set_new(model, "mamba", mamba);
    json_object_del(model, "hybrid");
}

/* The row's model has sizes only; what GPT models of these papers share is added. */
static int parse_model(struct row *r, const json_t *v, struct err *e)
{
    AUTO_JSON *m = json_deep_copy(v);

    json_object_del(m, "params");
    if (json_object_get(m, "hybrid"))
        set_pattern(m);
    if (pl_model_parse(&r->model, m, e) < 0)
        return err_under(e, "/model");
    if (r->model.positions == PL_LEARNED)
        r->model.tied = true;
    r->moe = pl_model_is_moe(&r->model);
    return 0;
}

struct pl_problem row_problem(const struct row *row)
{
    return (struct pl_problem){&row->model, &row->cluster, &row->workload, &row->trainer};
}

static int parse_layout(struct row *r, const json_t *v, int devices, struct err *e)
{
    const struct software *f = software_of(r);
    struct pl_problem problem = row_problem(r);
    AUTO_JSON *l = json_deep_copy(v);
    const char *precision = json_string_value(json_object_get(l, "precision"));
    const char *schedule = json_string_value(json_object_get(l, "schedule"));

    json_object_del(l, "recompute_detail");
    if (precision && !strcmp(precision, "fp16"))
        json_object_set_new(l, "precision", json_string("bf16"));
    if (!json_object_get(l, "precision"))
        json_object_set_new(l, "precision", json_string("bf16"));
    r->free_micro_batch = !json_object_get(l, "micro_batch");
    r->free_vp = !json_object_get(l, "vp") && (!schedule || !strcmp(schedule, "interleaved"));
    r->free_recompute = !json_object_get(l, "recompute");
    r->free_sp = !json_object_get(l, "sp") && r->layout.tp > 1;
    r->free_zero = !json_object_get(l, "zero");
    json_object_del(l, "dp"); /* follows from the devices; two rows of the log state it wrongly */
    json_object_set_new(l, "world", json_integer(devices));
    if (pl_layout_parse(&r->layout, l, &problem, e) < 0)
        return err_under(e, "/layout");
    if (r->moe && !json_object_get(l, "etp") &&
        devices % ((int64_t)r->layout.tp * r->layout.ep * r->layout.pp) == 0)
        r->layout.etp = r->layout.tp; /* before folding, experts were cut by the same tp */
    if (r->layout.pp == 1)
        r->layout.vp = 1; /* one stage has no chunks */
    r->layout.overlap_grad_reduce = r->layout.overlap_param_gather = f->overlap;
    r->layout.overlap_p2p = f->overlap;
    if (f->far_a2a_overlap && !json_object_get(v, "overlap_moe_a2a") &&
        r->layout.ep * r->layout.etp > pl_cluster_domain(&r->cluster))
        r->layout.overlap_moe_a2a = 1;
    pl_layout_canonical(&r->layout, &r->model);
    return 0;
}

static bool is_run(const struct row *r)
{
    return str_eq(r->type, "training") || str_eq(r->type, "oom");
}

/* What no machine can have run, so that a row that says so says something else than it means.
 * Shares need not be even: some software counts embedding and loss as layers. */
static int check_layout(const struct row *r, struct err *e)
{
    const struct pl_layout *l = &r->layout;

    if (!l->dp)
        return err_at(e, -EINVAL, "/layout", "world %d is not divided", l->world);
    if (l->pp > r->model.layers)
        return err_at(e, -EINVAL, "/layout/pp", "pp %d is more than layers %d", l->pp,
                      r->model.layers);
    if (r->moe && (!l->edp || r->model.moe.experts % l->ep))
        return err_at(e, -EINVAL, "/layout/ep", "ep %d does not divide world %d or experts %d",
                      l->ep, l->world, r->model.moe.experts);
    if (is_run(r) && r->workload.global_batch < l->dp)
        return err_at(e, -EINVAL, "/global_batch", "global_batch %d is less than dp %d",
                      r->workload.global_batch, l->dp);
    if (is_run(r) && r->workload.global_batch < (int64_t)l->micro_batch * l->dp)
        return err_at(e, -EINVAL, "/layout/micro_batch",
                      "global_batch %d is less than micro_batch %d x dp %d",
                      r->workload.global_batch, l->micro_batch, l->dp);
    return 0;
}

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return str_hash(text ? text : "", text ? strlen(text) : 0, seed);
}

static void set_groups(struct row *r, const json_t *v)
{
    uint64_t h = hash_text(json_string_value(json_object_get(v, "source")), 1);
    int key[3] = {r->layout.world, r->workload.global_batch, r->workload.seq};

    /* fp8 rows are a family of their own */
    r->model_group = hash_text(r->family, hash_text(r->model.name, h));
    r->choice_group = str_hash(key, sizeof(key), r->model_group);
}

/* What a row of its type must have: a size that is absent is not guessed. */
static int parse_needs(const struct row *r, const json_t *v, struct err *e)
{
    static const char *const types[] = {"training", "layer",          "memory",
                                        "oom",      "microbenchmark", NULL};
    static const char *const needs[] = {"model", "cluster", "layout", "devices", "global_batch"};
    int type = 0, rc = jx_get_enum(&type, v, "type", types, e);

    if (rc == 0 && !str_eq(r->type, "microbenchmark"))
        rc = jx_need(v, "model", e);
    for (size_t i = 0; rc == 0 && is_run(r) && i < ARRAY_LEN(needs); i++)
        rc = jx_need(v, needs[i], e);
    if (rc == 0 && str_eq(r->type, "training"))
        rc = jx_need(v, "seconds_per_iteration", e);
    if (rc == 0 && str_eq(r->type, "training") && r->seconds <= 0)
        return err_at(e, -EINVAL, "/seconds_per_iteration", "no iteration takes 0 seconds");
    return rc;
}

/* What a row has besides its model and layout. */
static int parse_head(struct row *r, const json_t *v, struct err *e)
{
    int rc;

    if (!json_is_object(v))
        return err_at(e, -EINVAL, "", "a row is an object");
    if ((rc = jx_need(v, "id", e)) < 0 || (rc = jx_need(v, "type", e)) < 0 ||
        (rc = jx_copy_str(r->id, sizeof(r->id), v, "id", e)) < 0 ||
        (rc = jx_copy_str(r->type, sizeof(r->type), v, "type", e)) < 0 ||
        (rc = jx_copy_str(r->family, sizeof(r->family), v, "family", e)) < 0 ||
        (rc = jx_get_f64(&r->seconds, v, "seconds_per_iteration", 0, 1e9, e)) < 0 ||
        (rc = parse_needs(r, v, e)) < 0)
        return rc;
    if (!r->family[0])
        snprintf(r->family, sizeof(r->family), "other");
    r->measured = json_object_get(v, "measured");
    return 0;
}

static int parse_cluster(struct row *r, const json_t *v, struct err *e)
{
    int rc = jx_need(v, "cluster", e);

    if (rc < 0)
        return rc;
    if (pl_cluster_parse(&r->cluster, json_object_get(v, "cluster"), NULL, e) < 0)
        return err_under(e, "/cluster");
    return 0;
}

/* Devices and batch; a row of one layer or of memory has those of its tensor-parallel group and its
 * micro-batch. */
static int parse_size(struct row *r, int *ret_devices, const json_t *v, struct err *e)
{
    json_t *layout = NULL;
    int rc, batch = 1;

    if ((rc = jx_need(v, "layout", e)) < 0 || (rc = jx_get_object(&layout, v, "layout", e)) < 0)
        return rc;
    r->layout.tp = *ret_devices = 1;
    if ((rc = jx_get_int(&r->layout.tp, layout, "tp", 1, 1 << 20, e)) < 0 ||
        (rc = jx_get_int(&batch, layout, "micro_batch", 1, 1 << 20, e)) < 0)
        return err_under(e, "/layout");
    *ret_devices = r->layout.tp;
    if ((rc = jx_get_int(ret_devices, v, "devices", 1, 1 << 24, e)) < 0 ||
        (rc = jx_get_int(&batch, v, "global_batch", 1, 1 << 24, e)) < 0)
        return rc;
    r->workload =
        (struct pl_workload){.seq = r->model.seq, .precision = PL_BF16, .global_batch = batch};
    return 0;
}

/* What the file does not say of a device whose cluster the product knows. */
static void complete(json_t *cluster, const char *name)
{
    const char *text = pl_cluster_preset(name);
    AUTO_JSON *preset = text ? json_loads(text, 0, NULL) : NULL;
    json_t *known = json_object_get(preset, "device"), *device = json_object_get(cluster, "device");

    if (!known || !device)
        return;
    json_object_update_missing(json_object_get(device, "peak_tflops"),
                               json_object_get(known, "peak_tflops"));
    json_object_update_missing(device, known);
}

/* Put what lines before this one define under a name where the row has the name. */
static void expand(json_t *v, const json_t *defs)
{
    json_t *cluster = json_object_get(v, "cluster"), *it;
    const char *model = json_string_value(json_object_get(v, "model")),
               *profile = json_string_value(json_object_get(cluster, "profile"));

    it = json_object_get(json_object_get(defs, "model"), model ? model : "");
    if (it)
        json_object_set(v, "model", json_object_get(it, "model"));
    it = json_object_get(json_object_get(defs, "cluster"), profile ? profile : "");
    if (it) {
        json_t *whole = json_deep_copy(it);

        json_object_del(whole, "type");
        complete(whole, profile);
        json_object_set(whole, "nodes", json_object_get(cluster, "nodes"));
        json_object_set_new(v, "cluster", whole);
    }
}

static int parse_row(struct row *r, json_t *v, struct err *e)
{
    int rc, devices;

    r->doc = json_incref(v);
    if ((rc = parse_head(r, v, e)) < 0)
        return rc;
    if (!json_object_get(v, "model")) /* microbenchmarks have no model, some no cluster */
        return json_object_get(v, "cluster") ? parse_cluster(r, v, e) : 0;
    if ((rc = parse_model(r, json_object_get(v, "model"), e)) < 0 ||
        (rc = parse_cluster(r, v, e)) < 0 || (rc = parse_size(r, &devices, v, e)) < 0 ||
        (rc = set_trainer(r, e)) < 0)
        return rc;
    if (software_of(r)->balanced && r->moe && r->model.moe.capacity_factor <= 0)
        r->model.moe.force_balance = true; /* dropless and even */
    if (software_of(r)->network > 0 && r->cluster.nlinks)
        r->cluster.link[r->cluster.nlinks - 1].share = software_of(r)->network;
    if ((rc = parse_layout(r, json_object_get(v, "layout"), devices, e)) < 0 ||
        (rc = check_layout(r, e)) < 0)
        return rc;
    set_groups(r, v);
    return 0;
}

bool row_is_timed(const struct row *r)
{
    return !strcmp(r->type, "training") && r->seconds > 0 && r->layout.dp > 0;
}

/* Members that are null say no more than absent ones. */
static void drop_nulls(json_t *v)
{
    const char *key;
    json_t *x;
    void *next;

    json_object_foreach_safe(v, next, key, x)
    {
        if (json_is_null(x))
            json_object_del(v, key);
        else if (json_is_object(x))
            drop_nulls(x);
    }
}

/* A line that defines a cluster or a model for the rows after it. */
static bool is_definition(json_t *defs, json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type")),
               *name = json_string_value(json_object_get(v, "name"));

    if (!type || !name || (!str_eq(type, "cluster") && !str_eq(type, "model")))
        return false;
    if (!json_object_get(defs, type))
        json_object_set_new(defs, type, json_object());
    json_object_set(json_object_get(defs, type), name, v);
    return true;
}

static void leave_out(struct rows *ret, struct row *row, const char *where, const struct err *e)
{
    fprintf(stderr, "bench_plan: %s %s: left out: %s%s%s\n", where, row->id, e->pointer,
            e->pointer[0] ? ": " : "", e->text);
    json_decref(row->doc);
    ret->left_out++;
}

/* One line of the file; what is no row is said and left out, and the others stand. */
static void load_line(struct rows *ret, const char *line, const char *where, json_t *defs)
{
    AUTO_JSON *v = NULL;
    struct row row = {0};
    struct err e = {0};

    int r = jx_parse(&v, line, strlen(line), &e);

    if (r == 0) {
        drop_nulls(v);
        if (is_definition(defs, v))
            return;
        expand(v, defs);
        r = parse_row(&row, v, &e);
    }
    if (r < 0) {
        leave_out(ret, &row, where, &e);
        return;
    }
    MEM_GROW(ret->at, ret->n, ret->cap);
    ret->at[ret->n++] = row;
}

int rows_load(struct rows *ret, const char *path, struct err *e)
{
    AUTO_FREE char *text = NULL;
    AUTO_JSON *defs = json_object();
    char *line, *next, where[256];
    size_t before = ret->n;
    int r, number = 0;

    if ((r = file_read_all(&text, NULL, path, 64 << 20, e)) < 0)
        return r;
    for (line = text; line && *line; line = next) {
        number++;
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        snprintf(where, sizeof(where), "%s:%d", path, number);
        if (line[strspn(line, " \t\r")])
            load_line(ret, line, where, defs);
    }
    return ret->n > before ? 0 : err_set(e, -EINVAL, "%s: not one row can be used", path);
}

void rows_done(struct rows *r)
{
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->at[i].doc);
    free(r->at);
    *r = (struct rows){0};
}
