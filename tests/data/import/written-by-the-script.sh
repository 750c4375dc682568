#!/bin/bash
# Called as: bash written-by-the-script.sh -t 2 -p4 -z 2 -- tail
# A job of DeepSpeed that writes its configuration, takes letters, and evaluates what it has put together.
ZERO=1
TP=1
while getopts ":t:p:z:h" letter; do
    case $letter in
        t) TP=$OPTARG ;;
        p) PP=$OPTARG ;;
        z) ZERO=$OPTARG ;;
        h | \? | :) echo "usage: $0 [-t TP] [-p PP] [-z STAGE]"; exit 1 ;;
    esac
done
shift $((OPTIND - 1))
[ "$1" = tail ] || exit 1
CONFIG=$PWD/deepspeed.$TP.json
cat <<-EOT >"$CONFIG"
	{
	  "train_micro_batch_size_per_gpu": 1,
	  "zero_optimization": { "stage": $ZERO }
	}
	EOT
for setting in "MICRO=2" "SEQ=2048"; do
    export "${setting%=*}"="${setting#*=}"
done
EXTRA=
ARGS="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP ${EXTRA:+--bf16} --micro-batch-size $MICRO"
ARGS+=" --seq-length $SEQ --moe-layer-freq '([0]*3+[1]*29)' --zero-stage $ZERO --deepspeed --deepspeed_config $CONFIG"
run="torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS --global-batch-size 64 &> $PWD/log"
if [ -d /not/there ]; then
    run="nsys profile -o trace $run"
fi
echo "$run"
eval ${run}
