#!/bin/sh
# tp_overlap as people run it: the checkpoints of layouts with and without it are the same, bit for bit.
. "${PT_SRC:?}/tests/mpi/folder.sh"
cat >tied.json <<"END"
{"name":"tied","layers":2,"hidden":32,"heads":4,"kv_heads":4,"ffn":48,"vocab":100,"seq":16,"tied":true,"mlp":"gelu","norm":"layernorm",
 "qkv_bias":true,"out_bias":true,"mlp_bias":true}
END
cat >shared.json <<"END"
{"name":"shared","layers":2,"hidden":32,"heads":4,"kv_heads":4,"vocab":256,"seq":16,"moe":{"experts":4,"top_k":2,"expert_ffn":16,"shared_ffn":16}}
END
job() { # directory, ranks, options...: three steps
    to=$1 ranks=$2
    shift 2
    timeout -k 2 120 mpiexec -n "$ranks" "$train" --data-dir "$dir" --quiet --steps 3 --global-batch 8 --checkpoint "$to" --checkpoint-every 3 "$@" >out 2>&1
}
same() { # ranks, options...
    rm -rf with without
    job without "$@" && job with "$@" --tp-overlap 1 &&
        cmp with/step-00000003/model.safetensors without/step-00000003/model.safetensors &&
        cmp with/step-00000003/optimizer.safetensors without/step-00000003/optimizer.safetensors
    code=$?
    [ $code = 0 ] || sed 's/^/# /' out
    ok $code "the bits of the same layout without overlap: $*"
}
same 2 --model ./tied.json --tp 2 --sp 1
same 4 --model ./tied.json --tp 4 --sp 1 --precision bf16
same 2 --model ./tied.json --tp 2 --sp 1 --recompute selective
same 2 --model nano-llama --tp 2 --sp 1 --recompute full --micro-batch 4
same 4 --model nano-llama --tp 2 --sp 1 --pp 2 --schedule zero-bubble --precision bf16
same 4 --model nano-llama --tp 2 --sp 1 --cp 2 --overlap-grad-reduce 1
same 4 --model ./shared.json --tp 2 --sp 1 --ep 2 --zero 1 --overlap-moe-a2a 1
mpiexec -n 2 "$train" --data-dir "$dir" --quiet --steps 1 --model nano-llama --tp 2 --tp-overlap 1 >out 2>&1
code=$?
[ $code != 0 ] && grep -q 'tp_overlap 1 needs sp 1, sp is 0' out
ok $? "it needs sequence parallelism, and a layout without is told so"
echo "1..$n"
