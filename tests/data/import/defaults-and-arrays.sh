#!/usr/bin/env bash
# Arrays that grow, defaults of variables that nobody sets.
TP=${TP:-2}
: "${PP:=4}"
CP=${CP-1}
EXTRA=${NOBODY_SETS_THIS:+--fp8-format hybrid}
ZERO="--use-distributed-optimizer"
MODEL_ARGS=(
    --num-layers 32   # comments between
    --hidden-size 4096
    --seq-length 8192
)
PARALLEL_ARGS=(--tensor-model-parallel-size "$TP"
    --pipeline-model-parallel-size "$PP" --context-parallel-size "$CP")
PARALLEL_ARGS+=(--sequence-parallel ${ZERO:+$ZERO --overlap-grad-reduce})
TRAIN_ARGS=("--micro-batch-size" 1 "--global-batch-size=64")
DISTRIBUTED_ARGS=(--nproc_per_node 8 --nnodes "${NODES:-4}")
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py "${MODEL_ARGS[@]}" ${PARALLEL_ARGS[*]} \
    "${TRAIN_ARGS[@]}" $EXTRA --bf16
