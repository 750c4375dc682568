#!/bin/sh
# A campaign over several clusters, the fastest of which is not the cheapest: one search over all, each layout legal, expected
# and paid where it is, the best of each, its export, a kill -9, workers that say where they are or do not come, and what is refused.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v sqlite3 >/dev/null || { echo "1..0 # SKIP no sqlite3"; exit 0; }
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
start
client
partune=$PT_BUILD/partune

h100='{"profile": "dgx-h100", "name": "fast", "nodes": 1, "price_per_device_hour": 9}'
a100='{"profile": "dgx-a100", "name": "cheap", "nodes": 2, "price_per_device_hour": 1}'
simulated='{"kind": "simulated", "speed": 100000, "failures": 0}'
campaign() { # name, clusters, more
    echo '{"name": "'"$1"'", "model": "llama-8b", "cluster": '"$2"', "trainer": "'"${trainer:-megatron}"'", "workload": {"global_batch": 64},
        "space": {"zero": [1], "recompute": ["none", "full"]'"$worlds"'}, "launcher": '"${launcher:-$simulated}$3"'}'
}
refused() { # what, clusters, its pointer, words, more
    is "refused: $1" "$(post '/v1/campaigns?dry_run=true' "$(campaign no "$2" "$5")")" 422
    has "with its place" "$(cat body)" "\"pointer\":\"$3\""
    has "and why" "$(cat body)" "$4"
}
legal() { post "/v1/campaigns?dry_run=true" "$(campaign yes "$1")" >/dev/null; sed -n "s/.*\"legal\":\([0-9]*\).*/\1/p" body; }
make() { # body: id
    is "$1 is accepted" "$(post /v1/campaigns "$2")" 201
    id=$(sed -n 's/^{"id":"\([^"]*\)".*/\1/p' body)
}
suggest() { # worker, cluster, seconds
    post "/v1/campaigns/$id:suggest" '{"worker": "'"$1"'", "cluster": "'"$2"'", "wait_s": '"$3"'}'
}
complete() { # worker's answer in body: its trial has succeeded, at tokens/s
    lease=$(sed -n 's/.*"lease":"\([^"]*\)".*/\1/p' body)
    at=$(sed -n 's/.*"state":"trial","trial":\([0-9]*\).*/\1/p' body)
    post "/v1/campaigns/$id/trials/$at:complete" '{"lease": "'"$lease"'", "status": "ok", "tokens_per_s": '"$1"'}'
}
best() { call "/v1/campaigns/$id/best" | sed -n 's/.*"cluster":"\([a-z]*\)".*/\1/p'; }

