#!/bin/sh
# The checks of the shim fire: each rule of a launch or of the device's memory that real hardware leaves to chance, broken once.
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS="detect_leaks=0:handle_segv=0:handle_abort=0:allow_user_segv_handler=1:$ASAN_OPTIONS"
n=0
ok() { # status, name
    n=$((n + 1))
    [ "$1" = 0 ] && echo "ok $n - $2" || {
        echo "not ok $n - $2"
        sed 's/^/#   /' "$work/out"
    }
}
fires() { # case, text
    "${PT_BUILD:?}/tests/kncheck/shim_checks" "$1" >"$work/out" 2>&1
    [ $? = 3 ] && grep -qF "$2" "$work/out"
    ok $? "$1: $2"
}

"${PT_BUILD:?}/tests/kncheck/shim_checks" right >"$work/out" 2>&1 && grep -qx "as it should be" "$work/out"
ok $? "what keeps the rules runs"
fires no_barrier "a missing barrier shows"
fires left_barrier "others wait for a thread that has ended or waits elsewhere"
fires parted_warp "lanes of its warp are in different exchanges"
fires unaligned_matrix "a row of a matrix is not on a multiple of 16 bytes"
for case in broken_warp many_threads no_block tall_grid shared_beyond_any; do
    fires $case "not a launch that a GPU would take"
done
fires shared_not_allowed "more shared memory than it was allowed"
fires shared_allowed_to_another "more shared memory than it was allowed"
fires host_access "memory that cannot be touched"
fires use_after_free "memory that cannot be touched"
fires freed_twice "what is freed is no memory of the device, or was freed before"
fires freed_size "memory is freed with another size than it has"
fires foreign_free "what is freed is no memory of the device, or was freed before"
fires too_many_marks "a stream follows more streams than SHIM_AFTERS"
fires failed_library "cuda: a library: fails"
"${PT_BUILD:?}/tests/kncheck/shim_checks" right_graph >"$work/out" 2>&1 && grep -qx "as it should be" "$work/out"
ok $? "a graph does what was captured, as often as it is launched, and not before"
for case in wait mark follow stamp twice launch; do
    fires captured_$case "its stream is captured"
done
fires not_captured "its stream is not captured"
echo "1..$n"
