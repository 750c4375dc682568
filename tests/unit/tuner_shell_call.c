/* Job scripts of which nothing says how they are called: where their layout follows from a call by
 * their name alone they are read so, and said to be; where it does not they are refused. */
#include "tests/unit/unit.h"

#include "tests/unit/import_text.h"
#include "tuner/export/export.h"

static const char run[] = "torchrun pretrain_gpt.py --micro-batch-size 1 "
                          "--tensor-model-parallel-size $TP";

static int import(struct tn_imported *ret, const char *script, const char *more, const char *call,
                  struct err *e)
{
    AUTO_FREE char *text = mem_printf("%s%s%s\n", script, run, more);
    const struct tn_job job = {.source = "megatron", .text = text, .call = call, .world = 32};
    AUTO_JSON *v = json_string("llama-8b");
    struct pl_model m;

    if (pl_model_parse(&m, v, e) < 0)
        fail_msg("llama-8b: %s", e->text);
    return tn_import(ret, &job, &m, e);
}

static bool says(const struct tn_imported *out, const char *setting, const char *detail)
{
    for (int i = 0; i < out->ignored.count; i++)
        if (str_eq(out->ignored.v[i].setting, setting) && strstr(out->ignored.v[i].detail, detail))
            return true;
    return false;
}

/* Each is tp 4 without arguments, and with none of its variables set before. */
static void options_and_defaults_are_read_as_without_arguments(void **state)
{
    static const char *const scripts[] = {
        "TP=4\nwhile [[ $# -gt 0 ]]; do\n    key=\"$1\"\n    case $key in\n        --tp) "
        "TP=\"$2\"; "
        "shift 2 ;;\n        *) echo unknown $1; exit 1 ;;\n    esac\ndone\n",
        "TP=4\nfor a in \"$@\"; do\n    if [[ $a == --tp* ]]; then TP=${a#*=}; fi\ndone\n",
        "while getopts t: o; do TP=$OPTARG; done\nTP=${TP:-4}\n",
        "[ -z \"$TP\" ] && TP=4\n",
        "if [[ -v TP ]]; then TP=$((TP * 2)); else TP=4; fi\n",
        "TP=4\n[ -n \"$BIG\" ] && TP=8\n[ -z \"$HOME\" ] && BIG=1\n",
        "if [ -z \"$1\" ]; then TP=4; else TP=$1; fi\n",
        "TP=4\n[ $# -ge 1 ] && TP=$1\n",
        "f() {\n    TP=${1:-8}\n    [ -n \"$1\" ] || TP=4\n}\nf\n[ $# -gt 0 ] && TP=1\n",
        "set -eu\nTP=4\n[ $# = 0 ] || TP=$1\n[ -z \"${MODE:-}\" ] || TP=1\nMODE=train\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, scripts[i], "", NULL, &e) < 0)
            fail_msg("%s: %s", scripts[i], e.text);
        if (out.layout.tp != 4)
            fail_msg("%s: tp %d", scripts[i], out.layout.tp);
        if (!says(&out, "call", "without arguments"))
            fail_msg("%s: nothing says how it is called", scripts[i]);
    }
}

/* What the script says in any case needs no assumption. */
static void what_a_call_does_not_decide_is_read_without_one(void **state)
{
    static const char *const scripts[] = {"TP=${TP:-4}\n", "TP=${1:-4}\n",
                                          "[ $# -gt 0 ] && LOG=$1\nTP=4\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, scripts[i], " \"$@\"", NULL, &e) < 0)
            fail_msg("%s: %s", scripts[i], e.text);
        assert_int_equal(out.layout.tp, 4);
        assert_false(says(&out, "call", ""));
    }
}

/* A word that is a variable alone is no word where the variable is empty. */
static void a_variable_that_nothing_sets_is_no_argument(void **state)
{
    static const char *const more[] = {" $MOE_ARGS --bf16", " --bf16 ${MOE_ARGS}",
                                       " --bf16 ${MOE_ARGS[@]}", " --lr 1e-4 $MOE_ARGS --bf16"};
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        if (import(&out, "TP=2\n", more[i], NULL, &e) < 0)
            fail_msg("%s: %s", more[i], e.text);
        assert_int_equal(out.layout.tp, 2);
        assert_int_equal(out.layout.precision, PL_BF16);
        assert_true(says(&out, "call", "without arguments"));
        if (!says(&out, "$MOE_ARGS", "taken as empty") &&
            !says(&out, "${MOE_ARGS}", "taken as empty") &&
            !says(&out, "${MOE_ARGS[@]}", "taken as empty"))
            fail_msg("%s: nothing says that it is empty", more[i]);
    }
    assert_int_equal(import(&out, "TP=2\nA=\"--bf16 $MORE\"\nC=\"$A --seed 1\"\n", " $C", NULL, &e),
                     0);
    assert_true(says(&out, "$MORE", "taken as empty"));
}

