#!/bin/bash
#SBATCH --job-name=called
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
# Called as: DTYPE=fp8 SLURM_NNODES=4 bash called.sh 70b --micro-batch=2 --tp 4 --no-offload
# The layout is in how the job is called.
usage() {
    echo "usage: $0 SIZE [--micro-batch=N] [--tp N] [--no-offload]" >&2
    exit 2
}

[ $# -ge 1 ] || usage
SIZE=$1
shift
TP=8
MICRO_BATCH=1
OFFLOAD=yes
while [[ $# -gt 0 ]]; do
    case "$1" in
        --micro-batch=*) MICRO_BATCH=${1#*=}; shift ;;
        --tp) TP=$2; shift 2 ;;
        --no-*)
            option=${1#--no-}
            [ "${option^^}" = OFFLOAD ] && OFFLOAD=no
            shift
            ;;
        *) usage ;;
    esac
done
case $SIZE in
    8b) PP=1 ;;
    70b) PP=4 ;;
    *) usage ;;
esac

ARGS="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --micro-batch-size $MICRO_BATCH"
ARGS+=" --global-batch-size $((SLURM_NNODES * 16)) --seq-length 4096 --bf16"
[ "${DTYPE:?say which}" = fp8 ] && ARGS+=" --fp8-format hybrid --fp8-recipe delayed"
[ $OFFLOAD = yes ] && ARGS+=" --optimizer-cpu-offload"
torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS
