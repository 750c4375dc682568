#!/bin/sh
# A campaign over two hosts that a slow link joins; with PT_LONG, on a machine with nothing else to do, against the same campaign
# on one host and against an exhaustive sweep of the same space over the same link. 3.3 M parameters (13 MB of gradients) and 1,024 tokens a step: between two cores of one
# machine reducing the gradients costs a few per cent of the computation, while a pipeline of two microbatches idles for a
# third of the time. Over 200 Mbit/s (25 MB/s) the gradients take half a second, several times the computation, and the 0.5 MB
# of activations that a pipeline sends each way for a sequence 20 ms. The short form has a space
# of one layout of each kind.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
. "$PT_SRC/tests/launch/network.sh"
options='--listen "unix:$short/sock" --grace 500 --stop requeue'
[ -x "$PT_BUILD/partune-train" ] || { echo "1..0 # SKIP the trainer is not built"; exit 0; }
[ "$(nproc)" -ge 2 ] || { echo "1..0 # SKIP two hosts want two cores"; exit 0; }
missing=$(hosts_missing)
[ -z "$missing" ] || { echo "1..0 # SKIP $missing"; exit 0; }
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
short=$(mktemp -d "${TMPDIR:-/tmp}/pt.XXXXXX") || exit 99 # a socket's path is at most 107 bytes long
end() {
    stop
    hosts_end
    rm -rf "$short"
    cleanup
}
trap end EXIT
cd "$run" || exit 99

call() { path=$1; shift; $C --unix-socket "$short/sock" -H "$J" "$@" "http://localhost$path"; }
# name, nodes, devices a node, GB/s of the link, search method, trials: sets id
submit() {
    id=$(call /v1/campaigns -d '{
        "name": "'"$1"'",
        "model": {"name": "wide", "layers": 4, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 256, "seq": 512},
        "cluster": {"name": "'"$2x$3"'", "nodes": '"$2"', "devices_per_node": '"$3"',
                    "device": {"name": "core", "memory_gib": 4, "peak_tflops": {"fp32": 1}, "memory_gbs": 10},
                    "links": [{"span": 2, "gbs": '"$4"', "latency_us": 20, "kind": "'"$([ "$2" = 1 ] && echo shm || echo tcp)"'"}]},
        "workload": {"global_batch": 2},
        "space": '"$space"',
        "search": {"method": "'"$5"'"}, "budget": {"trials": '"$6"'},
        "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 4, "timeout_s": 300}}' |
        tee answer | id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
}
over() { case $(sql "SELECT state FROM campaign WHERE id = '$id'") in done | paused | cancelled | failed) ;; *) return 1 ;; esac; }
# The layout of the best trial of campaign $id.
winner() { call "/v1/campaigns/$id/best" | sed -n 's/.*"text":"\([^"]*\)".*/\1/p'; }
trials() { # layouts, trials and trials that neither ran nor were pruned as hopeless
    sql "SELECT count(DISTINCT layout_text), count(*), count(CASE WHEN state NOT IN ('ok', 'pruned') THEN 1 END) FROM trial WHERE campaign = '$id'"
}
campaign() { # as submit, then waits for its end
    submit "$@"
    ok "$1: the campaign ends" wait_for 300 over
    has "$1: every trial ran" "$(trials)" '[|]0$'
    sql "SELECT '# ' || n, kind, layout_text, round(tokens_per_s), round(tokens_per_s_se), round(seconds, 1), state
        FROM trial WHERE campaign = '$id' ORDER BY tokens_per_s DESC"
}
space='{"world": [2], "sp": [0], "vp": [1], "micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"], "zero": [0],
        "overlap_grad_reduce": [0], "overlap_param_gather": [0], "overlap_p2p": [0]}'
budget=3
if [ -n "${PT_LONG:-}" ]; then
    space='{"world": [2], "sp": [0], "micro_batch": [1], "recompute": ["none"], "zero": [0, 1]}'
    budget=8
fi
# The part of the winner that the link decides; ties within it (overlap, schedule) are left to noise.
family() { case $1 in *pp2*) echo pp2 ;; *tp2*) echo tp2 ;; *dp2*) echo dp2 ;; *) echo "none: $1" ;; esac; }

if [ -n "${PT_LONG:-}" ]; then
    data=one
    start
    campaign "one host" 1 2 2 bayes $budget
    one=$(family "$(winner)")
    stop
fi

hosts_make 200mbit "$short/launch" || { echo "Bail out! the hosts cannot be made"; exit 99; }
printf '# two nodes of one core\n10.111.0.1:1\n10.111.0.2:1\n' >hosts
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC="$short/launch" HYDRA_IFACE=eth0
data=two within=hosts_exec
start --hosts hosts
campaign "two hosts" 2 1 0.025 bayes $budget
two=$(family "$(winner)")
has "ranks ran on both hosts" "$(cat two/campaigns/"$id"/trials/1/*/events)" '"hosts": ?\["host-a", ?"host-b"\]'
if [ -n "${PT_LONG:-}" ]; then
    campaign "sweep" 2 1 0.025 grid 1000
    has "the sweep has tried every layout" "$(call "/v1/campaigns/$id")" '"reason":"exhausted"'
    is "and the campaign found its winner" "$two" "$(family "$(winner)")"
    ok "which is not the best on one host ($one)" [ "$one" != "$two" ]
else
    is "its winner is the fastest of them" "$(call "/v1/campaigns/$id/best" | sed -n 's/.*"text":"\([^"]*\)".*/\1/p')" \
        "$(sql "SELECT layout_text FROM trial WHERE campaign = '$id' AND state = 'ok' GROUP BY 1 ORDER BY avg(tokens_per_s) DESC LIMIT 1")"
fi
is "which is a pipeline" "$two" pp2
refused=$(call /v1/campaigns -d '{"name": "three", "model": "nano-moe", "workload": {"global_batch": 8}, "cluster":
    {"name": "three", "nodes": 3, "devices_per_node": 1, "device": {"name": "core", "memory_gib": 4, "peak_tflops": {"fp32": 1}, "memory_gbs": 10},
     "links": [{"span": 3, "gbs": 1, "latency_us": 20, "kind": "tcp"}]}}')
has "a cluster of three nodes is refused" "$refused" '"detail":"the cluster has 3 nodes of 1 devices, but the host file has only 2 hosts.*"pointer":"/cluster"'
stop
echo '10.111.0.1:none' >hosts
if (hosts_exec "$PT_BUILD/partuned" --data three --listen "unix:$short/sock" --hosts hosts) >err 2>&1; then ended=0; else ended=$?; fi
is "an invalid host file: the daemon does not start" "$ended" 2
has "and names the line" "$(cat err)" 'hosts:1: the number of cores after the colon'
is "no process is left" "$(grep -lsz "^HYDRA_LAUNCHER_EXEC=$short/launch" /proc/[0-9]*/environ |
    while read -r e; do cat "$e" 2>/dev/null | tr '\0' '\n' | grep '^PARTUNE_TRIAL='; done)" ""
finish
