#!/bin/sh
# What a rank asks of MPI from its start to the first step and at the end depends neither on how many ranks there are nor on the
# layout: a run that resumes where it has to end takes no step. PT_LONG: up to 64 ranks.
. "${PT_SRC:?}/tests/mpi/folder.sh"
train="$PT_BUILD/tests/mpi/counted"
export PT_CALLS=calls
run() { # ranks, options...
    ranks=$1
    shift
    rm -f calls
    timeout -k 2 300 mpiexec -n "$ranks" "$train" --data-dir "$dir" --quiet --model moe.json --global-batch 64 --steps 1 "$@" </dev/null >out 2>&1
}
cat >moe.json <<'END'
{"name":"moe","layers":4,"hidden":16,"heads":2,"ffn":16,"vocab":61,"seq":8,"tied":true,"moe":{"experts":2,"top_k":1,"expert_ffn":8}}
END
counts() { # what all ranks count alike; bytes differ by the digits of the layout's text
    awk '{ $1 = ""; bytes = $5; $5 = "about"; line[$0] = 1; if (!least || bytes < least) least = bytes; if (bytes > most) most = bytes }
        END { for (l in line) print l; if (most > least + 64 || most > 9000) print most, "bytes" }' calls
}
same() { # name, ranks, options...: as many lines as ranks, all with these counts
    name=$1
    shift
    run "$@" && [ "$(wc -l <calls)" = "$1" ] && [ "$(counts)" = "$want" ]
    ok $? "$name"
}

# A call of MPI that is not counted would make the rest say nothing.
other=$(nm "$PT_BUILD/partune-train" | sed -n 's/^ *U \(MPI_[A-Z][a-z_A-Z]*\)$/\1/p' |
    grep -vxE 'MPI_(Iallreduce|Iallgather|Igather|Ibcast|Ibarrier|Isend|Irecv|Comm_split|Comm_split_type|Finalize)' |
    grep -vxE 'MPI_(Abort|Comm_(create_errhandler|free|rank|set_errhandler|size)|Errhandler_free|Error_string|Get_(library_version|processor_name)|Init_thread|Initialized|Iprobe|Query_thread|Test|Testall)')
[ -z "$other" ]
ok $? "every call that communicates is counted${other:+, but for $other}"

run 1 --checkpoint saved
ok $? "a checkpoint of the last step"
run 2 --checkpoint saved --resume && grep -c . calls | grep -qx 2
want=$(counts)
echo "$want" | grep -qxE ' collectives [0-9]+ bytes about messages 0 communicators 0'
ok $? "a rank of two: $want"
for ranks in 4 8 16 ${PT_LONG:+32 64}; do
    same "$ranks ranks, each as many" "$ranks" --checkpoint saved --resume
done
same "8 ranks in tp, pp and ep" 8 --tp 2 --sp 1 --pp 2 --ep 2 --zero 1 --checkpoint saved --resume
same "8 ranks with sharded weights" 8 --zero 3 --shard 2 --checkpoint saved --resume
echo "1..$n"
