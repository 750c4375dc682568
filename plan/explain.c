/* Why a space is empty, and the smallest change that would fill it. */
#include "plan/space_walk.h"

#include <math.h>

#include "base/base.h"
#include "plan/legal.h"

enum {
    LOOKED_AT = 20000, /* candidates whose broken rules are counted, */
    LEAST = 1024,      /* and as many where patience is over */
    ADMITTED = 200000, /* layouts that a wider space is asked for the nearest of */
    BATCHES = 256,     /* neighboring global batches that are tried */
    SHOWN = 8,         /* values of a key that a change names */
    MAX_RULES = 32
};

struct tally {
    const struct pl_problem *problem;
    const struct pl_patience *patience;
    size_t candidates, broken[MAX_RULES];
    struct pl_layout best; /* fewest broken rules */
    struct pl_verdict verdict;
};

static bool count_rules(void *arg, const struct pl_layout *layout)
{
    struct tally *t = arg;
    const struct pl_problem *problem = t->problem;
    struct pl_verdict verdict;
    const char *const *names = pl_rule_names();

    pl_layout_check(&verdict, problem, layout);
    for (int i = 0; names[i] && i < MAX_RULES; i++)
        for (int j = 0; j < verdict.count; j++)
            if (!strcmp(names[i], verdict.v[j].rule)) {
                t->broken[i]++;
                break;
            }
    if (!t->candidates++ || verdict.count < t->verdict.count) {
        t->best = *layout;
        t->verdict = verdict;
    }
    return t->candidates < LOOKED_AT && (t->candidates % LEAST || !pl_patience_over(t->patience));
}

struct nearest {
    const struct pl_space_axis *axis; /* what was allowed */
    const struct pl_layout_key *key;
    double distance;
    int value;
    bool found;
    size_t seen;
};

static bool keep_nearest(void *arg, const struct pl_layout *layout)
{
    struct nearest *n = arg;
    int value = pl_layout_get(layout, n->key);
    double d = INFINITY;

    for (int i = 0; i < n->axis->n; i++)
        d = fmin(d, fabs(log2(1.0 + value) - log2(1.0 + n->axis->value[i])));
    if (!n->found || d < n->distance) {
        n->distance = d;
        n->value = value;
        n->found = true;
    }
    return ++n->seen < ADMITTED;
}

static void add_value(struct str *out, const struct pl_layout_key *key, int value)
{
    AUTO_JSON *json = pl_layout_value_json(key, value);
    AUTO_FREE char *text = json_dumps(json, JSON_ENCODE_ANY);

    str_add(out, text);
}

/* `"tp": [4] instead of [3, 5]`: what to write, as the space is written, and what for. */
static void describe(struct str *out, const struct pl_layout_key *key, int value,
                     const struct pl_space_axis *given)
{
    str_addf(out, "\"%s\": [", key->name);
    add_value(out, key, value);
    str_add(out, "]");
    if (!given->given)
        return;
    for (int i = 0; i < given->n && i < SHOWN; i++) {
        str_add(out, i ? ", " : " instead of [");
        add_value(out, key, given->value[i]);
    }
    if (given->n)
        str_add(out, given->n > SHOWN ? ", …]" : "]");
}

/* Another value of one key; the nearest of all. */
static bool one_key(struct str *out, const struct pl_space *space, const struct pl_problem *problem,
                    const struct pl_patience *patience)
{
    AUTO_FREE struct pl_space *wide = mem_alloc(sizeof(*wide));
    struct nearest best = {0};

    for (int key = 0; key < PL_LAYOUT_KEYS; key++) {
        struct nearest n = {.axis = &space->axis[key], .key = &pl_layout_keys[key]};

        if (!space->axis[key].given && key != PL_KEY_WORLD)
            continue;
        *wide = *space;
        if (pl_layout_keys[key].part == PL_DERIVED)
            wide->axis[key].n = 0;
        else
            pl_space_widen(wide, (enum pl_key)key, problem);
        pl_space_visit_all(NULL, wide, problem, patience, keep_nearest, &n);
        if (n.found && (!best.found || n.distance < best.distance))
            best = n;
    }
    if (best.found)
        describe(out, best.key, best.value, best.axis);
    return best.found;
}

static bool stop_at_first(void *arg, const struct pl_layout *layout)
{
    *(struct pl_layout *)arg = *layout;
    return false;
}

/* Does SPACE have a legal layout? One of them into *RET. */
static bool has_any(struct pl_layout *ret, const struct pl_space *space,
                    const struct pl_problem *problem, const struct pl_patience *patience)
{
    size_t n;

    pl_space_visit_all(&n, space, problem, patience, stop_at_first, ret);
    return n > 0;
}

