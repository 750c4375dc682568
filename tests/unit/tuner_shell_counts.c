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

/* What fails, returns, takes the shell's place or is read from a file. */
static void what_ends_and_fails_is_as_in_a_shell(void **state)
{
    static const struct {
        const char *script;
        int want;
    } rows[] = {
        {"cat > env.sh <<X\nN=8\nX\nN=4\nsource ./env.sh", 8},
        {"echo N=8 > env.sh\nN=4\n. ./env.sh", 8},
        {"N=4\nf() { N=8; return 1; }\nf || N=2", 2},
        {"f() { return 1; }\nN=4\nif f; then N=8; fi", 4},
        {"f() { [ \"$1\" = x ]; }\nN=4\nf y && N=8", 4},
        {"N=4; { false; } && N=8", 4},
        {"N=4; let N+=8", 12},
        {"N=4; bash -c 'N=8'", 4},
        {"f() { local N=8; g; }; g() { N=16; }; N=4; f", 4},
        {"f() { N=8; }; N=4; $(f)", 4},
        {"f() { N=8; }; N=4; X=$(f)", 4},
        {"N=4; function f { N=8; }; f", 8},
        {"f() { N=$1; }; f \"8 4\" ; N=${N% *}", 8},
        {"f() { N=$2; }; f \"a b\" 8", 8},
        {"N=4; { N=8; } 2>/dev/null", 8},
        {"N=4; { N=8; } > x.log", 8},
        {"N=4; { N=8; } | cat", 4},
        {"set -e; f() { return 1; }; N=4; f || N=8", 8},
        {"set -e; f() { false; N=8; }; N=4; f || N=16", 8},
        {"set -e; f() { false; N=8; }; N=4; if f; then N=$((N*2)); fi", 16},
        {"set -e; N=4; ( [ 1 = 2 ] && N=8 ) || N=16", 16},
        {"set -e; N=4; { [ 1 = 2 ] && N=8; }; N=16", 16},
        {"set -e; N=4; ! true; N=8", 8},
        {"set -e; N=4; ((N=0)) || N=8", 8},
        {"set -e; N=4; while false; do N=2; done; N=8", 8},
        {"set -e; N=4; i=0; while [ $i -lt 2 ]; do i=$((i+1)); [ $i = 1 ] && N=8; done; N=$((N+1))",
         9},
        {"set -e; N=4; for i in 1 2; do [ $i = 1 ] && N=8; done; N=$((N+1))", 9},
        {"set -e; N=4; if [ 1 = 2 ]; then N=2; fi; N=8", 8},
        {"set -e; N=4; case a in b) false ;; esac; N=8", 8},
        {"set -e; set +e; N=4; false; N=8", 8},
        {"set -euo pipefail; N=4; [ -z \"${M:-}\" ] && N=8\nM=1", 8},
        {"f() { return 0; N=8; }; N=4; f && N=16", 16},
        {"f() { if [ \"$1\" = a ]; then return 1; fi; N=8; }; N=4; f a || N=16", 16},
        {"f() { if [ \"$1\" = a ]; then return 1; fi; N=8; }; N=4; f b && N=$((N*2))", 16},
        {"f() { [ \"$1\" = a ] || return 1; N=8; }; N=4; f b || N=2", 2},
        {"f() { local x=3; return $x; }; N=4; f || N=2", 2},
        {"N=4; { false; } || N=8", 8},
        {"N=4; { N=8; true; } && N=16", 16},
        {"N=4; ! { false; } && N=16", 16},
        {"N=4; true && { false; } || N=16", 16},
        {"N=4; false && { true; } || N=16", 16},
        {"N=4; true || { false; } && N=16", 16},
        {"N=4; { false; } | true && N=8", 8},
        {"N=4; { true; } | false && N=8", 4},
        {"N=4; ( false ) || { N=8; false; } || N=16", 16},
        {"N=4; if { true; false; }; then N=8; fi", 4},
        {"N=4; if ( true ); then N=8; fi", 8},
        {"N=4; while { [ $N -lt 10 ]; }; do N=$((N+4)); done", 12},
        {"N=4; f() { N=8; }; exec 3>&1; f", 8},
        {"N=4; exec > log; N=8", 8},
        {"N=4; (exec true); N=8", 8},
        {"N=4; exec true | cat; N=8", 8},
        {"N=4; false && exec true; N=8", 8},
        {"N=4; source /dev/null; N=8", 8},
        {"echo 'N=$1' > e.sh; N=4; set -- 8; . e.sh", 8},
        {"cat > e.sh <<'X'\nN=$((M*2))\nX\nM=4; source e.sh", 8},
        {"cat > e.sh <<X\nN=$M\nX\nM=4; source e.sh; N=${N:-8}", 8},
        {"N=4; bash <<X\nN=8\nX", 4},
    };
    static const char *const ends[] = {
        "set -e\nN=4\nfalse\nN=8",
        "set -e\nf() { false; N=8; }\nN=4\nf",
        "N=4; exec true; N=8",
        "set -e; f() { return 1; }; N=4; f; N=8",
        "set -e; N=4; ( [ 1 = 2 ] && N=8 ); N=16",
        "set -e; N=4; ((N=0)); N=8",
        "set -e; f() { [ 1 = 2 ] && N=2; }; N=4; f; N=8",
        "N=4; f() { exec true; }; f; N=8",
        "N=4; exec bash -c 'true'; N=8",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, rows[i].script, &e) < 0)
            fail_msg("%s: %s", rows[i].script, e.text);
        if (out.seq != rows[i].want)
            fail_msg("%s: %d, not %d", rows[i].script, out.seq, rows[i].want);
    }
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, ends[i], &e) >= 0)
            fail_msg("%s: was read as %d", ends[i], out.seq);
        if (!strstr(e.text, "exits before it starts a program") &&
            !(strstr(ends[i], "exec ") && strstr(e.text, "expected a command that starts")))
            fail_msg("%s: %s", ends[i], e.text);
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
        "N=4; trap 'N=8' DEBUG",
        "N=4; ( exit 1 ) || N=8",
        "N=4 ; if [ $N == 4 -o $M ]; then N=8; fi",
        "A=([2]=8 [0]=4); N=${A[2]}",
        "N=4; [[ 08 -eq 8 ]] && N=8",
        "f() { N=${@: -1}; }; f 4 8",
        "f() { N=${!#}; }; f 4 8",
        "N=$(true && echo 8)",
        "f() { return; }; N=4; f || N=2",
        "N=4; ( exit 0 ) && N=8",
        "echo 'return 1' > e.sh; N=4; . ./e.sh || N=8",
        "printf 'N=8\\n' > e.sh; N=4; . ./e.sh",
        "N=4; export N; bash -c 'N=8; exit 1' || N=16",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, scripts[i], &e) >= 0)
            fail_msg("%s: was read as %d", scripts[i], out.seq);
        if (!strstr(e.text, "needs a shell") && !strstr(e.text, "under a condition") &&
            !strstr(e.text, "is an argument of") && !strstr(e.text, "sets nothing in the script") &&
            !strstr(e.text, "reads what the script writes") && !strstr(e.text, "DEBUG runs before"))
            fail_msg("%s: %s", scripts[i], e.text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_are_those_of_a_shell),
    cmocka_unit_test(what_ends_and_fails_is_as_in_a_shell),
    cmocka_unit_test(other_words_of_these_are_refused),
};

UNIT_MAIN(tests)
