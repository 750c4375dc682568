#!/bin/sh
# --device: partune-train on the CUDA backend, which the host runs here (tests/kncheck/cuda-shim.so), trains like the CPU;
# what is missing is named before the first step.
dir="${PT_BUILD:?}/tests/run/device.$$"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
export PARTUNE_NCCL=off # where it is there, it asks for real GPUs
shim=$PT_BUILD/tests/kncheck/cuda-shim.so
. "${PT_SRC:?}/tests/mpi/ok.sh"

run() { # ranks, options...
    ranks=$1
    shift
    LD_LIBRARY_PATH=$nccl:$dir/nvml:$PT_BUILD/tests/kncheck/standin STANDIN_GPUS=${gpus-2} PARTUNE_CUDA=${library-$shim} \
        mpiexec -n "$ranks" "$PT_BUILD/partune-train" --data-dir "$dir" --steps 4 --quiet "$@" >out 2>&1
}
# Each loss within 2 % of the other's: bf16 rounds differently, a wrong kernel is further off; fp32 within 1e-5.
same() { # model, precision, tolerance, ranks, options...
    model=$1 precision=$2 tolerance=$3 ranks=$4
    shift 4
    for device in cpu cuda; do
        rm -f $device
        on=$device
        [ $device = cpu ] || on=${gpu-cuda}
        run "$ranks" --model "./$model.json" --precision "$precision" --lr 0.01 -b 4 --device "$on" --metrics $device "$@" || return 1
    done
    [ "$(wc -l <cuda)" = 4 ] || return 1
    sed -n 's/.*"loss":\([^,}]*\).*/\1/p' cpu >a
    sed -n 's/.*"loss":\([^,}]*\).*/\1/p' cuda | paste a - | awk -v tol="$tolerance" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d <= tol)) bad = 1 }
        END { exit bad || NR != 4 }'
}
refused() { # name, text, options...
    name=$1 text=$2
    shift 2
    run 1 --model ./dense.json "$@"
    [ $? = 2 ] && grep -qF "partune-train: $text" out
    ok $? "$name"
}

cat >dense.json <<"END"
{"name":"dense","layers":2,"hidden":256,"heads":4,"kv_heads":2,"ffn":64,"vocab":128,"seq":32}
END
cat >experts.json <<"END"
{"name":"experts","layers":1,"hidden":32,"heads":2,"vocab":128,"seq":16,"moe":{"experts":4,"top_k":2,"expert_ffn":32}}
END

cat >small.json <<"END"
{"name":"small","layers":2,"hidden":32,"heads":4,"kv_heads":2,"ffn":64,"vocab":128,"seq":16}
END
cat >gemma.json <<"END"
{"name":"gemma","layers":2,"hidden":64,"heads":4,"kv_heads":2,"head_dim":64,"ffn":48,"vocab":128,"seq":32,"tied":true,"mlp":"geglu",
"post_norms":true,"zero_centered_norm":true,"embed_scale":true,"qk_norm":"head","attn_softcap":5,"logit_softcap":8,"sliding_window":9,
"global_every":2}
END

# GPT-OSS, Nemotron and OLMoE: sinks, biases and the clamped SwiGLU; squared ReLU without a gate; norms of whole queries and keys.
cat >oss.json <<"END"
{"name":"oss","layers":2,"hidden":64,"heads":4,"kv_heads":2,"head_dim":64,"vocab":128,"seq":16,"mlp":"swiglu-clamped","qkv_bias":true,
"out_bias":true,"mlp_bias":true,"attn_sinks":true,"sliding_window":9,"global_every":2,"moe":{"experts":4,"top_k":2,"expert_ffn":32,
"router_bias":true}}
END
cat >nemotron.json <<"END"
{"name":"nemotron","layers":2,"hidden":64,"heads":4,"kv_heads":2,"ffn":96,"vocab":128,"seq":16,"mlp":"relu2","norm":"layernorm",
"qkv_bias":false,"out_bias":false,"mlp_bias":false,"zero_centered_norm":true,"partial_rotary_factor":0.5}
END
cat >olmoe.json <<"END"
{"name":"olmoe","layers":2,"hidden":64,"heads":4,"kv_heads":4,"vocab":128,"seq":16,"qk_norm":"full","moe":{"experts":8,"top_k":4,
"expert_ffn":32,"topk_norm":false,"z_loss_coef":0.001}}
END

