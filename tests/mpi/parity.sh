#!/bin/sh
# Losses of layouts on up to 8 ranks against one rank: see parity.c. PT_LONG: of all layouts. Arguments are those
# of parity.c.
# MPICH leaks about 1 KB that no suppression names (docs/measurements/platform.md).
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 8 "${PT_BUILD:?}/tests/mpi/parity" "$@"
