#!/bin/sh
# A real campaign of a tiny model over HTTP: its life, its results, its events over a kill -9, and the description of
# the API against what the server answers.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
[ -x "$PT_BUILD/partune-train" ] || { echo "1..0 # SKIP the trainer is not built"; exit 0; }

state_is() { code "/v1/campaigns/$id" >/dev/null && grep -q "\"state\":\"$1\"" body; }
state_is_second() { code "/v1/campaigns/$second" >/dev/null && grep -q "\"state\":\"cancelled\"" body; }

start
spec='"model":"nano-moe","workload":{"global_batch":8},"space":{"world":[1],"micro_batch":[1,2,4]},
      "trial":{"warmup_steps":1,"min_steps":3,"max_steps":6}'
is "create" "$(status -D head -H "$A" -H 'Content-Type: application/json' -H 'Idempotency-Key: one' -d "{\"name\":\"first\",$spec,\"budget\":{\"trials\":3},\"tags\":[\"a\"]}" "$url/v1/campaigns")" 201
id=$(sed -n 's/.*"id":"\([^"]*\)","name".*/\1/p' body)
has "201 has the Location" "$(cat head)" "^Location: /v1/campaigns/$id"
timeout 60 curl -sN -H "$A" -H 'Last-Event-ID: 0' "$url/v1/campaigns/$id/events" >live &
pids="$pids $!"
is "the same request with its Idempotency-Key" "$(status -H "$A" -H 'Content-Type: application/json' -H 'Idempotency-Key: one' -d "{\"name\":\"first\",$spec,\"budget\":{\"trials\":3},\"tags\":[\"a\"]}" "$url/v1/campaigns")" 201
has "gets the same campaign" "$(cat body)" "^{\"id\":\"$id\""
ok "the campaign ends" wait_for 60 state_is done
is "all trials are listed" "$(code "/v1/campaigns/$id/trials" && sed 's/.*"total":\([0-9]*\).*/ \1/' body)" "200 3"
is "paged, newest first" "$(code "/v1/campaigns/$id/trials?page_size=1&sort=-n" && grep -c '"n":3' body)" "2001"
is "no trial ran out of memory" "$(code "/v1/campaigns/$id/trials?state=oom" && sed 's/.*"total":\([0-9]*\).*/ \1/' body)" "200 0"
ok "the stream reports its end" wait_for 5 grep -q '"state":"done"' live
has "steps were streamed" "$(cat live)" '^event: step'
has "and so was the best" "$(cat live)" '^event: best'

etag=$($C -I -H "$A" "$url/v1/campaigns/$id" | sed -n 's/^ETag: \(.*\)\r$/\1/p')
is "If-None-Match unchanged: 304" "$(status -H "$A" -H "If-None-Match: $etag" "$url/v1/campaigns/$id")" 304
is "change the notes" "$(status -X PATCH -H "$A" -H 'Content-Type: application/json' -H "If-Match: $etag" -d '{"notes":"<b>n</b>","tags":["x","y"]}' "$url/v1/campaigns/$id")" 200
is "notes with an old ETag: 412" "$(status -X PATCH -H "$A" -H 'Content-Type: application/json' -H "If-Match: $etag" -d '{"notes":"m"}' "$url/v1/campaigns/$id")" 412
is "found by its tag" "$(code '/v1/campaigns?tag=x' && grep -c "$id" body)" "2001"
is "found by a part of its name" "$(code '/v1/campaigns?name=IRS' && grep -c "$id" body)" "2001"
is "not by other text" "$(code '/v1/campaigns?name=first2' && sed 's/.*"total":\([0-9]*\).*/ \1/' body)" "200 0"
is "not by another tag" "$(code '/v1/campaigns?tag=a' && sed 's/.*"total":\([0-9]*\).*/ \1/' body)" "200 0"
is "an unknown state of trials: 400" "$(code "/v1/campaigns/$id/trials?state=done")" 400
is "an unknown kind: 400" "$(code "/v1/campaigns/$id/trials?kind=best")" 400
is "a verb with an old ETag: 412" "$(status -H "$A" -H 'Content-Type: application/json' -H "If-Match: $etag" -d '{}' "$url/v1/campaigns/$id:cancel")" 412
is "a clone with a body that is not an object: 422" "$(post "/v1/campaigns/$id:clone" '[]')" 422
is "pause an ended campaign: 409" "$(post "/v1/campaigns/$id:pause" '{}')" 409
for what in best baseline importance pareto predictions diagnosis trials/1 trials/1/steps trials/1/log trials/1/why 'surface?x=micro_batch&y=recompute'; do
    is "GET $what" "$(code "/v1/campaigns/$id/$what")" 200
