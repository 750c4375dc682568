#!/bin/sh
# make bench-trainer: see bench_trainer.c for what is measured; the last lines name the bars that are missed. Some fifteen minutes
# on two idle cores. BENCH_ARGS: --bench=GLOB (train_step_1, "train_step_2 dp", "oversubscribed*", overlap, checkpoint, pytorch ...), --repeats=N.
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

# Seconds of a step in PyTorch, with an allocator that keeps its pages as ours does and threads that sleep where they wait: of two
# libraries with threads, each else takes the other's core.
torch_step() { # dense|experts, threads, sequences
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1 \
        /usr/bin/python3 "$src/bench/bench_trainer_torch.py" "$@"
}

# Pairs of a step in PyTorch and of ours, on as many cores.
pytorch() { # case, ours of bench_trainer, bar, arguments of torch_step...
    case=$1 ours=$2 bar=$3 i=0
    shift 3
    while [ $i -lt "$repeats" ]; do
        i=$((i + 1))
        theirs=$(torch_step "$@") || return 1
        mpiexec -bind-to core -n 2 "$bench" cores "--bench=$ours" --repeats=1 |
            awk -F '"value":' -v theirs="$theirs" 'NR == 1 { print 1e3 * theirs / ($2 + 0), 1e3 * theirs }'
    done | sort -n | awk -v n="$case" -v bar="$bar" '{ ratio[NR] = $1; theirs[NR] = $2 }
        END {
            if (!NR) exit 1
            middle = int((NR + 1) / 2)
            printf "{\"bench\":\"pytorch\",\"case\":\"%s\",\"value\":%.4g,\"unit\":\"ms\",\"reference\":\"our step\",", n, theirs[middle]
            printf "\"ratio\":%.3f,\"least\":%g,\"met\":%s}\n", ratio[middle], bar, ratio[middle] >= bar ? "true" : "false"
        }'
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
    if wanted pytorch && /usr/bin/python3 -c 'import torch' 2>/dev/null; then
        pytorch "dense, one thread" train_step_1 1.2 dense 1 4
        pytorch "dense, two threads, next to dp 2" "train_step_2 dp" 1.5 dense 2 16
        pytorch "experts, two threads, next to ep 2" "train_step_2 ep" 3 experts 2 16
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
