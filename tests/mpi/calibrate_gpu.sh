#!/bin/sh
# --calibrate --device: the CUDA backend, which the host runs here, is measured, and the profile is one of GPUs.
# Driver, NVML and NCCL are stand-ins; how fast a GPU is cannot be seen here.
dir="${PT_BUILD:?}/tests/run/calibrate gpu.$$"
mkdir -p "$dir/nvml" || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
. "${PT_SRC:?}/tests/mpi/ok.sh"
${CC:-cc} -fPIC -shared -o nvml/libnvidia-ml.so.1 "$PT_SRC/tests/client/standin-nvml.c" || exit 99
export STANDIN_NAME="NVIDIA H200"

calibrate() { # ranks, options...
    ranks=$1
    shift
    rm -f local.json
    LD_LIBRARY_PATH=$nccl:$nvml:$PT_BUILD/tests/kncheck/standin STANDIN_GPUS=${gpus-2} PARTUNE_CUDA=${library-$PT_BUILD/tests/kncheck/cuda-shim.so} \
        mpiexec -n "$ranks" "$PT_BUILD/partune-train" --calibrate local.json "$@" >out 2>&1
}
has() { # name, condition in Python of the profile p, its device d, stamp s, figures m and products
    python3 - "$2" >why 2>&1 <<"END"
import json, sys
p = json.load(open("local.json"))
d, s = p["device"], p["stamp"]
m, products = s["measured"], s["products"]
def near(a, b):
    return abs(a - b) <= 1e-4 * abs(b)
def numbers(v):
    if isinstance(v, dict):
        v = list(v.values())
    return [n for x in v for n in numbers(x)] if isinstance(v, list) else [v] if isinstance(v, (int, float)) else []
if not eval(sys.argv[1]):
    sys.exit(json.dumps(p))
END
    code=$?
    [ $code = 0 ] || cat why >>out
    ok $code "$1"
}
refused() { # name, status, text, ranks, options...
    name=$1 code=$2 text=$3
    shift 3
    calibrate "$@"
    [ $? = "$code" ] && [ "$(grep -c '^partune-train: ' out)" = 1 ] && grep -qF "partune-train: $text" out && [ ! -e local.json ]
    ok $? "$name"
}

# One GPU.
calibrate 1 --device cuda
ok $? "one rank calibrates a GPU"
grep -q '^1 GPU, NVIDIA H200:$' out && grep -q '^written to local.json$' out
ok $? "and says what it found"
has "it is a profile of one GPU" 'p["name"] == "local" and p["measured"] and p["devices_per_node"] == 1 and d["kind"] == "gpu" and p["links"] == []'
has "every figure is positive" 'min(numbers([d, p["host"], m, products])) > 0 and len(numbers(m)) == 8'
has "each kind of product is measured in both precisions" '{(x["form"], x["precision"]) for x in products} == {(f, t) for f in ("forward", "dgrad", "wgrad") for t in ("bf16", "fp32")}'
has "the best one in bf16 is the device's" 'near(d["gemm_tflops"], max(x["tflops"] for x in products if x["precision"] == "bf16")) and near(m["gemm_fp32_tflops"], max(x["tflops"] for x in products if x["precision"] == "fp32"))'
has "what a run of memory's kernels moves is three arrays, and seven and a half" 'm["add_bytes"] % (3 << 20) == 0 and m["adamw_bytes"] * 2 % (15 << 20) == 0'
has "bandwidths are those of the faster kernel, and of the slower direction" 'near(d["memory_gbs"], max(m["add_gbs"], m["adamw_gbs"])) and near(p["host"]["link_gbs"], min(m["to_gpu_gbs"], m["from_gpu_gbs"]))'
has "a GPU that a bundled profile has gets its peaks from there" 'd["name"] == "NVIDIA H200" and d["peak_tflops"]["bf16"] == 989 and d["sustained"] == 0.92 and "profile h200" in p["source"][0] and "assumed" not in p'
has "the stamp has GPU, driver, build and date" 's["gpu"] == d["name"] and s["gpus"] == 1 and s["driver"] == "CUDA 13.1" and s["build"].endswith(", cuda") and s["date"].startswith("20")'
has "without a word of what is free, the driver's memory counts" 'd["memory_gib"] == 80 and s["gpu_memory_gib"] == 80'
mkdir profiles && cp local.json profiles/
reads() { # as the daemon reads it
    "$PT_BUILD/partune-train" --model nano-llama --cluster local --data-dir . --dump-config >out 2>&1 && grep -q '"kind": "gpu"' out
}
reads
ok $? "the trainer reads it as the local cluster"