static bool other_batch(struct str *out, const struct pl_space *space,
                        const struct pl_problem *problem, const struct pl_patience *patience)
{
    AUTO_FREE struct pl_space *free_space = mem_alloc(sizeof(*free_space));
    const struct pl_space_axis *axis = &space->axis[PL_KEY_GLOBAL_BATCH];
    struct pl_workload workload = *problem->workload;
    struct pl_problem q = *problem;
    struct pl_layout layout;

    q.workload = &workload;
    workload.nbatches = 0;
    *free_space = *space;
    free_space->axis[PL_KEY_GLOBAL_BATCH] = (struct pl_space_axis){.n = 1}; /* the only one */
    for (int i = 0; i < 2 * BATCHES * axis->n; i++) {
        int value = axis->value[i % axis->n], step = i / axis->n;
        int batch = value ? value : problem->workload->global_batch;

        workload.global_batch = batch + (step % 2 ? -1 : 1) * (step / 2 + 1);
        if (workload.global_batch < 1 || !has_any(&layout, free_space, &q, patience))
            continue;
        str_addf(out, "\"global_batch\": %d instead of %d", workload.global_batch, batch);
        return true;
    }
    return false;
}

/* Two keys at once: the first pair that helps, with the layout that it admits. */
static bool two_keys(struct str *out, const struct pl_space *space,
                     const struct pl_problem *problem, const struct pl_patience *patience)
{
    AUTO_FREE struct pl_space *wide = mem_alloc(sizeof(*wide));
    struct pl_layout layout;

    for (int a = 0; a < PL_LAYOUT_KEYS; a++)
        for (int b = a + 1; b < PL_LAYOUT_KEYS; b++) {
            if (!space->axis[a].given || !space->axis[b].given ||
                pl_layout_keys[a].part == PL_DERIVED || pl_layout_keys[b].part == PL_DERIVED)
                continue;
            *wide = *space;
            pl_space_widen(wide, (enum pl_key)a, problem);
            pl_space_widen(wide, (enum pl_key)b, problem);
            if (!has_any(&layout, wide, problem, patience))
                continue;
            describe(out, &pl_layout_keys[a], pl_layout_get(&layout, &pl_layout_keys[a]),
                     &space->axis[a]);
            str_add(out, " and ");
            describe(out, &pl_layout_keys[b], pl_layout_get(&layout, &pl_layout_keys[b]),
                     &space->axis[b]);
            return true;
        }
    return false;
}

/* The rules by how many candidates they exclude, most first. */
static void say_rules(struct str *out, struct tally *tally)
{
    const char *const *names = pl_rule_names();

    str_add(out, "; broken rules:");
    for (const char *comma = "";; comma = ",") {
        int most = 0;

        for (int i = 1; names[i] && i < MAX_RULES; i++)
            if (tally->broken[i] > tally->broken[most])
                most = i;
        if (!tally->broken[most])
            return;
        str_addf(out, tally->broken[most] == tally->candidates ? "%s %s (all)" : "%s %s (%zu)",
                 comma, names[most], tally->broken[most]);
        tally->broken[most] = 0;
    }
}

static bool any_given(const struct pl_space *space)
{
    for (int key = 0; key < PL_LAYOUT_KEYS; key++)
        if (space->axis[key].given)
            return true;
    return false;
}

/* The change that would admit a layout, as far as PATIENCE allows to look for it. */
static void say_change(struct str *out, const struct pl_space *space,
                       const struct pl_problem *problem, const struct pl_patience *patience)
{
    str_add(out, "; smallest change: ");
    if (one_key(out, space, problem, patience) || other_batch(out, space, problem, patience) ||
        two_keys(out, space, problem, patience))
        return;
    str_add(out, pl_patience_over(patience) ? "not found within the time limit"
                 : any_given(space)
                     ? "no change of one or two keys helps; omit \"space\" to search every value"
                     : "no other device count and no nearby global_batch helps");
}

bool pl_space_explain(char *buf, size_t size, const struct pl_space *space,
                      const struct pl_problem *problem, const struct pl_patience *patience)
{
    struct tally t = {.problem = problem, .patience = patience};
    AUTO_STR out = {0};
    char text[160], rules[480];
    struct pl_layout layout;
    bool all;

    buf[0] = '\0';
    if (pl_model_unsupported(buf, size, problem)) /* no space helps */
        return true;
    if (has_any(&layout, space, problem, patience))
        return false;
    all = pl_space_product(NULL, space, problem, 0, NULL, count_rules, &t);
    str_addf(&out, "no legal layout among %s%zu candidates", all ? "" : "the first ", t.candidates);
    say_change(&out, space, problem, patience);
    if (t.candidates)
        str_addf(&out, "; nearest: %s (%s)", pl_layout_text(text, &t.best),
                 pl_verdict_text(rules, sizeof(rules), &t.verdict));
    say_rules(&out, &t);
    snprintf(buf, size, "%s", str_text(&out));
    return true;
}
