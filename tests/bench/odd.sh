#!/bin/sh
# Odd input to the two benchmarks that are run on files of others: rows of machines and models that are in no file of the tree
# are predicted, what is wrong is named by line and key while the rest stands, and a table of throughputs may lack columns.
plan=${PT_BUILD:?}/tests/bench/bench_plan
search=$PT_BUILD/tests/bench/bench_search
dir=$PT_BUILD/tests/run/odd.$$
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT

n=0
is() # what it is, then a command that must succeed
{
    n=$((n + 1))
    what=$1
    shift
    if "$@" >"$dir/said" 2>&1; then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what"
        sed 's/^/# /' "$dir/said"
    fi
}

# Of the row with the id $1: is its error within a factor of two?
sane()
{
    grep -F "\"case\":\"$1\"" "$dir/out" | awk -F '"error":' '
        { split($2, x, ","); ok = x[1] > -0.5 && x[1] < 1; print "# error " x[1]; seen = 1 } END { exit !(seen && ok) }'
}

value()
{
    grep -F "\"bench\":\"plan_row\",\"case\":\"$1\"" "$dir/out" | sed 's/.*"value":\([^,]*\),.*/\1/'
}

same()
{
    [ -n "$(value "$1")" ] && [ "$(value "$1")" = "$(value "$2")" ]
}

# Line $1 was left out for the key $2.
left_out()
{
    grep -q "rows.jsonl:$1 .*left out: $2: " "$dir/err"
}

# ---- rows of published measurements ----

gpt='"layers":24,"hidden":2048,"heads":16,"ffn":8192,"vocab":51200,"seq":2048,"mlp":"gelu","norm":"layernorm","positions":"learned"'
llama='"layers":32,"hidden":4096,"heads":32,"kv_heads":8,"ffn":14336,"vocab":128256,"seq":4096'
# fine-grained experts, one of them shared; one head of keys for 25 of queries
fine='"layers":48,"hidden":2048,"heads":32,"kv_heads":4,"head_dim":128,"vocab":151936,"seq":4096,"moe":{"experts":256,"top_k":8,"expert_ffn":768,"shared_ffn":768}'
mqa='"layers":48,"hidden":1600,"heads":25,"kv_heads":1,"ffn":6400,"vocab":50257,"seq":1024,"mlp":"gelu"'
v100='{"name":"dgx-1","nodes":4,"devices_per_node":8,"device":{"name":"V100-32","peak_tflops":{"fp32":15.7,"bf16":125},"memory_gib":32,"memory_gbs":900},"links":[{"span":8,"gbs":150},{"span":"all","gbs":6.25}]}'
gb200='{"name":"nvl72","nodes":1,"devices_per_node":72,"device":{"name":"GB200","peak_tflops":{"fp32":80,"bf16":2500,"fp8":5000},"memory_gib":186,"memory_gbs":8000},"links":[{"span":"all","gbs":900}]}'

row() # id, type, model, cluster, layout, devices, global_batch, more
{
    printf '{"id":"%s","type":"%s","family":"unheard-of","source":"nobody","model":{"name":"m",%s},"cluster":%s,"layout":{%s},"devices":%s,"global_batch":%s%s}\n' "$@"
}

profile() # name, nodes
{
    printf '{"profile":"%s","nodes":%s}' "$1" "$2"
}

