/* Megatron-LM's arguments about how tokens are dispatched to experts, and about CUDA graphs. */
#include "tuner/export/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Of dispatchers: not one by itself; the index of the older one that sends whole sequences. */
enum { FLEXIBLE = -1, SEQUENCES = 3 };

/* The index of VALUE in WORDS into *RET. */
static int one_of(int *ret, const char *flag, const char *value, const char *const *words,
                  struct err *error)
{
    AUTO_STR list = {0};

    for (int i = 0; words[i]; i++) {
        if (str_eq(words[i], value)) {
            *ret = i;
            return 0;
        }
        str_addf(&list, "%s`%s`", i ? ", " : "", words[i]);
    }
    return err_set(error, -EINVAL, "%s must be one of %s, not `%.40s`", flag, str_text(&list),
                   value ? value : "");
}

static int implementation(struct tn_dispatch *dispatch, const char *flag, const char *value,
                          struct err *error)
{
    static const char *const words[] = {"none", "local", "transformer_engine", "full_iteration",
                                        NULL};
    static const int graphs[] = {PL_GRAPHS_NONE, PL_GRAPHS_MODULES, PL_GRAPHS_MODULES,
                                 PL_GRAPHS_ITERATION};
    int which, r = one_of(&which, flag, value, words, error);

    if (r == 0)
        dispatch->graphs = graphs[which];
    return r;
}

int tn_megatron_dispatch(bool *ret_known, struct tn_dispatch *dispatch, const char *flag,
                         const char *value, struct err *error)
{
    static const char *const types[] = {"alltoall", "allgather", "flex", "alltoall_seq", NULL};
    static const char *const backends[] = {"deepep", "hybridep", "ncclep", NULL};

    *ret_known = true;
    if (str_eq(flag, "--moe-token-dispatcher-type"))
        return one_of(&dispatch->type, flag, value, types, error);
    if (str_eq(flag, "--moe-flex-dispatcher-backend"))
        return one_of(&dispatch->backend, flag, value, backends, error);
    if (str_eq(flag, "--cuda-graph-impl"))
        return implementation(dispatch, flag, value, error);
    *ret_known = str_eq(flag, "--cuda-graph-modules") || str_eq(flag, "--cuda-graph-scope");
    if (*ret_known)
        snprintf(dispatch->modules, sizeof(dispatch->modules), " %.90s ", value ? value : "");
    return 0;
}

static bool names(const struct tn_dispatch *dispatch, const char *module)
{
    char word[32];

    snprintf(word, sizeof(word), " %s ", module);
    return strstr(dispatch->modules, word);
}

/* By modules a layout means what its exporter writes. */
static void compare_modules(struct tn_imported *ret, const struct tn_dispatch *dispatch)
{
    static const char *const known[] = {"attn", "mlp", "moe_router", "moe_preprocess"};
    size_t words = 0, met = 0;

    for (const char *at = dispatch->modules; *at; at++)
        words += *at != ' ' && (at == dispatch->modules || at[-1] == ' ');
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        met += names(dispatch, known[i]);
    if (words && !names(dispatch, "full") && (met < words || !names(dispatch, "attn")))
        tn_finding_add(&ret->ignored, "--cuda-graph-modules",
                       "%.60s: taken as attention, dense feed-forward and router",
                       dispatch->modules + 1);
}

void tn_megatron_dispatched(struct tn_imported *ret, const struct tn_dispatch *dispatch,
                            const struct pl_model *model)
{
    static const int types[] = {PL_DISPATCH_ALLTOALL, PL_DISPATCH_ALLGATHER, FLEXIBLE,
                                PL_DISPATCH_ALLTOALL};
    static const int flexible[] = {PL_DISPATCH_DEEPEP, PL_DISPATCH_HYBRIDEP, PL_DISPATCH_HYBRIDEP};
    struct pl_layout *l = &ret->layout;
    bool flex;

    assert(dispatch->type >= 0 && dispatch->type < (int)ARRAY_LEN(types));
    flex = types[dispatch->type] == FLEXIBLE;
    assert(dispatch->backend >= 0 && dispatch->backend < (int)ARRAY_LEN(flexible));
    l->cuda_graphs = dispatch->graphs;
    if (names(dispatch, "full_iteration"))
        l->cuda_graphs = PL_GRAPHS_ITERATION;
    else if (l->cuda_graphs == PL_GRAPHS_MODULES)
        compare_modules(ret, dispatch);
    if (!pl_model_is_moe(model) || l->ep == 1)
        return;
    l->moe_dispatch = flex ? flexible[dispatch->backend] : types[dispatch->type];
    if (flex && dispatch->backend == 2)
        tn_finding_add(&ret->ignored, "--moe-flex-dispatcher-backend",
                       "ncclep taken as hybridep, which sends the same data");
    if (dispatch->type == SEQUENCES)
        tn_finding_add(&ret->ignored, "--moe-token-dispatcher-type",
                       "alltoall_seq taken as alltoall, which sends the same data");
}