static void what_only_its_caller_knows_is_refused(void **state)
{
    static const struct {
        const char *script, *more, *call, *named;
    } cases[] = {
        {"TP=$1\n", "", NULL, "`$1` is an argument of the script"},
        {"[ \"$1\" = big ] && TP=8 || TP=4\n", "", NULL, "`$TP` is set under a condition"},
        {"set -- $(hostname)\n[ -z \"$1\" ] && TP=8 || TP=2\n", "", NULL, "under a condition"},
        {"f() { X=$1; }\nf $Y\n[ -z \"$X\" ] && TP=8 || TP=2\n", "", NULL, "under a condition"},
        {"X=$MODE\n[ \"$X\" = 8 ] && TP=8 || TP=4\n", "", NULL, "under a condition"},
        /* Slurm sets it, and a login this */
        {"[ -z \"$SLURM_NNODES\" ] && SLURM_NNODES=2\nTP=$SLURM_NNODES\n", "", NULL,
         "under a condition"},
        {"TP=2\n[ -z \"$USER\" ] && TP=8\nUSER=me\n", "", NULL, "under a condition"},
        /* may be set by what is read from elsewhere */
        {". ./site.sh\n[ -z \"$TP\" ] && TP=4\n", "", NULL, "`$TP` is set under a condition"},
        {". ./site.sh\n[ -z \"$TP\" ] && TP=4\n", "", "bash job.sh", "under a condition"},
        {"eval \"$(cat site)\"\n[ -z \"$TP\" ] && TP=4\n", "", NULL, "under a condition"},
        {"TP=2\n. ./site.sh\n", " --bf16 $MORE", NULL, "`$MORE` is not set"},
        /* ends the script */
        {"set -eu\n[ -z \"$TP\" ] && TP=4\n", "", NULL, "`$TP` is set under a condition"},
        {"set -o nounset\n[ -z \"$TP\" ] && TP=4\n", "", "bash job.sh", "`$TP` is not set, which"},
        {"set -u\nTP=$((N + 1))\nN=1\n", "", "bash job.sh", "`N` is not set"},
        {"set -u\nTP=2\n", " --bf16 $MORE", NULL, "`$MORE` is not set"},
        /* a word, if an empty one; a value; a part of one; perhaps all of the layout */
        {"TP=2\n", " --bf16 \"$MORE\"", NULL, "`$MORE` is not set"},
        {"TP=2\nA=\"--bf16 $MORE\"\n", " \"$A\"", NULL, "`$MORE` is not set"},
        {"TP=2\nA=(--bf16 $MORE)\n", " \"${A[@]}\"", NULL, "`$MORE` is not set"},
        {"TP=2\n", " --seq-length $S --bf16", NULL, "`$S` is not set"},
        {"TP=2$S\n", "", NULL, "`$S` is not set"},
        {"torchrun pretrain_gpt.py --micro-batch-size 1 $MORE\nexit\n", "", NULL,
         "`$MORE` is not set"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, cases[i].script, cases[i].more, cases[i].call, &e) >= 0)
            fail_msg("%s%s%s was read as tp %d", cases[i].script, run, cases[i].more,
                     out.layout.tp);
        if (!strstr(e.text, cases[i].named))
            fail_msg("%s%s%s: `%s` does not say %s", cases[i].script, run, cases[i].more, e.text,
                     cases[i].named);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(options_and_defaults_are_read_as_without_arguments),
    cmocka_unit_test(what_a_call_does_not_decide_is_read_without_one),
    cmocka_unit_test(a_variable_that_nothing_sets_is_no_argument),
    cmocka_unit_test(what_only_its_caller_knows_is_refused),
};

UNIT_MAIN(tests)