# ---- what is accepted
refused "no cluster" '[]' /cluster 'has 1 to 8, not 0'
refused "nine" '["dgx-h100","dgx-h100","dgx-h100","dgx-h100","dgx-h100","dgx-h100","dgx-h100","dgx-h100","dgx-h100"]' /cluster 'has 1 to 8, not 9'
refused "one name for two" "[$h100, $h100]" /cluster/1/name 'two clusters are called fast'
refused "this machine twice" '["local", "local"]' /cluster/1/name 'two clusters are called local'
refused "a name with a blank" '["dgx-h100", {"profile": "dgx-a100", "name": "my own"}]' /cluster/1/name 'letters, digits'
refused "an unknown profile" '["dgx-h100", "dgx-h1000"]' /cluster/1 'dgx-h1000'
refused "a misspelled name of a profile" '["dgx-h100", {"profile": "dgx-a100", "nam": "mine"}]' /cluster/1/nam 'did you mean .{1,2}name'
refused "an unknown key of a profile" '["dgx-h100", {"profile": "dgx-a100", "racks": 2}]' /cluster/1/racks 'is unknown \(name, profile, nodes, '
trainer=partune launcher='{"kind": "local"}' refused "a launcher of one machine" '["dgx-h100", "dgx-a100"]' /cluster 'runs trials on one cluster, not on 2'
refused "GPUs and CPUs for a trainer of GPUs" "[$h100, \"local\"]" /cluster 'not on both'
tiny='{"profile": "dgx-a100", "name": "tiny", "nodes": 1, "devices_per_node": 1}'
refused "a baseline elsewhere" "[$h100, $a100]" /baseline/cluster 'one of the campaign' ', "baseline": {"cluster": "none"}'
refused "a price of one alone" "[$h100, \"dgx-a100\"]" /objective 'price_per_device_hour in every cluster' ', "objective": "tokens_per_cost"'
refused "a cost of one alone" "[$h100, \"dgx-a100\"]" /budget/cost 'price_per_device_hour in every cluster' ', "budget": {"cost": 5}'
worlds=', "world": [32, 8]' refused "a world that no cluster has" "[$h100, $a100]" /space/world "largest cluster's 16 devices"
is "the space is the sum of both" "$(legal "[$h100, $a100]")" $(($(legal "[$h100]") + $(legal "[$a100]")))
post "/v1/campaigns?dry_run=true" "$(campaign yes "[$h100, $a100]")" >/dev/null
has "of which each has its part" "$(cat body)" '"clusters":\[\{"cluster":"fast","fitting":[1-9][0-9]*\},\{"cluster":"cheap","fitting":[1-9]'
is "a model that does not fit the first" "$(post "/v1/campaigns?dry_run=true" "$(campaign yes "[$tiny, $h100, $a100]")")" 200
has "has its baseline on the first that it fits" "$(cat body)" '"baseline":\{[^}]*"cluster":"fast"'
has "which says so" "$(cat body)" '"baseline_note":"[^"]*nothing fits on tiny'
refused "a model that fits nowhere" "[$tiny, $(echo "$tiny" | sed 's/tiny/other/')]" /model 'on no cluster; on tiny: '
is "one in a list is one" "$(legal "[$h100]")" "$(legal '{"profile": "dgx-h100", "nodes": 1}')"

