#!/bin/sh
# Losses of every layout on up to 4 ranks against one rank: see parity.c.
# MPICH leaks about 1 KB that no suppression names (docs/TESTING.md).
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 4 "${PT_BUILD:?}/tests/mpi/parity"
