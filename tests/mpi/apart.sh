#!/bin/sh
# The same as async.sh where the host does not reach what layers compute with: see parity.c.
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 4 "${PT_BUILD:?}/tests/mpi/parity" apart "${1:-24}"
