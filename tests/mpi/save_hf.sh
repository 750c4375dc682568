#!/bin/sh
# What --save-hf writes is read by an independent reader, with PyTorch giving the same logits.
for python in /usr/bin/python3 python3; do
    "$python" -c 'import torch, numpy' 2>/dev/null && break
    python=
done
[ -n "$python" ] || { echo "1..0 # SKIP no python3 with torch (Debian: python3-torch)"; exit 0; }
out="${PT_BUILD:?}/tests/run/save hf.$$"
mkdir -p "$out" || exit 99
trap 'rm -rf "$out"' EXIT
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" mpiexec -n 1 "$PT_BUILD/tests/mpi/golden" --save "$out" || exit 99
PYTHONDONTWRITEBYTECODE=1 "$python" "${PT_SRC:?}/tests/golden/read_hf.py" "$out"/*
