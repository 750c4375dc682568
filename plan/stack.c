/*
 * Constants that are few, of a machine class or of a stack, never of a row or a model.
 *
 * memory     share of the memory's bandwidth that streaming kernels reach
 * near, far  share of a link's bandwidth that a collective reaches inside a node, between nodes
 * attention  share of the matrix rate that streaming attention reaches
 * kernel_us  gap that each kernel leaves: launch, drain
 * collective_us  start of a collective
 * hidden     share of an overlapped collective that really hides behind compute
 * tp_hidden  the same for tensor-parallel collectives cut into pieces
 * expert     share of the matrix rate that grouped products of experts reach
 * jitter     standard deviation of a device's step time over its mean
 * matrix     share of what the device sustains that the stack's products reach
 * issue_us   of the host, for each kernel of a layer: below it the device waits
 * message_us of the host, for each message between stages
 * pause_us   lost in each tensor-parallel collective for each of its members, where stages exchange
 *            over a network: all wait for the one whose host serves the network at the moment
 * stall_us   lost at each step of a pipeline on 64 devices, with the cube of their number: all wait
 *            for the one that the rare long pause of a host or a link hits
 * spread     what a collective loses of the network's bandwidth: nodes to the power of -spread
 * activation, gradients, logits  bytes that the allocator holds for one byte of the plan's
 * reserve_gib  context, communication buffers, fragments: of the order that NVIDIA's tools show on
 *            A100 and H100 with NCCL
 *
 * Of an unknown stack the last columns say where learning starts and how far it may be off.
 */
#include "plan/stack.h"

#include <errno.h>

#include "base/base.h"
#include "plan/plan.h"

const struct pl_constants pl_default_constants = {
    .memory = 0.87,
    .near = 0.76,
    .far = 0.78,
    .attention = 0.69,
    .kernel_us = 3.9,
    .collective_us = 20,
    .hidden = 0.65,
    .tp_hidden = 0.44,
    .expert = 0.93,
    .jitter = 0.0097,
    .matrix = 1,
    .issue_us = 0,
    .message_us = 0,
    .pause_us = 0,
    .stall_us = 0,
    .spread = 0,
    .activation = 1,
    .gradients = 1,
    .logits = 1,
    .reserve_gib = 2,
};

#define AT(name) offsetof(struct pl_constants, name)
const struct pl_constant_name pl_constant_names[] = {
    /* min, max, prior, width, start, other */
    {"memory", AT(memory), 0.4, 1, 0.85, 0.06, 0.87, 0.15},
    {"near", AT(near), 0.1, 1, 0.76, 0.05, 0.70, 0.3},
    {"far", AT(far), 0.02, 1, 0.80, 0.10, 0.60, 0.6},
    {"attention", AT(attention), 0.2, 1, 0.60, 0.25, 0.65, 0.25},
    {"kernel_us", AT(kernel_us), 1, 40, 4, 0.3, 4, 0.3},
    {"collective_us", AT(collective_us), 5, 2000, 20, 0.3, 30, 0.8},
    {"hidden", AT(hidden), 0, 1, 0.80, 0.25, 0.50, 0.5},
    {"tp_hidden", AT(tp_hidden), 0, 1, 0.5, 0.4, 0.44, 0.4},
    {"expert", AT(expert), 0.3, 1, 0.9, 0.1, 0.85, 0.3},
    {"jitter", AT(jitter), 0.002, 0.05, 0.01, 0.5, 0.01, 0.5},
    {"matrix", AT(matrix), 0.3, 1.2, 1, 0, 0.93, 0.1},
    {"issue_us", AT(issue_us), 0, 500, 1, 0, 8, 0.8},
    {"message_us", AT(message_us), 0, 1e5, 1, 0, 50, 1.5},
    {"pause_us", AT(pause_us), 0, 1e4, 1, 0, 1, 2.5},
    {"stall_us", AT(stall_us), 0, 1e6, 1, 0, 60, 2},
    {"spread", AT(spread), 0, 1, 1, 0, 0.05, 1},
    {"gradients", AT(gradients), 0.5, 3, 1, 0, 1.1, 0.2},
    {"logits", AT(logits), 0.5, 6, 1, 0, 1.5, 0.4},
    {"activation", AT(activation), 0.5, 3, 1, 0, 1.05, 0.15},
    {"reserve_gib", AT(reserve_gib), 0.2, 30, 2, 0, 2, 1},
    {0},
};
#undef AT

double *pl_constant(struct pl_constants *constants, const struct pl_constant_name *name)
{
    return (double *)(void *)((char *)constants + name->offset);
}

double pl_constant_get(const struct pl_constants *constants, const struct pl_constant_name *name)
{
    return *(const double *)(const void *)((const char *)constants + name->offset);
}

