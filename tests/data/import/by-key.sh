#!/bin/bash
# Sizes and degrees by the model's name, in arrays that are read by key and by index.
# Called as: SIZE=8b bash by-key.sh long
declare -A TP_OF=([1b]=1 ["8b"]=2 [70b]=8) PP_OF
PP_OF[1b]=1
PP_OF[$SIZE]=4
PP_OF["70b"]=8
unset 'TP_OF[70b]'
declare -A SEQ=(
    [short]=4096 # before
    [long]=16384
)
lengths() {
    local -A SEQ=([long]=1)
    PP_OF[$1]=$((PP_OF[none] + 2))
}
PP_OF+=([none]=0)
COUNT=${#TP_OF[@]}
MICRO=(4 2 1)
MICRO[0]=$COUNT
if [[ -n "${TP_OF[$SIZE]}" && -z "${TP_OF[70b]}" ]]; then
    TP=${TP_OF[$SIZE]}
fi
REST=("${MICRO[@]:1}")
torchrun pretrain_gpt.py --tensor-model-parallel-size "$TP" --pipeline-model-parallel-size "${PP_OF[$SIZE]}" \
    --micro-batch-size "${MICRO[COUNT - 2]}" --global-batch-size $((64 * ${REST[-1]})) --seq-length "${SEQ[$1]:-2048}"
