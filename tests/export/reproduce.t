#!/bin/sh
# Does the exported file do what the daemon measured? The bundled trainer's file, run by partune-train alone, against the
# daemon's own trial of the winner, in pairs of interleaved jobs: the same losses, the same work, and (PT_LONG: ten pairs,
# dense and MoE, 2 and 4 ranks) the same throughput, the 95 % interval of the ratio within 0.97 to 1.03. Then a
# verification: the losses of winner and baseline agree, and an export says what was found. `reproduce.t MODEL WORLD PAIRS STEPS`:
# that case alone, and judged; STEPS may be a time, as 6s, which is then long enough for a dozen differences a pair.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
[ -x "$PT_BUILD/partune-train" ] || { echo "1..0 # SKIP the trainer is not built"; exit 0; }
command -v python3 >/dev/null || { echo "1..0 # SKIP there is no python3"; exit 0; }
export PATH="$PT_BUILD:$PATH"
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
warmup=3

start --hang 600 --stop requeue
client

cat >campaign.py <<'END'
"""campaign.py NAME MODEL WORLD STEPS [EXPORTED]: a campaign of some trials, or of EXPORTED's layout alone."""
import json, sys
name, model, world, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
c = {"name": name, "model": model, "workload": {"global_batch": 16},
     "cluster": {"name": "cores", "nodes": 1, "devices_per_node": world, "oversubscribe": True,
                 "device": {"name": "core", "kind": "cpu", "memory_gib": 2, "memory_gbs": 10, "peak_tflops": {"fp32": 1}},
                 "links": [{"span": world, "gbs": 5, "latency_us": 1, "kind": "shm"}]},
     "space": {"world": [world]}, "budget": {"trials": 4}, "search": {"seed": 1},
     "trial": {"warmup_steps": 3, "min_steps": steps, "max_steps": steps, "ci": 1e-6, "timeout_s": 600}}
if len(sys.argv) > 5:
    c["baseline"] = json.load(open(sys.argv[5]))["layout"]
    c["budget"] = {"trials": 1}
json.dump(c, open(name + ".json", "w"))
END

cat >steps.py <<'END'
"""steps.py WHAT FILE...: what the test asks of event files."""
import json, math, statistics, sys

def steps(path):
    try:
        events = [json.loads(line) for line in open(path) if line.endswith("\n")]
    except FileNotFoundError:
        return {}
    return {e["n"]: e for e in events if e["event"] == "step"}

def interval(logs):
    """exp of the mean, with its 95 % interval by Student's t."""
    quantile = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262, 20: 2.093}[len(logs)]
    m, half = statistics.mean(logs), quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return "%.4f %.4f %.4f" % (math.exp(m), math.exp(m - half), math.exp(m + half))

if __name__ == "__main__":
    what, files = sys.argv[1], sys.argv[2:]
    if what == "losses":        # largest relative difference over ten steps: later the learning rate follows --steps
        a, b = steps(files[0]), steps(files[1])
        print(max(abs(a[n]["loss"] / b[n]["loss"] - 1) for n in range(1, 11)))
    elif what == "tokens":      # every number of tokens that a step had
        print(*sorted({e["tokens"] for f in files for e in steps(f).values()}))
    elif what == "interval":    # of what alternate.py wrote of each pair
        print(interval([float(open(f).read()) for f in files]))
END

# Two jobs, interleaved. What a machine can do changes by tens of per cent within seconds, so runs one after the other meet
# different machines. Here both jobs are up and one of them runs, for some steps, while SIGSTOP holds the other: trial, alone,
# alone, trial, and so on. A step counts when it lies within one turn, by the time that the trainer itself took for it. Two turns
# side by side give one difference of mean logarithms. The interquartile mean of these differences is the pair's result: it
# does not move when the machine changes within a few of the turns, if there are a dozen. Hence short turns, and as many steps
# as that takes where a step is long.
cat >alternate.py <<'END'
"""alternate.py STEPS: prints log(alone / trial) of throughput, both jobs running STEPS steps.

It is started before the jobs, and writes alternate.ready when it looks out for them; a job that is started later than the
other may be seconds later, in which the other would end. Each job says where it is in a file: job.trial, job.alone. Its
lines are its file of events and the regular expression of an entry in the environment of its ranks."""
import json, math, os, re, signal, statistics, sys, time
from steps import steps

