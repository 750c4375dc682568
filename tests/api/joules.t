#!/bin/sh
# A campaign whose objective is tokens per joule. The counters are a written tree that a program moves by what the running
# trial computes: a machine that draws 200 W, and 0.2 W with tensor parallelism, which here takes several times as long (some
# thousand collectives of a few numbers a step), far from a thousand times. So the fastest layout is not the best, and search,
# best, ratios, verification, events, reports and explanations must follow joules.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
for program in python3 mpiexec "$PT_BUILD/partune-train"; do
    command -v "$program" >/dev/null || { echo "1..0 # SKIP no $program"; exit 0; }
done
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
cat >meter.py <<'END'
"""The counter grows by the watts of the newest trial's layout."""
import glob, json, os, time
zone = "powercap/intel-rapl:0"
os.makedirs(zone)
for key, text in (("name", "package-0"), ("max_energy_range_uj", "%020d" % 10**15), ("energy_uj", "%020d" % 0)):
    with open(f"{zone}/{key}", "w") as file:
        file.write(text + "\n")
counter = os.open(f"{zone}/energy_uj", os.O_WRONLY)
joules, last, watts, looked = 0.0, time.monotonic(), 200, 0.0
open("moves", "w").close()
while True:
    now = time.monotonic()
    if now - looked > 0.02:
        looked = now
        layouts = sorted(glob.glob("data/campaigns/*/trials/*/*/config.json"), key=os.path.getmtime)
        try:
            watts = 0.2 if json.load(open(layouts[-1]))["layout"].get("tp", 1) == 2 else 200
        except (IndexError, ValueError, OSError):
            pass
    joules, last = joules + watts * (now - last), now
    os.pwrite(counter, b"%020d" % int(joules * 1e6), 0)
    time.sleep(0.002)
END
job() { # objective, trials, more
    echo '{"name": "j", "model": {"name": "tiny", "layers": 4, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 64, "seq": 16},
        "cluster": {"name": "two", "nodes": 1, "devices_per_node": 2, "oversubscribe": true, "device": {"name": "core", "kind": "cpu",
        "memory_gib": 1, "peak_tflops": {"fp32": 1}, "memory_gbs": 10}, "links": [{"span": 2, "gbs": 5, "latency_us": 1}]},
        "workload": {"global_batch": 64}, "objective": "'"$1"'", "space": {"world": [2], "tp": [1, 2], "pp": [1], "micro_batch": [1, 2, 4], "zero": [0],
        "recompute": ["none", "full"], "overlap_grad_reduce": [0], "sp": [0]}, "baseline": {"world": 2, "tp": 1, "micro_batch": 4,
        "recompute": "none", "overlap_grad_reduce": 0, "sp": 0, "zero": 0}, "budget": {"trials": '"$2"'}, "trial": {"warmup_steps": 2, "min_steps": 40,
        "max_steps": 40}'"$3"'}'
}

# ---- no counter, no campaign
export PARTUNE_POWERCAP="$run/powercap"
start
client
is "without a counter the objective is refused" "$(post /v1/campaigns "$(job tokens_per_joule 6 '')")" 422
has "with its field, what is missing, and who says more" "$(cat body)" 'no energy counter: no CPU package in .*partune doctor.*"pointer":"/objective"'
is "other objectives need none" "$(post '/v1/campaigns?dry_run=true' "$(job tokens_per_s 6 '')")" 200
has "partune doctor names it" "$("$PT_BUILD/partune" doctor)" '^ok +energy counters +no CPU package in '
python3 meter.py &
pids="$pids $!"
wait_for 30 test -e moves
has "and says when it is there" "$("$PT_BUILD/partune" doctor)" '^ok +energy counters +CPU packages can be read'
is "trials next to each other would count each other" "$(post /v1/campaigns "$(job tokens_per_joule 6 ', "search": {"parallel": 2}')")" 422
has "so that is refused" "$(cat body)" '"pointer":"/search/parallel"'

# ---- the best by joules
is "a campaign for joules" "$(post /v1/campaigns "$(job tokens_per_joule 6 '')")" 201
id=$(id_of <body)
ok "ends" wait_for 300 is_in "$id" done
is "its verification begins" "$(code "/v1/campaigns/$id:verify" -d '{"pairs": 4}')" 200
wait_for 300 sh -c 'curl -s -H "$1" "$2/v1/campaigns/$3" | grep -q "\"verdict\":\"[a-z]"' - "$A" "$url" "$id"
call "/v1/campaigns/$id" >campaign
call "/v1/campaigns/$id/trials?page_size=100" >trials
call "/v1/campaigns/$id/results.csv" >results.csv
cat >see.py <<'END'
import csv, json, statistics, sys
c = json.load(open("campaign"))
b, v, base = c["best"], c["verify"], c["baseline"]
trials = [t for t in json.load(open("trials"))["items"] if t["state"] == "ok" and t["kind"] != "verify"]
verified = [t for t in json.load(open("trials"))["items"] if t["kind"] == "verify"]
def speed(tp): # of all runs: on a busy machine one is no measurement
    return statistics.geometric_mean(t["tokens_per_s"] for t in trials + verified if t["layout"]["tp"] == tp)
