#!/bin/sh
# Trials of smaller problems: a campaign of eight ranks of the real trainer, most of whose trials run on one or two, through
# a kill -9, a verification and a warm start; the same on the simulator; what is accepted and what is refused.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v sqlite3 >/dev/null || { echo "1..0 # SKIP no sqlite3"; exit 0; }
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
partune=$PT_BUILD/partune
cat >conf <<END
[trainer "own"]
parser = jsonl
command = /opt/own/train --config {config}
[trainer "megatron"]
parser = megatron
command = torchrun {export:megatron}
END

printf '#!/bin/sh\n[ -e "%s/hold" ] && sleep 2\nexec "%s/partune-train" "$@"\n' "$run" "$PT_BUILD" >train
chmod +x train
touch hold # ranks begin late, so that the daemon can be killed meanwhile
options='--train "$run/train"'

# ---- what is accepted
campaign() { # name, fidelity, more
    echo '{"name": "'"$1"'", "model": {"name": "tiny", "layers": 8, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "eight", "nodes": 1, "devices_per_node": 8, "oversubscribe": true, "device": {"name": "core",
        "kind": "'"${kind:-cpu}"'", "memory_gib": '"${memory:-1}"', "peak_tflops": {"fp32": 1}, "memory_gbs": 10}, "links": [{"span": 8, "gbs": 5, "latency_us": 1}]},
        "workload": {"global_batch": 16}, "space": {"world": [8], "tp": [1, 2], "pp": [1, 2], "micro_batch": [1, 2], "zero": [0],
        "recompute": ["none", "full"]}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 6, "fidelity": '"$2"'}'"$3"'}'
}
refused() { # name, fidelity, its pointer, more
    is "refused: $1" "$(post '/v1/campaigns?dry_run=true' "$(campaign no "$2" "$4")")" 422
    has "with its place" "$(cat body)" "\"pointer\":\"$3\""
}
start --config conf
client
refused "an unknown word" '"small"' /trial/fidelity
refused "an unknown key" '{"layers": 2}' /trial/fidelity/layers
has "with those that there are" "$(cat body)" '(replicas, stage_layers, micro_batches, steps, devices)'
refused "nothing to reduce" '{"devices": 2}' /trial/fidelity
refused "no replica" '[{"replicas": 1}, {"replicas": 0}]' /trial/fidelity/1/replicas
refused "a search that cannot use them" '"auto"' /trial/fidelity ', "search": {"method": "grid"}'
kind=gpu memory=24
refused "a model that the trainer's command does not say" '{"stage_layers": 2}' /trial/fidelity/stage_layers ', "trainer": "own"'
has "and what would help" "$(cat body)" 'reduces = stage_layers'
refused "a batch that it does not say" '[{"steps": 2}, {"replicas": 1}]' /trial/fidelity/1/replicas ', "trainer": "own"'
is "fewer steps: any trainer" "$(post '/v1/campaigns?dry_run=true' "$(campaign yes '{"steps": 2}' ', "trainer": "own"')")" 200
is "auto does without what the trainer cannot" "$(post '/v1/campaigns?dry_run=true' "$(campaign yes '"auto"' ', "trainer": "own"')")" 200
has "and says so" "$(cat body)" '"fidelity":"full","fidelity_note":"without stage_layers: '
is "an export that says all" "$(post '/v1/campaigns?dry_run=true' "$(campaign yes '"auto"' ', "trainer": "megatron"')")" 200
echo "$(campaign yes '[{"replicas": 1, "steps": 3}, {"stage_layers": 2}]')" >yes.json
"$partune" check yes.json >out
has "the client says it in words" "$(cat out)" '^smaller trials   at most 1 replica, 3 measured steps$'
has "each on its line" "$(cat out)" '^ +or at most 2 layers of a virtual stage$'
has "reduces all" "$(cat body)" '"fidelity":\[\{"replicas":1,"stage_layers":2,"steps":3\}\],"fidelity_note":"the cluster is oversubscribed'
unset kind memory