# What NVML and the driver say.
nvml=$dir/nvml
export STANDIN_TOTAL=85000000 STANDIN_FREE=80000000 STANDIN_REASONS=36
calibrate 1 --device cuda:1
has "the memory is the GPU's, of which the context has what is not free at first" 'near(d["memory_gib"], 85e6 / 2**30) and near(d["context_gib"], 5e6 / 2**30)'
has "and the libraries what streams keep; a single GPU has no NCCL" 'near(d["library_gib"], 2**25 / 2**30) and "nccl_gib" not in d'
grep -q '^  of that  *0.00 GiB context, 0.03 libraries, 0.00 NCCL$' out
ok $? "which is told"
cp local.json profiles/
for options in "" "--device-memory $((2 << 30))"; do
    rm -f events
    LD_LIBRARY_PATH=$nvml:$PT_BUILD/tests/kncheck/standin PARTUNE_CUDA=$PT_BUILD/tests/kncheck/cuda-shim.so \
        "$PT_BUILD/partune-train" --model nano-llama --cluster local --data-dir . --device cuda --events events -b 1 --trial \
        --warmup-steps 1 --min-steps 2 --max-steps 2 $options >out 2>&1
    python3 - >>out 2>&1 <<"END"
import json
events = [json.loads(line) for line in open("events")]
planned = [e for e in events if e["event"] == "memory"][0]["planned"]
summary = [e for e in events if e["event"] == "summary"][0]["memory"]
measured = summary["measured"]
assert summary["planned"] == planned
for name in ("context", "library"): # those of the profile to six digits
    assert planned[name] > 0 and abs(planned[name] - measured[name]) <= 1e-5 * planned[name], (name, planned, measured)
names = [name for name in planned if name not in ("total", "rank")]
assert abs(sum(planned[name] for name in names) - planned["total"]) < 1, planned
END
    ok $? "a trial's plan has them by class, and the driver says the same${options:+ ($options)}"
done
unset STANDIN_FREE STANDIN_TOTAL
calibrate 1 --device cuda:0 --quiet
[ ! -s out ]
ok $? "--quiet says nothing"
has "heat is in the stamp, and the driver's version" '"heat" in s["disturbed"] and s["driver"] == "580.95.05, CUDA 13.1"'
unset STANDIN_REASONS
nvml=
STANDIN_NAME="NVIDIA Unheard-of" calibrate 1 --device auto
has "a GPU that no profile has keeps its peaks to itself" 'd["name"] == "NVIDIA Unheard-of" and list(d["peak_tflops"]) == ["fp32"] and near(d["peak_tflops"]["fp32"], m["gemm_fp32_tflops"]) and len(p["assumed"]) == 2'
cp local.json profiles/ && reads
ok $? "and is read all the same"