rows = list(csv.DictReader(open("results.csv")))
print(eval(sys.argv[1]))
END
see() { python3 see.py "$1" 2>&1; }
is "layouts without tensor parallelism are faster" "$(see 'speed(1) > speed(2)')" True
is "the best has, at a thousandth of the watts" "$(see 'b["layout"]["tp"], b["ratio"] > 1.5 or b["ratio"]')" "(2, True)"
is "no trial has more tokens/J" "$(see 'b["trial"] == max(trials, key=lambda t: t["tokens_per_joule"])["n"] or b["runs"] > 1')" True
is "its ratio is of tokens/J" "$(see 'abs(b["ratio"] * base["tokens_per_joule"] / b["tokens_per_joule"] - 1) < 1e-9')" True
is "with an interval of its own" "$(see 'b["tokens_per_joule_lo"] < b["tokens_per_joule"] < b["tokens_per_joule_hi"]')" True
is "the verification compares tokens/J" "$(see 'v["verdict"], v["ratio"] > 1.5')" "('holds', True)"
is "of runs that tell them" "$(see 'len(verified), all(t["tokens_per_joule"] > 0 for t in verified)')" "(8, True)"
is "the table has them" "$(see 'sorted(float("%.9g" % float(r["tokens_per_joule"])) for r in rows) == sorted(float("%.9g" % t["tokens_per_joule"]) for t in trials + verified)')" True
call "/v1/campaigns/$id/trials/$(see 'b["trial"]')/why" >why
is "why counts joules" "$(python3 -c 'import json; w = json.load(open("why")); print(w["unit"], w["trials"]["ratio"] > 1.5, abs(sum(k["change_s"] for k in w["keys"]) - w["predicted"]["to_s"] + w["predicted"]["from_s"]) < 1e-9 * w["predicted"]["from_s"])')" "joules True True"
"$PT_BUILD/partune" show "$id" >out
has "the client names the objective" "$(cat out)" '^objective  tokens/J'
has "and the tokens/J of the best" "$(cat out)" '^best .* x baseline  [0-9.e+]+ tokens/J'
"$PT_BUILD/partune" report "$id" --output report.html
has "a report draws tokens/J" "$(cat report.html)" 'tokens/J'

# ---- what a trainer does not measure is not made up
mv powercap away
is "workers may have counters of their own" "$(post /v1/campaigns "$(job tokens_per_joule 6 ', "launcher": {"kind": "remote"}')")" 201
id=$(id_of <body)
suggest() { call "/v1/campaigns/$id:suggest" -d '{"worker": "w", "wait_s": 10}' >got; python3 -c 'import json; t = json.load(open("got")); print(t["trial"], t["lease"])'; }
read -r trial lease <<END
$(suggest)
END
call "/v1/campaigns/$id/trials/$trial:complete" -d '{"lease": "'"$lease"'", "status": "ok", "tokens_per_s": 1000}' >/dev/null
ok "a result without joules pauses the campaign" wait_for 30 is_in "$id" paused
has "by name" "$(call "/v1/campaigns/$id")" '"reason":"trial 1: unmetered: the trainer.s summary has no joules'
is "it resumes" "$(code "/v1/campaigns/$id:resume" -d '{}')" 200
read -r trial lease <<END
$(suggest)
END
is "the trial runs again" "$trial" 1
call "/v1/campaigns/$id/trials/$trial:complete" -d '{"lease": "'"$lease"'", "status": "ok", "tokens_per_s": 1000, "tokens_per_joule": 12.5}' >/dev/null
is "and counts with the joules that its worker reports" "$(call "/v1/campaigns/$id" | python3 -c 'import json,sys; b = json.load(sys.stdin)["best"]; print(round(b["tokens_per_joule"], 6), round(b["tokens_per_s"], 6))')" "12.5 1000.0"

# ---- plans and simulated campaigns need watts
plan='{"model": "llama-8b", "trainer": "megatron", "workload": {"global_batch": 64, "precision": "bf16"}, "top": 5, "space": {"world": [8, 32], "tp": [2], "micro_batch": [1]}'
is "a plan for joules without watts is refused" "$(post /v1/plan "$plan"', "cluster": {"profile": "dgx-h100", "nodes": 4}, "objective": "tokens_per_joule"}')" 422
has "by name" "$(cat body)" 'busy_watts.*"pointer":"/objective"'
is "with watts it ranks by them" "$(post /v1/plan "$plan"', "cluster": {"profile": "dgx-h100", "nodes": 4, "busy_watts": 700, "idle_watts": 100}, "objective": "tokens_per_joule"}')" 200
is "the most frugal first" "$(python3 -c 'import json; i = [p["tokens_per_joule"] for p in json.load(open("body"))["items"]]; print(i == sorted(i, reverse=True) and i[0] > 0)')" True
simulated='{"name": "s", "model": "llama-8b", "trainer": "megatron", "workload": {"global_batch": 64, "precision": "bf16"}, "launcher": {"kind": "simulated", "speed": 1e6},
    "objective": "tokens_per_joule", "space": {"world": [8, 16, 32], "tp": [2]}, "budget": {"trials": 8}, "cluster": {"profile": "dgx-h100", "nodes": 4'
is "so with a simulated campaign" "$(post /v1/campaigns "$simulated"'}}')" 422
has "by name, too" "$(cat body)" 'busy_watts.*"pointer":"/objective"'
is "whose cluster has watts" "$(post /v1/campaigns "$simulated"', "busy_watts": 700, "idle_watts": 100}}')" 201
id=$(id_of <body)
ok "it ends" wait_for 120 is_in "$id" done
is "with tokens/J of the simulator" "$(call "/v1/campaigns/$id" | python3 -c 'import json,sys; b = json.load(sys.stdin)["best"]; print(b["layout"]["world"], 0 < b["tokens_per_joule_lo"] <= b["tokens_per_joule"])')" "8 True"
finish