# Seconds are 6 x parameters x tokens at 40 % of the devices' peak (25 % with fine experts, 30 % with narrow ones).
{
    row a100-40 training "$gpt" "$(profile a100-40g-1600g 4)" '"tp":2,"zero":1,"precision":"bf16"' 32 256 ',"seconds_per_iteration":1.04'
    row h200 training "$llama" "$(profile h200 8)" '"tp":1,"zero":1,"precision":"bf16"' 64 512 ',"seconds_per_iteration":4.0'
    row fine training "$fine" "$(profile dgx-h100 8)" '"tp":1,"ep":8,"zero":1,"precision":"bf16"' 64 1024 ',"seconds_per_iteration":6.0'
    row mqa training "$mqa" "$v100" '"tp":1,"pp":4,"zero":1,"precision":"fp16"' 32 512 ',"seconds_per_iteration":3.4'
    row mi250x training "$llama" "$(profile frontier-mi250x 8)" '"tp":2,"zero":1,"precision":"bf16"' 64 512 ',"seconds_per_iteration":24'
    row pvc training "$gpt" "$(profile aurora-pvc 2)" '"tp":2,"zero":1,"precision":"bf16"' 24 240 ',"seconds_per_iteration":1.7'
    row gb200 training "$llama" "$gb200" '"tp":1,"zero":1,"precision":"fp8"' 72 576 ',"seconds_per_iteration":1.1'
    row nulls training "$gpt" "$(profile dgx-a100 4)" '"tp":2,"pp":2,"micro_batch":null,"vp":null,"recompute":null,"zero":null,"sp":null,"precision":null' 32 256 ',"seconds_per_iteration":1.0,"measured":null,"note":null'
    row absent training "$gpt" "$(profile dgx-a100 4)" '"tp":2,"pp":2' 32 256 ',"seconds_per_iteration":1.0'
    row 'an \"odd\" id\\' training "$gpt" "$(profile dgx-a100 4)" '"tp":2,"pp":2' 32 256 ',"seconds_per_iteration":1.0'
    row oom oom "$llama" "$(profile dgx-a100 1)" '"tp":1,"zero":0,"micro_batch":8,"recompute":"none","precision":"bf16"' 8 64 ''
    # from here on each line is wrong in one place
    echo '{"id":"torn","type":"training","fam'
    row profile training "$gpt" "$(profile dgx-a1000 4)" '"tp":2' 32 256 ',"seconds_per_iteration":1'
    row layout training "$gpt" "$(profile dgx-a100 4)" '"tp":2,"tpp":2' 32 256 ',"seconds_per_iteration":1'
    row word training "$gpt" "$(profile dgx-a100 4)" '"tp":2,"precision":"int4"' 32 256 ',"seconds_per_iteration":1'
    row model training "$gpt,\"experts\":8" "$(profile dgx-a100 4)" '"tp":2' 32 256 ',"seconds_per_iteration":1'
    row kv training "$gpt,\"kv_heads\":5" "$(profile dgx-a100 4)" '"tp":2' 32 256 ',"seconds_per_iteration":1'
    row seconds training "$gpt" "$(profile dgx-a100 4)" '"tp":2' 32 256 ',"seconds_per_iteration":null'
    row zero training "$gpt" "$(profile dgx-a100 4)" '"tp":2' 32 256 ',"seconds_per_iteration":0'
    row devices training "$gpt" "$(profile dgx-a100 4)" '"tp":2' null 256 ',"seconds_per_iteration":1'
    row batch training "$gpt" "$(profile dgx-a100 4)" '"tp":2' 32 null ',"seconds_per_iteration":1'
    row world training "$gpt" "$(profile dgx-a100 4)" '"tp":2,"pp":5' 32 256 ',"seconds_per_iteration":1'
    row stages training "$gpt" "$(profile dgx-a100 4)" '"pp":32' 32 256 ',"seconds_per_iteration":1'
    row experts training "$fine" "$(profile dgx-h100 8)" '"ep":24' 48 256 ',"seconds_per_iteration":1'
    row micro training "$gpt" "$(profile dgx-a100 4)" '"tp":2,"micro_batch":65536' 32 256 ',"seconds_per_iteration":1'
    row type inference "$gpt" "$(profile dgx-a100 4)" '"tp":2' 32 256 ',"seconds_per_iteration":1'
    echo '{"id":"bare","type":"training","seconds_per_iteration":1}'
    echo '[1,2]'
} >"$dir/rows.jsonl"

