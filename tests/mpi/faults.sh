#!/bin/sh
# A rank of a real job is struck at one call after the other, of start-up, steps, saves and summary: killed at an MPI call, killed at a
# call about a file, or given an error there. No other rank may wait for it: the job ends, with a reason where it was an error, and its
# checkpoints resume. A few of each kind are; `faults.sh 0` strikes every call.
dir="${PT_BUILD:?}/tests/run/faults.$$"
train="$PT_BUILD/partune-train" library="$PT_BUILD/tests/fault/rankfault.so"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
trap 'exit 99' HUP INT TERM
cd "$dir" || exit 99
[ -r "$library" ] || exit 99
# The loader takes no path with a space in LD_PRELOAD.
preload="LD_PRELOAD=$(basename "$library")" found="LD_LIBRARY_PATH=$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# A sanitizer's library must come first, before any that is preloaded.
if ldd "$train" | grep -q 'lib[at]san'; then
    echo "1..0 # SKIP not under a sanitizer"
    exit 0
fi
unset PARTUNE_DATA
strikes=${1:-7} # of each kind and rank; 0: every call
n=0

i=0
while [ $i -lt 200 ]; do
    echo "line $i of a text that is about nothing but lines, this one and that one"
    i=$((i + 1))
done >text
"$PT_BUILD/partune-data" prepare --name lines --data . --validation 0.2 text >/dev/null 2>&1 || exit 99

# Resumes from step 1, then two steps with validation and a save each, weights and a timeline at the end.
job() { # the fault, "" for none; options...: two ranks; a job that hangs is ended after 40 s
    fault=$1
    shift
    timeout -s KILL 40 mpiexec -n 2 env "$found" "$preload" PT_RANK_FAULT="$fault" PT_RANK_FAULT_DONE="$dir/struck" "$train" \
        --data-dir . --model nano-llama --quiet --global-batch 2 --seq 16 --data lines --steps 3 --checkpoint c --checkpoint-every 1 \
        --resume --validate-every 2 --validate-samples 2 --save-hf hf --timeline t.json --events ev "$@" >out 2>&1
}
job "" --steps 1 || { cat out; exit 99; }
mv c first
rm -rf hf

strike() { # rank, kind, which call: 1 when it was past the last one
    rm -rf c hf ev struck struck.left t.json
    cp -r first c
    begun=$(date +%s)
    job "$1 $2 $3"
    code=$?
    [ -e struck ] || return 1
    why=
    [ $(($(date +%s) - begun)) -ge 40 ] && why="a hang"
    [ "$2" = fail ] && [ $code != 0 ] && ! grep -q '"event":"error"' ev && ! grep -q '^partune-train: ' out && why="no reason"
    job "" --steps 4 || why="no resume: $(tail -1 ev | cut -c1-200)"
    [ -z "$why" ] && return 0
    bad=$((bad + 1))
    echo "# rank $1, $2 $3: exit $code, $why"
    return 0
}
many=1000000000
for kind in mpi kill fail; do
    for rank in 1 0; do
        n=$((n + 1)) bad=0 calls=0
        rm -rf c hf && cp -r first c
        job "$rank $kind $many"
        last=$((many - $(cat struck.left)))
        step=1
        [ $strikes = 0 ] || [ $last -le $strikes ] || step=$((last / strikes))
        call=$((1 + (rank + 1) * 7 % step))
        while [ $call -le $last ] && strike $rank $kind $call; do
            call=$((call + step)) calls=$((calls + 1))
        done
        if [ $bad = 0 ] && [ $calls -ge 5 ]; then
            echo "ok $n - rank $rank, $kind: $calls of $last calls struck"
        else
            echo "not ok $n - rank $rank, $kind: $bad of $calls"
        fi
    done
done
echo "1..$n"