WARM, TURN = 3, 4 # steps before the first turn; that end in a turn, the first of which began before it
LOOK = 0.02       # seconds between two looks at the events

def steps_needed(differences, seconds):
    """Steps of each job for so many differences, where a step takes SECONDS. Each takes a turn of both jobs, which runs on until
    it is seen that it is over: two looks, as a look may come late. One turn more for what is left over at both ends."""
    return (differences + 1) * (TURN + math.ceil(2 * LOOK / seconds))

def ranks(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "partune-train":
                with open(f"/proc/{pid}/environ") as environment:
                    if any(re.fullmatch(mark, entry) for entry in environment.read().split("\0")):
                        found.append(int(pid))
        except OSError:
            pass # it has ended
    return found

def tell(job, what):
    for pid in job["ranks"]:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass

def done(job):
    """Steps so far; what was read is not read again, since it is asked while the ranks compute."""
    if "file" not in job and os.path.exists(job["events"]):
        job["file"] = open(job["events"])
    if "file" in job:
        lines = (job["rest"] + job["file"].read()).split("\n")
        job["rest"] = lines.pop()
        job["done"] += sum(json.loads(line)["event"] == "step" for line in lines)
    return job["done"]

def wait_for_steps(job, count):
    deadline = time.time() + 120
    while done(job) < count:
        if time.time() > deadline:
            sys.exit("error: %s: no steps" % job["events"])
        time.sleep(LOOK)

def is_there(job):
    if "events" not in job and os.path.exists(job["name"]):
        job["events"], job["mark"] = open(job["name"]).read().splitlines()
    return "events" in job

def hold_when_warm(jobs):
    """Returns the jobs in the order in which they were held."""
    deadline, held = time.time() + 120, []
    while len(held) < len(jobs):
        for job in jobs:
            if job not in held and is_there(job) and done(job) >= WARM:
                job["ranks"] = ranks(job["mark"])
                tell(job, signal.SIGSTOP)
                held.append(job)
        if time.time() > deadline:
            sys.exit("error: %s: no steps" % " ".join(job["name"] for job in jobs if job not in held))
        time.sleep(LOOK)
    return held

def turn(job, last):
    begin = time.time()
    tell(job, signal.SIGCONT)
    wait_for_steps(job, min(done(job) + TURN, last))
    tell(job, signal.SIGSTOP)
    return job, begin, time.time()

def logs(job, begin, end):
    """Of the turn's whole steps: the first that ends in it began before it."""
    inside = [e for e in job["steps"] if begin <= e["t"] <= end]
    return [math.log(e["ms"]) for e in inside[1:] if e["n"] > WARM]

def alternate(jobs, last):
    turns = []
    while max(map(done, jobs)) < last:
        turns.append(turn(jobs[(0, 1, 1, 0)[len(turns) % 4]], last))
    return turns

def main():
    # What is held must continue, however this ends: a rank that is stopped does not even hear that it is to end.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("terminated"))
    last = int(sys.argv[1])
    trial, alone = ({"name": name, "ranks": [], "rest": "", "done": 0} for name in ("job.trial", "job.alone"))
    jobs = (trial, alone)
    open("alternate.ready", "w").close()
    try:
        jobs = hold_when_warm(jobs)
        turns = alternate(jobs, last)
    finally:
        for job in jobs:
            tell(job, signal.SIGCONT)
    for job in jobs:
        job["steps"] = [e for n, e in sorted(steps(job["events"]).items())]
    differences = []
    for one, other in zip(turns[::2], turns[1::2]):
        a, b = (one, other) if one[0] is trial else (other, one)
        if logs(*a) and logs(*b):
            differences.append(statistics.mean(logs(*a)) - statistics.mean(logs(*b)))
    differences.sort()
    print("# differences %s" % (" ".join("%.3f" % d for d in differences)), file=sys.stderr)
    if not differences:
        sys.exit("error: the jobs ended before two turns: give more steps")
    out = len(differences) // 4
    print(statistics.mean(differences[out:len(differences) - out]))

if __name__ == "__main__":
    main()
END
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 <= b + 0) }'; }
campaign_of() { sed -n 's/.*"id": *"\([a-z0-9]*\)".*/\1/p' "$1" | head -1; }

