#!/bin/sh
# --calibrate writes a profile that the trainer then takes as this machine, stamped with where it comes from.
data="${PT_BUILD:?}/tests/run/calibrate it.$$"
train="$PT_BUILD/partune-train"
mkdir -p "$PT_BUILD/tests/run" || exit 99
trap 'rm -rf "$data"' EXIT
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
n=0

check() { # name, command...
    name=$1
    shift
    n=$((n + 1))
    if "$@" >"$data.log" 2>&1; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        sed 's/^/#   /' "$data.log"
    fi
    rm -f "$data.log"
}

profile="$data/profiles/local.json"
positive() { # every number of the profile but what may be 0 is positive
    grep -E '"(fp32|gemm_tflops|memory_gbs|gbs|latency_us|core_alone_fma_gflops)"' "$profile" |
        awk -F: '{ n++; if ($2 + 0 <= 0) bad = 1 } END { exit bad || n < 6 }'
}
used() {
    "$train" --model nano-llama --cluster local --data-dir "$data" --dump-config | grep -q '"measured": true'
}
refused() {
    "$train" --calibrate "$data/x.json" 2>&1 | grep -q 'mpiexec -n 2'
}

share() { # of a busy machine, 0 to 1
    sed -n 's/.*"busy_share": *\([0-9.e-]*\).*/\1/p' "$profile" |
        awk '{ n++; if ($1 < 0 || $1 >= 1) bad = 1 } END { exit bad || n != 1 }'
}

echo 1..7
check "two ranks calibrate" mpiexec -n 2 "$train" --calibrate "$profile"
check "every rate is positive" positive
check "the profile has CPU, build and date" grep -cE '"(cpu|build|date)": ".+"' "$profile"
check "the kernels' blocking is stored" grep -A5 '"blocking"' "$profile"
check "it has the busy share of the machine" share
check "the trainer uses it as the local cluster" used
check "a single rank is told how to start it" refused
