#!/bin/bash
# Wrappers before the interpreter, and a start that is not the training's.
python tools/preprocess_data.py --input corpus.json --workers 16
ARGS="--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 4 --seq-length 4096"
log() { echo "$(date) $*"; }
log "starting pretrain_gpt.py"
exec env OMP_NUM_THREADS=1 numactl --interleave=all python -u pretrain_gpt.py $ARGS --global-batch-size 256
