#!/bin/bash
# Megatron-LM launch script, for Megatron-LM of August 2026 (d98e8a64)
# made by partune 0.1.0 on 2026-03-01T09:30:00.000Z from campaign k3v9qw2m (night run), trial 7, on dgx-h100
# measured in the search: 41000 tokens/s, 95 % interval 40700 to 41300
# verified: holds; 1.25 times the baseline, 95 % interval 1.22 to 1.28
#
# Set MEGATRON to the folder of Megatron-LM, DATA_ARGS to your data, and on several nodes NODE_RANK and
# MASTER_ADDR. Arguments after the script's name are appended: --train-iters, --lr-decay-iters, --lr, --save and the like.
set -euo pipefail

export CUDA_DEVICE_MAX_CONNECTIONS=1
: "${MEGATRON:?set it to the folder of Megatron-LM}"
: "${DATA_ARGS:=--mock-data --tokenizer-type NullTokenizer --vocab-size 128256}"

args=(
    --tensor-model-parallel-size '8'
    --pipeline-model-parallel-size '4'
    --context-parallel-size '1'
    --sequence-parallel
    --micro-batch-size '1'
    --global-batch-size '512'
    --seq-length '8192'
    --use-distributed-optimizer
    --recompute-granularity 'full'
    --recompute-method 'uniform'
    --recompute-num-layers '1'
    --bf16
    --num-layers '80'
    --hidden-size '8192'
    --ffn-hidden-size '28672'
    --num-attention-heads '64'
    --kv-channels '128'
    --group-query-attention
    --num-query-groups '8'
    --max-position-embeddings '8192'
    --swiglu
    --normalization 'RMSNorm'
    --norm-epsilon '1e-05'
    --position-embedding-type 'rope'
    --rotary-base '500000'
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout '0'
    --hidden-dropout '0'
    --init-method-std '0.02'
    --make-vocab-size-divisible-by '1'
)

# shellcheck disable=SC2086
exec torchrun --nproc-per-node 8 --nnodes 16 --node-rank "${NODE_RANK:-0}" \
    --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
    "$MEGATRON/pretrain_gpt.py" "${args[@]}" $DATA_ARGS "$@"
