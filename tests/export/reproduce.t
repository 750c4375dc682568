#!/bin/sh
# Does the exported file do what the daemon measured? The bundled trainer's file, run by partune-train alone, against the
# daemon's own trial of the winner, in alternating pairs: the same losses, the same work, and (PT_LONG: ten pairs, dense
# and MoE, 2 and 4 ranks) the same throughput, the 95 % interval of the ratio within 0.97 to 1.03. Then a verification:
# the losses of winner and baseline agree, and an export says what was found. `reproduce.t MODEL WORLD PAIRS STEPS`: that case
# alone, and judged.
. "${PT_SRC:?}/tests/api/tap.sh"
cd "$run" || exit 99
[ -x "$PT_BUILD/partune-train" ] || { echo "1..0 # SKIP the trainer is not built"; exit 0; }
command -v python3 >/dev/null || { echo "1..0 # SKIP there is no python3"; exit 0; }
export PATH="$PT_BUILD:$PATH" PARTUNE_DATA="$run/data" XDG_CONFIG_HOME="$run/none" NO_COLOR=1
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
warmup=3

partuned --data data --listen 127.0.0.1:0 --hang 600 --stop requeue 2>err &
pids="$pids $!"
wait_for 20 grep -q 'ready at' err || { sed 's/^/# /' err; echo "Bail out! the daemon does not start"; exit 99; }
PARTUNE_SERVER=$(sed -n 's/.*ready at \([^ ]*\).*/\1/p' err)
export PARTUNE_SERVER

cat >campaign.py <<'END'
"""campaign.py NAME MODEL WORLD STEPS [EXPORTED]: a campaign of some trials, or of EXPORTED's layout alone."""
import json, sys
name, model, world, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
c = {"name": name, "model": model, "workload": {"global_batch": 16},
     "cluster": {"name": "cores", "nodes": 1, "devices_per_node": world, "oversubscribe": True,
                 "device": {"name": "core", "kind": "cpu", "memory_gib": 2, "memory_gbs": 10, "peak_tflops": {"fp32": 0.1}},
                 "links": [{"span": world, "gbs": 5, "latency_us": 1, "kind": "shm"}]},
     "space": {"world": [world]}, "budget": {"trials": 4}, "search": {"seed": 1},
     "trial": {"warmup_steps": 3, "min_steps": steps, "max_steps": steps, "ci": 1e-6, "timeout_s": 600}}
if len(sys.argv) > 5:
    c["baseline"] = json.load(open(sys.argv[5]))["layout"]
    c["budget"] = {"trials": 1}
json.dump(c, open(name + ".json", "w"))
END

cat >steps.py <<'END'
"""steps.py EVENTS...: what the tests ask of event files."""
import json, math, statistics, sys

def steps(path):
    events = [json.loads(line) for line in open(path) if line.endswith("\n")]
    return {e["n"]: e for e in events if e["event"] == "step"}

def median_ms(path, warmup=3):
    return statistics.median(e["ms"] for n, e in steps(path).items() if n > warmup)

what, files = sys.argv[1], sys.argv[2:]
if what == "losses":        # largest relative difference over ten steps: later the learning rate follows --steps
    a, b = steps(files[0]), steps(files[1])
    both = range(1, 11)
    print(max(abs(a[n]["loss"] / b[n]["loss"] - 1) for n in both))
elif what == "tokens":      # every number of tokens that a step had
    print(*sorted({e["tokens"] for f in files for e in steps(f).values()}))
elif what == "interval":    # ratio alone / trial of throughput over pairs of files, with its 95 % interval
    logs = [math.log(median_ms(t) / median_ms(alone)) for t, alone in zip(files[::2], files[1::2])]
    quantile = {2: 12.706, 3: 4.303, 10: 2.262}[len(logs)]
    m, half = statistics.mean(logs), quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    print("%.4f %.4f %.4f" % (math.exp(m), math.exp(m - half), math.exp(m + half)))
END
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 <= b + 0) }'; }
campaign_of() { sed -n 's/.*"id": *"\([a-z0-9]*\)".*/\1/p' "$1" | head -1; }

own() { # MODEL WORLD STEPS I: the daemon's trial
    python3 campaign.py "own$4" "$1" "$2" "$3" exported.json && partune submit --json "own$4.json" >own.out &&
        id=$(campaign_of own.out) && partune watch "$id" >/dev/null && cp "data/campaigns/$id/trials/1/1/events" "own$4.events"
}
alone() { # WORLD STEPS I: partune-train without a daemon
    rm -rf alone.dir "alone$3.events"
    mpiexec -n "$1" partune-train --config exported.json --steps $(($2 + warmup)) --checkpoint alone.dir --quiet --events "alone$3.events" >alone.out 2>&1
}

