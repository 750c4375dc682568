#!/bin/sh
# The bars of docs/measurements/cost-model.md that are met, held: accuracy against tests/data/published.jsonl, which is the same everywhere.
bench=${PT_BUILD:?}/tests/bench/bench_plan
out=$("$bench" --no-fit "${PT_SRC:?}/tests/data/published.jsonl") || { echo "Bail out! bench_plan failed"; exit 99; }

n=0
at_most() # bench, case, bar
{
    n=$((n + 1))
    echo "$out" | awk -v n="$n" -v bench="\"$1\"" -v what="\"$2\"" -v bar="$3" -F '[:,}]' '
        $2 == bench && $4 == what { got = $6; seen = 1 }
        END {
            ok = seen && got + 0 <= bar
            printf "%sok %d - %s %s is %s, at most %s\n", ok ? "" : "not ", n, bench, what, seen ? got : "missing", bar
        }'
}

at_least() # bench, case, bar
{
    n=$((n + 1))
    echo "$out" | awk -v n="$n" -v bench="\"$1\"" -v what="\"$2\"" -v bar="$3" -F '[:,}]' '
        $2 == bench && $4 == what { got = $6; seen = 1 }
        END {
            ok = seen && got + 0 >= bar
            printf "%sok %d - %s %s is %s, at least %s\n", ok ? "" : "not ", n, bench, what, seen ? got : "missing", bar
        }'
}

# Mean error of the rows that split their sequences, of all files.
rows=$("$bench" -v --no-fit --no-speed "$PT_SRC/tests/data/published.jsonl" --as more "$PT_SRC/tests/data/published-more.jsonl" \
    --as held "$PT_SRC/tests/data/published-held.jsonl") || { echo "Bail out! bench_plan failed"; exit 99; }
split_at_most() # precision, bar
{
    n=$((n + 1))
    echo "$rows" | awk -v n="$n" -v word=" $1\"" -v what="$1" -v bar="$2" '
        /"bench":"plan_row"/ && /[" ]cp[0-9]+ / && index($0, word) && match($0, /"error":[0-9.e-]+/) {
            error = substr($0, RSTART + 8, RLENGTH - 8) + 0
            sum += error < 0 ? -error : error
            count++
        }
        END {
            ok = count >= 20 && sum / count <= bar
            printf "%sok %d - mean error of %d rows with cp above 1 in %s is %.4f, at most %s\n", ok ? "" : "not ", n, count, what, count ? sum / count : 0, bar
        }'
}

echo "1..13"
at_most plan_seconds "dense mean" 0.07
at_most plan_seconds "moe mean" 0.10
at_most plan_seconds "moe worst" 0.25
at_most plan_seconds "fp8 mean" 0.10
at_most plan_regret "mean" 0.05
at_most plan_memory "activations worst" 0.05
at_most plan_layer "one layer mean" 0.10
at_most plan_links "all-reduce inside a node mean" 0.15
at_least plan_tau_distinct "mean" 0.7
at_least plan_memory "out-of-memory rows predicted" 1
at_least plan_memory "rows that ran and are predicted to fit" 0.99
split_at_most bf16 0.07
split_at_most fp8 0.10
