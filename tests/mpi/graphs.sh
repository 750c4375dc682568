#!/bin/sh
# Layers' passes as graphs (cuda_graphs modules): losses and norms of gradients are those without, bit for bit, on the CUDA backend
# that the host runs; the shim says that graphs were launched, and ends a program that waits or marks inside of one.
dir="${PT_BUILD:?}/tests/run/graphs.$$"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
export PARTUNE_NCCL=off STANDIN_GPUS=4 STANDIN_SAYS=1
export LD_LIBRARY_PATH=$PT_BUILD/tests/kncheck/standin PARTUNE_CUDA=$PT_BUILD/tests/kncheck/cuda-shim.so
. "${PT_SRC:?}/tests/mpi/ok.sh"

cat >gpus.json <<"END"
{"name":"box","nodes":1,"devices_per_node":4,"device":{"name":"gpu","memory_gib":80,"peak_tflops":{"bf16":900,"fp32":60},"memory_gbs":3000},
"links":[{"span":"all","gbs":400,"latency_us":5}]}
END
cat >cores.json <<"END"
{"name":"cores","nodes":1,"devices_per_node":4,"device":{"name":"core","kind":"cpu","memory_gib":2,"memory_gbs":10,"gemm_tflops":0.05},
"links":[{"span":8,"gbs":5,"latency_us":1}]}
END
cat >gpt.json <<"END"
{"name":"gpt","layers":4,"hidden":32,"heads":4,"ffn":64,"vocab":128,"seq":16,"mlp":"gelu","norm":"layernorm","positions":"learned","qkv_bias":true,"out_bias":true,"mlp_bias":true,"tied":true}
END
cat >llama.json <<"END"
{"name":"llama","layers":4,"hidden":32,"heads":4,"kv_heads":2,"ffn":64,"vocab":128,"seq":16,"qk_norm":"head"}
END
cat >mla.json <<"END"
{"name":"mla","layers":2,"hidden":32,"heads":4,"vocab":128,"seq":16,"ffn":64,"mla":{"q_lora_rank":16,"kv_lora_rank":16,"qk_nope_head_dim":8,"qk_rope_head_dim":8,"v_head_dim":8}}
END
cat >experts.json <<"END"
{"name":"experts","layers":1,"hidden":32,"heads":2,"vocab":128,"seq":16,"moe":{"experts":4,"top_k":2,"expert_ffn":32}}
END
train() { # ranks, model, options...
    ranks=$1 model=$2
    shift 2
    rm -f metrics
    mpiexec -n "$ranks" "$PT_BUILD/partune-train" --data-dir . --model "./$model.json" --cluster ./gpus.json --device cuda --steps 4 --lr 0.01 \
        -b 8 --quiet --metrics metrics "$@" >out 2>&1
}
numbers() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,}]*\),.*"grad_norm":\([^,}]*\).*/\1 \2 \3/p' metrics; }
same() { # name, ranks, model, options...
    name=$1
    shift
    train "$@" && numbers >without && ! grep -q 'launches of graphs' out && train "$@" --cuda-graphs modules && numbers >with &&
        [ "$(wc -l <with)" = 4 ] && cmp without with >>out && [ "$(grep -c '^shim: [1-9][0-9]* launches of graphs$' out)" = "$1" ]
    ok $? "$name"
}
refused() { # name, text, model, ranks, options...
    name=$1 text=$2 model=$3 ranks=$4
    shift 4
    train "$ranks" "$model" --cuda-graphs modules "$@"
    [ $? = 65 ] && grep -qF "trainer-supports: trainer partune does not support cuda_graphs modules $text" out
    ok $? "$name"
}

same "a GPT with biases" 1 gpt
grep -q '^shim: 248 launches of graphs$' out # 8 passes of each of 8 micro-batches and 4 steps, all but the first of each
ok $? "all passes but the first of each are graphs"
same "a Llama in bf16, with recomputation" 1 llama --precision bf16 --recompute selective
same "latents, with full recomputation" 1 mla --recompute full
same "two stages, whose backward passes are split" 2 llama --pp 2 --schedule zero-bubble --precision bf16
same "interleaved stages, with receives ahead" 2 gpt --pp 2 --vp 2 --schedule interleaved --overlap-p2p 1
same "replicas that shard the state and reduce as they go" 2 llama --zero 1 --overlap-grad-reduce 1 --overlap-param-gather 1
same "gradients in bf16" 1 llama --precision bf16 --grad-dtype bf16
same "validation goes the same way" 1 llama --validate-every 2 --validate-samples 8

refused "sums over tp" "with tp > 1" llama 2 --tp 2
refused "a ring" "with cp > 1" llama 2 --cp 2
refused "windows of weights" "with zero > 1" llama 2 --zero 2
refused "experts" "with experts" experts 1
refused "documents" "with reset_attention_mask" llama 1 --reset-attention-mask --eod 0
refused "cores" "on a cluster of CPUs" llama 1 --cluster ./cores.json
train 1 llama --cuda-graphs iteration
[ $? = 65 ] && grep -qF "trainer partune does not support cuda_graphs iteration" out
ok $? "the whole iteration is no graph"
train 1 llama --cuda-graphs modules --device cpu && ! grep -q shim out && [ "$(numbers | wc -l)" = 4 ]
ok $? "on the CPU of such a cluster passes run by themselves"
echo "1..$n"
