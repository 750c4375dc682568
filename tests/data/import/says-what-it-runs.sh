#!/bin/bash
# A job that checks, copies and prints before it starts: one start, many mentions.
set -eo pipefail
ROOT=$PWD/out
[ -f pretrain_gpt.py ] || echo "pretrain_gpt.py is not in this folder"
[[ -e tools/preprocess_data.py ]] && ls -l tools/preprocess_data.py
ls pretrain_gpt.py 2>/dev/null || true
mkdir -p "$ROOT"
cp -f pretrain_gpt.py "$ROOT/pretrain_gpt.py" 2>/dev/null || true
test -d "$ROOT" && cat /dev/null > "$ROOT/train.py"
grep -q seed pretrain_gpt.py 2>/dev/null || printf 'no seed in %s\n' pretrain_gpt.py
python -c "import sys; print(sys.argv)" pretrain_gpt.py --tensor-model-parallel-size 8
PARALLEL="--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --sequence-parallel"
BATCH="--micro-batch-size 2 --global-batch-size 128 --seq-length 4096"
run_cmd="torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py $PARALLEL $BATCH --bf16"
echo $run_cmd
echo "$run_cmd" | tee "$ROOT/command"
eval $run_cmd
echo "pretrain_gpt.py has ended"
