#!/bin/sh
# MIG instances by UUID: each rank computes on one of those that CUDA_VISIBLE_DEVICES lists, of which CUDA shows a process one
# alone. The driver is a stand-in, whose instances are all of one GPU.
dir="${PT_BUILD:?}/tests/run/mig.$$"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" STANDIN_NAME="NVIDIA A100-SXM4-40GB"
export LD_LIBRARY_PATH=$PT_BUILD/tests/mpi/standin:$PT_BUILD/tests/kncheck/standin PARTUNE_CUDA=$PT_BUILD/tests/kncheck/cuda-shim.so
. "${PT_SRC:?}/tests/mpi/ok.sh"
a=MIG-5c89852c-d268-5d35-8e34-000000000001 b=MIG-5c89852c-d268-5d35-8e34-000000000002

run() { # ranks, instances, options...
    ranks=$1 list=$2
    shift 2
    rm -f events
    CUDA_VISIBLE_DEVICES=$list mpiexec -n "$ranks" "$PT_BUILD/partune-train" --model nano-llama --data-dir . -b 6 --steps 2 --events events "$@" >out 2>&1
}
told() { # name, list of instances of the ranks
    grep -qF "\"mig\":[$2]" events && grep -qF '"device":"NVIDIA A100-SXM4-40GB MIG 1g.10gb"' events && grep -q '"event":"step","t":[^,]*,"n":2,' events
    ok $? "$1"
}
run 1 $b --device cuda
told "a rank computes on the instance, and says on which" "\"$b\""
run 2 $a,$b --device cuda
told "each rank has one of its own" "\"$a\",\"$b\""
! grep -q NCCL events
ok $? "between which NCCL is not used: they are of one GPU"
run 1 $a,$b --device cuda:1
told "one can be chosen by its place in the list" "\"$b\""
run 3 $a,$b --device cuda:all
told "ranks that outnumber them take them in turn" "\"$a\",\"$b\",\"$a\""
run 1 $a
! grep -q '"mig"' events
ok $? "on the CPU nobody speaks of them"
run 3 $a,$b --device cuda
[ $? = 2 ] && grep -qF "local rank 2 has no GPU of its own (ranks share GPU N by cuda:N): MIG instance 2 was requested; CUDA_VISIBLE_DEVICES lists 2" out
ok $? "more ranks than instances are refused"
run 2 $a,$a --device cuda
[ $? != 0 ] && grep -qF "2 ranks have the GPU at" out
ok $? "and so is one instance for two ranks"
CUDA_VISIBLE_DEVICES=$a,$b mpiexec -n 2 "$PT_BUILD/partune-train" --calibrate local.json --device cuda >out 2>&1 &&
    grep -q '"name": "NVIDIA A100-SXM4-40GB MIG 1g.10gb"' local.json && grep -q '"kind": "through the host, by MPI"' local.json
ok $? "two instances are calibrated as two devices"
echo "1..$n"
