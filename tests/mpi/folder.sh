# Sourced by tests of this folder that run jobs: $dir, a folder of the test's own, with a space in its path, where it is and which
# goes with it; $train, the trainer; lines of TAP (ok.sh).
dir="${PT_BUILD:?}/tests/run/$(basename "$0" .sh) it.$$"
train="$PT_BUILD/partune-train"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
trap 'exit 99' HUP INT TERM
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS" # MPICH's (docs/measurements/platform.md)
unset PARTUNE_DATA
cd "$dir" || exit 99
. "${PT_SRC:?}/tests/mpi/ok.sh"
