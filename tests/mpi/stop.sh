#!/bin/sh
# SIGTERM ends every rank within seconds wherever the job is: in start-up, in a step or a save, also if a rank does not answer.
dir="${PT_BUILD:?}/tests/run/stop it.$$"
train="$PT_BUILD/partune-train"
mkdir -p "$dir" || exit 99
mark="PARTUNE_TRIAL=stop-sh-$$"
ranks() { # processes of our ranks; with a number: of that one
    grep -lzx "$mark" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
        p=${file%/environ}
        [ "$(cat "$p/comm" 2>/dev/null)" = partune-train ] && grep -qz "^PMI_RANK=${1:-}" "$file" 2>/dev/null && echo "${p#/proc/}"
    done
}
end() {
    for p in $(ranks); do kill -KILL "$p" 2>/dev/null; done
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 99' HUP INT TERM
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
unset PARTUNE_DATA
cd "$dir" || exit 99

. "$PT_SRC/tests/mpi/ok.sh"
explain() {
    echo "# exit $code after $took s; left: $(ranks | tr '\n' ' '); $(tail -1 ev 2>/dev/null | cut -c1-200)"
    for p in $(ranks); do kill -KILL "$p" 2>/dev/null; done
}
start() { # options...: two ranks in the background
    rm -f ev
    env "$mark" mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --quiet --global-batch 4 --events ev "$@" >out 2>&1 &
    pid=$!
}
until_true() { # command: waits for it, up to half a minute
    i=0
    while [ $i -lt 300 ] && ! eval "$1"; do
        sleep 0.1
        i=$((i + 1))
    done
    [ $i -lt 300 ]
}
stop() { # TERM to mpiexec, or to the processes named; the job has half a minute, for a loaded machine
    begun=$(date +%s)
    # shellcheck disable=SC2086
    kill -TERM ${1:-$pid}
    until_true '! kill -0 $pid 2>/dev/null && [ -z "$(ranks)" ]'
    ended=$?
    took=$(($(date +%s) - begun))
    [ $ended = 0 ] || kill -KILL $pid 2>/dev/null
    wait $pid
    code=$?
    return $ended
}
said_stopped() { tail -1 ev | grep -q '"event":"stopped"'; }

for rank in 1 0; do
    start --steps 1000000
    until_true 'grep -q "\"n\":3," ev 2>/dev/null'
    kill -STOP "$(ranks $rank)"
    stop
    ok $? "a job whose rank $rank does not answer in a step ends"
    said_stopped
    ok $? "and says that it was stopped: rank $rank"
done

for rank in 1 0; do
    rm -rf c
    start --steps 1000000 --checkpoint c --checkpoint-every 1 --checkpoint-keep 2
    until_true 'grep -q "\"event\":\"checkpoint\"" ev 2>/dev/null'
    i=0
    while [ $i -lt 1000 ] && ! ls -d c/.saving* >/dev/null 2>&1; do i=$((i + 1)); done
    kill -STOP "$(ranks $rank)"
    stop
    ok $? "a job whose rank $rank does not answer in a save ends"
    rm -f ev
    env "$mark" timeout -k 2 60 mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --quiet --global-batch 4 --events ev --checkpoint c --resume \
        --trial --max-steps 3 --min-steps 2 --steps 1000000 >out 2>&1 && grep -q '"event":"resumed"' ev
    ok $? "and its last checkpoint is whole: rank $rank"
done

# Right after the start, and a little later: in MPI's own start, in ours, in the first steps. The ranks get the signal themselves, as
# from Slurm, because Hydra that gets it in this moment may hang without them.
bad=0
for wait in 0 0.05 0.1 0.15 0.2 0.3 0.4 0.6; do
    start --steps 1000000
    until_true '[ "$(ranks | wc -l)" = 2 ]'
    sleep $wait
    stop "$(ranks | tr '\n' ' ')" || bad=$((bad + 1))
    [ ! -s ev ] || tail -1 ev | grep -q '"event":"\(stopped\|hello\|memory\)"' || bad=$((bad + 1))
done
[ $bad = 0 ]
ok $? "a stop at any moment of the start ends the job"

start --steps 1000000
until_true '[ -n "$(ranks 1)" ]'
kill -STOP "$(ranks 1)"
sleep 1
stop
ok $? "a job whose rank 1 does not answer from the start on ends"

# A file server that does not answer: all ranks are in open(), and none of them checks.
mkdir -p datasets/hangs && mkfifo datasets/hangs/meta.json
start --steps 1000000 --data hangs
until_true '[ "$(ranks | wc -l)" = 2 ]'
sleep 1
stop
ok $? "ranks blocked on a file end"

# One rank alone is there, with a model whose checkpoint it reads for long enough to be asked in between.
rm -rf c
env "$mark" mpiexec -n 1 "$train" --data-dir "$dir" --model tiny-llama --quiet --global-batch 1 --steps 1 --checkpoint c --events ev >out 2>&1
rm -f ev
env "$mark" mpiexec -n 1 "$train" --data-dir "$dir" --model tiny-llama --quiet --global-batch 1 --steps 1000000 --checkpoint c --resume --events ev >out 2>&1 &
pid=$!
until_true '[ -s ev ]'
stop && { [ $code = 75 ] || [ $code = 0 ]; } && said_stopped
ok $? "a single rank exits with 75 during or soon after reading its checkpoint"
echo "1..$n"
