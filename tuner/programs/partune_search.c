/*
 * partune-search CAMPAIGN.json: the search engine alone, as JSON lines on stdin and stdout.
 *
 * One request a line, one answer a line, in order; docs/reference/protocol.md has them. What is
 * refused is answered with
 * {"op":"error","pointer":…,"detail":…} and changes nothing. Ends at end of input with status 0; a
 * campaign that cannot be searched ends it at once with an error line on stdout, a message on
 * stderr and status 65.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/base.h"
#include "search/search.h"

enum {
    EX_OK = 0,
    EX_USAGE = 2,
    EX_REFUSED = 65,
    EX_IO = 70,
    MAX_LINE = 1 << 20,
    MAX_FILE = 16 << 20,
    MAX_LAYOUTS_FILE = 1 << 30
};

struct options {
    const char *profile, *layouts;
    bool help, manual, version;
};

static const struct opt option_table[] = {
    {.name = "profile",
     .type = OPT_STR,
     .offset = offsetof(struct options, profile),
     .metavar = "FILE",
     .help = "measured profile of this machine, for the cluster \"local\""},
    {.name = "layouts",
     .type = OPT_STR,
     .offset = offsetof(struct options, layouts),
     .metavar = "FILE",
     .help = "search only these layouts of the space, one JSON object per line"},
    {.name = "layouts",
     .type = OPT_STR,
     .offset = offsetof(struct options, layouts),
     .metavar = "FILE",
     .help = "search only these layouts, one JSON object per line, instead of the whole space"},
    {.name = "help",
     .letter = 'h',
     .type = OPT_FLAG,
     .offset = offsetof(struct options, help),
     .help = "print this help and exit"},
    {.name = "manual",
     .type = OPT_FLAG,
     .offset = offsetof(struct options, manual),
     .help = "print the manual page in roff and exit"},
    {.name = "version",
     .type = OPT_FLAG,
     .offset = offsetof(struct options, version),
     .help = "print the version and exit"},
};

static const struct opt_manual manual = {
    .section = 1,
    .summary = "the search engine alone, as JSON lines",
    .description = "Reads one request per line from standard input and writes one response per "
                   "line, so that any program can tune anything without the daemon. Requests ask "
                   "what to try next, tell a result, or ask for the best so far:\n"
                   ".nf\n{\"op\":\"ask\"}\n"
                   "{\"op\":\"tell\",\"id\":1,\"status\":\"ok\",\"tokens_per_s\":51200}\n"
                   "{\"op\":\"best\"}\n{\"op\":\"importance\"}\n.fi\n"
                   "reference/protocol.md among the installed documents describes them. An "
                   "invalid request gets an error and changes nothing.",
    .more =
        ".SH EXIT STATUS\n0 end of input, 2 wrong usage, 65 the campaign cannot be searched, 70 "
        "an answer could not be written.\n"
        ".SH SEE ALSO\n.BR partune (1),\n.BR partuned (8)\n",
};

/* --help and the like: is nothing else to be done? */
static bool told(const struct opt_set *set, const struct options *options)
{
    if (options->help)
        opt_help(set, stdout);
    else if (options->manual)
        opt_manual(set, &manual, stdout);
    else if (options->version)
        printf("partune-search %s\n", PACKAGE_VERSION);
    else
        return false;
    return true;
}

/* ---- answers ------------------------------------------------------------- */

static json_t *refusal(const struct err *error)
{
    return json_pack("{s:s, s:s, s:s}", "op", "error", "pointer", error->pointer, "detail",
                     error->text);
}

/* What a trial of a smaller problem runs: what differs from the campaign, and its layout. */
static json_t *run_json(const struct se_search *search, const struct se_trial *trial)
{
    struct pl_reduced reduced;

    se_trial_run(&reduced, search, trial);
    return pl_reduced_json(&reduced);
}

static json_t *trial_json(const struct se_search *search, const struct se_trial *trial)
{
    json_t *v = json_pack("{s:s, s:i, s:o, s:{s:f, s:f, s:f}, s:s}", "op", "trial", "id", trial->id,
                          "layout", se_layout_json(se_search_spec(search), &trial->layout),
                          "predicted", "tokens_per_s", trial->predicted.tokens_per_s,
                          "memory_bytes", trial->predicted.memory_bytes, "p_fits",
                          trial->predicted.p_fits, "why", trial->why);

    if (trial->repeat_of)
        json_object_set_new(v, "repeat_of", json_integer(trial->repeat_of));
    if (trial->fidelity) {
        json_object_set_new(v, "fidelity", json_integer(trial->fidelity));
        json_object_set_new(v, "run", run_json(search, trial));
    }
    return v;
}

/* {"op": NAME, ...members of OWNED_V}. */
static json_t *named(const char *name, json_t *owned_v)
{
    json_t *v = json_pack("{s:s}", "op", name);

    json_object_update(v, owned_v);
    json_decref(owned_v);
    return v;
}

/* ---- requests ------------------------------------------------------------ */

