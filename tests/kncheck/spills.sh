#!/bin/sh
# nvcc's report: every kernel keeps its registers, on every kind of GPU.
cd "${PT_BUILD:?}" || exit 99
kernels=$(cat kernels/cuda/*.nvo.log | grep -c 'Compiling entry function')
bad=$(awk '/Compiling entry function/ { name = $0 } /bytes spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print name ": " $0 }' \
    kernels/cuda/*.nvo.log)
echo 1..2
[ "$kernels" -ge 100 ] && echo "ok 1 - the report has $kernels kernels" || echo "not ok 1 - the report has $kernels kernels"
[ -z "$bad" ] && echo "ok 2 - none spills" || { echo "not ok 2 - none spills"; echo "$bad" | sed 's/^/#   /'; }