tell_alternate() { # NAME EVENTS MARK
    printf '%s\n' "$2" "$3" >job.new && mv job.new "job.$1"
}
own() { # MODEL WORLD STEPS I: starts the daemon's trial
    python3 campaign.py "own$4" "$1" "$2" "$3" exported.json && partune submit --json "own$4.json" >own.out && id=$(campaign_of own.out) &&
        trial="data/campaigns/$id/trials/1/1/events" && tell_alternate trial "$trial" "PARTUNE_TRIAL=.*/$id/.*"
}
alone() { # WORLD STEPS I: starts partune-train without a daemon
    rm -rf alone.dir
    # shellcheck disable=SC2046 # bound like the trial: the file says how
    PT_ALONE="$run" mpiexec $(sed -n 's/.*"launch": "mpiexec.*\(-bind-to [^ ]*\) .*/\1/p' exported.json) -n "$1" partune-train --config exported.json \
        --steps $(($2 + warmup)) --checkpoint alone.dir --quiet --events "alone$3.events" >alone.out 2>&1 &
    alone_pid=$!
    pids="$pids $alone_pid"
    tell_alternate alone "alone$3.events" "PT_ALONE=$run"
}
pair() { # MODEL WORLD STEPS I
    rm -f job.trial job.alone alternate.ready
    python3 alternate.py $(($3 + warmup)) >"pair$4" 2>"pair$4.note" &
    alternate_pid=$!
    pids="$pids $alternate_pid"
    while [ ! -e alternate.ready ] && kill -0 $alternate_pid; do sleep 0.05; done
    if [ $(($4 % 2)) = 0 ]; then
        own "$@" && alone "$2" "$3" "$4" || return
    else
        alone "$2" "$3" "$4" && own "$@" || return
    fi
    wait $alternate_pid
    wait $alone_pid && partune watch "$id" >/dev/null && cp "$trial" "own$4.events" && [ -s "pair$4" ]
}

# As many steps as the winner does in SECONDS, and no fewer than a pair of DIFFERENCES takes.
steps_in() { # SECONDS DIFFERENCES
    python3 -c "import json
from alternate import steps_needed
e = json.load(open('exported.json'))
step = e['workload']['global_batch'] * e['workload']['seq'] / e['expected']['tokens_per_s']
print(max(int($1 / step), steps_needed($2, step)))"
}
fewest_differences() { awk '/^# differences/ { if (n == "" || NF - 2 < n) n = NF - 2 } END { print n }' pair*.note; } # of a pair