static int do_ask(json_t **ret, struct se_search *search, const json_t *request, struct err *error)
{
    struct se_trial t;

    (void)request;
    (void)error;
    switch (se_ask(&t, search)) {
    case SE_TRIAL:
        *ret = trial_json(search, &t);
        break;
    case SE_WAIT:
        *ret = json_pack("{s:s}", "op", "wait");
        break;
    case SE_DONE:
        *ret = json_pack("{s:s, s:s}", "op", "done", "reason", se_done_reason(search));
        break;
    }
    return 0;
}

static int do_tell(json_t **ret, struct se_search *search, const json_t *request, struct err *error)
{
    int r = se_tell_json(search, request, error);

    if (r == 0)
        *ret = json_pack("{s:s}", "op", "ok");
    return r;
}

static int do_best(json_t **ret, struct se_search *search, const json_t *request, struct err *error)
{
    json_t *best = se_best_json(search);

    (void)request;
    if (!best)
        return err_at(error, -ENOENT, "", "no trial has succeeded yet");
    *ret = named("best", best);
    return 0;
}

static int do_importance(json_t **ret, struct se_search *search, const json_t *request,
                         struct err *error)
{
    json_t *shares, *effects;

    (void)request;
    (void)error;
    se_importance_json(&shares, &effects, search);
    json_decref(effects);
    *ret = named("importance", shares);
    return 0;
}

static int do_pareto(json_t **ret, struct se_search *search, const json_t *request,
                     struct err *error)
{
    (void)request;
    (void)error;
    *ret = json_pack("{s:s, s:o}", "op", "pareto", "front", se_pareto_json(search));
    return 0;
}

static int do_diagnosis(json_t **ret, struct se_search *search, const json_t *request,
                        struct err *error)
{
    (void)request;
    (void)error;
    *ret = named("diagnosis", se_diagnosis_json(search));
    return 0;
}

static int do_surface(json_t **ret, struct se_search *search, const json_t *request,
                      struct err *error)
{
    const char *x = NULL, *y = NULL;
    json_t *v;
    int r;

    if ((r = jx_need(request, "x", error)) < 0 ||
        (r = jx_get_str(&x, request, "x", 64, error)) < 0 ||
        (r = jx_need(request, "y", error)) < 0 ||
        (r = jx_get_str(&y, request, "y", 64, error)) < 0 ||
        (r = se_surface_json(&v, search, x, y, error)) < 0)
        return r;
    *ret = named("surface", v);
    return 0;
}

static const char *const plain_keys[] = {"op", NULL};
static const char *const surface_keys[] = {"op", "x", "y", NULL};

static const struct {
    const char *name;
    int (*run)(json_t **ret, struct se_search *search, const json_t *request, struct err *error);
    const char *const *keys; /* of the request; NULL: the operation looks itself */
} ops[] = {
    {"ask", do_ask, plain_keys},           {"tell", do_tell, NULL},
    {"best", do_best, plain_keys},         {"importance", do_importance, plain_keys},
    {"pareto", do_pareto, plain_keys},     {"diagnosis", do_diagnosis, plain_keys},
    {"surface", do_surface, surface_keys},
};

static int dispatch(json_t **ret, struct se_search *search, const json_t *request,
                    struct err *error)
{
    const char *names[ARRAY_LEN(ops) + 1] = {NULL};
    int op = 0, r;

    if (!json_is_object(request))
        return err_at(error, -EINVAL, "", "a request is an object");
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        names[i] = ops[i].name;
    if ((r = jx_need(request, "op", error)) < 0 ||
        (r = jx_get_enum(&op, request, "op", names, error)) < 0)
        return r;
    if (ops[op].keys && (r = jx_keys(request, ops[op].keys, error)) < 0)
        return r;
    return ops[op].run(ret, search, request, error);
}

static json_t *answer(struct se_search *search, const char *line, size_t size)
{
    struct err e = {0};
    AUTO_JSON *request = NULL;
    json_t *v = NULL;

    if (size > MAX_LINE)
        err_at(&e, -EFBIG, "", "a line of %zu bytes is longer than %d", size, MAX_LINE);
    else if (jx_parse(&request, line, size, &e) == 0 && dispatch(&v, search, request, &e) == 0)
        return v;
    return refusal(&e);
}

/* ---- serving ------------------------------------------------------------- */

static int say(json_t *owned_v)
{
    char *text = jx_dump(owned_v);
    int r = printf("%s\n", text) < 0 || fflush(stdout) != 0 ? -errno : 0;

    free(text);
    json_decref(owned_v);
    return r;
}

static int serve(struct se_search *search)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = getline(&line, &cap, stdin)) >= 0) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        if (n > 0)
            r = say(answer(search, line, (size_t)n));
    }
    free(line);
    return r == 0 ? EX_OK : EX_IO;
}

static int load_profile(struct pl_cluster *ret, const char *path, struct err *error)
{
    AUTO_JSON *v = NULL;
    int r = jx_load(&v, path, MAX_FILE, error);

    if (r == 0)
        r = pl_cluster_parse(ret, v, NULL, error);
    return r < 0 ? err_wrap(error, "profile %s", path) : 0;
}

