#!/bin/sh
# A campaign with smaller trials over two hosts that a slow link joins: eight devices, four a host, each a fifth of a core
# (devices.sh), so that a rank of a smaller trial computes no faster than one of eight.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
. "$PT_SRC/tests/launch/network.sh"
. "$PT_SRC/tests/launch/devices.sh"
[ -x "$PT_BUILD/partune-train" ] || { echo "1..0 # SKIP the trainer is not built"; exit 0; }
[ "$(nproc)" -ge 2 ] || { echo "1..0 # SKIP two hosts want two cores"; exit 0; }
missing=$(hosts_missing)
[ -z "$missing" ] || { echo "1..0 # SKIP $missing"; exit 0; }
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
short=$(mktemp -d "${TMPDIR:-/tmp}/pt.XXXXXX") || exit 99 # a socket's path is at most 107 bytes long
end() {
    stop
    hosts_end
    devices_end
    rm -rf "$short"
    cleanup
}
trap end EXIT
cd "$run" || exit 99
devices_make "$short" || { echo "1..0 # SKIP no quotas of CPU time (cgroup controller cpu)"; exit 0; }
options='--listen "unix:$short/sock" --grace 500 --stop requeue --train "$short/train"'

call() { path=$1; shift; $C --unix-socket "$short/sock" -H "$J" "$@" "http://localhost$path"; }
over() { case $(sql "SELECT state FROM campaign WHERE id = '$id'") in done | paused | cancelled | failed) ;; *) return 1 ;; esac; }
campaign() { # name, fidelity, trials: sets id, waits for the end
    id=$(call /v1/campaigns -d '{
        "name": "'"$1"'",
        "model": {"name": "wide", "layers": 8, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 256, "seq": 256},
        "cluster": {"name": "two", "nodes": 2, "devices_per_node": 4,
                    "device": {"name": "fifth", "kind": "cpu", "memory_gib": 1, "peak_tflops": {"fp32": 0.05}, "memory_gbs": 5},
                    "links": [{"span": 4, "gbs": 0.5, "latency_us": 20, "kind": "shm"},
                              {"span": 8, "gbs": 0.00625, "latency_us": 50, "kind": "tcp"}]},
        "workload": {"global_batch": 16}, "space": '"$space"',
        "budget": {"trials": '"$3"'},
        "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 4, "timeout_s": 120, "fidelity": '"$2"'}}' |
        tee answer | id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
    ok "$1: the campaign ends" wait_for 300 over
    is "$1: every trial ran" "$(rows "state NOT IN ('ok', 'pruned')")" 0
    sql "SELECT '# ' || n, kind, layout_text, devices, round(coalesce(tokens_per_s, json_extract(run, '\$.tokens_per_s'))),
        round(json_extract(inferred, '\$.tokens_per_s')), round(device_s, 1), state
        FROM trial WHERE campaign = '$id' ORDER BY n"
}
confirmed() { # what holds of every campaign with smaller trials
    ok "there are smaller trials" test "$(rows 'fidelity IS NOT NULL')" -ge 1
    is "on fewer devices or of fewer layers" "$(rows "fidelity IS NOT NULL AND devices = 8 AND json_extract(run, '\$.layers') = 8
        AND coalesce(json_extract(run, '\$.global_batch'), 16) = 16")" 0
    ok "full ones ran on both hosts" grep -qE '"hosts": ?\["host-a", ?"host-b"\]' "$data/campaigns/$id/trials/1"/*/events
    best=$(call "/v1/campaigns/$id" | sed -n 's/.*"best":{"trial":\([0-9]*\),.*/\1/p')
    is "the winner was confirmed at full size" "$(rows "n = ${best:-0} AND fidelity IS NULL AND devices = 8 AND tokens_per_s > 0")" 1
}
space='{"world": [8], "tp": [1, 2], "pp": [1, 2, 4], "sp": [0], "vp": [1], "micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"],
    "zero": [0], "overlap_grad_reduce": [0], "overlap_param_gather": [0], "overlap_p2p": [0]}'

hosts_make 200mbit "$short/launch" || { echo "Bail out! the hosts cannot be made"; exit 99; }
printf '10.111.0.1:4\n10.111.0.2:4\n' >hosts
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC="$short/launch" HYDRA_IFACE=eth0
within=hosts_exec
start --hosts hosts
campaign smaller '{"replicas": 1, "stage_layers": 2, "steps": 3}' 6
confirmed
stop
finish