reproduce() { # MODEL WORLD PAIRS STEPS
    case="$1 on $2 ranks"
    python3 campaign.py search "$1" "$2" 10 && partune submit --json search.json >search.out && search=$(campaign_of search.out) && partune watch "$search" >watch.out
    ok "$case: a campaign ends" test $? = 0
    ok "$case: the winner is exported" partune export "$search" --to partune --output exported.json
    has "$case: not verified, and says so" "$(cat exported.json)" '"verified": "no"'
    i=0 files=
    while [ $i -lt "$3" ]; do
        if [ $((i % 2)) = 0 ]; then
            own "$1" "$2" "$4" $i && alone "$2" "$4" $i || break
        else
            alone "$2" "$4" $i && own "$1" "$2" "$4" $i || break
        fi
        files="$files own$i.events alone$i.events"
        i=$((i + 1))
    done
    is "$case: all pairs ran" "$i $(grep -h rror alone.out | head -3)" "$3 "
    # shellcheck disable=SC2086
    is "$case: every step had the batch's tokens" "$(python3 steps.py tokens $files)" "$((16 * $(sed -n 's/^ *"seq": \([0-9]*\),*$/\1/p' exported.json | head -1)))"
    # The same layout from the same seed adds in the same order: the losses are the same to the digits that are printed.
    ok "$case: losses are those of the trial" at_most "$(python3 steps.py losses own0.events alone0.events)" 1e-12
    # shellcheck disable=SC2086
    interval=$(python3 steps.py interval $files)
    echo "# $case: alone / trial = $interval (ratio, 95 % interval) over $3 pairs of $4 steps"
    if [ -n "$PT_LONG" ]; then
        # shellcheck disable=SC2086
        set -- $interval
        ok "$case: its throughput is the trial's: interval within 0.97 to 1.03" sh -c 'exit $(awk "BEGIN { print !($1 >= 0.97 && $2 <= 1.03) }")' x "$2" "$3"
    fi
}

verify() { # of campaign $search
    partune verify "$search" --wait --pairs 2 --steps 12 --json >verify.out
    code=$?
    has "a verification ends in a verdict" "$(cat verify.out)" '"verdict": "(holds|within noise|does not hold|same)"'
    verdict=$(sed -n 's/.*"verdict": "\([^"]*\)".*/\1/p' verify.out)
    is "holds is success, all else is not" "$code" "$([ "$verdict" = holds ] && echo 0 || echo 6)"
    partune export "$search" --to partune --output verified.json
    has "the export says what was found" "$(cat verified.json)" "\"verified\": \"$verdict\""
    has "with the ratio" "$(cat verified.json)" '"ratio_to_baseline"'
    # The winner was picked for the fastest of its trials; its runs in the verification were picked by nothing.
    has "promises what the verification measured" "$(cat verified.json)" '"measured_in": "verification"'
    partune show "$search" --json >shown.json
    is "as the campaign keeps it" "$(python3 -c "import json
print(json.load(open('verified.json'))['promised'] == json.load(open('shown.json'))['verify']['promise'])")" True
    has "and the software that measured" "$(cat verified.json)" '"fingerprint": "partune-train [0-9.]+ \('
    # Trials of a verification are the last four: winner, baseline, baseline, winner. Sums in another order differ in the
    # last bits, and training carries that on: the parity tests allow 1e-4 over ten steps.
    first=$(sed -n 's/.*"first": \([0-9]*\).*/\1/p' verify.out | head -n 1)
    t="data/campaigns/$search/trials"
    ok "losses of winner and baseline agree" at_most "$(python3 steps.py losses "$t/$first/1/events" "$t/$((first + 1))/1/events")" 1e-3
    is "and both did the same work" "$(python3 steps.py tokens "$t/$first/1/events" "$t/$((first + 1))/1/events" | wc -w | tr -d ' ')" 1
}

if [ $# = 4 ]; then
    PT_LONG=1
    reproduce "$@"
    finish
    exit
fi
if [ -n "$PT_LONG" ]; then
    for world in 2 4; do
        for model in tiny-llama tiny-moe; do
            reproduce "$model" "$world" 10 40
        done
    done
else
    reproduce nano-moe 2 2 10
fi
verify
finish
