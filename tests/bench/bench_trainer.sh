#!/bin/sh
# make bench-trainer: see bench_trainer.c for what is measured; the last lines name the bars that are missed. Some six minutes
# on two idle cores. BENCH_ARGS: --bench=GLOB (train_step_1, "train_step_2 dp", "oversubscribed*", overlap ...), --repeats=N.
bench="${PT_BUILD:?}/tests/bench/bench_trainer" src="${PT_SRC:?}/tests"
glob='*' lines=$(mktemp "${TMPDIR:-/tmp}/bench-trainer.XXXXXX") || exit 99
trap 'rm -f "$lines"' EXIT
trap 'exit 99' HUP INT TERM
for arg in "$@"; do
    case $arg in --bench=*) glob=${arg#--bench=} ;; esac
done
wanted() { # any of these
    for name in "$@"; do
        # shellcheck disable=SC2254
        case $name in $glob) return 0 ;; esac
    done
    return 1
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
}
measure "$@" | tee "$lines"

grep -q '"met":true' "$lines" || grep -q '"met":false' "$lines" || exit 1
awk -F '"' '/"met":false/ { n++; missed = missed "\n  " $4 " " $8 }
    /"met":/ { all++ }
    END { printf "%d of %d bars are missed%s%s\n", n, all, n ? ":" : "", missed }' "$lines" >&2
