#!/bin/sh
# The same on 8 ranks: every layout of the dense model and each fifth of the model with experts.
ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
export ASAN_OPTIONS
parity="${PT_BUILD:?}/tests/mpi/parity"
n=0
bad=0
one() { # the numbers of the two lists run on
    mpiexec -n 8 "$parity" "$@" > "$PT_BUILD/tests/mpi/parity8.out" || bad=1
    sed -E '/^1\.\./d; s/^((not )?ok) [0-9]+/\1/' "$PT_BUILD/tests/mpi/parity8.out"
    n=$((n + $(grep -cE '^(not )?ok' "$PT_BUILD/tests/mpi/parity8.out")))
}
one 0 8 1
one 1 8 5
rm -f "$PT_BUILD/tests/mpi/parity8.out"
echo "1..$n"
exit $bad