reproduce() { # MODEL WORLD PAIRS STEPS (or SECONDS s) of each job
    job="$1 on $2 ranks" steps=$4 least=1
    python3 campaign.py search "$1" "$2" 10 && partune submit --json search.json >search.out && search=$(campaign_of search.out) && partune watch "$search" >watch.out
    ok "$job: a campaign ends" test $? = 0
    ok "$job: the winner is exported" partune export "$search" --to partune --output exported.json
    has "$job: the file says that it is not verified" "$(cat exported.json)" '"verified": "no"'
    has "$job: expects less of one more run than the fastest trial gave, or as much" "$(python3 -c "import json
p = json.load(open('exported.json'))['provenance']
print(p['interval_of'], p['tokens_per_s_95'][0] < p['tokens_per_s'] <= 1.0001 * p['tokens_per_s_measured'])")" 'one more run True'
    has "$job: the file says how the trial was started" "$(cat exported.json)" "\"launch\": \"mpiexec .*-n $2 partune-train --config FILE"
    case $steps in *s) least=${PT_LONG:+12} least=${least:-2} steps=$(steps_in "${steps%s}" "$least") ;; esac
    rm -f own*.events alone*.events pair*
    i=0 files='' pairs_of=''
    while [ $i -lt "$3" ] && pair "$1" "$2" "$steps" $i; do
        files="$files own$i.events alone$i.events" pairs_of="$pairs_of pair$i"
        i=$((i + 1))
    done
    is "$job: all pairs ran" "$i $(grep -h rror alone.out pair*.note | head -3)" "$3 "
    cat pair*.note
    ok "$job: a pair has at least $least differences" at_most "$least" "$(fewest_differences)"
    # shellcheck disable=SC2086
    is "$job: every step trained the batch's tokens" "$(python3 steps.py tokens $files)" "$((16 * $(sed -n 's/^ *"seq": \([0-9]*\),*$/\1/p' exported.json | head -1)))"
    # The same layout from the same seed adds in the same order: the losses are the same to the digits that are printed.
    ok "$job: losses are those of the trial" at_most "$(python3 steps.py losses own0.events alone0.events)" 1e-12
    # shellcheck disable=SC2086
    interval=$(python3 steps.py interval $pairs_of)
    echo "# $job: alone / trial = $interval (ratio, 95 % interval) over $3 pairs of $steps steps"
    if [ -n "$PT_LONG" ]; then
        # shellcheck disable=SC2086
        set -- $interval
        ok "$job: its throughput is the trial's: interval within 0.97 to 1.03" \
            awk -v lo="$2" -v hi="$3" 'BEGIN { exit !(lo != "" && lo >= 0.97 && hi != "" && hi <= 1.03) }'
    fi
}

verify() { # of campaign $search
    partune verify "$search" --wait --pairs 2 --steps 12 --json >verify.out
    code=$?
    has "a verification ends in a verdict" "$(cat verify.out)" '"verdict": *"(holds|within noise|does not hold|same)"'
    verdict=$(sed -n 's/.*"verdict": *"\([^"]*\)".*/\1/p' verify.out | tail -n 1) # the event of the campaign's end may have it, too
    is "only holds is success" "$code" "$([ "$verdict" = holds ] && echo 0 || echo 6)"
    partune export "$search" --to partune --output verified.json
    has "the export has the verdict" "$(cat verified.json)" "\"verified\": \"$verdict\""
    is "with the ratio, but where the baseline itself is the winner" \
        "$(grep -c '"ratio_to_baseline"' verified.json)" "$([ "$verdict" = same ]; echo $?)"
    # The winner was picked for the fastest of its trials; its runs in the verification were picked by nothing.
    has "and the expected throughput" "$(cat verified.json)" '"measured_in": "verification"'
    partune show "$search" --json >shown.json
    is "as in the campaign" "$(python3 -c "import json
print(json.load(open('verified.json'))['expected'] == json.load(open('shown.json'))['verify']['prediction'])")" True
    has "and the software version" "$(cat verified.json)" '"fingerprint": "partune-train [0-9.]+ \('
    # Trials of a verification are the last four: winner, baseline, baseline, winner. Sums in another order differ in the
    # last bits, and training carries that on: the parity tests allow 1e-4 over ten steps.
    first=$(sed -n 's/.*"first": *\([0-9]*\).*/\1/p' verify.out | tail -n 1)
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
            reproduce "$model" "$world" 10 6s
        done
    done
else
    reproduce nano-moe 2 2 2s
fi
verify
finish