const struct pl_constants *pl_constants_of(const struct pl_trainer *trainer)
{
    return trainer->stack.name[0] ? &trainer->stack.median : &pl_default_constants;
}

/* ---- how it runs --------------------------------------------------------- */

enum fact_kind { FACT_BOOL, FACT_INT, FACT_SHARE };

static const struct fact {
    const char *name;
    enum fact_kind kind;
    size_t offset;
} facts[] = {
#define FACT(name, kind)                                                                           \
    {                                                                                              \
#name, FACT_##kind, offsetof(struct pl_trainer, name)                                      \
    }
    FACT(flash, BOOL),         FACT(flash_units, INT),    FACT(tp_overlap, BOOL),
    FACT(tp_async, BOOL),      FACT(half_grads, BOOL),    FACT(summed_grads, BOOL),
    FACT(tensor_gather, BOOL), FACT(eager, BOOL),         FACT(selective_share, SHARE),
    FACT(eager_loss, BOOL),    FACT(fp8_delayed, BOOL),   FACT(fp8_current, BOOL),
    FACT(weighs_rows, BOOL),   FACT(whole_start, BOOL),   FACT(whole_reduce, BOOL),
    FACT(eager_mlp, BOOL),     FACT(whole_logits, BOOL),  FACT(cost_stages, BOOL),
    FACT(expert_streams, INT), FACT(eager_rotary, BOOL),  FACT(prunes_repeats, BOOL),
    FACT(fused_experts, BOOL), FACT(fp8_attention, BOOL), FACT(fp8_head, BOOL),
    FACT(fsdp_units, BOOL),    FACT(copies_kv, BOOL),     FACT(flat_step, BOOL),
    FACT(keeps_outputs, BOOL),
#undef FACT
};

static void *fact_at(struct pl_trainer *trainer, const struct fact *fact)
{
    return (char *)trainer + fact->offset;
}

static int parse_fact(struct pl_trainer *trainer, const struct fact *fact, const json_t *json,
                      struct err *error)
{
    void *at = fact_at(trainer, fact);

    switch (fact->kind) {
    case FACT_BOOL:
        *(bool *)at = false;
        return jx_get_bool(at, json, fact->name, error);
    case FACT_INT:
        *(int *)at = 0;
        return jx_get_int(at, json, fact->name, 0, 9, error);
    default:
        *(double *)at = 0;
        return jx_get_f64(at, json, fact->name, 0, 1, error);
    }
}

static int parse_runs(struct pl_trainer *trainer, const json_t *json, struct err *error)
{
    const char *names[ARRAY_LEN(facts) + 1] = {NULL};
    int r;

    for (size_t i = 0; i < ARRAY_LEN(facts); i++)
        names[i] = facts[i].name;
    if ((r = jx_keys(json, names, error)) < 0)
        return r;
    for (size_t i = 0; i < ARRAY_LEN(facts); i++)
        if ((r = parse_fact(trainer, &facts[i], json, error)) < 0)
            return r;
    return 0;
}

static json_t *fact_json(const struct pl_trainer *trainer, const struct fact *fact)
{
    const void *at = (const char *)trainer + fact->offset;

    return fact->kind == FACT_BOOL  ? json_boolean(*(const bool *)at)
           : fact->kind == FACT_INT ? json_integer(*(const int *)at)
                                    : json_real(*(const double *)at);
}

static bool fact_set(const struct pl_trainer *trainer, const struct fact *fact)
{
    const void *at = (const char *)trainer + fact->offset;

    return fact->kind == FACT_BOOL  ? *(const bool *)at
           : fact->kind == FACT_INT ? *(const int *)at != 0
                                    : *(const double *)at > 0;
}

/* ---- constants ----------------------------------------------------------- */

/* A number, or {"median", "deviation"}. */
static int parse_constant(struct pl_stack *stack, const json_t *json,
                          const struct pl_constant_name *name, struct err *error)
{
    static const char *const keys[] = {"median", "deviation", NULL};
    const json_t *one = json_object_get(json, name->name);
    double *median = pl_constant(&stack->median, name),
           *deviation = pl_constant(&stack->deviation, name);
    int r;

    if (!one)
        return 0;
    *deviation = 0;
    if (!json_is_object(one))
        return jx_get_f64(median, json, name->name, name->min, name->max, error);
    if ((r = jx_keys(one, keys, error)) < 0 || (r = jx_need(one, "median", error)) < 0 ||
        (r = jx_get_f64(median, one, "median", name->min, name->max, error)) < 0 ||
        (r = jx_get_f64(deviation, one, "deviation", 0, 10, error)) < 0) {
        char at[48];

        snprintf(at, sizeof(at), "/%s", name->name);
        return err_under(error, at);
    }
    return 0;
}

