#!/bin/sh
# make bench-trainer: see bench_trainer.c for what is measured. BENCH_ARGS: --bench=GLOB (train_step_1, "train_step_2 dp",
# "oversubscribed*", overlap ...), --repeats=N.
bench="${PT_BUILD:?}/tests/bench/bench_trainer" src="${PT_SRC:?}/tests"
glob='*'
for arg in "$@"; do
    case $arg in --bench=*) glob=${arg#--bench=} ;; esac
done
wanted() {
    # shellcheck disable=SC2254
    case $1 in $glob) return 0 ;; *) return 1 ;; esac
}

mpiexec -n 8 "$bench" "$@" || exit

# PyTorch beside it, with an allocator that keeps its pages as ours does.
if wanted train_step_1 && /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 PYTHONDONTWRITEBYTECODE=1 \
        /usr/bin/python3 "$src/bench/bench_trainer_torch.py" |
        awk '{ printf "{\"bench\":\"train_step_1\",\"case\":\"PyTorch, the same model\",\"value\":%.4g,\"unit\":\"ms\"}\n", $1 * 1e3 }'
fi

two=0
for name in overlap 'overlap dp' 'overlap pp' 'overlap ep'; do
    wanted "$name" && two=1
done
if [ $two = 1 ]; then
    sh "$src/mpi/two_hosts.sh" 1gbit 1 "$bench" "$@"
    [ $? = 77 ] && echo '{"bench":"overlap","case":"skipped: two hosts need root, ip and tc","value":0,"unit":"none"}'
fi
exit 0