# ---- the fastest, and after a kill -9
make "a campaign for speed" "$(campaign speed "[$a100, $h100]" ', "budget": {"trials": 14}')"
speed=$id
wait_for 60 sh -c "test \$(sqlite3 data/partune.db \"SELECT count(*) FROM trial WHERE campaign = '$id' AND state = 'ok'\") -ge 3"
stop KILL
start
client
ok "it ends after a kill -9" wait_for 120 is_in "$id" done
is "its winner is the fast cluster's" "$(best)" fast
is "trial 1 is of the first cluster" "$(sql "SELECT json_extract(layout, '\$.cluster') FROM trial WHERE campaign = '$id' AND n = 1")" cheap
is "both were tried" "$(sql "SELECT count(DISTINCT json_extract(layout, '\$.cluster')) FROM trial WHERE campaign = '$id'")" 2
is "each on its own devices" "$(sql "SELECT DISTINCT json_extract(layout, '\$.world') FROM trial WHERE campaign = '$id' AND layout_text LIKE '% on fast'")" 8
is "no number is given twice" "$(sql "SELECT count(*) - count(DISTINCT n) FROM trial WHERE campaign = '$id'")" 0
call "/v1/campaigns/$id" >whole
has "the best of each is shown" "$(cat whole)" '"clusters":\[\{"cluster":"cheap","best":\{'
has "with the second" "$(cat whole)" '\{"cluster":"fast","best":\{'
call "/v1/campaigns/$id/export/megatron?allow_simulated=true&allow_loss=true" >export
has "the export names its cluster" "$(cat export)" 'fast'
call "/v1/campaigns/$id/importance" >importance
has "the cluster is a key of the search" "$(cat importance)" '"cluster":'
call "/v1/campaigns/$id/surface?x=cluster&y=tp" >surface
has "and of its surfaces" "$(cat surface)" '"values":\["cheap","fast"\]'
winner=$(call "/v1/campaigns/$id/best" | sed -n 's/^{"trial":\([0-9]*\).*/\1/p')
call "/v1/campaigns/$id/trials/$winner/why" >why
has "a difference between clusters is explained" "$(cat why)" '"key":"cluster","from":"cheap","to":"fast"'
is "its keys, the cluster among them, add up to it" "$(python3 -c '
import json, math
b = json.load(open("why"))
assert b["trial"] == '"${winner:-0}"' and b["against"] == 1 and b["trials"]["ratio"] > 1, b
step = b["predicted"]
assert abs(sum(k["change_s"] for k in b["keys"]) - (step["to_s"] - step["from_s"])) < 1e-9 * step["from_s"], b
assert abs(math.prod(k["ratio"] for k in b["keys"]) / step["ratio"] - 1) < 1e-9, b
same = b["clusters"]["same_layout"]
assert (b["clusters"]["from"], b["clusters"]["to"], b["clusters"]["reason"]) == ("cheap", "fast", None), b
assert same["trial"] == b["trial"] and same["to_s"] == step["to_s"] and same["from_s"] > same["to_s"], b
assert isinstance(same["fits"], bool), b
print("yes")' 2>&1)" yes
call "/v1/campaigns/$id/trials/1/why?against=$winner" >why
is "the way back: the fast one's layout is legal on the cheap one, not the other way" "$(python3 -c '
import json
b = json.load(open("why"))
same = b["clusters"]["same_layout"]
assert b["clusters"]["from"] == "fast" and same["trial"] == '"${winner:-0}"' and same["to_s"] > same["from_s"], b
print("yes")' 2>&1)" yes
"$partune" why "$id" "$winner" >why.out 2>&1
sed "s/^/# /" why.out
has "the client says which clusters" "$(cat why.out)" '^cluster +fast instead of cheap'
has "and what the same layout does there" "$(cat why.out)" "^expected +[0-9.]+ x as fast on fast with the layout of trial $winner"
has "and how much of the difference that is" "$(cat why.out)" '^cluster +cheap +fast +-[0-9]'
second=$(sql "SELECT min(n) FROM trial WHERE campaign = '$id' AND state = 'ok' AND n > 1 AND kind = 'search' AND layout_text LIKE '% on cheap'")
[ -n "$second" ] && has "on one cluster that is no news" "$(call "/v1/campaigns/$id/trials/$second/why")" '"clusters":null'
is "a verification is accepted" "$(post "/v1/campaigns/$id:verify" '{"pairs": 2}')" 200
ok "winner and baseline are compared" wait_for 60 is_in "$id" done
is "on both clusters" "$(sql "SELECT count(DISTINCT json_extract(layout, '\$.cluster')) FROM trial WHERE campaign = '$id' AND kind = 'verify'")" 2
has "as tables of the client show" "$("$partune" show "$id" 2>&1)" 'best of each cluster'
has "with names" "$("$partune" show "$id" 2>&1)" '^cheap +[0-9]'
has "of a campaign on all of them" "$("$partune" show "$id" 2>&1)" '^model .* on cheap, fast'
project() { post /v1/project '{"campaign": "'"$id"'", "devices": [16]'"$1"'}'; }
call "/v1/campaigns/$id" >whole # with what the verification ran
is "a projection that names no cluster is refused" "$(project '')" 422
has "with the names" "$(cat body)" '"pointer":"/cluster".*\(cheap, fast\)|\(cheap, fast\).*"pointer":"/cluster"'
is "nor is another machine's taken" "$(project ', "cluster": "dgx-b200"')" 422
for where in cheap fast; do
    is "a projection on $where" "$(project ', "cluster": "'$where'"')" 200
    cp body "projected.$where"
done
is "is from the best there, of its own devices and trials" "$(python3 -c '
import json
campaign = json.load(open("whole"))
for row in campaign["clusters"]:
    b = json.load(open("projected." + row["cluster"]))
    assert b["cluster"] == row["cluster"] and b["base"]["tokens_per_s"] == row["best"]["tokens_per_s"], b
    assert b["base"]["devices"] == row["best"]["devices"] and b["transfer"]["changed"] == [], b
    assert b["calibration"]["trials"] == campaign["progress"]["by_state"]["ok"] and b["rows"][0]["transferred"] is False, b