# Watts: the stand-in counts its own time at work as the GPU's.
nvml=$dir/nvml
export STANDIN_IDLE_WATTS=100 STANDIN_BUSY_WATTS=700
calibrate 1 --device cuda
has "watts are measured, idle and in products" '99 <= d["idle_watts"] < 250 and d["idle_watts"] < d["busy_watts"] < 735'
has "and are no longer another profile's" 'not any("watts" in text for text in p["source"])'
grep -q '^  power  *[0-9.]* W idle, [0-9.]* W in products$' out
ok $? "and told"
cp local.json profiles/
"$PT_BUILD/partune-train" --model nano-llama --cluster local --data-dir . --dump-config >out 2>&1 && grep -q '"idle_watts": [1-9]' out
ok $? "the cluster has them"
STANDIN_ENERGY=3 calibrate 1 --device cuda
has "a GPU that does not count its energy has none" '"idle_watts" not in d and "busy_watts" not in d'
STANDIN_IDLE_WATTS=700 STANDIN_BUSY_WATTS=100 calibrate 1 --device cuda
has "nor has one that draws less at work" '"idle_watts" not in d and "busy_watts" not in d'
unset STANDIN_IDLE_WATTS STANDIN_BUSY_WATTS
nvml=

# Two GPUs.
all_reduce='(lambda last: near(p["links"][0]["gbs"], last["bytes"] / last["us"] / 1e3))(s["all_reduce"][-1])'
link='[x["bytes"] for x in s["all_reduce"][:4]] == [4, 4096, 65536, 1 << 20] and len(p["links"]) == 1 and p["links"][0]["span"] == p["devices_per_node"] == 2'
nccl=$PT_BUILD/tests/mpi/standin calibrate 2 --device cuda
has "two GPUs have a link" "$link"
has "its rate is what one sends of two in the largest all-reduce" "$all_reduce and p['links'][0]['share'] == 1"
has "the smallest one takes what the plan says, 20 us and four latencies" 'near(p["links"][0]["latency_us"], max(m["all_reduce_us"] - 20, 0) / 4) and near(m["all_reduce_us"], s["all_reduce"][0]["us"])'
has "by NCCL" 'p["links"][0]["kind"].endswith("by NCCL") and min(numbers(m)) > 0 and len(numbers(m)) == 12'
PARTUNE_NCCL=off calibrate 2 --device cuda:all
has "and by MPI, as a trial without NCCL" "$link and $all_reduce and p['links'][0]['kind'] == 'through the host, by MPI'"

refused "more ranks than GPUs" 2 "rank 2 on host $(hostname): --device=cuda: local rank 2 has no GPU of its own" 3 --device cuda
refused "ranks that share a GPU" 2 "ranks 0 and 1 have the GPU at 0000:01:00.0: a calibration needs a GPU for each rank" 2 --device cuda:1
gpus=1 refused "or all of them" 2 "ranks 0 and 1 have the GPU at 0000:00:00.0" 2 --device cuda:all
gpus=0 refused "no GPU" 2 "--device=cuda: local rank 0 has no GPU of its own (ranks share GPU N by cuda:N): GPU 0 was requested; the driver reports 0" 1 --device cuda
library=/nonexistent.so refused "no backend" 2 "--device=cuda: no CUDA backend: /nonexistent.so: " 1 --device cuda
refused "another word" 2 'unknown device "gpu"' 1 --device gpu
export STANDIN_FREE=10000000
refused "a GPU that others fill" 71 "--device=cuda: GPU 0: 10000000 bytes of its memory are free" 1 --device cuda
STANDIN_FREE=34000000
refused "too little for the arrays" 66 "no memory to measure with: 445568 bytes of the GPU's are free" 1 --device cuda
unset STANDIN_FREE
export STANDIN_LOST=40
refused "a GPU that is lost" 71 "rank 0: node_fail: GPU 0 is lost: " 1 --device cuda
unset STANDIN_LOST
(
    unset STANDIN_NAME
    calibrate 2 --device cuda
    [ $? = 2 ] && grep -qF 'partune-train: rank 0 has the GPU "Stand-in 0", rank 1 "Stand-in 1": a profile is of one kind' out
)
ok $? "GPUs of two kinds"
gpus=1 calibrate 2 --device auto && grep -q '^partune-train: --device=auto: on the CPU: ' out && grep -q '"kind": "cpu"' local.json
ok $? "auto without a GPU for each rank measures cores, and says so"
echo "1..$n"
