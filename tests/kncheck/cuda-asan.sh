#!/bin/sh
# The small cases with the address sanitizer: no access outside an array, the scratch of a stream or shared memory.
exec env ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 \
    "${PT_BUILD:?}/tests/kncheck/kncheck-cuda-asan" --aligned --most=4100