slow, fast = (json.load(open("projected." + name))["rows"][0]["tokens_per_s"] for name in ("cheap", "fast"))
assert fast > 1.5 * slow, (fast, slow)
print("yes")' 2>&1)" yes
has "by the client" "$("$partune" project "$id" --sizes 16 --on fast 2>&1)" '^ *16 +'
# What was projected there is compared with what a later campaign over several clusters and batches measures.
has "nothing has tested it yet" "$(cat projected.cheap)" '"earlier":\[\]'
projected=$id
tested=$(python3 -c '
import json
layout = json.load(open("projected.cheap"))["rows"][0]["layout"]
print(json.dumps(dict(layout, cluster="cheap", global_batch=64)))')
make "a campaign whose baseline is what was projected" "$(launcher='{"kind": "remote"}' campaign tests "[$h100, $a100]" ', "budget": {"trials": 1}, "baseline": '"$tested" | sed 's/"global_batch": 64},$/"global_batch": [32, 64]},/')"
is "its worker asks" "$(suggest w cheap 10)" 200
is "and measures" "$(complete 12345)" 200
tests=$id id=$projected
is "another projection" "$(project ', "cluster": "cheap"')" 200
has "knows how far the earlier one was off" "$(cat body)" '"earlier":\[\{[^]]*"devices":16,[^]]*"measured_by":"'"$tests"'","trial":1,"measured":12345'
call "/v1/campaigns/$id/results.csv" >csv
has "the texts of trials say where" "$(cat csv)" ' on fast'

# ---- the cheapest, in the same words
make "a campaign for the price" "$(campaign price "[$h100, $a100]" ', "budget": {"trials": 14}, "objective": "tokens_per_cost"')"
ok "it ends" wait_for 120 is_in "$id" done
is "its winner is the cheap cluster's" "$(best)" cheap
ok "it is slower" test "$(call "/v1/campaigns/$id/best" | sed 's/.*"tokens_per_s":\([0-9]*\).*/\1/')" -lt "$(call "/v1/campaigns/$speed/best" | sed 's/.*"tokens_per_s":\([0-9]*\).*/\1/')"
has "compared by what tokens cost" "$("$partune" show "$id" 2>&1)" '^cluster +tokens/s +per device +cost/Mtoken +layout'
has "and to a campaign for speed, cluster by cluster" "$("$partune" compare "$id" "$speed" 2>&1)" '^best at cluster cheap +[0-9].* +[0-9]'
"$partune" report "$id" --output report.html >report.out 2>&1; sed "s/^/# /" report.out
has "with the same columns as elsewhere" "$(cat report.html)" '<th>tokens/s per device</th><th>cost per million tokens</th><th>trial</th>'
priced=$id
make "a campaign without prices" "$(campaign unpriced '["dgx-h100", "dgx-a100"]' ', "budget": {"trials": 2}')"
ok "it ends" wait_for 60 is_in "$id" done
has "without prices there is no cost" "$("$partune" show "$id" 2>&1)" '^cluster +tokens/s +per device +layout'
id=$priced
has "in a report" "$(cat report.html)" '>(fast, cheap|cheap, fast)<'
make "a budget of money" "$(campaign money "[$h100, $a100]" ', "budget": {"trials": 40, "cost": 0.001}')"
ok "ends the campaign" wait_for 120 is_in "$id" done
has "by its budget" "$(call "/v1/campaigns/$id")" '"reason":"budget"'
ok "early" test "$(rows 1)" -lt 40

# ---- workers
make "a campaign of workers" "$(launcher='{"kind": "remote"}' campaign workers "[$h100, $a100]" ', "budget": {"trials": 2}')"
is "a worker that does not say where it is" "$(post "/v1/campaigns/$id:suggest" '{"worker": "w", "wait_s": 0.2}')" 422
has "is told the names" "$(cat body)" '\(fast, cheap\)'
is "one of the other cluster waits" "$(suggest w cheap 0.5)" 200
has "while the baseline is the first's" "$(cat body)" '"state":"wait"'
is "one of the first cluster" "$(suggest v fast 5)" 200
has "gets it" "$(cat body)" '"state":"trial"'
has "as a job of that cluster" "$(cat body)" '"name":"fast"'

# ---- nobody comes to one of three: its trials wait, the search goes on with the others
reason() { call "/v1/campaigns/$id" | sed -n 's/.*"state":"[a-z]*","reason":"\([^"]*\)".*/\1/p'; }
told() { test "$(reason)" = "$1"; }
b200='{"profile": "dgx-b200", "name": "third", "nodes": 1, "price_per_device_hour": 20}'
make "a campaign of workers who stay away" "$(launcher='{"kind": "remote", "lease_s": 1}' campaign away "[$h100, $a100, $b200]" ', "budget": {"trials": 9}')"
"$partune" watch "$id" >watch.out 2>&1 &
watch=$!
pids="$pids $watch"
lacks="waiting for a worker with 8 devices on cluster fast: partune worker $id --cluster fast"
ok "it says which cluster is waited for, and what starts a worker there" wait_for 20 told "$lacks"
has "in an event, too" "$($C -m 2 -H "$A" -H 'Last-Event-ID: 0' "$url/v1/campaigns/$id/events" 2>/dev/null | grep -c "\"reason\":\"$lacks\"")" '^1$'
ok "and in what the client prints of it" wait_for 20 grep -qx "running: $lacks" watch.out
has "and shows" "$("$partune" show "$id" 2>&1)" "^state +running: $lacks"
is "a worker with too few devices" "$(post "/v1/campaigns/$id:suggest" '{"worker": "s", "cluster": "fast", "devices": 4, "wait_s": 2}')" 200
has "waits" "$(cat body)" '"state":"wait"'
ok "and is no help" told "$lacks"
elsewhere() { # which trials wait, and where the others are
    sql "SELECT group_concat(CASE state WHEN 'queued' THEN n END), group_concat(DISTINCT CASE state WHEN 'queued' THEN NULL ELSE json_extract(layout, '\$.cluster') END)
        FROM trial WHERE campaign = '$id'"
}
got() { suggest "$1" "$2" 1 >/dev/null && grep -q '"state":"trial"' body; }
for worker in "w cheap" "x third"; do
    ok "a worker of another cluster ($worker) gets a trial there" wait_for 30 got $worker
    has "by its name" "$(cat body)" "\"name\":\"${worker#* }\""
    is "which it completes" "$(complete 4000)" 200
