#!/bin/sh
# Golden PyTorch values: see golden.c.
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 1 "${PT_BUILD:?}/tests/mpi/golden"