# Cohere and Granite: a shared LayerNorm without a bias; factors of embeddings, outputs and logits.
cat >cohere.json <<"END"
{"name":"cohere","layers":2,"hidden":64,"heads":4,"kv_heads":2,"ffn":96,"vocab":128,"seq":16,"norm":"layernorm","norm_bias":false,
"qkv_bias":false,"out_bias":false,"mlp_bias":false,"parallel_block":true,"shared_norm":true,"logit_scale":0.25}
END
cat >granite.json <<"END"
{"name":"granite","layers":2,"hidden":64,"heads":4,"kv_heads":2,"vocab":128,"seq":16,"embedding_multiplier":3,
"residual_multiplier":0.22,"logit_scale":0.25,"moe":{"experts":4,"top_k":2,"expert_ffn":32,"shared_ffn":32}}
END

cat >olmo3.json <<"END"
{"name":"olmo3","layers":2,"hidden":64,"heads":4,"kv_heads":2,"head_dim":64,"ffn":48,"vocab":128,"seq":32,"qk_norm":"full",
"pre_norms":false,"post_norms":true,"sliding_window":9,"global_every":2,"rope_theta_local":10000,"rope_scaling":{"kind":"yarn",
"factor":4,"original_seq":16}}
END

# Heads of 64 in bf16 take the matrix instructions.
same dense fp32 1e-5 1
ok $? "a dense model in fp32"
same dense bf16 0.02 1
ok $? "a dense model in bf16"
same dense fp32 1e-5 2 --tp 2 --sp 1
ok $? "two ranks with tensor parallelism"
same experts fp32 1e-5 2 --ep 2
ok $? "experts on two ranks"
same gemma fp32 1e-5 2 --tp 2 --sp 1
ok $? "a Gemma in fp32 on two ranks"
same gemma bf16 0.02 1
ok $? "a Gemma in bf16"
same oss fp32 1e-5 2 --tp 2 --sp 1
ok $? "a GPT-OSS in fp32 on two ranks"
same oss bf16 0.02 1
ok $? "a GPT-OSS in bf16"
same nemotron fp32 1e-5 2 --tp 2 --sp 1
ok $? "a Nemotron in fp32 on two ranks"
same olmoe fp32 1e-5 2 --tp 2 --sp 1
ok $? "an OLMoE in fp32 on two ranks"
same olmo3 fp32 1e-5 2 --tp 2 --sp 1
ok $? "an OLMo 3 in fp32 on two ranks"
same cohere fp32 1e-5 2 --tp 2 --sp 1
ok $? "a Cohere in fp32 on two ranks"
same cohere bf16 0.02 1 --recompute selective
ok $? "a Cohere in bf16"
same granite fp32 1e-5 2 --ep 2
ok $? "a Granite with experts in fp32 on two ranks"
same granite bf16 0.02 1 --recompute full
ok $? "a Granite with experts in bf16"
same olmo3 bf16 0.02 1 --recompute selective
ok $? "an OLMo 3 in bf16"

# Four ranks share a GPU, whose memory MPI does not reach.
gpu=cuda:0
same small fp32 1e-5 4 --pp 2 --overlap-p2p 1 --zero 3 --layer-metrics-every 2
ok $? "a pipeline with sharded weights"
same small bf16 0.02 4 --cp 2 --zero 1 --overlap-grad-reduce 1 --overlap-param-gather 1 --recompute full
ok $? "context parallelism with recomputation"
same experts fp32 1e-5 4 --ep 2 --etp 2 --tp 2 --recompute full --optimizer lamb
ok $? "experts that are cut, with LAMB"
same small fp32 1e-5 4 --tp 2 --sp 1 --tp-overlap 1 --optimizer muon
ok $? "Muon of matrices that are cut"
same olmoe fp32 1e-5 4 --pp 2 --schedule zero-bubble --ep 2 --overlap-moe-a2a 1 --optimizer sgd
ok $? "experts in a zero-bubble pipeline"
unset gpu

