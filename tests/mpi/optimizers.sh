#!/bin/sh
# Steps of each optimizer against its definition, and layouts of four ranks against one: see optimizers.c.
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" exec mpiexec -n 4 "${PT_BUILD:?}/tests/mpi/optimizers"
