#!/bin/bash
# Helper functions collect the arguments, and loops and a last function start the job.
ARGS=()
TP=1

log() {
    local level=$1
    shift
    echo "[$level] $*" >&2
}

add() {
    local name=$1 TP=${2:-none}
    [ "$TP" = none ] && { ARGS+=(--$name); return; }
    ARGS+=(--$name "$TP")
}

function parallelism {
    for pair in tensor:4 context:1 pipeline:2; do
        local degree=${pair##*:}
        if (( degree == 1 )); then
            log info "no ${pair%:*} parallelism"
            continue
        fi
        case ${pair%%:*} in
            context) add context-parallel-size $degree ;;
            *) add ${pair%%:*}-model-parallel-size $degree ;;
        esac
    done
}

parallelism
( cd /tmp && ARGS=() && exit 0 )
batch=64
until (( batch <= 8 )); do
    batch=$((batch / 2))
    [ $batch = 16 ] && break
done
add micro-batch-size 1
add global-batch-size $batch
add seq-length 2048
[ $TP = 1 ] && add sequence-parallel

start() {
    torchrun --nproc_per_node "$1" pretrain_gpt.py "${@:2}"
}
for attempt in 1 2; do
    start 8 "${ARGS[@]}" && break
done 2>&1 | cat