/* ---- a list of layouts --------------------------------------------------- */

struct layouts {
    struct pl_layout *layout; /* (cap) */
    size_t n, cap;
};

/* The layout of LINE, which must be a legal member of the campaign's space. */
static int read_layout(struct pl_layout *ret, const char *line, size_t size,
                       const struct se_spec *spec, struct err *error)
{
    AUTO_JSON *v = NULL;
    struct pl_problem problem;
    struct pl_verdict verdict;
    char text[400];
    int r = jx_parse(&v, line, size, error);

    if (r == 0)
        r = se_layout_parse(ret, spec, v, error);
    if (r < 0)
        return r;
    problem = se_layout_problem(spec, ret);
    if (!pl_layout_check(&verdict, &problem, ret))
        return err_set(error, -EINVAL, "%s", pl_verdict_text(text, sizeof(text), &verdict));
    if (!pl_space_has(se_space_of(spec, ret), &problem, ret))
        return err_set(error, -EINVAL, "%s is not in the campaign's space",
                       se_layout_text(text, spec, ret));
    return 0;
}

/* Order by the values of the keys. */
static int by_keys(const void *left, const void *right)
{
    const struct pl_layout *x = left, *y = right;

    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int a = pl_layout_get(x, key), b = pl_layout_get(y, key);

        if (a != b)
            return a < b ? -1 : 1;
    }
    return x->cluster - y->cluster;
}

/* Sorted, and each once: the search does not depend on the order of the file. */
static void make_distinct(struct layouts *list)
{
    size_t kept = 0;

    qsort(list->layout, list->n, sizeof(*list->layout), by_keys);
    for (size_t i = 0; i < list->n; i++)
        if (kept == 0 || !pl_layout_equal(&list->layout[kept - 1], &list->layout[i]))
            list->layout[kept++] = list->layout[i];
    list->n = kept;
}

static int read_layouts(struct layouts *ret, const char *path, const struct se_spec *spec,
                        struct err *error)
{
    AUTO_FREE char *text = NULL;
    char *rest, *line;
    size_t size;
    int number = 0, r = file_read_all(&text, &size, path, MAX_LAYOUTS_FILE, error);

    for (rest = text; r == 0 && (line = strsep(&rest, "\n"));) {
        number++;
        if (line[strspn(line, " \t\r")] == 0)
            continue;
        MEM_GROW(ret->layout, ret->n, ret->cap);
        r = read_layout(&ret->layout[ret->n++], line, strlen(line), spec, error);
        if (r < 0)
            return err_wrap(error, "%s:%d", path, number);
    }
    if (r == 0 && ret->n == 0)
        return err_set(error, -EINVAL, "%s has no layouts", path);
    make_distinct(ret);
    return r;
}

/* ---- the program --------------------------------------------------------- */

static int search_of(struct se_search **ret, const struct se_spec *spec, const char *path,
                     struct err *error)
{
    struct layouts list = {0};
    int r;

    if (!path)
        return se_search_new(ret, spec, error);
    r = read_layouts(&list, path, spec, error);
    if (r == 0)
        r = se_search_new_over(ret, spec, list.layout, list.n, error);
    free(list.layout);
    return r;
}

static int open_search(struct se_search **ret, const char *path, const struct options *options,
                       struct err *error)
{
    AUTO_JSON *campaign = NULL;
    struct pl_cluster local;
    struct se_spec spec;
    int r;

    if (options->profile && (r = load_profile(&local, options->profile, error)) < 0)
        return r;
    if ((r = jx_load(&campaign, path, MAX_FILE, error)) < 0)
        return r;
    if ((r = se_spec_parse(&spec, campaign, options->profile ? &local : NULL, error)) < 0)
        return r;
    r = search_of(ret, &spec, options->layouts, error);
    se_spec_done(&spec);
    return r;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct opt_set set = {.program = "partune-search",
                          .usage = "partune-search [options] CAMPAIGN.json",
                          .section = "search",
                          .table = option_table,
                          .count = ARRAY_LEN(option_table),
                          .values = &o};
    AUTO(se_search) *s = NULL;
    struct err e = {0};
    int operands = 0, status;

    opt_init(&set);
    if (opt_from_argv(&operands, &set, argc, argv, 0, &e) == 0 && told(&set, &o)) {
        status = EX_OK;
    } else if (e.text[0] || operands != 1) {
        fprintf(stderr, "partune-search: %s\n",
                e.text[0] ? e.text : "one campaign file is required");
        status = EX_USAGE;
    } else if (open_search(&s, argv[1], &o, &e) < 0) {
        fprintf(stderr, "partune-search: %s%s%s\n", e.pointer, e.pointer[0] ? ": " : "", e.text);
        say(refusal(&e));
        status = EX_REFUSED;
    } else {
        status = serve(s);
    }
    opt_done(&set);
    return status;
}
