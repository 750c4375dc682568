#!/bin/sh
# A campaign over several numbers of devices that asks for tokens/s per device, on a cluster with a price: best, ratios,
# verification, events and explanations all follow it. The worker here reports what a machine would on which a device
# brings less the more of them there are.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
start
client
partune=$PT_BUILD/partune
cat >work.py <<'END'
"""work.py ID: run what the campaign proposes until it has nothing more; 1,000 tokens/s x devices^0.9 a layout."""
import json, subprocess, sys, urllib.request
url, token, id = sys.argv[1:]

def ask(path, body):
    request = urllib.request.Request(f"{url}/v1/campaigns/{id}{path}", json.dumps(body).encode(),
                                     {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)

while True:
    got = ask(":suggest", {"worker": "w", "wait_s": 10})
    if got["state"] == "done":
        break
    if got["state"] == "trial":
        devices = got["layout"]["world"]
        ask(f"/trials/{got['trial']}:complete", {"lease": got["lease"], "status": "ok", "tokens_per_s": 1000 * devices ** 0.9,
                                                 "tokens_per_s_se": 1 + devices / 100})
END
job() { # objective, more
    echo '{"name": "o", "model": "llama-8b", "trainer": "megatron", "cluster": {"profile": "dgx-h100", "nodes": 4, "price_per_device_hour": 3.6},
        "workload": {"global_batch": 64, "precision": "bf16"}, "launcher": {"kind": "remote"}, "objective": "'"$1"'",
        "space": {"world": [8, 16, 32], "tp": [2], "pp": [1], "cp": [1], "micro_batch": [1], "recompute": "selective"},
        "baseline": {"world": 32, "tp": 2, "sp": 1, "zero": 1, "recompute": "selective", "precision": "bf16", "overlap_grad_reduce": 1,
        "overlap_param_gather": 1}, "budget": {"trials": 8}'"$2"'}'
}
campaign() { # objective: sets id
    is "a campaign for $1" "$(post /v1/campaigns "$(job "$1" '')")" 201
    id=$(id_of <body)
    ok "its trials run" python3 work.py "$url" "$(cat data/token)" "$id"
    wait_for 60 is_in "$id" done
    call "/v1/campaigns/$id:verify" -d '{"pairs": 2}' >/dev/null
    ok "and its verification" python3 work.py "$url" "$(cat data/token)" "$id"
    wait_for 60 sh -c 'curl -s -H "$1" "$2/v1/campaigns/$3" | grep -q "\"verdict\":\"[a-z]"' - "$A" "$url" "$id"
    call "/v1/campaigns/$id" >campaign
    call "/v1/campaigns/$id/best" >best
}
see() { python3 -c 'import json; c = json.load(open("campaign")); b = c["best"]; v = c["verify"]; base = c["baseline"]; print('"$1"')' 2>&1; }

campaign tokens_per_s_per_device
is "the best has the fewest devices" "$(see 'b["layout"]["world"], b["devices"]')" "8 8"
is "its ratio is that of a device" "$(see 'round(b["ratio"], 6) == round(4 ** 0.1, 6)')" True
is "the verification's, too" "$(see 'round(v["ratio"], 6) == round(4 ** 0.1, 6), v["verdict"]')" "True holds"
is "what the next run brings is the whole job's" "$(see 'abs(v["prediction"]["tokens_per_s"] / (1000 * 8 ** 0.9) - 1) < 1e-9')" True
is "a million tokens have a price" "$(see 'abs(b["cost_per_mtok"] / (1e6 / b["tokens_per_s"] * 8 * 3.6 / 3600) - 1) < 1e-9, base["cost_per_mtok"] > b["cost_per_mtok"]')" "True True"
is "so has the campaign" "$(see 'abs(c["progress"]["cost"] - c["progress"]["device_s"] * 1e-3) < 1e-9')" True
is "/best says the same" "$(python3 -c 'import json; b, c = json.load(open("best")), json.load(open("campaign"))["best"]; print({k: b[k] for k in c} == c)')" True
timeout 5 $C -N -H "$A" "$url/v1/campaigns/$id/events?last_event_id=0" >events
is "the last event of a best is of it" "$(grep -A2 '^event: best' events | sed -n 's/^data: //p' | tail -n 1 | python3 -c 'import json,sys; b = json.load(sys.stdin); print(b["layout"]["world"], round(b["ratio"], 3))')" "8 1.149"
call "/v1/campaigns/$id/trials/$(see 'b["trial"]')/why" >why
is "why counts device-seconds" "$(python3 -c 'import json; w = json.load(open("why")); print(w["unit"], round(w["trials"]["ratio"], 3), abs(sum(k["change_s"] for k in w["keys"]) - w["predicted"]["to_s"] + w["predicted"]["from_s"]) < 1e-9 * w["predicted"]["from_s"])')" "device_seconds 1.149 True"
"$partune" show "$id" >out
has "the client names the objective" "$(cat out)" '^objective  tokens/s per device'
has "and the price" "$(cat out)" '^best .* 1.15 x baseline .* [0-9.]* per million tokens'
has "and what was spent" "$(cat out)" "^cost .* at the cluster.s price"
"$partune" report "$id" --output report.html
has "a report draws rates of a device" "$(cat report.html)" 'tokens/s per device'

campaign tokens_per_s
is "the best has all devices" "$(see 'b["layout"]["world"]')" 32
is "and is as fast as the baseline" "$(see 'round(b["ratio"], 3), round(v["ratio"], 3)')" "1.0 1.0"
call "/v1/campaigns/$id/trials/2/why" >why
is "why counts seconds" "$(python3 -c 'import json; print(json.load(open("why"))["unit"])')" seconds

# ---- a budget of money
is "a cost is a budget" "$(post '/v1/campaigns?dry_run=true' "$(job tokens_per_s '' | sed 's/"trials": 8/"cost": 0.5/')")" 200
is "a cost without a price is refused" "$(post '/v1/campaigns?dry_run=true' "$(job tokens_per_s '' | sed -e 's/"trials": 8/"cost": 0.5/' -e 's/, "price_per_device_hour": 3.6//')")" 422
has "with its field and what it needs" "$(cat body)" "price_per_device_hour.*\"pointer\":\"/budget/cost\""
is "a price of nothing is refused" "$(post '/v1/campaigns?dry_run=true' "$(job tokens_per_s '' | sed 's/"price_per_device_hour": 3.6/"price_per_device_hour": 0/')")" 422
has "with its field" "$(cat body)" '"/cluster/price_per_device_hour"'
cat >spent.json <<END
{"name": "spent", "model": "gpt-1.4B", "trainer": "megatron", "cluster": {"profile": "dgx-a100", "nodes": 1, "price_per_device_hour": 3600},
 "workload": {"global_batch": 16, "precision": "bf16"}, "budget": {"cost": 20, "trials": 1000}, "launcher": {"kind": "simulated", "speed": 30}}
END
is "a campaign with a cost" "$(code /v1/campaigns -d @spent.json)" 201
id=$(id_of <body)
ok "ends when that is spent" wait_for 120 is_in "$id" done
has "by its budget" "$(call "/v1/campaigns/$id")" '"reason":"budget"'
is "after some trials, which cost nothing as they were simulated" "$(call "/v1/campaigns/$id" | python3 -c 'import json,sys; p = json.load(sys.stdin)["progress"]; print(1 < p["trials"] < 1000, p["cost"])')" "True None"
finish