# ---- of every campaign with smaller trials
check() { # whose, the word of its numbers
    ok "$1 has smaller trials" test "$(rows 'fidelity = 1')" -ge 2
    is "each smaller than the layout" "$(rows "fidelity = 1 AND NOT (devices < 8 AND json_extract(run, '$.layout.world') * json_extract(run, '$.layout.threads') = devices
        AND json_extract(layout, '$.world') = 8)")" 0
    is "of stages of two layers at most" "$(rows "fidelity = 1 AND json_extract(run, '$.layers') > 2 * json_extract(layout, '$.pp') * json_extract(layout, '$.vp')")" 0
    is "no layout has a result of less than itself" "$(rows 'fidelity = 1 AND coalesce(tokens_per_s, mfu, memory, step_ms, memory_planned, phases) IS NOT NULL')" 0
    is "what ran has it" "$(rows "fidelity = 1 AND state = 'ok' AND NOT json_extract(run, '$.tokens_per_s') > 0")" 0
    is "every success lets expect something of the layout" "$(rows "fidelity = 1 AND state = 'ok' AND
        NOT (json_extract(inferred, '$.lo') < json_extract(inferred, '$.tokens_per_s') AND json_extract(inferred, '$.tokens_per_s') < json_extract(inferred, '$.hi'))")" 0
    is "nothing is inferred of the full size" "$(rows 'fidelity IS NULL AND (inferred IS NOT NULL OR run IS NOT NULL)')" 0
    is "the baseline is of the full size" "$(rows "n = 1 AND fidelity IS NULL AND state = 'ok' AND tokens_per_s > 0")" 1
    call "/v1/campaigns/$id" >body
    best=$(sed -n 's/.*"best":{"trial":\([0-9]*\),.*/\1/p' body)
    is "so is the best" "$(rows "n = ${best:-0} AND fidelity IS NULL AND tokens_per_s > 0")" 1
    is "the cost is that of the trials" "$(sql "SELECT abs(device_s - (SELECT sum(device_s) FROM trial WHERE campaign = id)) < 1e-6 FROM campaign WHERE id = '$id'")" 1
    has "of which some is the smaller ones'" "$(cat body)" "\"smaller_trials\":$(rows "fidelity = 1 AND started IS NOT NULL"),\"smaller_device_s\":[0-9]"
    small=$(sql "SELECT min(n) FROM trial WHERE campaign = '$id' AND fidelity = 1 AND state = 'ok'")
    call "/v1/campaigns/$id/trials/$small" >body
    has "a smaller trial has no rate of its layout" "$(cat body)" '"fidelity":1,.*"tokens_per_s":null,'
    has "but what it ran, and what follows" "$(cat body)" '"run":\{"layers":[24],.*"tokens_per_s":[0-9.]+,.*"inferred":\{"tokens_per_s":[0-9.]+,"lo":[0-9.]+,"hi":'
    is "no export has its number" "$(code "/v1/campaigns/$id/export/partune?trial=$small&allow_simulated=true")" 404
    has "as the answer says" "$(cat body)" 'no measurement of the full size'
    is "predictions are compared with the full size" "$(call "/v1/campaigns/$id/predictions" | grep -c "\"n\":$small,")" 0
    call "/v1/campaigns/$id/results.csv" >csv
    is "the CSV has the run and what is inferred in columns of their own" "$(awk -F, -v n="$small" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $2 == n { print ($at["tokens_per_s"] == "") ($at["run_tokens_per_s"] > 0) ($at["inferred_lo"] < $at["inferred_hi"]) $at["fidelity"] }' csv)" 1111
    is "the JSON lines are the trials" "$(call "/v1/campaigns/$id/results.jsonl" | grep -c '"fidelity":1,')" "$(rows 'fidelity = 1')"
    "$partune" trials "$id" >out
    has "the client marks it, with its interval" "$(sed -n "s/^ *$small .*/&/p" out)" '~[0-9,.]+ ± [0-9]'
    has "and says how" "$(cat out)" "not $2 at full size"
    "$partune" trial "$id" "$small" >out
    has "and tells what ran" "$(cat out)" 'ran .* layers'
    is "every number that it tells is one" "$(grep -c 'nan' out)" 0
    is "and no line is empty" "$(grep -c '^[a-z]* *$' out)" 0
    "$partune" compare "$id/1" "$id/$small" >out
    has "a comparison has what is inferred" "$(cat out)" '^inferred, 95 % +- +~[0-9,.]+ ± [0-9]'
    has "and what ran" "$(cat out)" '^ran +the full size +[0-9]+ layers, global batch [0-9]+, [0-9]+ devices'
    "$partune" report "$id" --output report.html >/dev/null
    has "the report does not plot it as $2" "$(cat report.html)" 'class="inferred'
}