is "usable rows are used" "$plan" -v --no-fit --no-speed "$dir/rows.jsonl"
"$plan" -v --no-fit --no-speed "$dir/rows.jsonl" >"$dir/out" 2>"$dir/err"
for id in a100-40 h200 fine mqa mi250x pvc gb200 nulls; do
    is "$id: within a factor of two of 40 % of its peak" sane "$id"
done
is "null counts as absent" same nulls absent
is "an id may have any characters" same 'an \"odd\" id\\' absent
is "every number is finite" sh -c "! grep -qiE '[:,-](nan|inf)' '$dir/out'"
is "a row that ran out of memory is predicted" grep -q '"case":"out-of-memory rows predicted","value":1,' "$dir/out"
is "skipped rows are counted" grep -q '"case":"lines left out","value":17,' "$dir/out"
is "and each is named once" [ "$(grep -c 'left out: ' "$dir/err")" = 17 ]
is "an incomplete line is named by number" grep -q "rows.jsonl:12 .*left out: not JSON" "$dir/err"
line=13
for key in /cluster/profile /layout/tpp /layout/precision /model/experts /model/kv_heads /seconds_per_iteration \
    /seconds_per_iteration /devices /global_batch /layout /layout/pp /layout/ep /layout/micro_batch /type /model; do
    is "line $line: $key is named" left_out "$line" "$key"
    line=$((line + 1))
done
sed -n '12,$p' "$dir/rows.jsonl" >"$dir/bad.jsonl"
is "a file without a usable row is an error" sh -c "! '$plan' --no-fit --no-speed '$dir/bad.jsonl'"

# ---- tables of throughputs ----

table() # file, system, gpus, rows
{
    printf '{"model":"m","system":"%s","gpus":%s,"global_batch":64,"hidden":2048,"layers":24,"heads":16,"seq":1024,"ffn":8192,"rows":[%s]}\n' \
        "$2" "$3" "$4" >"$dir/$1.json"
}

run()
{
    "$search" --seeds 2 --trials 12 --no-speed --only model "$dir/$1.json"
}

refused() # table, words of the reason
{
    ! run "$1" >/dev/null 2>"$dir/why" && grep -q -- "$2" "$dir/why"
}

rows=
for tp in 8 1 4 2; do
    for mb in 4 1 2; do
        rows="$rows{\"mb\":$mb,\"tp\":$tp,\"tokens_per_s\":$((100000 / tp + 1000 * mb))},"
    done
done
table few-columns a100_80g 8 "${rows}{\"tp\":1,\"mb\":8,\"tokens_per_s\":null}"
table one h100_80g_nvl8 8 '{"tp":2,"mb":2,"tokens_per_s":5}'
table ties h200 4 '{"tp":1,"mb":1,"tokens_per_s":1e9},{"tp":2,"mb":1,"tokens_per_s":1e9},{"tp":4,"mb":1,"tokens_per_s":1e9}'
table none a100_80g 8 '{"tp":1,"mb":1,"tokens_per_s":null},{"tp":2,"mb":1,"tokens_per_s":null}'
table system c64 8 '{"tp":1,"mb":1,"tokens_per_s":1}'
table gpus a100_80g 12 '{"tp":1,"mb":1,"tokens_per_s":1}'
for t in few-columns one ties; do
    is "table $t is searched" run "$t"
done
first() # options: is a layout tried at random at first within 5 % of the best?
{
    "$search" --seeds 9 --no-speed --only random "$@" "$dir/few-columns.json" | grep -q '"value":1,'
}
later()
{
    ! first
}
is "a table may be thinned to what is within 5 % of its best" first --thin 1
is "which it otherwise is not" later
is "a table in which nothing ran is refused" refused none "/rows: .*no legal layout"
is "a system without a profile is named" refused system '/system: .*"c64"'
is "part of a node is refused" refused gpus "/gpus: .*12 devices"
echo "1..$n"
