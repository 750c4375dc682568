#!/bin/sh
# Steps of a covering set of layouts on the asynchronous backend, bit for bit: see parity.c.
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 4 "${PT_BUILD:?}/tests/mpi/parity" async "${1:-2}"
