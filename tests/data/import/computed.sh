#!/bin/bash
# Sizes that follow from others.
NODES=4
GPUS_PER_NODE=8
WORLD=$((NODES * GPUS_PER_NODE))
TP=4
PP=$((TP / 2))
DP=$(( WORLD / (TP * PP) ))
MBS=2
STEPS=$(( 2 ** 3 ))
GBS=$(($MBS * ${DP} * STEPS))
SEQ=$(( 1024*4 + 0x10 - 16 ))
VP_LAYERS=$(((32 / PP) / 2))
SAVE_EVERY=$(( -7 % 4 + 503 ))
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NODES pretrain_gpt.py \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size "${PP}" \
    --num-layers-per-virtual-pipeline-stage $VP_LAYERS \
    --micro-batch-size $MBS --global-batch-size $GBS --seq-length $SEQ --save-interval $SAVE_EVERY
