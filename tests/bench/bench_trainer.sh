#!/bin/sh
# make bench-trainer: see bench_trainer.c for what is measured; the last lines name the bars that are missed. Some six minutes
# on two idle cores. BENCH_ARGS: --bench=GLOB (train_step_1, "train_step_2 dp", "oversubscribed*", overlap, checkpoint ...), --repeats=N.
bench="${PT_BUILD:?}/tests/bench/bench_trainer" src="${PT_SRC:?}/tests"
glob='*' repeats=3 lines=$(mktemp "${TMPDIR:-/tmp}/bench-trainer.XXXXXX") || exit 99
saves="$PT_BUILD/tests/bench/checkpoints.$$" # on a disk, which /tmp may not be
trap 'rm -rf "$lines" "$saves"' EXIT
trap 'exit 99' HUP INT TERM
for arg in "$@"; do
    case $arg in
        --bench=*) glob=${arg#--bench=} ;;
        --repeats=*) repeats=${arg#--repeats=} ;;
    esac
done
wanted() { # any of these
    for name in "$@"; do
        # shellcheck disable=SC2254
        case $name in $glob) return 0 ;; esac
    done
    return 1
}

# Milliseconds from one step's event to the next, mean of those after the fourth: what is done between two steps counts, too, and by
# then the first checkpoint has been published.
between_steps() { # options of partune-train...
    rm -rf "$saves"
    mkdir -p "$saves" || return 1
    echo '{"name":"dense 8x512","layers":8,"hidden":512,"heads":8,"kv_heads":8,"ffn":1536,"vocab":4096,"seq":256}' >"$saves/model.json"
    mpiexec -bind-to core -n 2 "$PT_BUILD/partune-train" --data-dir "$saves" --model "$saves/model.json" --quiet --steps 12 \
        --global-batch 16 --zero 1 --events "$saves/events" "$@" >&2 || return 1
    sed -n 's/.*"event":"step","t":\([0-9.]*\),.*/\1/p' "$saves/events" |
        awk '{ t[NR] = $1 } END { if (NR != 12) exit 1; printf "%.1f\n", 1e3 * (t[12] - t[4]) / 8 }'
}

# Pairs of runs of train_step_2's dense model, 31 million parameters: 377 MB a checkpoint.
checkpoints() {
    i=0
    while [ $i -lt "$repeats" ]; do
        i=$((i + 1))
        without=$(between_steps) || return 1
        with=$(between_steps --checkpoint "$saves/c" --checkpoint-every 1 --checkpoint-keep 2 --checkpoint-async) || return 1
        echo "$with $without"
    done | awk '{ print $1 / $2, $1 }' | sort -n | awk '{ ratio[NR] = $1; with[NR] = $2 }
        END {
            if (!NR) exit 1
            middle = int((NR + 1) / 2)
            printf "{\"bench\":\"checkpoint\",\"case\":\"a step with an asynchronous checkpoint each, over the step without\","
            printf "\"value\":%.1f,\"unit\":\"ms\",\"reference\":\"the step without\",\"ratio\":%.3f,", with[middle], ratio[middle]
            printf "\"most\":1.05,\"met\":%s}\n", ratio[middle] <= 1.05 ? "true" : "false"
        }'
}

measure() {
    if wanted train_step_1 train_step_2 'train_step_2 dp' 'train_step_2 fsdp' 'train_step_2 ep' 'train_step_2 tp' 'train_step_2 pp' 'train_step_2 cp'; then
        mpiexec -bind-to core -n 2 "$bench" cores "$@" || echo "2 ranks: exit $?" >&2
    fi
    if wanted oversubscribed 'oversubscribed dense tp2 pp2 dp2' 'oversubscribed experts tp2 pp2 dp2 ep2' memory; then
        mpiexec -n 8 "$bench" oversubscribed "$@" || echo "8 ranks: exit $?" >&2
    fi
    # PyTorch next to it, with an allocator that keeps its pages as ours does.
    if wanted train_step_1 && /usr/bin/python3 -c 'import torch' 2>/dev/null; then
        MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 PYTHONDONTWRITEBYTECODE=1 \
            /usr/bin/python3 "$src/bench/bench_trainer_torch.py" |
            awk '{ printf "{\"bench\":\"train_step_1\",\"case\":\"PyTorch, the same model\",\"value\":%.4g,\"unit\":\"ms\"}\n", $1 * 1e3 }'
    fi
    if wanted overlap 'overlap dp' 'overlap tp' 'overlap cp' 'overlap pp' 'overlap ep'; then
        sh "$src/mpi/two_hosts.sh" 1gbit 1 "$bench" hosts "$@"
        [ $? = 77 ] && echo '{"bench":"overlap","case":"skipped: two hosts need root, ip and tc","value":0,"unit":"none"}'
    fi
    if wanted checkpoint; then
        checkpoints || echo "checkpoints: exit $?" >&2
    fi
}
measure "$@" | tee "$lines"

grep -q '"met":true' "$lines" || grep -q '"met":false' "$lines" || exit 1
awk -F '"' '/"met":false/ { n++; missed = missed "\n  " $4 " " $8 }
    /"met":/ { all++ }
    END { printf "%d of %d bars are missed%s%s\n", n, all, n ? ":" : "", missed }' "$lines" >&2
