#!/bin/sh
# The checks of the stand-in for NCCL fire: each rule that a program could break without a GPU noticing, broken once.
dir="${PT_BUILD:?}/tests/run/standin.$$"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
export ASAN_OPTIONS="detect_leaks=0:handle_abort=0:$ASAN_OPTIONS" STANDIN_PATIENCE=8
export LD_LIBRARY_PATH=$PT_BUILD/tests/mpi/standin:$LD_LIBRARY_PATH
. "${PT_SRC:?}/tests/mpi/ok.sh"

run() { # case
    timeout -k 2 60 mpiexec -n 2 "$PT_BUILD/tests/mpi/standin_checks" "$1" >out 2>&1
}
fires() { # case, text
    run "$1"
    code=$?
    [ $code != 0 ] && [ $code != 124 ] && grep -qF "standin-nccl: $2" out
    ok $? "$1: $2"
}

run right && grep -q '^as it should be$' out && ! grep -q standin-nccl out
ok $? "what keeps the rules runs"
fires sizes_of_a_collective "members have collectives of"
fires types_of_a_collective "members have collectives of 128 and 128 bytes, types"
fires roots "members have collectives of 256 and 256 bytes, types 7 and 7, roots"
fires order_of_collectives "members are in different collectives"
fires unknown_type "another type"
fires absent_member "a member does not come"
fires sizes_of_a_message "a message of 16 bytes is received as one of 32"
fires order_of_messages "two ranks wait for each other: one sends and receives in another order"
fires message_not_taken "a message is not taken"
fires freed_array "an address that is no memory"
fires ended_communicator "a communicator that is none, or has ended"
fires ended_twice "a communicator that is none, or has ended"
fires ends_before_its_messages "a communicator ends before its messages"
fires no_group "a message outside of a group"
fires two_streams "a group on two streams"
fires no_event "messages that no event is before"
fires strange_rank "a rank that the communicator has not"
fires many_communicators "more communicators than expected"
echo "1..$n"
