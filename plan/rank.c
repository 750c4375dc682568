/* The best layouts of a whole space by the cost model, and why the others lose. */
#include "plan/plan.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"

static const double GIB = 1 << 30;

struct ranking {
    const struct pl_problem *p;
    struct pl_cost_ctx *x;
    struct pl_plan *plan;
    size_t top;
    double limit; /* bytes */
    bool per_device;
    struct pl_layout smallest; /* of those that did not fit */
    double smallest_bytes;
};

static double worth(const struct ranking *r, const struct pl_layout *l, const struct pl_cost *c)
{
    return r->per_device ? c->tokens_per_s / l->world : c->tokens_per_s;
}

/* A layout that differs from a listed one in a key that changes nothing here, such as selective
 * recompute where attention keeps no scores: to the model they are one. */
static bool is_twin(const struct pl_plan *plan, const struct pl_plan_entry *one)
{
    for (size_t i = 0; i < plan->n; i++)
        if (plan->at[i].cost.total == one->cost.total &&
            plan->at[i].memory.total == one->memory.total)
            return true;
    return false;
}

/* Entries are kept sorted: TOP is small and most layouts do not reach the list. */
static bool consider(void *arg, const struct pl_layout *l)
{
    struct ranking *r = arg;
    struct pl_plan *plan = r->plan;
    struct pl_plan_entry one = {.layout = *l};
    double w;
    size_t i;

    plan->legal++;
    pl_cost_at(&one.cost, r->x, l);
    w = worth(r, l, &one.cost);
    if (plan->n == r->top &&
        w <= worth(r, &plan->at[plan->n - 1].layout, &plan->at[plan->n - 1].cost))
        return true;
    pl_memory_worst(&one.memory, r->p->model, l, r->p->workload, r->p->trainer);
    if (one.memory.total > r->limit) {
        plan->too_large++;
        if (r->smallest_bytes <= 0 || one.memory.total < r->smallest_bytes) {
            r->smallest_bytes = one.memory.total;
            r->smallest = *l;
        }
        return true;
    }
    if (is_twin(plan, &one))
        return true;
    i = plan->n < r->top ? plan->n++ : plan->n - 1;
    for (; i > 0 && worth(r, &plan->at[i - 1].layout, &plan->at[i - 1].cost) < w; i--)
        plan->at[i] = plan->at[i - 1];
    plan->at[i] = one;
    return true;
}

/* The classes that make it slower than the first, the largest two, and what it gains. */
static void explain(struct pl_plan_entry *one, const struct pl_plan_entry *first)
{
    double more[PL_COST_CLASSES], slower = one->cost.total / first->cost.total - 1;
    int worst[2] = {-1, -1}, best = -1;
    AUTO_STR s = {0};

    for (int i = 0; i < PL_COST_CLASSES; i++) {
        more[i] = one->cost.seconds[i] - first->cost.seconds[i];
        if (more[i] > 0 && (worst[0] < 0 || more[i] > more[worst[0]])) {
            worst[1] = worst[0];
            worst[0] = i;
        } else if (more[i] > 0 && (worst[1] < 0 || more[i] > more[worst[1]])) {
            worst[1] = i;
        }
        if (more[i] < 0 && (best < 0 || more[i] < more[best]))
            best = i;
    }
    str_addf(&s, "%.1f %% slower:", 100 * slower);
    for (int i = 0; i < 2 && worst[i] >= 0; i++)
        str_addf(&s, "%s %.3g s more in %s", i ? "," : "", more[worst[i]],
                 pl_cost_class_names[worst[i]]);
    if (best >= 0)
        str_addf(&s, ", %.3g s less in %s", -more[best], pl_cost_class_names[best]);
    if (worst[0] < 0)
        str_addf(&s, " the same seconds, %.3g GiB of memory instead of %.3g",
                 one->memory.total / GIB, first->memory.total / GIB);
    snprintf(one->why, sizeof(one->why), "%s", str_text(&s));
}

/* Nothing fits, or nothing is legal. Pipelines of all devices have no more even stages than divide
 * the layers and the devices alike. */
static int nothing(const struct ranking *r, const struct pl_space *s, struct err *e)
{
    const struct pl_problem *p = r->p;
    char text[sizeof(e->text)], stages[128] = "";
    int devices = pl_cluster_devices(p->cluster), most = pl_gcd(p->model->layers, devices);

    if (!p->trainer->uneven_layers && most < p->model->layers && most < devices)
        snprintf(stages, sizeof(stages),
                 "; layers %d divide over pp %d at most on %d devices, trainer \"any\" takes "
                 "uneven stages",
                 p->model->layers, most, devices);
    if (r->plan->legal)
        return err_set(e, -ENOENT,
                       "none of %zu legal layouts fits: the smallest, %s, needs %.3g of %.3g GiB%s",
                       r->plan->legal, pl_layout_text(text, &r->smallest), r->smallest_bytes / GIB,
                       r->limit / GIB, stages);
    pl_space_explain(text, sizeof(text), s, p);
    return err_set(e, -ENOENT, "%s", text);
}

int pl_plan_rank(struct pl_plan *ret, const struct pl_space *s, const struct pl_problem *p,
                 size_t top, double headroom, bool per_device, struct err *e)
{
    struct pl_plan plan = {0};
    struct ranking r = {.p = p, .plan = &plan, .top = top, .per_device = per_device};
    int rc = 0;

    plan.at = mem_alloc((top ? top : 1) * sizeof(*plan.at));
    r.limit = p->cluster->device.memory_gib * GIB * (1 - headroom);
    r.x = pl_cost_ctx_new(p, NULL);
    if (top)
        pl_space_enumerate(s, p, consider, &r);
    pl_cost_ctx_free(r.x);
    if (!plan.n) {
        rc = nothing(&r, s, e);
        pl_plan_done(&plan);
        return rc;
    }
    for (size_t i = 1; i < plan.n; i++)
        explain(&plan.at[i], &plan.at[0]);
    *ret = plan;
    return 0;
}

void pl_plan_done(struct pl_plan *x)
{
    free(x->at);
    *x = (struct pl_plan){0};
}

json_t *pl_plan_json(const struct pl_plan *x, const struct pl_problem *p)
{
    json_t *list = json_array();

    for (size_t i = 0; i < x->n; i++) {
        const struct pl_plan_entry *one = &x->at[i];
        double mfu =
            pl_mfu(p->model, p->cluster, &one->layout, p->workload, one->cost.tokens_per_s);
        json_t *v = json_pack("{s:i s:o s:f s:o s:o s:o}", "rank", (int)i + 1, "layout",
                              pl_layout_json(&one->layout), "tokens_per_s", one->cost.tokens_per_s,
                              "mfu", mfu < 0 ? json_null() : json_real(mfu), "cost",
                              pl_cost_json(&one->cost), "memory", pl_memory_json(&one->memory));

        json_object_set_new(v, "why", one->why[0] ? json_string(one->why) : json_null());
        json_array_append_new(list, v);
    }
    return json_pack("{s:I s:I s:o}", "legal", (json_int_t)x->legal, "too_large",
                     (json_int_t)x->too_large, "layouts", list);
}
