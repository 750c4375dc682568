/* What a job script counts, makes of a line and leaves to a shell of its own: loops, braces,
 * filters and pipes. The numbers are those of bash. */
#include "tests/unit/unit.h"

#include "tests/unit/import_text.h"
#include "tuner/export/export.h"

static int import(struct tn_imported *ret, const char *script, struct err *e)
{
    AUTO_FREE char *text = mem_printf("%s\ntorchrun pretrain_gpt.py --micro-batch-size 1 "
                                      "--tensor-model-parallel-size 2 --seq-length $N\n",
                                      script);
    AUTO_JSON *v = json_string("llama-8b");
    struct pl_model m;

    if (pl_model_parse(&m, v, e) < 0)
        fail_msg("llama-8b: %s", e->text);
    return import_text(ret, "megatron", text, 32, &m, e);
}

static void numbers_are_those_of_a_shell(void **state)
{
    static const struct {
        const char *script;
        int want;
    } rows[] = {
        {"N=$(echo 4-2 | tr -d -)", 42},
        {"N=$(echo 4-2 | tr - 0)", 402},
        {"N=$(echo a12 | tr a-z 1-9)", 112},
        {"N=$(echo ab | tr 'ab' '12')", 12},
        {"N=$(echo abc | tr 'abc' '12')", 122},
        {"N=$(echo aXb | tr '[a-z]' '[1-9]' | tr X 5)", 152},
        {"N=$(echo 8B | tr '[:upper:]' '[:lower:]' | sed s/b//)", 8},
        {"N=$(echo 8B | tr '[:upper:]' '[:lower:]' | sed 's/b$/00/')", 800},
        {"N=$(echo 1,2,3 | sed 's/,//g')", 123},
        {"N=$(echo 1,2,3 | sed 's/,/0/' | cut -d, -f1)", 102},
        {"N=$(echo 1.5.7 | sed 's/\\.//g')", 157},
        {"N=$(echo a/b12 | sed 's/a\\/b/3/')", 312},
        {"N=$(echo x12 | sed -e 's/^x//')", 12},
        {"for N in $(seq 3); do :; done", 3},
        {"for N in $(seq 2 5); do :; done", 5},
        {"A=($(seq 2 5)); N=${A[2]}", 4},
        {"N=$(seq -s 0 1 3)", 10203},
        {"N=$(seq -s0 3)", 10203},
        {"N=$(seq -s, 3 | cut -d, -f2)", 2},
        {"N=$(printf '%d' 12)", 12},
        {"N=$(printf '%s%s' 1 2)", 12},
        {"N=$(printf \"12\")", 12},
        {"N=0; for ((i = 0; i < 5; i++)); do N=$((N + i)); done", 10},
        {"N=0; for((i=5;i>0;i-=2)); do N=$((N+i)); done", 9},
        {"N=0; for ((i=1;i<=3;i++)) do N=$((N+i)); done", 6},
        {"N=0; for ((i=0,j=2;i<3;i++,j*=2)); do N=$((N+j)); done", 14},
        {"N=0; for ((;;)); do N=$((N+1)); [ $N = 7 ] && break; done", 7},
        {"N=1; for ((i=0;i<4;i++)); do [ $i = 2 ] && continue; N=$((N*2)); done; N=$((N+i))", 12},
        {"N=1; for ((i=0;i<2;i++)); do for ((j=0;j<3;j++)); do N=$((N+1)); done; done", 7},
        {"N=0; for i in {1..4}; do N=$((N+i)); done", 10},
        {"N=0; for i in {4..1}; do N=$((N*2+i)); done", 49},
        {"N=0; for i in {0..8..3} 5; do N=$((N+i)); done", 14},
        {"N=0; for i in \"{1..4}\"; do N=$((N+1)); done", 1},
        {"A=({1..4} 7); N=${#A[@]}", 5},
        {"A=({3..1}); N=${A[0]}", 3},
        {"A=(\"{1..4}\"); N=${#A[@]}", 1},
        {"N=5; for ((i=0;i<3;i++)); do N=$i; done | cat", 5},
        {"N=5; for ((i=9;i<3;i++)); do N=$i; done", 5},
        {"N=4; f() { N=8; }; f | cat", 4},
        {"N=4; f() { N=8; }; f &", 4},
        {"N=4; f() { N=8; }; echo x | f", 4},
        {"N=4; f() { exit 1; }; f | cat", 4},
        {"N=4; N=8 &", 4},
        {"N=4; eval 'N=2' &", 4},
        {"f() { N=8; }; f && echo x | cat", 8},
        {"f() { N=8; echo a | cat; }; f || exit", 8},
        {"f() { N=$#; }; f {1..4}", 4},
        {"set -- {1..3}; N=$#", 3},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, rows[i].script, &e) < 0)
            fail_msg("%s: %s", rows[i].script, e.text);
        if (out.seq != rows[i].want || out.layout.tp != 2)
            fail_msg("%s: %d, not %d", rows[i].script, out.seq, rows[i].want);
    }
}

static void other_words_of_these_are_refused(void **state)
{
    static const char *const scripts[] = {
        "N=$(echo 1.5.7 | sed 's/.//g')",
        "N=$(echo a/b12 | sed 's|a/b||')",
        "N=$(echo 12 | sed 's/\\(1\\)/\\12/')",
        "N=$(echo 12 | sed 's/1/&&/')",
        "N=$(seq 3 | tr '\\n' 1)",
        "N=$(printf '%02d' 12)",
        "N=1; for ((i=0;i<M;i++)); do N=$((N+1)); done",
        "N=1; for ((i=0; i<600; i++)); do N=$((N+1)); done",
        "N=0; for i in {01..04}; do N=$((N+1)); done",
        "N=0; for i in {a,b} c; do N=$((N+1)); done",
        "N=0; for i in x{1..4}; do N=$((N+1)); done",
        "A=({1..$M}); N=${#A[@]}",
        "A=({a,b}); N=${#A[@]}",
        "set -- x{1,2}; N=$#",
        "A=(/etc/host*); N=${#A[@]}",
        "N=4; export N=8 | cat",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, scripts[i], &e) >= 0)
            fail_msg("%s: was read as %d", scripts[i], out.seq);
        if (!strstr(e.text, "needs a shell") && !strstr(e.text, "under a condition") &&
            !strstr(e.text, "is an argument of") && !strstr(e.text, "sets nothing in the script"))
            fail_msg("%s: %s", scripts[i], e.text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_are_those_of_a_shell),
    cmocka_unit_test(other_words_of_these_are_refused),
};

UNIT_MAIN(tests)
