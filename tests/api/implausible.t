#!/bin/sh
# A rate that no device reaches is a warning on its trial and never a result, no matter who reports it.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
partune=$PT_BUILD/partune
start
client
at() { python3 -c 'import json, sys
v = json.load(sys.stdin)
for key in sys.argv[1].split("."): v = None if v is None else v[int(key)] if isinstance(v, list) else v.get(key)
print("null" if v is None else v)' "$1"; }
submit() { # seq, precision
    call /v1/campaigns -d '{"name": "h100", "model": "llama-8b", "cluster": {"profile": "dgx-h100", "nodes": 1}, "trainer": "megatron",
        "workload": {"global_batch": 8, "seq": '"$1"', "precision": "'"$2"'"}, "launcher": {"kind": "remote"}, "budget": {"trials": 4},
        "search": {"seed": 1}, "space": {"world": [8]}}' | at id
}
# A trial's throughput as this share of what its layout takes at 100 % MFU; prints its number.
report() { # id, share
    offer=$(call "/v1/campaigns/$1:suggest" -d '{"worker": "w", "wait_s": 30}')
    trial=$(echo "$offer" | at trial)
    check=$(call /v1/check -d "{\"model\": \"llama-8b\", \"cluster\": {\"profile\": \"dgx-h100\", \"nodes\": 1}, \"trainer\": \"megatron\",
        \"workload\": $(call "/v1/campaigns/$1" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["workload"]))'),
        \"layout\": $(echo "$offer" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["layout"]))')}")
    rate=$(echo "$check" | python3 -c 'import json, sys; v = json.load(sys.stdin); print(v["cost"]["tokens_per_s"] / v["mfu"] * float(sys.argv[1]))' "$2")
    call "/v1/campaigns/$1/trials/$trial:complete" -d "{\"lease\": \"$(echo "$offer" | at lease)\", \"status\": \"ok\", \"tokens_per_s\": $rate, \"peak_memory_bytes\": 3e10}" >/dev/null
    echo "$trial"
}

id=$(submit 8192 bf16)
first=$(report "$id" 12.728)
call "/v1/campaigns/$id/trials/$first" >trial
is "a trial of 1272.8 % MFU is not counted" "$(at state <trial) $(at tokens_per_s <trial) $(at mfu <trial)" "implausible null null"
has "its warning has both numbers" "$(at warning <trial)" 'tokens/s are 1272\.8 % MFU, at least [0-9.e+]* TFLOP/s per device, above its bf16 peak of 989'
has "and the likely causes" "$(at warning <trial)" 'Likely causes: a log throughput with another unit .* a wrong peak in the cluster$'
is "there is no best" "$(call "/v1/campaigns/$id" | at best)" null
second=$(report "$id" 0.4)
is "the next is" "$(call "/v1/campaigns/$id/best" | at trial)" "$second"
third=$(report "$id" 1.3)
is "130 % is not counted either" "$(call "/v1/campaigns/$id/trials/$third" | at state)" implausible
is "and does not win" "$(call "/v1/campaigns/$id/best" | at trial)" "$second"
is "neither pareto nor predictions has it" "$(call "/v1/campaigns/$id/pareto" | at items.0.n) $(call "/v1/campaigns/$id/predictions" | at items.0.n)" "$second $second"
fourth=$(report "$id" 0.41)
has "a projection rests on the two others" "$(call /v1/project -d "{\"campaign\": \"$id\", \"devices\": [8]}" | at calibration.trials)" '^2$'
has "the list of trials has the warning" "$("$partune" trials "$id")" "implausible .*% MFU"
has "so has the trial" "$("$partune" trial "$id" "$first")" '^warning +[0-9.e+]+ tokens/s are 1272\.8 %'
has "and watch" "$("$partune" watch "$id")" 'implausible .*warning: .*MFU'
has "the list is filtered by it" "$("$partune" trials "$id" --state implausible)" "^ *$first "
is "other trials have no warning" "$(call "/v1/campaigns/$id/trials/$fourth" | at warning)" null
has "the log of the daemon warns" "$(cat err)" "trial $first attempt 1 is not counted"

# Megatron's MFU counts attention that a causal mask hides: at long sequences it may be above 100 % of what a device can do.
long=$(submit 131072 bf16)
of=$(report "$long" 1.05)
is "at 131,072 tokens, 105 % MFU is plausible" "$(call "/v1/campaigns/$long/trials/$of" | at state)" ok
# The peak is that of the layout's precision: twice as fast in fp8.
eight=$(submit 8192 fp8)
of=$(report "$eight" 0.9)
is "90 % of the fp8 peak is plausible, though above that of bf16" "$(call "/v1/campaigns/$eight/trials/$of" | at state)" ok
finish