static int parse_constants(struct pl_stack *stack, const json_t *json, struct err *error)
{
    const char *names[PL_CONSTANTS + 1] = {NULL};
    int r;

    for (size_t i = 0; pl_constant_names[i].name; i++)
        names[i] = pl_constant_names[i].name;
    if ((r = jx_keys(json, names, error)) < 0)
        return r;
    for (size_t i = 0; pl_constant_names[i].name; i++)
        if ((r = parse_constant(stack, json, &pl_constant_names[i], error)) < 0)
            return r;
    return 0;
}

static json_t *constants_json(const struct pl_stack *stack)
{
    json_t *ret = json_object();

    for (const struct pl_constant_name *n = pl_constant_names; n->name; n++) {
        double median = pl_constant_get(&stack->median, n),
               deviation = pl_constant_get(&stack->deviation, n);

        json_object_set_new(ret, n->name,
                            deviation > 0
                                ? json_pack("{s:f s:f}", "median", median, "deviation", deviation)
                                : json_real(median));
    }
    return ret;
}

/* ---- the whole ----------------------------------------------------------- */

static int parse_object(struct pl_trainer *ret, const json_t *json,
                        const struct pl_trainer *trainer, int depth, struct err *error);

static int parse_preset(struct pl_trainer *ret, const char *name, const struct pl_trainer *trainer,
                        int depth, struct err *error)
{
    const char *text = pl_stack_preset(name), *near;
    AUTO_JSON *json = NULL;
    int r;

    if (!text) {
        near = str_nearest(name, pl_stack_presets());
        return err_set(error, -EINVAL, "unknown stack \"%.64s\"%s%s%s (partune presets stacks)",
                       name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    r = jx_parse(&json, text, strlen(text), error);
    return r < 0 ? r : parse_object(ret, json, trainer, depth, error);
}

static int parse_object(struct pl_trainer *ret, const json_t *json,
                        const struct pl_trainer *trainer, int depth, struct err *error)
{
    static const char *const keys[] = {"name", "like", "runs", "constants", "source", NULL};
    struct pl_trainer to = *trainer;
    json_t *runs = NULL, *constants = NULL;
    const char *like = NULL;
    int r;

    if (!json_is_object(json))
        return err_set(error, -EINVAL, "a stack is a preset's name or an object");
    to.stack = (struct pl_stack){.name = "custom", .median = pl_default_constants};
    if ((r = jx_keys(json, keys, error)) < 0 ||
        (r = jx_get_str(&like, json, "like", sizeof(to.stack.name) - 1, error)) < 0)
        return r;
    if (like && depth > 4)
        return err_at(error, -ELOOP, "/like", "\"like\" refers back to this stack");
    if (like && (r = parse_preset(&to, like, trainer, depth + 1, error)) < 0)
        return err_under(error, "/like");
    if ((r = jx_copy_str(to.stack.name, sizeof(to.stack.name), json, "name", error)) < 0 ||
        (r = jx_get_object(&runs, json, "runs", error)) < 0 ||
        (r = jx_get_object(&constants, json, "constants", error)) < 0)
        return r;
    if (runs && (r = parse_runs(&to, runs, error)) < 0)
        return err_under(error, "/runs");
    if (constants && (r = parse_constants(&to.stack, constants, error)) < 0)
        return err_under(error, "/constants");
    *ret = to;
    return 0;
}

int pl_stack_parse(struct pl_trainer *ret, const json_t *json, const struct pl_trainer *trainer,
                   struct err *error)
{
    if (json_is_string(json))
        return parse_preset(ret, json_string_value(json), trainer, 0, error);
    return parse_object(ret, json, trainer, 0, error);
}

int pl_stack_of(struct pl_trainer *ret, const json_t *body, const struct pl_trainer *trainer,
                struct err *error)
{
    const json_t *stack = json_object_get(body, "stack");

    *ret = (struct pl_trainer){0};
    if (!stack || json_is_null(stack))
        return 0;
    if (trainer->bundled)
        return err_at(error, -EINVAL, "/stack",
                      "trainer %s takes no \"stack\": only trainers on GPUs have one",
                      trainer->name);
    return pl_stack_parse(ret, stack, trainer, error) < 0 ? err_under(error, "/stack") : 0;
}

json_t *pl_stack_json(const struct pl_trainer *trainer)
{
    struct pl_stack stack = trainer->stack;
    json_t *runs = json_object();

    if (!stack.name[0])
        stack = (struct pl_stack){.name = "shipped", .median = pl_default_constants};
    for (size_t i = 0; i < ARRAY_LEN(facts); i++)
        if (fact_set(trainer, &facts[i]))
            json_object_set_new(runs, facts[i].name, fact_json(trainer, &facts[i]));
    return json_pack("{s:s s:o s:o}", "name", stack.name, "runs", runs, "constants",
                     constants_json(&stack));
}