done
command -v python3 >/dev/null && for trial in $(call "/v1/campaigns/$id/trials?state=ok" | python3 -c 'import json,sys; print(*[t["n"] for t in json.load(sys.stdin)["items"]])'); do
    { call "/v1/campaigns/$id/trials/1"; echo; call "/v1/campaigns/$id/trials/$trial"; echo; } >trials
    code "/v1/campaigns/$id/trials/$trial/why" >/dev/null
    is "trial $trial against the baseline: keys and classes add up to what is expected" "$(python3 -c 'import json
w = json.load(open("body"))
base, its = [json.loads(t) for t in open("trials").read().splitlines()]
p, sec = w["predicted"], lambda name: sum(c[name] or 0 for c in w["classes"])
near = lambda x, y: abs(x - y) < 1e-9 * p["from_s"]
changed = {k for k in its["layout"] if its["layout"][k] != base["layout"].get(k) and k not in ("dp", "edp")}
product = 1
for k in w["keys"]:
    product *= k["ratio"]
    assert near(sum(k["classes"].values()), k["change_s"]), k
assert near(sum(k["change_s"] for k in w["keys"]), p["to_s"] - p["from_s"]), w
assert near(sec("from_s"), p["from_s"]) and near(sec("to_s"), p["to_s"]), w
assert abs(product / p["ratio"] - 1) < 1e-9, w
assert {k["key"] for k in w["keys"]} == changed, (w["keys"], changed)
assert not w["simulated"] and w["against"] == 1 and w["trials"]["ratio"] > 0, w
assert abs(sec("trial_to_s") * 1e3 / sum(its["phases_ms"].values()) - 1) < 1e-9, w
print("yes")' 2>&1 || call "/v1/campaigns/$id/trials/$trial/why")" yes
done
is "against another trial" "$(code "/v1/campaigns/$id/trials/1/why?against=2")" 200
has "which is named" "$(cat body)" '"trial":1,"against":2'
is "against the baseline by its word" "$(code "/v1/campaigns/$id/trials/2/why?against=baseline")" 200
is "against what is no trial: 400" "$(code "/v1/campaigns/$id/trials/2/why?against=best")" 400
has "with what may stand there" "$(cat body)" 'baseline. or the number of a trial, not ..best'
is "against a trial that is not there: 404" "$(code "/v1/campaigns/$id/trials/2/why?against=999")" 404
is "of a trial that is not there: 404" "$(code "/v1/campaigns/$id/trials/999/why")" 404
two='"model":"gpt-1.4B","cluster":{"profile":"dgx-a100","nodes":1},"workload":{"global_batch":16},"trainer":"megatron","layout":{"tp":2,"precision":"bf16"}'
is "a layout that no trial ran is compared" "$(post /v1/check "{$two,\"against\":{\"tp\":4,\"precision\":\"bf16\"}}")" 200
has "with its changed key" "$(cat body)" '"why":\{.*"keys":\[\{"key":"tp","from":4,"to":2,'
is "without another there is nothing to explain" "$(post /v1/check "{$two}" && grep -c '"why":null' body)" 2001
is "an illegal other layout is refused" "$(post /v1/check "{$two,\"against\":{\"tp\":3}}")" 422
has "with its field" "$(cat body)" '"/against"'
rule='"name":"rule","model":"mixtral-8x22b","cluster":{"profile":"dgx-h100","nodes":64},"workload":{"global_batch":1024},"launcher":{"kind":"simulated"},"trainer":"megatron","space":{"tp":[2],"pp":[8],"micro_batch":[1]}'
is "a baseline is chosen by rule" "$(post "/v1/campaigns?dry_run=true" "{$rule}")" 200
has "the default baseline, unless the campaign names one" "$(cat body)" '"baseline_rule": *"default"'
has "uses all devices and spreads experts" "$(tr -d ' ' <body)" '"baseline":{"world":512,.*"ep":8,'
is "or the naive baseline" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":\"naive\"}")" 200
has "the answer names the rule" "$(cat body)" '"baseline_rule": *"naive"'
has "and the baseline is unchanged" "$(tr -d ' ' <body)" '"baseline":{"world":448,.*"ep":1,'
is "an unknown rule is refused" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":\"person\"}")" 422
has "with its field" "$(cat body)" '/baseline'
script='--sequence-parallel --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 512 --seq-length 2048 --use-distributed-optimizer --bf16 --no-such-setting'
is "a job script is a baseline" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":{\"import\":\"megatron\",\"text\":\"$script\"}}")" 200
has "on all devices" "$(tr -d ' ' <body)" '"baseline":{"world":512,"tp":8,"sp":1,.*"pp":4,.*"micro_batch":2'
has "it is the campaign's own" "$(cat body)" '"baseline_rule": *"given"'
has "and where it does other work is said" "$(cat body)" 'trains global_batch 512, the campaign 1024; it trains seq 2048, the campaign [0-9]*'
defaulted='TP=8; while [ $# -gt 0 ]; do case $1 in --tp) TP=$2; shift 2 ;; esac; done; torchrun pretrain_gpt.py --micro-batch-size 1 --tensor-model-parallel-size $TP --sequence-parallel'
is "or one whose options have defaults" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":{\"import\":\"megatron\",\"text\":\"$defaulted\"}}")" 200
has "which are read as without arguments" "$(cat body)" 'read as called without arguments; [0-9]* of its settings ignored'
is "or on fewer" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":{\"import\":\"megatron\",\"text\":\"$script\",\"world\":64}}")" 200
has "as it says" "$(tr -d ' ' <body)" '"baseline":{"world":64,"tp":8,"sp":1,.*"pp":4,'
is "a script whose degree is unknown is refused" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":{\"import\":\"megatron\",\"text\":\"--tensor-parallel-size 8\"}}")" 422
has "with its field" "$(cat body)" '"/baseline/text"'
is "one that nobody reads, too" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":{\"import\":\"horovod\",\"text\":\"\"}}")" 422
has "with its field" "$(cat body)" '"/baseline/import"'
is "a text without its kind is refused" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":{\"text\":\"$script\"}}")" 422
has "by the key that it lacks" "$(cat body)" 'import'
is "a script whose layout breaks a rule is refused" "$(post "/v1/campaigns?dry_run=true" "{$rule,\"baseline\":{\"import\":\"megatron\",\"text\":\"--tensor-model-parallel-size 7 --micro-batch-size 1\",\"world\":7}}")" 422
has "by the rule" "$(cat body)" 'heads'
has "a campaign says which rule chose" "$(code "/v1/campaigns/$id" && cat body)" '"baseline_rule": *"default"'
has "and has its baseline" "$(code "/v1/campaigns/$id/baseline" && cat body)" '"baseline_rule": *"default"'
is "surface of one key: 400" "$(code "/v1/campaigns/$id/surface?x=tp")" 400
is "read a log from its middle" "$(code "/v1/campaigns/$id/trials/1/log?offset=3&limit=7" && wc -c <body | tr -d ' ')" "2007"
is "export" "$(code "/v1/campaigns/$id/export/partune")" 200
has "it has its provenance" "$(cat body)" "$id"
job="/v1/campaigns/$id/export/mpijob+partune"
is "export a job script" "$(status -D head -H "$A" "$url$job")" 200
has "with a telling file name" "$(cat head)" "filename=\"$id-partune\.yaml\""
for e in "data/campaigns/$id"/trials/*/1/events; do mv "$e" "$e.kept" && mkfifo "$e"; done
is "export when a trial has left a pipe as its event file" "$(code "/v1/campaigns/$id/export/partune")" 200
for e in "data/campaigns/$id"/trials/*/1/events; do mv "$e.kept" "$e"; done
is "export to an unknown target: 404" "$(code "/v1/campaigns/$id/export/nothing")" 404
is "compare trials" "$(post /v1/compare "{\"trials\":[{\"campaign\":\"$id\",\"n\":1},{\"campaign\":\"$id\",\"n\":2}]}")" 200
has "says where they differ" "$(cat body)" '"differs":\["'
is "compare only one: 422" "$(post /v1/compare "{\"campaigns\":[\"$id\"]}")" 422
if command -v sqlite3 >/dev/null; then # what cannot be remembered is not made, so a kill between the two cannot make it twice
    twice() { status -H "$A" -H 'Content-Type: application/json' -H 'Idempotency-Key: two' -d "{\"name\":\"twice\",$spec,\"budget\":{\"trials\":1}}" "$url/v1/campaigns"; }
    sqlite3 -cmd '.timeout 5000' data/partune.db "CREATE TRIGGER forgetful BEFORE INSERT ON answer BEGIN SELECT RAISE(ABORT, 'no room'); END"
    has "an answer that cannot be stored is not sent" "$(twice)" '^[45]'
    sqlite3 -cmd '.timeout 5000' data/partune.db "DROP TRIGGER forgetful"
    is "a repetition succeeds" "$(twice)" 201
    is "and there is one campaign" "$(code '/v1/campaigns?name=twice' && sed 's/.*"total":\([0-9]*\).*/ \1/' body)" "200 1"
