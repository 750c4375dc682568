#!/bin/sh
# partune doctor about GPUs, with stand-ins for NVIDIA's libraries: what is there, and each thing that can be wrong by name.
partune=${PT_BUILD:?}/partune
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
n=0

library() { # folder, file, options
    mkdir -p "$work/$1" && ${CC:-cc} -fPIC -shared "$3" -o "$work/$1/$2" "${PT_SRC:?}/tests/client/standin-nvml.c"
}
library here libnvidia-ml.so.1 -O1 && library here libnccl.so.2 -DNCCL && library old libnvidia-ml.so.1 -DWITHOUT_MIG &&
    library alone libnvidia-ml.so.1 -O1 && library alone libnccl.so.2 -O1 || exit 99

says() { # name, folder of libraries, text, [VAR=VALUE...]: the daemon is absent, all else does not matter
    name=$1 folder=$2 text=$3
    shift 3
    n=$((n + 1))
    env LD_LIBRARY_PATH="$work/$folder" "$@" "$partune" doctor --data "$work/data" --server unix:"$work/none" >"$work/out" 2>&1
    if tr -s ' ' <"$work/out" | grep -qF "$text"; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        sed 's/^/#   /' "$work/out"
    fi
}

if [ -z "$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep libnvidia-ml.so.1)" ]; then # else there is one here
    says "no driver" nowhere "ok GPUs none: no NVIDIA driver"
fi
says "driver and CUDA" here "ok NVIDIA driver 580.95.05, for CUDA up to 13.0, 2 GPUs"
says "a GPU" here "ok GPU 0 Stand-in 0, 79.0 GiB of 80.0 GiB free, ECC on"
says "NCCL" here "ok NCCL 2.28.3"
says "a library that is not NCCL" alone "ok NCCL none: other trainers on several GPUs need libnccl.so.2"
says "a driver that is not loaded" here "PROBLEM NVIDIA driver NVML: initialization: Driver Not Loaded (9)" STANDIN_INIT=9
says "a driver without a function" old "PROBLEM NVIDIA driver the NVIDIA driver is too old: libnvidia-ml.so.1 lacks nvmlDeviceGetMigMode"
says "a lost GPU" here "PROBLEM GPU 0 NVML: the GPU: GPU is lost (15)" STANDIN_LOST=15
says "next to which the other is described" here "ok GPU 1 Stand-in 1, 79.0 GiB of 80.0 GiB free" STANDIN_LOST=15
says "MIG without instances" here "PROBLEM GPU 0 Stand-in 0, 79.0 GiB of 80.0 GiB free, ECC on, MIG on, 0 instances" STANDIN_MIG=1
says "a divided GPU" here "ok GPU 0 Stand-in 0, 79.0 GiB of 80.0 GiB free, ECC on, MIG on, 2 instances" STANDIN_MIG=1 STANDIN_INSTANCES=2
says "its instances, by UUID" here "ok MIG instance MIG-00000000-0000-0000-0000-000000000001 of GPU 0: Stand-in 0 MIG 1g.10gb, 9.0 GiB of 10.0 GiB free" \
    STANDIN_MIG=1 STANDIN_INSTANCES=2
says "a GPU without MIG" here "ok GPU 0 Stand-in 0, 79.0 GiB" STANDIN_MIG=3
says "a GPU that another process fills" here "fix: another process holds its memory" STANDIN_USED_GIB=30
says "with what is free" here "PROBLEM GPU 0 Stand-in 0, 50.0 GiB of 80.0 GiB free" STANDIN_USED_GIB=30
says "errors that ECC could not correct" here "ECC on, 7 uncorrected memory errors" STANDIN_ECC_ERRORS=7
says "which are a problem" here "PROBLEM GPU 0" STANDIN_ECC_ERRORS=7
says "ECC switched off" here "ok GPU 0 Stand-in 0, 79.0 GiB of 80.0 GiB free, ECC off" STANDIN_ECC=0
says "a GPU without ECC" here "GiB free, ECC none" STANDIN_ECC=3
says "a GPU whose errors are not counted, as in a virtual machine" here "ok GPU 0 Stand-in 0, 79.0 GiB of 80.0 GiB free, ECC on" \
    STANDIN_ECC_COUNTER=3
says "a mode that cannot be read" here "PROBLEM GPU 0 NVML: its ECC mode: Unknown Error (999)" STANDIN_ECC=999

# ---- a client that was installed without the bundled trainer
mkdir "$work/bin" && cp "$partune" "$work/bin/" || exit 99
partune=$work/bin/partune
says "without the bundled trainer no MPI is needed" nowhere \
    "ok MPI none: the bundled trainer, and commands with launch = mpiexec, need one" PATH="$work/bin"
says "nor the trainer itself" nowhere "ok partune-train none: the bundled trainer is not installed" PATH="$work/bin"
says "the supervisor is" nowhere "PROBLEM partune-run not found next to this program" PATH="$work/bin"
cp "$work/bin/partune" "$work/bin/partune-train" # to be there is enough
says "with the bundled trainer an MPI is needed" nowhere "PROBLEM MPI mpiexec was not found" PATH="$work/bin"
echo "1..$n"
