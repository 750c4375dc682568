#!/bin/sh
# Tokens per joule from the trainer's counters to JSON, CSV and the client. The counters are a written tree that a program
# moves as 2 packages of 50 W would: machines that run tests have no powercap, or do not let us read it.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
for program in python3 mpiexec "$PT_BUILD/partune-train"; do
    command -v "$program" >/dev/null || { echo "1..0 # SKIP no $program"; exit 0; }
done
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
cat >meter.py <<'END'
import os, time
files = []
for number, name in enumerate(("package-0", "package-1", "psys")):
    zone = f"powercap/intel-rapl:{number}"
    os.makedirs(zone)
    for key, text in (("name", name), ("max_energy_range_uj", "%020d" % 20e6), ("energy_uj", "%020d" % 0)):
        with open(f"{zone}/{key}", "w") as file:
            file.write(text + "\n")
    files.append(os.open(f"{zone}/energy_uj", os.O_WRONLY))
open("moves", "w").close()
while True:
    for file in files:
        os.pwrite(file, b"%020d" % (int(time.monotonic() * 50e6) % 20000001), 0)
    time.sleep(0.002)
END
python3 meter.py &
pids="$pids $!"
wait_for 30 test -e moves
export PARTUNE_POWERCAP="$run/powercap"
start
client
campaign() { # sets id
    id=$(post /v1/campaigns '{"name": "e", "model": {"name": "tiny", "layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "two", "nodes": 1, "devices_per_node": 2, "oversubscribe": true, "device": {"name": "core", "kind": "cpu",
        "memory_gib": 1, "peak_tflops": {"fp32": 1}, "memory_gbs": 10}, "links": [{"span": 2, "gbs": 5, "latency_us": 1}]},
        "workload": {"global_batch": 8}, "space": {"world": [2], "tp": [1], "pp": [1], "micro_batch": [2], "zero": [0], "recompute": ["none"],
        "overlap_grad_reduce": [0]}, "budget": {"trials": 1}, "trial": {"warmup_steps": 3, "min_steps": '"$1"', "max_steps": '"$1"'}}' >/dev/null; id_of <body)
    ok "a campaign ends" wait_for 120 is_in "$id" done
    call "/v1/campaigns/$id/trials/1" >trial.json
    call "/v1/campaigns/$id/results.csv" >results.csv
}
cat >see.py <<'END'
"""see.py ID EXPRESSION: of trial, its summary, row of the CSV, and seconds of its measured steps."""
import csv, json, sys
trial = json.load(open("trial.json"))
events = [json.loads(line) for line in open(f"data/campaigns/{sys.argv[1]}/trials/1/1/events")]
summary = events[-1]
row = list(csv.DictReader(open("results.csv")))[0]
seconds = sum(e["ms"] for e in events if e["event"] == "step" and not e["warmup"]) / 1000
print(eval(sys.argv[2]))
END
see() { python3 see.py "$id" "$1" 2>&1; }

campaign 500
is "the trial is ok" "$(see 'trial["state"]')" ok
is "2 ranks of a host count its packages once, and nothing else (a factor of 2 would be seen)" "$(see '0.67 < summary["joules"] / (100 * seconds) < 1.5 or (summary["joules"], seconds)')" True
is "tokens per joule are of its measured steps" "$(see 'abs(trial["tokens_per_joule"] * summary["joules"] / (8 * 64 * 500) - 1) < 1e-12')" True
is "the table has the same" "$(see 'float(row["tokens_per_joule"]) == trial["tokens_per_joule"]')" True
has "the client shows it" "$("$PT_BUILD/partune" trial "$id" 1)" '^energy +[0-9.]+ tokens/J$'

mv powercap away
campaign 5
is "without counters there is none" "$(see '["joules" in summary, trial["tokens_per_joule"], row["tokens_per_joule"]]')" "[False, None, '']"
is "nor a line" "$("$PT_BUILD/partune" trial "$id" 1 | grep -c ^energy)" 0
finish
