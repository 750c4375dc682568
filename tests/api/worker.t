#!/bin/sh
# The launcher `remote`: two real workers find a winner together; one that dies loses its trial to the other; a daemon
# that is killed knows the leases again; and a program of the user's own speaks to the API by curl.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
[ -x "$PT_BUILD/partune-train" ] && command -v mpiexec >/dev/null || { echo "1..0 # SKIP the trainer is not built"; exit 0; }
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0

number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" body; }
submit() { # name, lease, trials, more keys of the space
    post /v1/campaigns "{\"name\":\"$1\",\"model\":\"nano-moe\",\"workload\":{\"global_batch\":8},
        \"launcher\":{\"kind\":\"remote\",\"lease_s\":$2},\"budget\":{\"trials\":$3},\"space\":{\"world\":[1],\"micro_batch\":[1,2,4,8]$4},
        \"trial\":{\"warmup_steps\":1,\"min_steps\":3,\"max_steps\":6}}"
    id=$(id_of <body)
}
worker() { # name, more options
    w=$1
    shift
    "$PT_BUILD/partune" worker "$id" --server "$url" --data data --name "$w" --folder "$run/$w" "$@" >"$w.out" 2>&1 &
    last=$!
    pids="$pids $last"
}
is_done() { code "/v1/campaigns/$id" >/dev/null && grep -q '"state":"done"' body; }
trial_is() { code "/v1/campaigns/$id/trials/$1" >/dev/null && grep -q "\"state\":\"$2\"" body; }

# ---- two workers, and a third one that is killed
start
port=${url##*:}
submit two 4 8 ',"recompute":["none","full"]' >/dev/null
printf '#!/bin/sh\necho "{\\"v\\":1,\\"event\\":\\"hello\\"}" >"$2"\nexec sleep 60\n' >stall
chmod +x stall
worker lost --exec "$run/stall"
lost=$last
ok "a worker has the first trial" wait_for 60 trial_is 1 running
kill -9 "$lost"
worker one
one=$last
worker two
two=$last
ok "the campaign ends" wait_for 240 is_done
code "/v1/campaigns/$id" >/dev/null
counts=$(sed -n 's/.*"by_state":{\([^}]*\)}.*/\1/p' body)
echo "# $counts"
finals=$(echo "$counts" | tr ',' '\n' | grep -E '"(ok|pruned)"' | sed 's/.*://' | awk '{ s += $1 } END { print s }')
is "each trial is in one final state" "$finals" "$(sed -n 's/.*"progress":{[^}]*"trials":\([0-9]*\),.*/\1/p' body)"
case $counts in *crash* | *node_fail*) code "/v1/campaigns/$id/trials" >/dev/null; tr '{' '\n' <body | grep '"class"' | sed 's/^/# /' ;; esac
has "there is a winner with its ratio" "$(cat body)" '"best":\{"trial":[0-9]+,.*"ratio":[0-9.]+'
code "/v1/campaigns/$id/trials/1" >/dev/null
ok "the killed worker's trial had another attempt" test "$(number attempts)" -ge 2
wait "$one" "$two"
is "workers end with the campaign" $? 0
is "both ran trials" "$(grep -l '^trial' one.out two.out | wc -l | tr -d ' ')" 2
code /v1/workers >/dev/null
is "the workers are listed" "$(number total)" 3
has "by the client, too" "$("$PT_BUILD/partune" workers --server "$url" --data data)" '^two +idle'
is "the trial's log is stored" "$(code "/v1/campaigns/$id/trials/2/log?stream=events" && grep -c '"event": *"summary"' body)" 2001

# ---- a program of one's own, by partune worker: it is told where its files are by arguments and by the environment
cat >own <<'END'
#!/bin/sh
[ "$1 $2" = "$PARTUNE_TRIAL_CONFIG $PARTUNE_TRIAL_EVENTS" ] || exit 2
echo "$TRACEPARENT" >"${0%/*}/traceparent"
echo '{"v":1,"event":"summary","tokens_per_s":4321,"tokens_per_s_se":1}' >"$2"
END
chmod +x own
submit own 60 1 >/dev/null
worker third --exec "$run/own"
ok "a program's own trial is ok" wait_for 60 trial_is 1 ok
has "with its number" "$(cat body)" '"tokens_per_s":4321'
has "it is in the campaign's trace" "$(cat traceparent)" "^00-$(call "/v1/campaigns/$id" | sed -n 's/.*"trace_id":"\([0-9a-f]*\)".*/\1/p')-[0-9a-f]{16}-01\$"