# ---- simulated
id=$(post /v1/campaigns "$(campaign dry '"auto"' ', "budget": {"trials": 12}, "launcher": {"kind": "simulated", "speed": 100000}')" >/dev/null; id_of <body)
ok "a simulated campaign ends" wait_for 120 is_in "$id" done
check "a simulated campaign" simulated
is "each of its smaller problems was simulated" "$(sql "SELECT count(*) FROM step WHERE campaign = '$id' AND json_extract(data, '$.tokens') <>
    (SELECT 64 * coalesce(json_extract(run, '$.global_batch'), 16) FROM trial t WHERE t.campaign = step.campaign AND t.n = step.trial)")" 0
has "the metrics count them" "$(call /metrics)" "partune_smaller_trials_settled_total\{simulated=\"true\"\} $(rows 'fidelity = 1')\$"
before=$id

# ---- real: eight ranks on these cores
if ! command -v mpiexec >/dev/null || [ ! -x "$PT_BUILD/partune-train" ]; then
    finish
    exit
fi
id=$(post /v1/campaigns "$(campaign real '{"replicas": 1, "stage_layers": 2, "steps": 3, "devices": 4}' \
    ', "budget": {"trials": 7}, "search": {"warm_start": ["'"$before"'"]}')" >/dev/null; id_of <body)
has "a warm start reads smaller trials" "$(call "/v1/campaigns/$id")" '"warm_start":\{"campaigns":1,"trials":1[0-2],"simulated":1[0-2]\}'
under_way() { [ "$(rows "fidelity = 1 AND state IN ('starting', 'running')")" -ge 1 ]; } # it runs for milliseconds, after two seconds
ok "a smaller trial is under way" wait_for 240 under_way
stop KILL
rm hold
start --config conf
client
ok "the campaign ends after a kill -9" wait_for 240 is_in "$id" done
is "with every trial counted once" "$(rows "state IN ('ok', 'pruned')")" "$(sql "SELECT trials FROM campaign WHERE id = '$id'")"
check "a campaign" measured
is "the ranks were those of the run" "$(sql "SELECT count(*) FROM attempt a JOIN trial t USING (campaign, n) WHERE a.campaign = '$id' AND a.devices <> t.devices")" 0
# Of its last attempt: the daemon that was killed may not have come to start the first.
config=$(python3 -c 'import json, sys
c = json.load(open(sys.argv[1]))
print("[%d,%d,%d]" % (c["model"]["layers"], c["workload"]["global_batch"], c["layout"]["world"]))' "$(ls "data/campaigns/$id/trials/$small"/*/config.json | tail -n 1)")
is "its trainer got the smaller problem" "$config" "$(sql "SELECT '[' || json_extract(run, '$.layers') || ',' || json_extract(run, '$.global_batch') || ',' || json_extract(run, '$.layout.world') || ']'
    FROM trial WHERE campaign = '$id' AND n = $small")"
post "/v1/campaigns/$id:verify" '{"pairs": 1, "steps": 3}' >/dev/null
verified() { call "/v1/campaigns/$id" | grep -q '"verdict":"[a-z]'; }
ok "it is verified" wait_for 120 verified
runs=2 # the winner's and the baseline's, or once what is both
call "/v1/campaigns/$id" | grep -q '"verdict":"same"' && runs=1
is "at full size" "$(rows "kind = 'verify' AND state = 'ok' AND fidelity IS NULL AND devices = 8")" "$runs"
finish