# With a GPU for each rank and NCCL, sums and gathers of a group go by that: of blocks that differ in size (three ranks), behind
# computation and not, of shards, and of an embedding on two stages.
nccl=$PT_BUILD/tests/mpi/standin gpus=4
cat >thirds.json <<"END"
{"name":"thirds","layers":3,"hidden":36,"heads":6,"kv_heads":3,"ffn":48,"vocab":100,"seq":16,"tied":true}
END
by_nccl() { # model, precision, tolerance, ranks, options...: as `same`, and the trainer says that it takes NCCL
    rm -f ev
    same "$@" --events ev && grep -q '"build":"[^"]*, NCCL 2.28.3"' ev
}
no_nccl() { # as by_nccl
    rm -f ev
    same "$@" --events ev && ! grep -q NCCL ev
}
unset PARTUNE_NCCL
by_nccl small fp32 1e-5 4 --tp 2 --sp 1 --zero 3 --overlap-grad-reduce 1 --overlap-param-gather 1
ok $? "NCCL: sharded weights, behind computation"
by_nccl small bf16 0.02 4 --tp 2 --zero 1 --overlap-grad-reduce 1
ok $? "NCCL: optimizer state, in bf16"
by_nccl thirds fp32 1e-5 3 --zero 2 -b 6
ok $? "NCCL: blocks of different sizes"
by_nccl thirds fp32 1e-5 3 --pp 3 -b 6
ok $? "NCCL: an embedding on two stages"
by_nccl olmoe fp32 1e-5 4 --tp 2 --sp 1 --ep 2 --zero 1
ok $? "NCCL: experts, and their tokens"
by_nccl small fp32 1e-5 4 --zero 1 --shard 2 --optimizer muon
ok $? "NCCL: hybrid sharding, with Muon"
gpu=cuda:1 no_nccl small fp32 1e-5 2 --zero 1
ok $? "no NCCL where ranks share a GPU"
PARTUNE_NCCL=off no_nccl small fp32 1e-5 2 --zero 1
ok $? "no NCCL where it is switched off"
unset PARTUNE_NCCL gpu
export STANDIN_NCCL=1
run 2 --model ./small.json -b 4 --zero 1 --device cuda
[ $? != 0 ] && grep -q "NCCL: a communicator: unhandled system error (2)" out
ok $? "a communicator that cannot be made is named"
unset STANDIN_NCCL

