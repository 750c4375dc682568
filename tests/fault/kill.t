#!/bin/sh
# kill -9 at random instants: the daemon, the supervisor, mpiexec, Hydra's proxy, a rank, or two of them at once, over
# running campaigns of the real trainer. Every trial is counted once, the database is whole, no process is left.
#   PT_KILLS  how many (16; 300 with PT_LONG); PT_SEED  another course of events
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--grace 500'
kills=${PT_KILLS:-${PT_LONG:+300}}
kills=${kills:-16}
seed=${PT_SEED:-$(date +%s)}
echo "# PT_SEED=$seed PT_KILLS=$kills"
cd "$run" || exit 99
exec 3>&1
if ! command -v mpiexec >/dev/null || [ ! -x "$PT_BUILD/partune-train" ]; then
    echo "1..0 # SKIP no MPI"
    exit 0
fi
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0

random() { # sets r, below $1
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    r=$((seed / 65536 % $1))
}
alive() { # a daemon that we did not kill must not die
    kill -0 "$pid" 2>/dev/null && return 0
    wait "$pid"
    echo "Bail out! the daemon died by itself: status $?: $(tail -n 3 err | tr '\n' ' ')"
    kill -TERM $$
}
get() {
    alive >&3
    $C -H "$A" "$url$1"
}
submit() {
    id=$($C -H "$A" -H 'Content-Type: application/json' "$url/v1/campaigns" -d '{
        "name": "kill", "model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "two", "nodes": 1, "devices_per_node": 2, "oversubscribe": true,
                    "device": {"name": "core", "memory_gib": 1, "peak_tflops": {"fp32": 1}, "memory_gbs": 10},
                    "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}]},
        "workload": {"global_batch": 8}, "budget": {"trials": 8},
        "trial": {"warmup_steps": 2, "min_steps": 60, "max_steps": 60, "ci": 0.000001}}' |
        id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign"; exit 99; }
    ids="$ids $id"
}
# Processes of our campaigns, by name ($1, a pattern) or all: the mark is in their environment.
marked() {
    grep -lszE "^PARTUNE_TRIAL=$instance/" /proc/[0-9]*/environ 2>/dev/null | while read -r e; do # one look at all: a trial is short
        p=${e#/proc/}
        p=${p%/environ}
        read -r name 2>/dev/null <"/proc/$p/comm" || continue
        case $name in ${1:-*}) echo "$p" ;; esac
    done
}
state() { get "/v1/campaigns/$id" | sed -n 's/^{"id":"[^"]*","name":"[^"]*","state":"\([^"]*\)".*/\1/p'; }
over() { [ "$(state)" = done ]; }
first_ok() { get "/v1/campaigns/$id/trials/1" | grep -q '"state":"ok"'; }

start
instance='[0-9a-f]*' # until one of our trials has said which one it is
ids=""
submit
wait_for 30 test -e "data/campaigns/$id/trials/1/1/run.json"
instance=$(sed -n 's/.*"mark":"\([^/]*\)\/.*/\1/p' "data/campaigns/$id/trials/1/1/run.json")
wait_for 60 first_ok || { sed 's/^/# /' err; echo "Bail out! the first trial does not succeed"; exit 99; }

done=0
struck=
while [ "$done" -lt "$kills" ]; do
    over && { submit; wait_for 60 first_ok; }
    random 8
    sleep "0.$((r + 1))"
    case $((done % 8)) in # each kind in turn
    0 | 1) what="daemon" victims=$pid ;;
    2) what="mpiexec" victims=$(marked 'mpiexec*') ;; # a link to mpiexec.hydra
    3) what="proxy" victims=$(marked hydra_pmi_proxy) ;;
    4) what="rank" victims=$(marked partune-train | head -n 1) ;;
    5) what="supervisor" victims=$(marked partune-run) ;;
    6) what="daemon+supervisor" victims="$pid $(marked partune-run)" ;;
    7) what="daemon+rank" victims="$pid $(marked partune-train | head -n 1)" ;;
    esac
    [ -n "$victims" ] || continue
    kill -9 $victims 2>/dev/null # one of them may have ended meanwhile
    done=$((done + 1))
    echo "# $done: $what"
    struck="$struck $what"
    case $what in
    daemon*)
        wait "$pid" 2>/dev/null
        random 10
        sleep "0.$r"
        start
        ;;
    esac
done

for id in $ids; do
    ok "campaign $id ends" wait_for 120 over
    get "/v1/campaigns/$id" >body
    trials=$(sed -n 's/.*"progress":{[^}]*"trials":\([0-9]*\),.*/\1/p' body)
    is "exactly its budget is used" "$trials" 8
    is "it has that many trials" "$(get "/v1/campaigns/$id/trials?page_size=1" | sed -n 's/.*"total":\([0-9]*\).*/\1/p')" 8
    counts=$(sed -n 's/.*"by_state":{\([^}]*\)}.*/\1/p' body)
    echo "# $counts"
    is "each has one final state" "$(echo "$counts" | tr ',' '\n' | grep -vE '"(queued|starting|running)"' |
                                       sed 's/.*://' | awk '{ s += $1 } END { print s }')" 8
done
for what in daemon mpiexec proxy rank supervisor; do
    has "$what was struck" "$struck" " $what"
done
is "no process is left" "$(marked)" ""
kill -TERM "$pid"
wait "$pid"
is "the daemon exits cleanly" "$?" 0
"$PT_BUILD/partuned" --data data check >check 2>&1
has "the database is intact" "$(cat check)" '^ok +database'
ok "and can be backed up" "$PT_BUILD/partuned" --data data backup copy.db
finish
