#!/bin/sh
# Losses of layouts of the plain models, dense and with experts, on up to 8 ranks against one rank: see parity.c, whose arguments
# replace them. PT_LONG: of all layouts.
[ $# != 0 ] || set -- 0 2
# MPICH leaks about 1 KB that no suppression names (docs/measurements/platform.md).
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 8 "${PT_BUILD:?}/tests/mpi/parity" "$@"
