#!/bin/sh
# A simulated campaign never reads like a measurement: every view of it says that it is simulated, and none that anything
# was measured, verified or saved.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
partune=$PT_BUILD/partune
python3 "$PT_SRC/tests/api/receiver.py" hooks 200 2>receiver.err &
pids="$pids $!"
wait_for 20 test -s hooks.port || { echo "Bail out! no receiver"; exit 99; }
cat >conf <<END
[webhook "all"]
url = http://127.0.0.1:$(cat hooks.port)/in
secret = 0123456789abcdef0123456789abcdef
events = campaign.running, campaign.paused, campaign.verifying, campaign.done, campaign.cancelled, trial.ended
allow-private = yes
END
start --config conf
client

campaign() { # name, kind of launcher, search
    echo '{"name": "'"$1"'", "model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "trainer": "megatron",
        "workload": {"global_batch": 16, "precision": "bf16"}, "budget": {"trials": 8}, "launcher": {"kind": '"$2"'}, "search": '"$3"'}'
}
fast='"simulated", "speed": 1000000'
id=$(call /v1/campaigns -d "$(campaign dry "$fast" '{"seed": 3}')" | id_of)
ok "a simulated campaign ends" wait_for 120 is_in "$id" done
call "/v1/campaigns/$id:verify" -d '{"pairs": 3}' >/dev/null
verified() { call "/v1/campaigns/$id" | grep -q '"verdict":"[a-z]'; }
ok "its verification ends" wait_for 120 verified
later=$(call /v1/campaigns -d "$(campaign later "$fast" '{"warm_start": ["'"$id"'"]}')" | id_of)
ok "a campaign warm-started from it ends" wait_for 120 is_in "$later" done
has "and says that this was simulated" "$(call "/v1/campaigns/$later")" '"warm_start":\{"campaigns":1,"trials":([1-9][0-9]*),"simulated":\1\}'

# ---- every route, event, export, webhook and metric
python3 "$PT_SRC/tests/api/simulated_check.py" "$url" "$(cat data/token)" "$id" hooks >walk 2>&1 || echo "not ok the walk ends" >>walk
told walk

# ---- the daemon's log
is "no line of the log calls it measured" "$(grep -cE 'measured|verified' err)" 0
has "a settled trial is simulated in the log" "$(cat err)" "campaign $id \(simulated\): trial 1 "
has "and so is the campaign's end" "$(cat err)" "campaign $id \(simulated\) is done"

# ---- the client
said() { # command...: its output says simulated, and nothing of a measurement
    "$partune" "$@" >out 2>&1 </dev/null || { cat out; return 1; }
    grep -q simulated out && ! grep -iqwE 'measured|saved' out || { cat out; return 1; }
    ! grep -iw verified out | grep -v 'verified: no\>'
}
while read -r command; do
    # shellcheck disable=SC2086 # words are meant
    ok "partune $command" said $command
done <<END
ls
show $id
show $later
watch $id
best $id
baseline $id
trials $id
trial $id 1
steps $id 1
why $id 2
importance $id
pareto $id
predictions $id
surface $id tp micro_batch
diagnosis $id
compare $id $later
compare $id/1 $id/2
project $id --sizes 8,16
edit $id --notes dry
log $id 1 --stream events
timeline $id 1
export $id --to megatron --allow-loss --allow-simulated
export $id --to megatron --allow-loss --allow-simulated --trial 1
END
ok "submit" sh -c '"$0" submit - | grep -q simulated' "$partune" <<END
$(campaign third "$fast" '{}')
END
ok "check of a campaign" sh -c '"$0" check - | grep -q simulated' "$partune" <<END
$(campaign third "$fast" '{}')
END
ok "watch of a running campaign" sh -c '"$0" submit --watch - >watched && ! grep -qwE "measured|saved" watched &&
    [ "$(grep -c "simulated tokens/s" watched)" -gt 3 ]' "$partune" <<END
$(campaign fourth "$fast" '{}')
END
"$partune" export "$id" --to megatron --allow-loss >out 2>&1
is "an export needs a flag" $? 1
has "and the refusal names it" "$(cat out)" 'is simulated: .*--allow-simulated'
ok "verify --wait" sh -c '"$0" verify "$1" --pairs 2 --wait >out 2>&1; grep -q simulated out && ! grep -qwE "measured|verified" out' "$partune" "$id"

early=$(call /v1/campaigns -d "$(campaign early '"simulated", "speed": 0.001' '{}')" | id_of)
"$partune" predictions "$early" >out 2>&1
is "predictions without any result claim no measurement" "$(grep -c predicted out) $(grep -c measured out)" "1 0"
call "/v1/campaigns/$early:cancel" -d "{}" >/dev/null

# ---- next to a campaign that is not
real=$(call /v1/campaigns -d "$(campaign real '"remote"' '{}')" | id_of)
has "a real campaign is not simulated" "$(call "/v1/campaigns/$real")" '"simulated":false'
has "side by side they are told apart" "$(call /v1/compare -d '{"campaigns": ["'"$id"'", "'"$real"'"]}')" '"simulated":true,"mixed":true'
has "also by the client" "$("$partune" compare "$id" "$real")" 'cannot be compared'
has "metrics count both" "$(call /metrics)" 'partune_campaigns\{state="done",simulated="true"\} 4$'
has "separately" "$(call /metrics)" 'partune_campaigns\{state="running",simulated="false"\} 1$'
finish
