#!/bin/sh
# A campaign over several batch sizes: the real trainer trains each trial's own, the best of each is shown, exported and
# planned; what is refused. The same on the simulator with smaller trials, and over several world sizes.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v sqlite3 >/dev/null || { echo "1..0 # SKIP no sqlite3"; exit 0; }
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
partune=$PT_BUILD/partune
cat >conf <<END
[trainer "deaf"]
parser = jsonl
command = /opt/own/train --config {config}
[trainer "reads"]
parser = jsonl
reduces = micro_batches
command = /opt/own/train --config {config}
[trainer "told"]
parser = jsonl
command = /opt/own/train --batch {global_batch}
[trainer "megatron"]
parser = megatron
command = torchrun {export:megatron}
END
start --config conf
client

campaign() { # name, batches, more
    echo '{"name": "'"$1"'", "model": {"name": "tiny", "layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "two", "nodes": 1, "devices_per_node": '"${devices:-2}"', "oversubscribe": true, "device": {"name": "core",
        "kind": "'"${kind:-cpu}"'", "memory_gib": '"${memory:-1}"', "peak_tflops": {"fp32": 1}, "memory_gbs": 10}, "links": [{"span": '"${devices:-2}"', "gbs": 5, "latency_us": 1}]},
        "workload": {"global_batch": '"$2"'}, "space": {"world": ['"${devices:-2}"'], "tp": [1], "pp": [1], "micro_batch": [1, 2, 4], "zero": [0],
        "recompute": ["none"], "overlap_grad_reduce": [0]'"$4"'}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 6}'"$3"'}'
}
refused() { # name, batches, its pointer, words, more
    is "refused: $1" "$(post '/v1/campaigns?dry_run=true' "$(campaign no "$2" "$5")")" 422
    has "with its place" "$(cat body)" "\"pointer\":\"$3\""
    has "and why" "$(cat body)" "$4"
}
legal() { post '/v1/campaigns?dry_run=true' "$(campaign yes "$1")" >/dev/null; sed -n 's/.*"legal":\([0-9]*\).*/\1/p' body; }

# ---- what is accepted
refused "no batch" '[]' /workload/global_batch 'lists 1 to 16 values, not 0'
refused "a batch twice" '[8, 4, 8]' /workload/global_batch/2 'listed twice'
refused "a batch of nothing" '[8, 0]' /workload/global_batch/1 'must be an integer in 1'
refused "a baseline of another batch" '[4, 8]' /baseline 'global_batch 6 is not one of 4 and 8' ', "baseline": {"global_batch": 6}'
refused "batches in a text" '"4, 8"' /workload/global_batch 'a number of sequences, or a list'
refused "a batch in a text" '[4, "8"]' /workload/global_batch/1 'must be an integer'
kind=gpu memory=24
refused "a trainer that is not told" '[4, 8]' /workload/global_batch 'does not pass on the batch' ', "trainer": "deaf"'
for trainer in reads told megatron; do
    is "trainer $trainer has each batch" "$(post '/v1/campaigns?dry_run=true' "$(campaign yes '[4, 8]' ', "trainer": "'$trainer'"')")" 200
done
is "one batch needs no telling" "$(post '/v1/campaigns?dry_run=true' "$(campaign yes '[8]' ', "trainer": "deaf"')")" 200
unset kind memory
is "the space is the sum of those of each batch" "$(legal '[4, 8]')" $(($(legal 4) + $(legal 8)))
is "which is five layouts" "$(legal '[8, 4]')" 5

# ---- a plan
plan() { echo '{"model": "llama-8b", "cluster": {"profile": "dgx-h100", "nodes": 2}, "trainer": "megatron", "workload": {"global_batch": '"$1"'}, "space": {"tp": [2, 4], "vp": [1], "zero": [0, 1]}, "top": 5}'; }
is "a plan of several" "$(post /v1/plan "$(plan '[64, 512]')")" 200
cat >best.py <<'END'
import json, sys
answer = json.load(open("body"))
if "batches" not in answer:
    print("none")
for row in answer.get("batches", []):
    best = row["best"]
    batch = best["layout"].get("global_batch")
    assert batch == row["global_batch"] and " gb%d" % batch in best["text"]
    assert abs(row["device_s_per_mtoken"] * best["tokens_per_s"] / 1e6 - best["layout"]["world"]) < 1e-6
    print(batch, "%.3f" % best["tokens_per_s"])
