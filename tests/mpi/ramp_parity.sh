#!/bin/sh
# Losses of a covering set of layouts where every second batch is half as large and a step is skipped: see parity.c.
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 4 "${PT_BUILD:?}/tests/mpi/parity" ramp 6 2