fi
is "clone with changes" "$(post "/v1/campaigns/$id:clone" '{"name":"second","budget":{"trials":200},"space":{"world":[1,2]}}')" 201
second=$(sed -n 's/.*"id":"\([^"]*\)","name".*/\1/p' body)

last=$(sed -n 's/^id: //p' live | tail -1)
sleep 0.7
kill -9 "$pid"
wait "$pid" 2>/dev/null
start
timeout 20 curl -sN -H "$A" -H "Last-Event-ID: $last" "$url/v1/events" >resumed &
pids="$pids $!"
timeout 20 curl -sN -H "$A" -H "Last-Event-ID: 999999999" "$url/v1/events" >future &
pids="$pids $!"
ok "events resume after kill -9" wait_for 10 grep -q "\"campaign\":\"$second\"" resumed
is "with the next id" "$(sed -n 's/^id: //p' resumed | head -1)" "$((last + 1))"
ok "an id from the future gets new events" wait_for 10 grep -q "\"campaign\":\"$second\"" future
is "no id is repeated" "$(sed -n 's/^id: //p' resumed | sort | uniq -d | wc -l | tr -d ' ')" 0
is "the Idempotency-Key is remembered" "$(status -H "$A" -H 'Content-Type: application/json' -H 'Idempotency-Key: one' -d "{\"name\":\"first\",$spec,\"budget\":{\"trials\":3},\"tags\":[\"a\"]}" "$url/v1/campaigns" && grep -c "^{\"id\":\"$id\"" body)" "2011"
is "pause" "$(post "/v1/campaigns/$second:pause" '{}')" 200
is "resume" "$(post "/v1/campaigns/$second:resume" '{}')" 200
is "delete a running campaign: 409" "$(status -X DELETE -H "$A" "$url/v1/campaigns/$second")" 409
is "cancel" "$(post "/v1/campaigns/$second:cancel" '{}')" 200
ok "it is cancelled" wait_for 20 state_is_second
"$PT_BUILD/tests/api/openapi_check" "$url" "$(cat data/token)" "$id" 1 >walk
ok "the description agrees with the server on all $(grep -c '^ok' walk) points" sh -c '! grep -A2 "^not ok" walk'
deleted() { [ "$(status -X DELETE -H "$A" "$url/v1/campaigns/$second")" = 204 ]; }
ok "delete it once its trials have stopped" wait_for 10 deleted
is "it is gone" "$(code "/v1/campaigns/$second")" 404
kill -TERM "$pid"
wait "$pid"
is "the daemon exits cleanly" $? 0
finish
