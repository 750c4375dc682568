#!/bin/sh
# Losses of models drawn at random, in a covering set of layouts on up to 4 ranks: see parity.c. PT_LONG: of two hundred models.
models=${PT_LONG:+200}
unset PT_LONG
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 4 "${PT_BUILD:?}/tests/mpi/parity" drawn 0 "${models:-6}"
