#!/bin/sh
# GPT-OSS in MXFP4, as it is published: the trainer reads the values that an independent decoder finds, in every layout, and refuses
# what is damaged.
. "${PT_SRC:?}/tests/mpi/folder.sh"
tool() {
    PYTHONDONTWRITEBYTECODE=1 python3 "$PT_SRC/tests/golden/mxfp4.py" "$@" >out 2>&1
}
job() { # ranks, folder, options...: losses of its steps in the file losses
    ranks=$1 from=$2
    shift 2
    rm -rf ev saved
    timeout -k 2 120 mpiexec -n "$ranks" "$train" --data-dir "$dir" --init "$from" --global-batch 4 --quiet --events ev "$@" \
        </dev/null >out 2>&1 &&
        sed -n 's/.*"event":"step".*"n":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' ev >losses
}
tool make "$dir"
ok $? "a folder in MXFP4, and two with its values"

# ---- the values themselves
for layout in "1" "4 --ep 2 --etp 2 --tp 2 --sp 1 --zero 3" "2 --pp 2"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1
    shift
    job "$ranks" mx "$@" --steps 1 --lr 0 --min-lr 0 --save-hf saved &&
        tool same saved fp32 && ! grep -q quantization_config saved/config.json
    ok $? "each value is that of the other decoder, but for the sign of zeros: $layout"
done

# ---- the same training run as from files in bf16 and fp32
others="bf16 fp32"
for layout in "1" "2 --ep 2" "2 --tp 2 --sp 1" "2 --pp 2" "4 --ep 2 --etp 2 --tp 2 --sp 1 --zero 1" \
    "2 --zero 3 --precision bf16"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1 good=0
    shift
    job "$ranks" mx "$@" --steps 3 --save-hf saved && [ "$(wc -l <losses)" = 3 ] &&
        mv losses want && mv saved want.hf || good=1
    for other in $others; do
        job "$ranks" $other "$@" --steps 3 --save-hf saved && cmp losses want >>out 2>&1 &&
            cmp saved/model.safetensors want.hf/model.safetensors >>out 2>&1 || good=1
    done
    rm -rf want.hf
    others=bf16
    ok $good "losses and weights after three steps are those of files with the decoded values: $layout"
done

# ---- what is not a folder in MXFP4
refused() { # kind of damage, words of the reason
    rm -rf bad
    tool spoil mx bad "$1" && ! job 1 bad --steps 1 && grep -qF -e "$2" out && ! grep -q '"event":"step"' ev
    ok $? "refused: $2"
}
one=model.layers.1.mlp.experts.down_proj
refused nan "tensor ${one}_scales has the scale 255, which is NaN"
refused shape "tensor ${one}_blocks has not the shape (4, 64, 3, 16) that the model needs"
refused fewer "tensor ${one}_scales has not the shape (4, 64, 3) that the model needs"
refused bf16 "tensor ${one}_scales is BF16 where mxfp4 needs U8"
refused blocks-f32 "tensor ${one}_blocks is F32 where mxfp4 needs U8"
refused no-scales "tensor ${one}_scales is missing"
refused no-blocks "tensor ${one}_blocks is missing"
refused twice "tensor $one is there in mxfp4, too"
refused truncated "the file is truncated"
refused u8 "tensor model.norm.weight is U8"

echo "1..$n"
