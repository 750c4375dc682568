#!/bin/sh
# Algorithms of matrix products: a calibration chooses by measurement and keeps them in the profile, trials of that machine use
# them, and what is of another library or GPU is refused in a line. The library is the one that the host has in place of cuBLASLt;
# its heuristic's choice is slow here (STANDIN_GEMM_SLOW), so that measuring has something to find.
dir="${PT_BUILD:?}/tests/run/algorithms.$$"
mkdir -p "$dir/profiles" || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
export PARTUNE_NCCL=off STANDIN_NAME="NVIDIA H200" STANDIN_GPUS=2 STANDIN_SAYS=1
export LD_LIBRARY_PATH=$PT_BUILD/tests/kncheck/standin PARTUNE_CUDA=$PT_BUILD/tests/kncheck/cuda-shim.so
. "${PT_SRC:?}/tests/mpi/ok.sh"
profile=profiles/local.json

has() { # name, condition in Python of the algorithms a and their products
    python3 - "$2" >why 2>&1 <<"END"
import json, sys
a = json.load(open("profiles/local.json"))["stamp"].get("algorithms")
products = a and a["products"]
if not eval("(" + sys.argv[1] + ")"):
    sys.exit(json.dumps(a)[:3000])
END
    code=$?
    [ $code = 0 ] || cat why >>out
    ok $code "$1"
}
change() { # code in Python that changes the profile's algorithms a
    python3 - "$1" <<"END"
import json, sys
p = json.load(open("kept.json"))
a = p["stamp"]["algorithms"]
exec(sys.argv[1])
json.dump(p, open("profiles/local.json", "w"))
END
}
trial() { # ranks, options...
    ranks=$1
    shift
    rm -f events
    mpiexec -n "$ranks" "$PT_BUILD/partune-train" --trial --device cuda --data-dir . --model nano-llama --precision bf16 --micro-batch 1 \
        --warmup-steps 1 --min-steps 2 --max-steps 2 --events events "$@" >out 2>&1 && grep -q '"event":"summary"' events
}
measured() { # name: the last trial used measured algorithms for all of its products
    grep -q '"build":"[^"]*, standin-gemm 1.0.0 with [1-9][0-9]* measured products"' events && grep -q 'standin-gemm: algorithm [12] ' out &&
        ! grep -q 'standin-gemm: algorithm 0 ' out && ! grep -q other-algorithms events
    ok $? "$1"
}
unused() { # name, text: it used none, and says why once
    [ "$(grep -c '"what":"other-algorithms"' events)" = 1 ] && grep -qF "./profiles/local.json are not used: $2" out &&
        ! grep -q 'measured products' events && ! grep -q 'standin-gemm: algorithm [12] ' out
    ok $? "$1"
}

trial 1 -b 2 && grep -q 'standin-gemm: algorithm 0 ' out && ! grep -q 'other-algorithms\|measured products' events
ok $? "without a profile the heuristic chooses, and nothing is said"

STANDIN_GEMM_SLOW=1 mpiexec -n 2 "$PT_BUILD/partune-train" --calibrate $profile --device cuda --model nano-llama >out 2>&1
ok $? "two ranks calibrate, with a model"
grep -q "^  algorithms .* products, of which [1-9][0-9]* have another one than standin-gemm 1.0.0's heuristic chooses" out
ok $? "and say how many products have another algorithm"
has "the library is named, and each product has a faster algorithm than the heuristic's" 'a["library"] == "standin-gemm 1.0.0" and
    all(x["number"] > 0 and x["tried"] == 3 and x["tflops"] > x["heuristic_tflops"] > 0 for x in products)'
has "squares and the model's products in bf16 are among them, whole and divided by two" '
    {(128, 128, 128), (32, 128, 64), (32, 64, 128), (64, 64, 32), (32, 256, 64), (128, 64, 64), (32, 128, 64), (32, 64, 32)} <= {tuple(x["mnk"]) for x in products}'
has "sums over tp are fp32, gradients of weights are added to" '
    any(x["types"] == ["bf16", "bf16", "fp32"] and not x["add"] for x in products) and all(x["types"][2] == "fp32" for x in products if x["add"])'
"$PT_BUILD/partune-train" --model nano-llama --cluster local --data-dir . --dump-config >out 2>&1 && grep -q '"kind": "gpu"' out
ok $? "the profile is read as the local cluster"

trial 1 -b 2
measured "a trial uses them for every product"
trial 2 -b 2 --tp 2 --sp 1
measured "so does one of two ranks with tensor parallelism"
STANDIN_GEMM_VERSION=2.0.0 trial 1 -b 2
unused "another version of the library uses none" "they are of standin-gemm 1.0.0, this is standin-gemm 2.0.0"
STANDIN_NAME="NVIDIA H20" trial 2 -b 2 --tp 2
unused "nor does another GPU" 'they are of the GPU "NVIDIA H200", this is "NVIDIA H20"'
grep -qF "standin-gemm 1.0.0's heuristic chooses (partune-train --calibrate measures anew)" out
ok $? "which is told to calibrate"

cp $profile kept.json
change 'a["products"][3]["words"] = a["products"][3]["words"][:-1]'
trial 1 -b 2
unused "a damaged algorithm is named" 'product 3: "words" must be 128 hexadecimal digits'
change 'a["products"][2]["words"] = "0" * 128'
trial 1 -b 2
unused "and so is one that the library refuses" "standin-gemm 1.0.0 refuses the one of product 2"
change 'a["products"][1]["mnk"] = [1, 2]'
trial 1 -b 2
unused "sizes that are none" 'product 1: "mnk" must be three positive numbers'
change 'a["products"][0]["types"][1] = "fp8"'
trial 1 -b 2
unused "types that are none" 'product 0: "types" must be three of fp32 and bf16'
change 'a["products"][0]["op"] = "XN"'
trial 1 -b 2
unused "an order that is none" 'product 0: "op" must be NN, NT, TN or TT'
echo "1..$n"
