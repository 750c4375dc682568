#!/bin/bash
# A job with its choices in front, and what follows from them.
DTYPE=${DTYPE:-fp8}
SIZE=${1:-8b}
NODES=4
GPUS=8
FSDP=0
PROFILE=0

case "$SIZE" in
    70b | 405b) TP=8 PP=4 MBS=1 ;;
    8b)
        TP=2
        PP=1
        MBS=2
        ;;
    *) echo "unknown size $SIZE" >&2; exit 1 ;;
esac

ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --micro-batch-size $MBS
    --global-batch-size $(( NODES * GPUS * 8 ))
    --seq-length 8192
)
(( TP > 1 )) && ARGS+=(--sequence-parallel)
if [[ "$DTYPE" == fp8* && $FSDP -eq 0 ]]; then
    ARGS+=(--fp8-format hybrid --fp8-recipe delayed)
elif [ "$DTYPE" = bf16 ]; then
    ARGS+=(--bf16)
fi
[ "$FSDP" = 1 ] && ARGS+=(--use-megatron-fsdp) || ARGS+=(--use-distributed-optimizer)
EXTRA=()
if [ "$PROFILE" != 0 ]; then
    EXTRA+=(--profile --micro-batch-size 1)
    torchrun tools/profile.py --micro-batch-size 1 "${ARGS[@]}"
fi

if [ $NODES -gt 1 ]; then
    srun torchrun --nproc_per_node $GPUS pretrain_gpt.py --bf16 "${ARGS[@]}" "${EXTRA[@]}"
else
    torchrun --nproc_per_node $GPUS pretrain_gpt.py --bf16 --overlap-grad-reduce "${ARGS[@]}"
fi
