#!/bin/sh
# Algorithms of matrix products, chosen and used: by the library that the host has in place of cuBLASLt, and where the toolkit is
# there, by gemm_lt.cu on a stand-in for cuBLASLt itself.
cd "${PT_BUILD:?}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
n=0
for plugin in cuda-shim.so cuda-lt.so; do
    [ -e "tests/kncheck/$plugin" ] || continue
    LD_LIBRARY_PATH=tests/kncheck/standin ASAN_OPTIONS=detect_leaks=0 \
        tests/kncheck/algos "tests/kncheck/$plugin" >"$work/out" 2>"$work/err"
    code=$?
    awk -v n=$n -v of="$plugin" '/^(not )?ok / { sub(/ok [0-9]+/, "ok " ++n); print $0 " (" of ")" }' "$work/out"
    n=$((n + $(grep -cE '^(not )?ok ' "$work/out") + 1))
    grep -q '^1\.\.' "$work/out" && [ $code = 0 ] && echo "ok $n - to its end ($plugin)" || {
        echo "not ok $n - to its end ($plugin)"
        sed 's/^/#   /' "$work/err"
    }
done
echo "1..$n"
