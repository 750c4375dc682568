#!/bin/sh
# Sums and gathers over pretended hosts: see collectives.c.
# MPICH leaks about 1 KB that no suppression names (docs/measurements/platform.md).
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 8 "${PT_BUILD:?}/tests/mpi/collectives"
