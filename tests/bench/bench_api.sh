#!/bin/sh
# The daemon under load: one JSON object a line. Needs wrk. The reference of throughput is the smallest answer that the
# same server gives (/healthz), measured in the same run; it tells what the machine and the HTTP library allow.
set -u
build=${PT_BUILD:?}
run="$build/tests/run/bench_api.$$"
trials=${BENCH_TRIALS:-100000}
readers=${BENCH_READERS:-1000}
seconds=${BENCH_SECONDS:-5}
mkdir -p "$run"
pids=""
cleanup() {
    for p in $pids; do kill "$p" 2>/dev/null && wait "$p" 2>/dev/null; done
    rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
command -v wrk >/dev/null || { echo "bench_api: wrk is missing (Debian: apt-get install wrk)" >&2; exit 1; }
ulimit -n "$(ulimit -Hn)"

# case value unit [bar]: what it must reach, as "< 30" or "> 30000", where there is such a thing
line() {
    if [ -z "${4:-}" ]; then
        printf '{"bench":"api","case":"%s","value":%s,"unit":"%s"}\n' "$1" "$2" "$3"
        return
    fi
    met=$(awk "BEGIN { print (($2 $4) ? \"true\" : \"false\") }")
    [ $met = true ] || missed="$missed
  $1: $2 $3, must be $4"
    printf '{"bench":"api","case":"%s","value":%s,"unit":"%s","must":"%s","met":%s}\n' "$1" "$2" "$3" "$4" $met
}
missed=""
ms() { date +%s%N | awk '{ printf "%.0f", $1 / 1e6 }'; }
start() {
    rm -f "$run/err" # it names the port of the daemon before
    from=$(date +%s%N)
    "$build/partuned" --data "$run/data" --listen 127.0.0.1:0 --log info >"$run/out" 2>"$run/err" &
    pid=$!
    pids="$pids $pid"
    until url=$(sed -n 's/.*ready at \([^ ]*\).*/\1/p' "$run/err" 2>/dev/null) && [ -n "$url" ]; do
        kill -0 "$pid" 2>/dev/null || { cat "$run/err" >&2; exit 1; }
        sleep 0.005
    done
    until_ready=$((($(date +%s%N) - from) / 1000000))
    token=$(cat "$run/data/token")
    cpu_ready=$(cpu)
}
stop() { kill -TERM "$pid"; wait "$pid"; }
rss() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$pid/$2"; }
cpu() { awk '{ sub(/.*\) /, ""); print ($12 + $13) / 100 }' "/proc/$pid/stat"; } # seconds so far
load() { # path, connections; sets rate (requests/s), p99 (ms) and per_cpu (requests a second of the server's CPU)
    before=$(cpu)
    taskset -c 1 wrk -t1 -c"${2:-32}" -d"${seconds}s" --latency -H "Authorization: Bearer $token" "$url$1" >"$run/wrk"
    rate=$(sed -n 's/^Requests\/sec: *//p' "$run/wrk")
    p99=$(awk '$1 == "99%" { v = $2; if (v ~ /us$/) f = 0.001; else if (v ~ /ms$/) f = 1; else f = 1000; sub(/[a-z]+$/, "", v); print v * f }' "$run/wrk")
    per_cpu=$(awk "BEGIN { print $(sed -n 's/^ *\([0-9]*\) requests in.*/\1/p' "$run/wrk") / ($(cpu) - $before + 1e-3) }")
    grep -q 'Non-2xx' "$run/wrk" && { cat "$run/wrk" >&2; exit 1; }
}

start
line "resident-idle" "$(awk "BEGIN { print $(rss VmRSS status) / 1024 }")" MiB "< 30"
line "private-idle" "$(awk "BEGIN { print ($(rss Private_Clean smaps_rollup) + $(rss Private_Dirty smaps_rollup)) / 1024 }")" MiB "< 10"
stop
"$build/tests/bench/bench_api" seed "$run/data" "$trials" || exit 1
start
line "start-to-ready, $trials trials" "$until_ready" ms "< 300"
line "start-to-ready, $trials trials, CPU" "$(awk "BEGIN { print $cpu_ready * 1000 }")" ms
taskset -p -c 0 "$pid" >/dev/null
id=bench0000000
load /healthz
small=$rate
line "GET healthz, a CPU second" "$per_cpu" "req/s"
load "/v1/campaigns/$id"
line "GET campaign" "$rate" "req/s" "> 30000"
line "GET campaign, as a share of healthz" "$(awk "BEGIN { print $rate / $small }")" ratio
line "GET campaign, a CPU second" "$per_cpu" "req/s"
line "GET campaign p99" "$p99" ms "< 5"
load "/v1/campaigns/$id/trials?page_size=100" 4
line "list page of 100 of $trials" "$rate" "req/s"
line "list page of 100 of $trials, a CPU second" "$per_cpu" "req/s"
line "list page of 100 of $trials, p99" "$p99" ms "< 10"
load "/v1/campaigns/$id/trials?page_size=100&sort=-tokens_per_s&state=ok" 4
line "list page sorted and filtered, p99" "$p99" ms "< 10"
: >"$run/sse"
"$build/tests/bench/bench_api" sse "${url##*:}" "$token" "$id" "$readers" >"$run/sse" &
sse=$!
pids="$pids $sse"
tries=0
until [ "$(wc -l <"$run/sse")" -ge 5 ] || [ $tries -gt 600 ]; do tries=$((tries + 1)); sleep 0.1; done
line "last of $readers subscribers" "$(sort -n "$run/sse" | sed -n 3p)" ms "< 100"
line "resident with $trials trials and $readers subscribers" "$(awk "BEGIN { print $(rss VmRSS status) / 1024 }")" MiB "< 120"
stop

# Plans, dry runs and campaigns of every preset model, on its own length of sequences and on long ones: none takes over two
# seconds. A campaign's search is waited for, as it would share the processor with the next question.
start
plan_devices=${BENCH_PLAN_DEVICES:-8 64 512 8192}
plan_seqs=${BENCH_PLAN_SEQS:-own 131072}
: >"$run/plans"
ask() { # what, path, body, case
    set -- "$@" "$(curl -sS -m 120 -o "$run/answer" -w '%{http_code} %{time_total}' -H "Authorization: Bearer $token" \
        -H 'Content-Type: application/json' -d "$3" "$url$2")"
    case $5 in
        200\ * | 201\ * | 422\ *) echo "$1 ${5#* } $4" >>"$run/plans" ;; # 422: the trainer has not all that the model needs
        *) echo "bench_api: $4: $5 $(cat "$run/answer")" >&2; exit 1 ;;
    esac
}
every() { # model, devices, trainer or -, length of sequences or own
    body="\"model\":\"$1\",\"cluster\":{\"profile\":\"dgx-h100\",\"nodes\":$(($2 / 8))},\"workload\":{\"global_batch\":$(($2 < 64 ? 64 : $2))"
    [ "$4" = own ] || body="$body,\"seq\":$4"
    body="$body}"
    [ "$3" = - ] || body="$body,\"trainer\":\"$3\""
    campaign="{\"name\":\"plans\",$body,\"launcher\":{\"kind\":\"simulated\",\"speed\":1000000},\"budget\":{\"trials\":1}}"
    ask plan /v1/plan "{$body}" "$*"
    ask dry-run '/v1/campaigns?dry_run=true' "$campaign" "$*"
    ask campaign /v1/campaigns "$campaign" "$*"
    id=$(sed -n 's/^{"id":"\([^"]*\)".*/\1/p' "$run/answer")
    tries=0
    while [ -n "$id" ] && [ $tries -lt 600 ] && curl -sS -H "Authorization: Bearer $token" "$url/v1/campaigns/$id" | grep -q '"state":"running"'; do
        tries=$((tries + 1))
        sleep 0.1
    done
}
models=$(curl -sS -H "Authorization: Bearer $token" "$url/v1/presets/models" | grep -o '{"name":"[^"]*"' | cut -d '"' -f 4)
[ -n "$models" ] || { echo "bench_api: no preset models" >&2; exit 1; }
for seq in $plan_seqs; do
    for devices in $plan_devices; do
        for model in $models; do
            for trainer in - partune megatron torchtitan deepspeed; do every "$model" "$devices" "$trainer" "$seq"; done
        done
    done