END
two=$(python3 best.py)
post /v1/plan "$(plan 64)" >/dev/null
is "one has no such list" "$(python3 best.py)" none
first() { post /v1/plan "$(plan "$1")" >/dev/null; python3 -c 'import json; print("%d %.3f" % ('"$1"', json.load(open("body"))["items"][0]["tokens_per_s"]))'; }
is "the best of each is that of a plan of its own" "$two" "$(first 64; first 512)"
plan '[64, 512]' >plan.json
plan 512 >one.json
"$partune" plan plan.json >out
has "the client has a column" "$(cat out)" '^ *rank .*global batch'
has "and the best of each" "$(cat out)" 'best of each batch size'
"$partune" plan one.json >out
is "neither of one" "$(grep -c 'global batch\|batch size\|Mtoken' out)" 0
is "sizes are of one batch" "$(post /v1/size '{"model": "llama-8b", "cluster": "dgx-h100", "workload": {"global_batch": [64, 512]}}')" 422
has "which is said" "$(cat body)" 'name one of 64 and 512","pointer":"/workload/global_batch"'

# ---- simulated, with smaller trials
own_steps() { # none has another number of tokens than its batch
    is "each step has its trial's tokens" "$(sql "SELECT count(*) FROM step WHERE campaign = '$id' AND json_extract(data, '$.tokens') <> (SELECT 64 *
        coalesce(json_extract(run, '$.global_batch'), json_extract(layout, '$.global_batch')) FROM trial t WHERE t.campaign = step.campaign AND t.n = step.trial)")" 0
}
devices=8
id=$(post /v1/campaigns "$(campaign dry '[64, 16, 32]' ', "budget": {"trials": 9}, "launcher": {"kind": "simulated", "speed": 100000}' | sed 's/"max_steps": 6/&, "fidelity": {"replicas": 1}/')" >/dev/null; id_of <body)
unset devices
ok "a simulated campaign ends" wait_for 120 is_in "$id" done
own_steps
ok "some of its trials are smaller" test "$(rows 'fidelity = 1')" -ge 1
is "with as many micro-batches a replica" "$(rows "fidelity = 1 AND json_extract(run, '$.global_batch') * 8 <> json_extract(layout, '$.global_batch')")" 0
dry=$id

# ---- several world sizes
worlds() { # values, more
    echo '{"name": "sized", "model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "trainer": "megatron", "workload": {"global_batch": 64},
        "space": {"world": '"$1"'}, "budget": {"trials": 8}, "launcher": {"kind": "simulated", "speed": 1000000}'"$2"'}'
}
refuses() { # name, its pointer, words: of the body
    has "$1 is refused at its place" "$(cat body)" "\"pointer\":\"$2\""
    has "with what to do" "$(cat body)" "$3"
}
post '/v1/campaigns?dry_run=true' "$(worlds '[4, 16]')" >/dev/null
refuses "a world beyond the cluster" /space/world 'world 16 is more than the cluster.s 8 devices .*leave it out'
post '/v1/campaigns?dry_run=true' "$(worlds '[4]' | sed 's/"model": "gpt-1.4B"/"model": ["gpt-1.4B", "gpt-22B"]/')" >/dev/null
refuses "a list of models" /model 'name one model.*a campaign for each'
id=$(post /v1/campaigns "$(worlds '[4, 8]' ', "objective": "tokens_per_s_per_device"')" >/dev/null; id_of <body)
ok "a campaign over two world sizes ends" wait_for 120 is_in "$id" done
call "/v1/campaigns/$id" >body
cat >worlds.py <<'END'
import json, sys
c = json.load(open("body"))
rows = {trial["n"]: trial for trial in map(json.loads, open("rows.jsonl"))}
assert [row["world"] for row in c["worlds"]] == [4, 8], c["worlds"]
for row in c["worlds"]:
    own = [trial for trial in rows.values() if trial["layout"]["world"] == row["world"]]
    assert row["trials"] == len(own), (row, len(own))
    assert abs(row["device_s"] - sum(trial["device_s"] for trial in own)) < 1e-9, row
    if own: assert rows[row["best"]["trial"]] in own and row["best"]["devices"] == row["world"], row
top = max((row["best"] for row in c["worlds"] if row["best"]), key=lambda best: best["ratio"])
assert top["trial"] == c["best"]["trial"], c["best"]
END
"$partune" results "$id" --format jsonl >rows.jsonl
ok "each has its best and its share of the budget" python3 worlds.py
"$partune" show "$id" >out
has "the client shows the best of each" "$(sed -n '/best of each world size (simulated)/,$p' out)" '^ *8 .*dp'
"$partune" report "$id" --output report.html >/dev/null
has "so does the report" "$(cat report.html)" 'Best of each world size'
"$partune" compare "$id" "$dry" >out
has "a comparison has each batch size" "$(cat out)" '^best at global batch 64 +[0-9,]+ +[0-9,]+ *$'
has "and each world size" "$(cat out)" '^best at world 8 +([0-9,]+|-) +[0-9,]+ *$'
has "which not all have" "$(cat out)" '^best at global batch 16 +- +([0-9,]+|-) *$'
has "and what each took" "$(cat out)" '^trials +8 +9 *$'
id=$(post /v1/campaigns "$(worlds '[8]')" >/dev/null; id_of <body)
is "one world size has no such list" "$(call "/v1/campaigns/$id" | grep -c '"worlds"')" 0

