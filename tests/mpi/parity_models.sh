#!/bin/sh
# Losses of layouts of all models but the plain ones, on up to 6 ranks against one rank: see parity.c. PT_LONG: of all layouts, on
# up to 8, where three degrees of a mesh meet.
ranks=${PT_LONG:+8}
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n "${ranks:-6}" "${PT_BUILD:?}/tests/mpi/parity" 2 0