# Each rank's phases, of the GPU's time: bars from 0 on without a gap, and by phase the event's milliseconds, a mean over ranks.
phases() { # ranks, options...
    rm -f ev timeline
    run "$@" --model ./small.json -b 4 --trial --warmup-steps 1 --min-steps 2 --max-steps 2 --device cuda --events ev --timeline timeline &&
        sed -n 's/.*"event":"step".*"warmup":false,"ms":\([^,]*\),.*"phases":{\([^}]*\)}.*/"ms":\1,\2/p' ev | head -1 | tr -d '"' | tr , '\n' >said &&
        [ "$(wc -l <said)" = 10 ] && awk -F'[:,}]' -v ranks="$1" '
            NR == FNR { ms[$1] = $2; next }
            /"ph":"X"/ { for (i = 1; i < NF; i++) at[$i] = $(i + 1)
                tid = at["\"tid\""]; ts = at["\"ts\""] / 1e3; dur = at["\"dur\""] / 1e3; name = $2; gsub(/"/, "", name)
                if (ts - end[tid] > 1e-5 || end[tid] - ts > 1e-5) bad = 1
                end[tid] = ts + dur; sum[name] += dur / ranks }
            function off(a, b) { return a - b > 0.01 * ms["ms"] || b - a > 0.01 * ms["ms"] }
            END { for (tid = 0; tid < ranks; tid++) bad = bad || !end[tid] || end[tid] > ms["ms"] + 1e-5
                for (name in ms) bad = bad || ms[name] < -1e-3 || (name != "ms" && name != "other" && off(sum[name], ms[name]))
                exit bad || !(ms["forward"] > 0 && ms["backward"] > 0) }' said timeline
}
phases 2 --tp 2 --sp 1
ok $? "phases of the GPU add up to the step"
[ "$(sed -n 's/^tp://p' said | cut -d. -f1)" -gt 0 ]
ok $? "and have the collectives on its stream"
PARTUNE_NCCL=off phases 4 --pp 2 --zero 1
ok $? "also where messages go through the host"
phases 2 --zero 3 --overlap-grad-reduce 1 --overlap-param-gather 1
ok $? "and where collectives run on a second stream"
unset nccl gpus
export PARTUNE_NCCL=off

# A run that goes from the CPU to the GPU and back, each time in another layout, is the run that stays: steps 3 and 4, 5 and 6.
leg() { # device, ranks, steps, options...: the losses of it are added to legs
    device=$1 ranks=$2 steps=$3
    shift 3
    run "$ranks" --model ./small.json -b 4 --lr 0.01 --lr-warmup 2 --steps "$steps" --lr-decay-steps 6 --checkpoint legs.ck --resume --device "$device" --metrics legs "$@"
}
rm -f stay legs
run 1 --model ./small.json -b 4 --lr 0.01 --lr-warmup 2 --steps 6 --metrics stay --save-hf stay.hf &&
    leg cpu 1 2 && leg cuda:0 4 4 --pp 2 --zero 3 --checkpoint-async --checkpoint-every 1 && leg cpu 2 5 --tp 2 && leg cuda 1 6 --save-hf legs.hf
ok $? "a checkpoint of either device opens on the other"
losses() {
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' "$1"
}
losses stay >a && losses legs >b && [ "$(wc -l <b)" = 6 ] && near a b 1e-5
ok $? "and the run is the same"
ls legs.hf/model.safetensors >/dev/null && cmp -s stay.hf/config.json legs.hf/config.json
ok $? "a GPU's weights become a Hugging Face folder"
rm -f from
run 2 --model ./small.json -b 4 --lr 0 --min-lr 0 --lr-warmup 0 --steps 1 --init legs.hf --device cuda --tp 2 --metrics from &&
    run 1 --model ./small.json -b 4 --lr 0 --min-lr 0 --lr-warmup 0 --steps 1 --init legs.hf --metrics to && losses from >a && losses to >b && near a b 1e-5
ok $? "and come from one"


# Energy, heat and other processes of a trial's GPUs: without NVML, then with a library that answers in its place, in which each
# look at GPU 0's energy costs a joule, and at GPU 1's two.
trial() { # ranks, options...: the summary's event
    ranks=$1
    shift
    rm -f ev
    run "$ranks" --model ./small.json -b 4 --trial --warmup-steps 1 --min-steps 5 --max-steps 5 --events ev "$@" && grep '"event":"summary"' ev >summary
}
says() { # name, text of the summary, options of the trial
    name=$1 text=$2
    shift 2
    trial "$@" && grep -qF "$text" summary
    ok $? "$name"
}
trial 1 --device cuda && ! grep -q 'joules\|disturbed' summary
ok $? "without NVML nothing is said of energy"
mkdir nvml && ${CC:-cc} -fPIC -shared -o nvml/libnvidia-ml.so.1 "$PT_SRC/tests/client/standin-nvml.c" || exit 99
says "the energy of two GPUs" '"joules":15,' 2 --tp 2 --device cuda
says "a GPU that ranks share counts once" '"joules":10,' 2 --tp 2 --device cuda:1
! grep -q disturbed summary
ok $? "ranks of one job do not disturb each other"
export STANDIN_PROCESSES=3
says "other processes" '"disturbed":"2 other processes used the GPU of rank 0",' 1 --device cuda
unset STANDIN_PROCESSES
export STANDIN_REASONS=36
says "heat" '"disturbed":"heat or the power supply slowed the GPU of rank 0 (100 % of the samples)",' 2 --tp 2 --device cuda
export STANDIN_REASONS=4
trial 1 --device cuda && grep -q '"joules":5,' summary && ! grep -q disturbed summary
ok $? "a power cap is no disturbance"
unset STANDIN_REASONS
export STANDIN_MIG=1
trial 1 --device cuda && ! grep -q joules summary
ok $? "an instance of a divided GPU has no energy of its own"
unset STANDIN_MIG

refused "an unknown device" 'unknown device "gpu" (auto, cpu, cuda, cuda:N, cuda:all)' --device gpu
refused "a GPU that is not there" "--device=cuda:3: GPU 3 was requested; the driver reports 2" --device cuda:3
library=/nonexistent.so refused "no library" "--device=cuda: no CUDA backend: /nonexistent.so: " --device cuda

# The stand-in has two GPUs.
run 4 --model ./dense.json -b 4 --device cuda
[ $? = 2 ] && grep -q "local rank [23] has no GPU of its own (ranks share GPU N by cuda:N): GPU [23] was requested; the driver reports 2" out
ok $? "more ranks than GPUs"
run 4 --model ./dense.json -b 4 --device cuda:1
ok $? "ranks that share a GPU when told to"
rm -f ev
run 4 --model ./small.json -b 4 --trial --warmup-steps 1 --min-steps 2 --max-steps 2 --device cuda:all --events ev && grep -q '"joules":6,' ev
ok $? "or all in turn" # each GPU counts once

# Under Slurm a task may see one GPU alone, as number 0: its own, or the same as another.
slurm() { # bus of rank 1's
    rm -f ev
    SLURM_LOCALID=0 STANDIN_GPUS=1 gpus=1 run 1 --model ./small.json -b 4 --tp 2 --device cuda --events ev : \
        -n 1 env "STANDIN_BUS=$1" SLURM_LOCALID=1 "$PT_BUILD/partune-train" --data-dir "$dir" --steps 2 --quiet --model ./small.json -b 4 \
        --tp 2 --device cuda --events ev --steps 4
}
slurm 1
ok $? "a GPU that only its task sees"
slurm 0
[ $? = 65 ] && grep -qF 'illegal: --device=cuda: 2 ranks have the GPU at 0000:00:00.0 (ranks share GPUs by cuda:N or cuda:all)' out
ok $? "unless it is another's, too"

auto() { # name, ranks, device's name, text or "": --device=auto
    rm -f metrics ev
    run "$2" --model ./dense.json -b 4 --device auto --events ev &&
        grep -q "\"event\":\"hello\".*\"device\":\"$3\"" ev &&
        if [ -n "$4" ]; then [ "$(grep -c auto out)" = 1 ] && grep -q "^partune-train: --device=auto: on the CPU: $4" out; else ! grep -q auto out; fi
    ok $? "$1"
}
auto "auto takes the GPU" 1 "Stand-in 0" ""
auto "auto takes a GPU for each rank" 2 "Stand-in 0" ""
auto "auto without a GPU for each rank takes the CPU for all and says why" 4 cpu "rank [23] on host .*local rank [23] has no GPU of its own .* reports 2"
library=/nonexistent.so auto "auto without a library takes the CPU and says why" 1 cpu "no CUDA backend: /nonexistent.so: "

rm -f ev
(
    export STANDIN_FREE=1000000
    run 1 --model ./dense.json --device cuda --events ev
)
code=$?
full='GPU 0: 1000000 bytes of its memory are free, 33554432 are needed: other processes fill it'
[ $code = 71 ] && grep -qF "partune-train: --device=cuda: $full" out && grep -q "\"class\":\"node_fail\",\"rank\":null,\"detail\":\"--device=cuda: $full" ev
ok $? "a GPU that other processes fill"

# Without a budget of its own a rank has the GPU's memory, or its share of it.
export STANDIN_FREE=40000000
run 1 --model ./dense.json -b 4 --device cuda --events ev && grep -q '"budget":40000000' ev
ok $? "a GPU's free memory is the budget"
run 2 --model ./dense.json -b 4 --device cuda:1 --seq 32768 --events ev
[ $? = 66 ] && grep -q 'rank 0: oom: .*, budget 20000000' out
ok $? "and of a shared one a share"
run 1 --model ./dense.json -b 4 --device cuda --device-memory 1GiB --events ev && grep -q '"budget":1073741824' ev
ok $? "unless it is given"
unset STANDIN_FREE

# Rank 1 loses its GPU in the middle: the job ends with a line and an event of its own class.
rm -f ev
run 1 --model ./dense.json --tp 2 --sp 1 --device cuda --events ev : \
    -n 1 env STANDIN_LOST=150 "$PT_BUILD/partune-train" --data-dir "$dir" --steps 4 --quiet --model ./dense.json --tp 2 --sp 1 --device cuda --events ev
code=$?
lost='GPU 1 is lost: .*: uncorrectable ECC error encountered'
[ $code = 71 ] && grep -q "partune-train: rank 1: node_fail: $lost" out &&
    [ "$(grep -c '"event":"error"' ev)" = 1 ] && grep -q "\"class\":\"node_fail\",\"rank\":1,\"detail\":\"$lost" ev
ok $? "a GPU that is lost in the middle"
echo "1..$n"