# ---- a program of one's own, by curl
given() { sed -n 's/.*"state":"trial","trial":\([0-9]*\),.*/\1/p' body; }
lease() { sed -n 's/.*"lease":"\([^"]*\)".*/\1/p' body; }
submit mine 3600 4 >/dev/null
is "a worker asks" "$(post "/v1/campaigns/$id:suggest" '{"worker":"mine","wait_s":20}')" 200
l=$(lease)
has "and gets a trial with its layout" "$(cat body)" '"state":"trial".*"layout":\{"world":1.*"config":\{'
is "asking again gets the same trial" "$(post "/v1/campaigns/$id:suggest" '{"worker":"mine"}' && lease)" "200$l"
is "steps are accepted" "$(post "/v1/campaigns/$id/trials/1:heartbeat" "{\"lease\":\"$l\",\"from\":0,\"events\":[{\"v\":1,\"event\":\"step\",\"n\":1,\"ms\":10.5,\"warmup\":true},{\"v\":1,\"event\":\"step\",\"n\":2,\"ms\":10.0}]}")" 200
is "sent twice, counted once" "$(post "/v1/campaigns/$id/trials/1:heartbeat" "{\"lease\":\"$l\",\"from\":0,\"events\":[{\"v\":1,\"event\":\"step\",\"n\":1,\"ms\":10.5,\"warmup\":true},{\"v\":1,\"event\":\"step\",\"n\":2,\"ms\":10.0}]}" && number events)" "2002"
is "with a gap: 422" "$(post "/v1/campaigns/$id/trials/1:heartbeat" "{\"lease\":\"$l\",\"from\":7,\"events\":[]}")" 422
is "an unknown lease: 409" "$(post "/v1/campaigns/$id/trials/1:heartbeat" '{"lease":"1-00"}')" 409
is "an invalid event: 422" "$(post "/v1/campaigns/$id/trials/1:heartbeat" "{\"lease\":\"$l\",\"events\":[3]}")" 422
kill -9 "$pid"
wait "$pid" 2>/dev/null
start --listen "127.0.0.1:$port"
is "a restarted daemon knows the lease" "$(post "/v1/campaigns/$id/trials/1:heartbeat" "{\"lease\":\"$l\"}" && number events)" "2002"
is "ok without a throughput: 422" "$(post "/v1/campaigns/$id/trials/1:complete" "{\"lease\":\"$l\",\"status\":\"ok\"}")" 422
is "complete the trial" "$(post "/v1/campaigns/$id/trials/1:complete" "{\"lease\":\"$l\",\"status\":\"ok\",\"tokens_per_s\":12345,\"tokens_per_s_se\":10,\"peak_memory_bytes\":1000000}")" 200
has "the trial is ok, with the reported throughput" "$(cat body)" '"state":"ok".*"tokens_per_s":12345'
is "complete again: the same answer" "$(post "/v1/campaigns/$id/trials/1:complete" "{\"lease\":\"$l\",\"status\":\"ok\",\"tokens_per_s\":99999}" && grep -c '"tokens_per_s":12345' body)" "2001"
is "a heartbeat after the end: 409" "$(post "/v1/campaigns/$id/trials/1:heartbeat" "{\"lease\":\"$l\"}")" 409
is "complete with oom" "$(post "/v1/campaigns/$id:suggest" '{"worker":"mine","wait_s":20}' && l=$(lease) && post "/v1/campaigns/$id/trials/$(given):complete" "{\"lease\":\"$(lease)\",\"status\":\"oom\",\"detail\":\"too much\"}")" "200200"
has "the trial is oom" "$(cat body)" '"state":"oom".*"detail":"too much"'
l=$(post "/v1/campaigns/$id:suggest" '{"worker":"mine","wait_s":20}' >/dev/null && lease)
is "a long text is cut" "$(post "/v1/campaigns/$id/trials/$(given):complete" "{\"lease\":\"$l\",\"status\":\"illegal\",\"detail\":\"$(printf 'é%.0s' $(seq 300))\"}")" 200
has "between characters" "$(cat body)" '"detail":"(é)+"'
is "a worker with too few devices gets nothing" "$(post "/v1/campaigns/$id:suggest" '{"worker":"","wait_s":1}')" 422
post "/v1/campaigns/$id:suggest" '{"worker":"mine","wait_s":20}' >/dev/null
l=$(lease)
n3=$(given)
is "cancel" "$(post "/v1/campaigns/$id:cancel" '{}')" 200
ok "its trial ends" wait_for 60 trial_is "$n3" cancelled
is "a late report: 409" "$(post "/v1/campaigns/$id/trials/$n3:complete" "{\"lease\":\"$l\",\"status\":\"ok\",\"tokens_per_s\":1}")" 409
has "with the reason" "$(field detail)" 'has ended \(cancelled\); the trial is cancelled'
is "and the worker is done" "$(post "/v1/campaigns/$id:suggest" '{"worker":"mine"}' && field state)" "200done"

# ---- nothing to give
submit single 3600 1 >/dev/null
is "one worker gets the only trial" "$(post "/v1/campaigns/$id:suggest" '{"worker":"first","wait_s":20}' && given)" "2001"
is "the next waits for wait_s and is told to wait" \
    "$(post "/v1/campaigns/$id:suggest" '{"worker":"second","wait_s":0.5}' && field state)" "200wait"
post "/v1/campaigns/$id:cancel" '{}' >/dev/null

# ---- a lease that runs out
submit late 1 2 >/dev/null
post "/v1/campaigns/$id:suggest" '{"worker":"slow","wait_s":20}' >/dev/null
l=$(lease)
ok "a trial whose lease expires is requeued" wait_for 60 trial_is 1 queued
is "a late report: 409" "$(post "/v1/campaigns/$id/trials/1:complete" "{\"lease\":\"$l\",\"status\":\"ok\",\"tokens_per_s\":1}")" 409
has "with the reason" "$(field detail)" 'has ended \(node_fail\); the trial is queued'
is "the other worker gets it" "$(post "/v1/campaigns/$id:suggest" '{"worker":"fast","wait_s":20}' && given)" "2001"
is "and completes it" "$(post "/v1/campaigns/$id/trials/1:complete" "{\"lease\":\"$(lease)\",\"status\":\"ok\",\"tokens_per_s\":7}" && number attempts)" "2002"
is "a campaign with another launcher has no trials for workers: 409" "$(post /v1/campaigns '{"name":"x","model":"nano-moe","workload":{"global_batch":8},"launcher":{"kind":"simulated"},"budget":{"trials":1}}' >/dev/null; id=$(id_of <body); post "/v1/campaigns/$id:suggest" '{"worker":"w"}')" 409
kill -TERM "$pid"
wait "$pid"
is "the daemon exits cleanly" $? 0
finish
