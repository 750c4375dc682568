#!/bin/bash
# The command is in variables that another shell expands.
export TP=8 PP=2
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node 8 --nnodes 4"
export CMD=" \
    $PWD/pretrain_gpt.py \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --micro-batch-size 1 --global-batch-size 32 \
    --seq-length 2048 \
    "
echo $CMD
clear 2>/dev/null; srun --ntasks 4 bash -c '$LAUNCHER --node_rank 0 $CMD' 2>&1 | cat
echo "END: pretrain_gpt.py"
