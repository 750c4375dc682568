#!/bin/sh
# Messages between two GPUs by NCCL, for which standin-nccl.c answers: the losses are those of the same layouts by MPI, bit for
# bit, where sums have two terms. The stand-in moves bytes as late as NCCL may and checks sizes; an order that deadlocks ends it.
dir="${PT_BUILD:?}/tests/run/links.$$"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
export STANDIN_SAYS=1 STANDIN_GPUS=4 PARTUNE_CUDA="$PT_BUILD/tests/kncheck/cuda-shim.so"
. "${PT_SRC:?}/tests/mpi/ok.sh"
libraries=$PT_BUILD/tests/mpi/standin:$PT_BUILD/tests/kncheck/standin:$LD_LIBRARY_PATH
trainer="$PT_BUILD/partune-train --data-dir $dir --quiet --lr 0.01 --device cuda"

cat >dense.json <<"END"
{"name":"dense","layers":6,"hidden":32,"heads":4,"kv_heads":4,"ffn":64,"vocab":128,"seq":16}
END
cat >experts.json <<"END"
{"name":"experts","layers":2,"hidden":32,"heads":4,"kv_heads":4,"vocab":128,"seq":16,"moe":{"experts":8,"top_k":4,"expert_ffn":32}}
END
losses() { # ranks, options...: of three steps, with norms of gradients, to the file of the first argument
    to=$1 ranks=$2
    shift 2
    rm -f metrics
    LD_LIBRARY_PATH=$libraries timeout -k 2 100 mpiexec -n "$ranks" $trainer --steps 3 --metrics metrics "$@" >out 2>&1 &&
        sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,}]*\),.*"grad_norm":\([^,}]*\).*/\1 \2 \3/p' metrics >"$to" && [ "$(wc -l <"$to")" = 3 ]
}
# Links that had messages, one at each end, and communicators of collectives none.
by() { # name, tolerance, links' ends, ranks, options...
    name=$1 tolerance=$2 ends=$3
    shift 3
    losses links "$@" && cp out said && PARTUNE_NCCL=off losses mpi "$@" && ! grep -q standin-nccl out &&
        [ "$(grep -c 'standin-nccl: [1-9][0-9]* messages' said)" = "$ends" ] &&
        if [ "$tolerance" = 0 ]; then cmp links mpi >>out; else near links mpi "$tolerance"; fi
    code=$?
    [ $code = 0 ] || sed 's/^/# /' said
    ok $code "$name"
}
by "1F1B, with receives ahead" 0 8 3 --model ./dense.json -b 8 --pp 3 --overlap-p2p 1
by "interleaved stages of an odd ring" 0 12 3 --model ./dense.json -b 6 --pp 3 --vp 2 --schedule interleaved --overlap-p2p 1
by "zero-bubble, and experts in parts" 0 12 4 --model ./experts.json -b 4 --pp 2 --schedule zero-bubble --ep 2 --overlap-moe-a2a 1
by "experts that are cut" 0 4 4 --model ./experts.json -b 4 --ep 2 --etp 2 --tp 2
by "tp_overlap, and a ring of cp" 1e-5 8 4 --model ./dense.json -b 4 --tp 2 --sp 1 --tp-overlap 1 --cp 2

# Rank 1 does no more messages: rank 0, which waits for the device, asks NCCL, aborts its communicators and says why.
options="$trainer --model ./dense.json -b 8 --pp 2 --steps 100000 --events ev"
LD_LIBRARY_PATH=$libraries timeout -k 2 60 mpiexec -n 1 $options : -n 1 env STANDIN_GONE=30 $options >out 2>&1
code=$?
lost='NCCL: another rank or its link: remote process exited or there was a network error (6)'
[ $code = 69 ] && [ "$(grep -c '^partune-train: ' out)" = 1 ] && grep -qF "partune-train: rank 0: comm: $lost" out &&
    grep -q 'standin-nccl: aborted' out && grep -q '"event":"error".*"class":"comm","rank":0' ev
ok $? "a rank that is lost ends the job"

# Rank 1 stays in a call of NCCL: rank 0, which has launched all that it can, waits for its device and is not what is missing.
# The watching thread opens the events by itself.
options="$options --hang-report 3"
rm -f ev
LD_LIBRARY_PATH=$libraries timeout -k 2 100 mpiexec -n 1 $options : -n 1 env STANDIN_STAYS=30 $options >out 2>&1 &
pid=$!
i=0
until grep -q '"event":"hang"' ev 2>/dev/null || [ $i -gt 800 ]; do
    sleep 0.1
    i=$((i + 1))
done
kill -TERM $pid 2>/dev/null
wait $pid
grep '"event":"hang"' ev | grep -q '"reason":"busy".*"waiting":1,"missing":\[{"rank":1,' && grep -q 'rank 0 .*waiting in .* > its GPU for' out
ok $? "a rank that waits for its GPU is not missing"
echo "1..$n"
