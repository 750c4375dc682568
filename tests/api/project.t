#!/bin/sh
# A projection to another machine says so, and its interval includes what such projections err.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
partune=$PT_BUILD/partune
start
client
campaign() { # name, profile, trainer
    id=$(call /v1/campaigns -d '{"name": "'"$1"'", "model": "gpt-1.4B", "cluster": {"profile": "'"$2"'", "nodes": 1}, "trainer": "'"$3"'",
        "workload": {"global_batch": 16, "precision": "bf16"}, "budget": {"trials": 8}, "launcher": {"kind": "simulated", "speed": 1000000}}' | id_of)
    wait_for 120 is_in "$id" done || { echo "Bail out! campaign $1 does not end"; exit 99; }
    echo "$id"
}
project() { # cluster, or nothing; further members
    call /v1/project -d '{"campaign": "'"$a100"'", "devices": [8]'"${1:+, \"cluster\": $1}${2:+, $2}"'}' >answer
}
see() { python3 -c 'import json, math, sys; v = json.load(open("answer")); row = v["rows"][0]; t = v.get("transfer", {}); print('"$1"')' 2>&1; }
width='math.log(row["hi"] / row["lo"])'
# A part of variance d^2 for the other machine is left, however well the campaign's own is known.
least="2 * 1.96 * t['deviation']"

a100=$(campaign first dgx-a100 megatron)
h100=$(campaign other dgx-h100 megatron)
python3 - >clusters <<'END'
import json, os
v = json.load(open(os.environ["PT_SRC"] + "/plan/presets/clusters/dgx-a100.json"))
v["nodes"] = 1
def say(name, change):
    c = json.loads(json.dumps(v))
    change(c)
    print(name, json.dumps(c), sep="|")
say("half", lambda c: c.update(devices_per_node=4))
say("slow", lambda c: c["links"][-1].update(gbs=6.25))
say("alike", lambda c: c["device"].update(memory_gbs=1555))
say("unnamed", lambda c: c["device"].pop("name"))
say("renamed", lambda c: c.update(name="selene", nodes=64))
END
cluster() { sed -n "s/^$1|//p" clusters; }

project
is "on the campaign's own cluster nothing changed" "$(see 't["changed"], row["transferred"]')" "[] False"
own=$(see "$width")
while IFS='|' read -r what target changed; do
    project "$target"
    is "$what: transfer.changed names it" "$(see 't["changed"], row["transferred"]')" "$changed True"
    is "$what: the interval includes the transfer's error" "$(see "$width > $own and $width >= $least")" True
done <<END
another kind of device|"dgx-h100"|['device', 'links']
other links|"a100-opa"|['links']
smaller nodes|$(cluster half)|['node']
a slower network|$(cluster slow)|['links']
other memory under the same name|$(cluster alike)|['device']
a device that nobody named|$(cluster unnamed)|['device']
END
project "$(cluster renamed)"
is "another name and more nodes are the same machine" "$(see 't["changed"], row["transferred"]')" "[] False"

# ---- trials there
project '"dgx-h100"'
far=$(see "$width")
project '"dgx-h100"' '"with": ["'"$h100"'"]'
is "trials on the other machine narrow the interval" "$(see "$width < $far / 2, row['transferred']")" "True False"
is "of two campaigns" "$(see 'v["calibration"]["trials"] > 8')" True
is "which still says that the machine changed" "$(see 't["changed"]')" "['device', 'links']"
other=$(campaign software dgx-a100 deepspeed)
has "trials of another trainer are refused" "$(call /v1/project -d '{"campaign": "'"$a100"'", "devices": [8], "with": ["'"$other"'"]}')" 'ran trainer deepspeed, not megatron'

# ---- the client
"$partune" project "$a100" --sizes 8 --on dgx-h100 >out 2>&1
has "the client says so" "$(cat out)" 'another machine \(changed: device, links\): dgx-h100 of H100-80 SXM'
has "and what the intervals include" "$(cat out)" 'no trial ran on that machine .* \(standard deviation 20 %\)'
"$partune" project "$a100" --sizes 8 >out 2>&1
is "and not of the campaign's own cluster" "$(grep -cE 'another machine|no trial ran' out)" 0
finish
