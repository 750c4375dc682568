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

line() { # case value unit [reference ratio]
    if [ $# -gt 3 ]; then
        printf '{"bench":"api","case":"%s","value":%s,"unit":"%s","reference":"%s","ratio":%s}\n' "$1" "$2" "$3" "$4" "$5"
    else
        printf '{"bench":"api","case":"%s","value":%s,"unit":"%s"}\n' "$1" "$2" "$3"
    fi
}
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
line "resident-idle" "$(awk "BEGIN { print $(rss VmRSS status) / 1024 }")" MiB
line "private-idle" "$(awk "BEGIN { print ($(rss Private_Clean smaps_rollup) + $(rss Private_Dirty smaps_rollup)) / 1024 }")" MiB
stop
"$build/tests/bench/bench_api" seed "$run/data" "$trials" || exit 1
start
line "start-to-ready, $trials trials" "$until_ready" ms
line "start-to-ready, $trials trials, CPU" "$(awk "BEGIN { print $cpu_ready * 1000 }")" ms
taskset -p -c 0 "$pid" >/dev/null
id=bench0000000
load /healthz
small=$rate
line "GET healthz, a CPU second" "$per_cpu" "req/s"
load "/v1/campaigns/$id"
line "GET campaign" "$rate" "req/s" "healthz" "$(awk "BEGIN { print $rate / $small }")"
line "GET campaign, a CPU second" "$per_cpu" "req/s"
line "GET campaign p99" "$p99" ms
load "/v1/campaigns/$id/trials?page_size=100" 4
line "list page of 100 of $trials" "$rate" "req/s"
line "list page of 100 of $trials, a CPU second" "$per_cpu" "req/s"
line "list page of 100 of $trials, p99" "$p99" ms
load "/v1/campaigns/$id/trials?page_size=100&sort=-tokens_per_s&state=ok" 4
line "list page sorted and filtered, p99" "$p99" ms
"$build/tests/bench/bench_api" sse "${url##*:}" "$token" "$id" "$readers" >"$run/sse" &
sse=$!
pids="$pids $sse"
tries=0
until [ "$(wc -l <"$run/sse")" -ge 5 ] || [ $tries -gt 600 ]; do tries=$((tries + 1)); sleep 0.1; done
line "last of $readers subscribers" "$(sort -n "$run/sse" | sed -n 3p)" ms
line "resident with $trials trials and $readers subscribers" "$(awk "BEGIN { print $(rss VmRSS status) / 1024 }")" MiB
stop

# From the end of a trial's last process to the start of the next launcher, by the times that the supervisors wrote: the
# old supervisor's last look, settling, asking the search, the commit, and the start of the new supervisor.
"$build/partuned" --data "$run/trials" --train "$build/tests/fault/fake_train" --listen 127.0.0.1:0 2>"$run/err" &
pid=$!
pids="$pids $pid"
until url=$(sed -n 's/.*ready at \([^ ]*\).*/\1/p' "$run/err") && [ -n "$url" ]; do sleep 0.01; done
auth="Authorization: Bearer $(cat "$run/trials/token")"
id=$(curl -sS -H "$auth" -H 'Content-Type: application/json' "$url/v1/campaigns" -d '{"name": "overhead",
    "model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
    "cluster": {"name": "two", "nodes": 1, "devices_per_node": 2, "oversubscribe": true,
                "device": {"name": "core", "memory_gib": 24, "peak_tflops": {"fp32": 0.1}, "memory_gbs": 10},
                "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}]},
    "workload": {"global_batch": 8}, "space": {"world": [2]}, "budget": {"trials": 24},
    "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3}}' | sed -n 's/^{"id":"\([^"]*\)".*/\1/p')
tries=0
until curl -sS -H "$auth" "$url/v1/campaigns/$id" | grep -q '"state":"done"' || [ $tries -gt 300 ]; do
    tries=$((tries + 1))
    sleep 0.2
done
for f in "$run/trials/campaigns/$id"/trials/*/1/exit.json; do
    sed -n 's/.*"started":\([0-9]*\),"ended":\([0-9]*\).*/\1 \2/p' "$f"
    echo
done | sort -n | awk 'NF == 2 { if (ended) print $1 - ended; ended = $2 }' | sort -n >"$run/gaps"
line "trial overhead, median of $(wc -l <"$run/gaps")" "$(awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }' "$run/gaps")" ms
line "trial overhead, longest" "$(tail -n 1 "$run/gaps")" ms
stop
