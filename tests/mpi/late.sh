#!/bin/sh
# Steps of a covering set of layouts on kernels that run when somebody waits, bit for bit: see parity.c.
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 4 "${PT_BUILD:?}/tests/mpi/parity" late "${1:-2}"