done
has "the first's wait" "$(elsewhere)" '^1(,[0-9]+)*\|'
hasnt() { case $2 in *"$3"*) ok "$1" false ;; *) ok "$1" true ;; esac }
hasnt "no other than it was given away there" "$(elsewhere | cut -d'|' -f2)" fast
ok "which is still said" told "$lacks"
stop KILL
start
client
ok "a daemon after it knows the same" wait_for 20 told "$lacks"
is "the worker comes" "$(post "/v1/campaigns/$id:suggest" '{"worker": "v", "cluster": "fast", "devices": 8, "wait_s": 20}')" 200
has "and gets the trial" "$(cat body)" '"state":"trial","trial":1,'
ok "nothing is waited for there" wait_for 5 sh -c '! curl -s -H "$1" "$2/v1/campaigns/$3" | grep -q "on cluster fast"' - "$A" "$url" "$id"
kill "$watch" 2>/dev/null
make "one trial at a time" "$(launcher='{"kind": "remote", "lease_s": 1}' campaign single "[$h100, $a100]" ', "budget": {"trials": 2}, "search": {"parallel": 1}')"
ok "waits for its cluster" wait_for 20 told "waiting for a worker with 8 devices on cluster fast: partune worker $id --cluster fast"
is "a worker of the other" "$(suggest w cheap 2)" 200
has "waits with it" "$(cat body)" '"state":"wait"'
stop
finish
