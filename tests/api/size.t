#!/bin/sh
# Sizing over HTTP and by the client: days, cost and efficiency of a job on several numbers of devices.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
start
client
partune=$PT_BUILD/partune

job='"model":"llama-8b","cluster":{"profile":"dgx-h100","nodes":8},"workload":{"global_batch":256},"trainer":"megatron"'
see() { python3 -c 'import json, sys; v = json.load(open("body")); i = v["items"]; print('"$1"')' 2>&1; }

is "powers of two of the cluster's nodes, and all" "$(post /v1/size "{$job}") $(see '[x["devices"] for x in i]')" "200 [8, 16, 32, 64]"
is "without tokens no days" "$(see 'i[0]["days"], i[0]["cost"], v["fewest"]')" "None None None"
is "a plan of one size" "$(post /v1/plan "{$job,\"space\":{\"world\":64},\"top\":1}" && python3 -c 'import json; print(json.load(open("body"))["items"][0]["text"])' >plan)" 200
is "has the same best layout" "$(post /v1/size "{$job,\"devices\":[64]}") $(see 'i[0]["text"]')" "200 $(cat plan)"
is "tokens and a price" "$(post /v1/size "{$job,\"devices\":[8,16,64],\"tokens\":1e12,\"price\":2.5,\"days\":50}")" 200
is "are days, device-hours and cost" "$(see 'all(abs(x["days"] * 86400 * x["tokens_per_s"] / 1e12 - 1) < 1e-9 and
    abs(x["device_hours"] / (x["days"] * 24 * x["devices"]) - 1) < 1e-9 and abs(x["cost"] / x["device_hours"] - 2.5) < 1e-9 for x in i)')" True
is "with their interval" "$(see 'all(x["days_lo"] < x["days"] < x["days_hi"] and x["lo"] < x["tokens_per_s"] < x["hi"] for x in i)')" True
is "the fewest devices are those of the first size in time" "$(see 'v["fewest"] == next((x["devices"] for x in i if x["days"] <= 50), None)')" True
is "and at the slow end" "$(see 'v["fewest_sure"] == next((x["devices"] for x in i if x["days_hi"] <= 50), None)')" True
is "the price may be the cluster's" "$(post /v1/size "$(echo "{$job,\"devices\":[8],\"tokens\":1e12}" | sed 's/"nodes":8/"nodes":8,"price_per_device_hour":3/')") $(see 'round(i[0]["cost"] / i[0]["device_hours"], 6)')" "200 3.0"
is "a model that does not fit" "$(post /v1/size "{\"model\":\"llama-70b\",\"cluster\":\"dgx-h100\",\"workload\":{\"global_batch\":64},\"trainer\":\"megatron\",\"devices\":[8,64]}")" 200
is "says why, and the rest is answered" "$(see 'i[0]["layout"], "needs" in i[0]["reason"], i[1]["efficiency"]')" "None True 1.0"

refused() { # what, more of the body, pattern
    is "refused: $1" "$(post /v1/size "{$job,$2}")" 422
    has "with its place" "$(cat body)" "$3"
}
refused "devices that no node has" '"devices":[12]' '12 is not a multiple of a node.s 8 devices.*"pointer":"/devices"'
refused "devices out of order" '"devices":[64,8]' '8 after 64: name them in ascending order'
refused "no devices" '"devices":[]' 'at least one device count'
refused "days without tokens" '"days":3' 'days need tokens.*"pointer":"/days"'
refused "a price without tokens" '"price":3' 'a price needs tokens.*"pointer":"/price"'
refused "a world" '"space":{"world":[8]}' 'world follows from devices.*"pointer":"/space/world"'
refused "an unknown key" '"token":3' 'token.*did you mean'
is "refused: a mistyped trainer" "$(post /v1/size "{${job%?}n\"}")" 422
has "with the nearest" "$(cat body)" 'unknown trainer .*megatronn.*did you mean .*megatron.*"pointer":"/trainer"'

"$partune" size --model llama-8b --cluster dgx-h100 --trainer megatron --sizes 8,16 --tokens 1e12 --days 1000 --price 2 >out
has "the client prints the sizes" "$(cat out)" '^ +16  .*bf16'
has "and how many are enough" "$(cat out)" '^1e\+12 tokens in 1e\+03 days: 8 devices expected, '
is "one size alone tells nothing of further devices" "$(post /v1/size "{$job,\"devices\":[64]}") $(see 'v["pays"]')" "200 None"
has "and how far scaling pays" "$(cat out)" '^up to 16 devices, each added device brings'
"$partune" size --model llama-8b --sizes 8,x 2>err
is "the client refuses what is no number of devices" "$? $(cat err)" "2 partune: --sizes must be whole numbers of devices, such as 64,128"
finish
