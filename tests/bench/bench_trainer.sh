#!/bin/sh
exec mpiexec -n 8 "${PT_BUILD:?}/tests/bench/bench_trainer" "$@"