done
for what in plan dry-run campaign; do
    grep "^$what " "$run/plans" | sort -k 2 -n >"$run/sorted"
    asked=$(wc -l <"$run/sorted")
    line "$what of presets, median of $asked" "$(awk -v n="$asked" 'NR == int((n + 1) / 2) { print 1000 * $2 }' "$run/sorted")" ms
    line "$what of presets, worst of $asked ($(tail -n 1 "$run/sorted" | cut -d ' ' -f 3-))" "$(awk 'END { print 1000 * $2 }' "$run/sorted")" ms "< 2000"
done
stop

# From the end of a trial's last process to the start of the next launcher, by the times that the supervisors wrote: the
# old supervisor's last look, settling, asking the search, the commit, and the start of the new supervisor.
cat >"$run/train" <<TRAIN
#!/bin/sh
for a in "\$@"; do [ "\$before" = --config ] && config=\$a; before=\$a; done
grep -q '"max_steps": *200' "\$config" && exec "$build/tests/fault/fake_train" --step-ms 100 "\$@"
exec "$build/tests/fault/fake_train" "\$@"
TRAIN
chmod +x "$run/train"
"$build/partuned" --data "$run/trials" --train "$run/train" --listen 127.0.0.1:0 2>"$run/err" &
pid=$!
pids="$pids $pid"
until url=$(sed -n 's/.*ready at \([^ ]*\).*/\1/p' "$run/err") && [ -n "$url" ]; do sleep 0.01; done
auth="Authorization: Bearer $(cat "$run/trials/token")"
campaign() { # name, trials, steps: waits for its end
    id=$(curl -sS -H "$auth" -H 'Content-Type: application/json' "$url/v1/campaigns" -d '{"name": "'"$1"'",
        "model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "two", "nodes": 1, "devices_per_node": 2, "oversubscribe": true,
                    "device": {"name": "core", "memory_gib": 24, "peak_tflops": {"fp32": 1}, "memory_gbs": 10},
                    "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}]},
        "workload": {"global_batch": 8}, "space": {"world": [2]}, "budget": {"trials": '"$2"'},
        "trial": {"warmup_steps": 1, "min_steps": '"$3"', "max_steps": '"$3"', "ci": 0.000001}}' | sed -n 's/^{"id":"\([^"]*\)".*/\1/p')
    tries=0
    until curl -sS -H "$auth" "$url/v1/campaigns/$id" | grep -q '"state":"done"' || [ $tries -gt 120 ]; do
        tries=$((tries + 1))
        sleep 0.5
    done
}
before=$(cpu)
campaign overhead 24 3
a_trial=$(awk "BEGIN { print ($(cpu) - $before) / 24 }")
for f in "$run/trials/campaigns/$id"/trials/*/1/exit.json; do
    sed -n 's/.*"started":\([0-9]*\),"ended":\([0-9]*\).*/\1 \2/p' "$f"
    echo
done | sort -n | awk 'NF == 2 { if (ended) print $1 - ended; ended = $2 }' | sort -n >"$run/gaps"
line "trial overhead, median of $(wc -l <"$run/gaps")" "$(awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }' "$run/gaps")" ms "< 100"
line "trial overhead, longest" "$(tail -n 1 "$run/gaps")" ms
# What the daemon spends on a trial of 60 s: what a trial costs from ask to settling (above, fitting included; those trials are
# nearly nothing but that), and what following one costs, measured over one of 20 s whose steps take 0.1 s.
before=$(cpu)
from=$(ms)
campaign following 1 200
following=$(awk "BEGIN { print ($(cpu) - $before) / (($(ms) - $from) / 1e3) }")
line "daemon CPU of a trial, start to end, fitting included" "$(awk "BEGIN { print 1000 * $a_trial }")" ms
line "daemon CPU while a trial runs" "$(awk "BEGIN { print 100 * $following }")" "% of a core"
line "daemon CPU over trials of 60 s" "$(awk "BEGIN { print 100 * ($a_trial / 60 + $following) }")" "% of a core" "< 1"
stop
if [ -n "$missed" ]; then
    echo "missed bars:$missed" >&2
else
    echo "every bar is met" >&2
fi