# ---- real
if ! command -v mpiexec >/dev/null || [ ! -x "$PT_BUILD/partune-train" ]; then
    finish
    exit
fi
id=$(post /v1/campaigns "$(campaign real '[8, 4]' ', "budget": {"trials": 5}')" >/dev/null; id_of <body)
ok "a campaign of the trainer ends" wait_for 240 is_in "$id" done
is "its baseline has the first batch" "$(sql "SELECT json_extract(layout, '$.global_batch') FROM trial WHERE campaign = '$id' AND n = 1")" 8
for batch in 4 8; do
    ok "batch $batch was measured" test "$(rows "state = 'ok' AND json_extract(layout, '$.global_batch') = $batch")" -ge 1
done
own_steps
ok "there are steps" test "$(sql "SELECT count(*) FROM step WHERE campaign = '$id'")" -ge 20
is "a rate is that of the batch" "$(rows "state = 'ok' AND abs(tokens_per_s * step_ms / 1000 / (64 * json_extract(layout, '$.global_batch')) - 1) > 0.01")" 0
wrong=0
for dir in data/campaigns/"$id"/trials/*/; do
    trial=$(basename "$dir")
    got=$(python3 -c 'import json, sys; c = json.load(open(sys.argv[1])); print(c["workload"]["global_batch"])' "$(ls "$dir"*/config.json | tail -n 1)")
    [ "$got" = "$(sql "SELECT json_extract(layout, '$.global_batch') FROM trial WHERE campaign = '$id' AND n = $trial")" ] || wrong=$((wrong + 1))
done
is "the trainer was told each trial's own" "$wrong" 0
call "/v1/campaigns/$id" >body
cat >standing.py <<'END'
import json
c = json.load(open("body"))
assert c["workload"]["global_batch"] == [8, 4], c["workload"]
for row in c["batches"]:
    best = row["best"]
    assert best["layout"]["global_batch"] == row["global_batch"]
    assert abs(row["device_s_per_mtoken"] * best["tokens_per_s"] / 2e6 - 1) < 1e-6
    print(row["global_batch"], best["trial"])
assert sum(row["trials"] for row in c["batches"]) == c["progress"]["trials"], c["progress"]
assert abs(sum(row["device_s"] for row in c["batches"]) / c["progress"]["device_s"] - 1) < 1e-9
top = max(c["batches"], key=lambda row: row["best"]["tokens_per_s"])
assert top["best"]["trial"] == c["best"]["trial"], c["best"]
END
fastest() { sql "SELECT $1 || ' ' || coalesce(repeat_of, n) FROM trial WHERE campaign = '$id' AND state = 'ok' AND json_extract(layout, '$.global_batch') = $1
    GROUP BY coalesce(repeat_of, n) ORDER BY avg(tokens_per_s) DESC LIMIT 1"; }
is "the best of each is its fastest" "$(python3 standing.py)" "$(fastest 8; fastest 4)"
"$partune" show "$id" >out
has "the client shows all batches" "$(cat out)" 'global batch 8, 4'
has "and the best of each" "$(sed -n '/best of each batch size/,$p' out)" '^ *4 .*gb4'
"$partune" report "$id" --output report.html >/dev/null
has "so does the report" "$(cat report.html)" 'Best of each batch size'
best=$(python3 standing.py | sed -n 's/^4 //p')
for target in partune megatron; do
    call "/v1/campaigns/$id/export/$target?trial=$best&allow_loss=true" >"$target"
done
has "an export has its trial's batch" "$(cat megatron)" '--global-batch-size 4( |$)'
has "also for the bundled trainer" "$(tr -d ' \n' <partune)" '"global_batch":4[,}]'
call "/v1/campaigns/$id/export/megatron?trial=1&allow_loss=true" >megatron
has "and another that of another" "$(cat megatron)" '--global-batch-size 8( |$)'
call "/v1/campaigns/$id/export/megatron?trial=1&allow_loss=true&explain=true" >megatron
has "with its reason" "$(cat megatron)" '--global-batch-size 8.* <- .*workload: global_batch 8'
post /v1/project '{"campaign": "'"$id"'", "devices": [2, 4]}' >/dev/null
best=$(call "/v1/campaigns/$id" | python3 -c 'import json, sys; print(json.load(sys.stdin)["best"]["layout"]["global_batch"])')
has "a projection is of the winner's batch" "$(cat body)" '"base":\{"devices":2,"global_batch":'"$best"','
finish
