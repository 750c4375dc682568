#!/bin/sh
# A rank of a job is stopped at a random moment, in random layouts: another one reports it, by its number, as the one that is missing;
# continued, the job has the losses of one that was not stopped. Six times here, fifty with PT_LONG. Also: a rank that stays in a
# call, a pause of the whole job, which blames nobody, a job that a timeout ends, and two hosts. PT_SEED repeats a run.
dir="${PT_BUILD:?}/tests/run/hang it.$$"
train="$PT_BUILD/partune-train" library="$PT_BUILD/tests/fault/rankfault.so"
mkdir -p "$dir" || exit 99
mark="PARTUNE_TRIAL=hang-sh-$$"
ranks() { # processes of our ranks; with a number: of that one
    grep -lzx "$mark" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
        p=${file%/environ}
        [ "$(cat "$p/comm" 2>/dev/null)" = partune-train ] && grep -qzx "PMI_RANK=${1:-[0-9]*}" "$file" 2>/dev/null && echo "${p#/proc/}"
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
. "${PT_SRC:?}/tests/mpi/ok.sh"
explain() {
    grep '"event":"hang"' ev 2>/dev/null | cut -c1-400 | sed 's/^/#   /'
    tail -1 ev 2>/dev/null | cut -c1-200 | sed 's/^/#   /'
}
seed=${PT_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
echo "# PT_SEED=$seed"
draw() { # sets drawn to a random number below $1
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$(((seed / 65536) % $1))
}
until_true() { # command: waits for it, up to a minute
    i=0
    while [ $i -lt 600 ] && ! eval "$1"; do
        sleep 0.1
        i=$((i + 1))
    done
    [ $i -lt 600 ]
}
start() { # ranks, options...: in the background
    rm -f ev
    count=$1
    shift
    env "$mark" mpiexec -n "$count" "$train" --data-dir "$dir" --quiet --global-batch 8 --steps 1000000 --hang-report 3 --events ev "$@" >out 2>&1 &
    pid=$!
    until_true 'grep -q "\"n\":3," ev 2>/dev/null'
}
stop() {
    kill -TERM $pid 2>/dev/null
    wait $pid
    code=$?
}
last_step() { sed -n 's/.*"event":"step","t":[0-9.]*,"n":\([0-9]*\).*/\1/p' ev 2>/dev/null | tail -1; }
losses() { grep '"event":"step"' "$1" | sed 's/.*"n":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'; }
beyond() { # step: it is past it
    s=$(last_step)
    [ "${s:-0}" -gt "$1" ]
}
blamed() { grep '"event":"hang"' ev 2>/dev/null | tail -1 | sed 's/.*"missing"://' | grep -o '"rank":[0-9]*' | sed 's/.*://' | tr '\n' ' '; }
hung() { grep -qs '"event":"hang"' ev; }

dense="--model nano-llama"
sparse="--model nano-moe"
layout() { # number: sets count and options
    case $1 in
    0) count=2 options="$dense --tp 2" ;;
    1) count=2 options="$dense --dp 2 --zero 2" ;;
    2) count=2 options="$dense --pp 2" ;;
    3) count=4 options="$dense --tp 2 --pp 2" ;;
    4) count=4 options="$dense --cp 2 --dp 2" ;;
    5) count=2 options="$sparse --ep 2" ;;
    6) count=4 options="$sparse --ep 2 --pp 2" ;;
    7) count=8 options="$dense --tp 2 --pp 2 --dp 2 --overlap-grad-reduce 1" ;;
    8) count=8 options="$sparse --ep 4 --pp 2" ;;
    9) count=6 options="$dense --tp 2 --dp 3 --global-batch 12" ;;
    esac
}
reference() { # layout, step: the losses of the layout, undisturbed, beyond that step
    [ "$(tail -n 1 "losses.$1" 2>/dev/null | cut -d' ' -f1)" -gt "$2" ] 2>/dev/null && return
    # shellcheck disable=SC2086
    start "$count" $options
    until_true "beyond $2"
    stop
    losses ev >"losses.$1"
}
strike() { # layout, rank, hundredths of a second from the third step on
    layout "$1"
    # shellcheck disable=SC2086
    start "$count" $options || { ok 1 "layout $1 starts"; return; }
    sleep "$(($3 / 100)).$(printf %02d $(($3 % 100)))"
    kill -STOP "$(ranks "$2")"
    until_true hung
    got=$(blamed)
    at=$(last_step)
    kill -CONT "$(ranks "$2")"
    until_true 'beyond $((at + 3))'
    went=$?
    stop
    losses ev >now
    reference "$1" "$(tail -n 1 now | cut -d' ' -f1)"
    # All steps are equal, those before the stop and those after it.
    same=$(awk 'NR == FNR { want[$1] = $2; next } $1 in want { n++; if (want[$1] != $2) bad++ } END { print n + 0, bad + 0 }' "losses.$1" now)
    [ "$got" = "$2 " ] && [ $went = 0 ] && [ "${same#* }" = 0 ] && [ "${same% *}" -gt "$((at + 3))" ]
    ok $? "layout $1 ($count ranks:${options#--model}): rank $2, stopped at step $at, is named; then the same losses in ${same% *} steps"
}

times=6
[ -z "$PT_LONG" ] || times=50
k=0
while [ $k -lt $times ]; do
    draw 10
    which=$drawn
    layout "$which"
    draw "$count"
    rank=$drawn
    [ $k -gt 0 ] || rank=0 # which reports otherwise
    draw 150
    strike "$which" "$rank" "$drawn"
    k=$((k + 1))
done

# A pause of all, longer than it takes to report, blames nobody.
start 4 --model nano-llama --tp 2 --dp 2
all=$(ranks | tr '\n' ' ')
# shellcheck disable=SC2086
kill -STOP $all
sleep 6
at=$(last_step)
# shellcheck disable=SC2086
kill -CONT $all
until_true 'beyond $((at + 3))' && sleep 1 && ! hung
ok $? "a pause of all ranks blames none"
stop

# One stays in a call in the middle of a step, without being stopped. The loader takes no path with a space in LD_PRELOAD.
if ldd "$train" | grep -q 'lib[at]san'; then
    echo "# no stuck call under a sanitizer, whose library must be loaded first"
else
    rm -f ev
    env "$mark" mpiexec -n 4 env LD_LIBRARY_PATH="$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD="$(basename "$library")" \
        PT_RANK_FAULT="2 wait 900" "$train" --model nano-llama --quiet --global-batch 8 --steps 1000000 --hang-report 3 --events ev --tp 2 --pp 2 >out 2>&1 &
    pid=$!
    until_true hung
    [ "$(blamed)" = "2 " ] && grep '"event":"hang"' ev | grep -q '"reason":"busy".*"state":"in a system call"'
    ok $? "a rank that stays in a system call is named"
    stop
fi

# A timeout ends the job, whoever hangs.
start 2 --model nano-llama --pp 2 --distributed-timeout-minutes 0.1
kill -STOP "$(ranks 0)"
until_true '! kill -0 $pid 2>/dev/null'
wait $pid
code=$?
[ $code = 69 ] && tail -1 ev | grep -q '"event":"error".*"class":"comm".*no progress for .*rank 0 on .* stopped by a signal'
ok $? "--distributed-timeout-minutes ends a job whose rank 0 hangs, with the reason"

# Two hosts: the one that judges, the other one, and the first as a whole: once it has told of its steps, and while it may have
# told of its start alone, which has a longer patience.
two() { # options...
    rm -f ev
    env "$mark" sh "$PT_SRC/tests/mpi/two_hosts.sh" 200mbit 2 "$train" --quiet --global-batch 8 --steps 1000000 --hang-report 3 --events ev "$@" >out 2>&1 &
    pid=$!
}
if ! sh "$PT_SRC/tests/mpi/two_hosts.sh" 200mbit 1 true >/dev/null 2>&1; then
    echo "# two hosts need root, ip and tc"
else
    for case in "3 3" "3 0" "60 0 1" "1 0 1"; do
        from=${case%% *} who=${case#* }
        two --model nano-llama --tp 2 --dp 2
        until_true 'grep -q "\"n\":$from," ev 2>/dev/null'
        struck=
        for r in $who; do struck="$struck $(ranks "$r")"; done
        # shellcheck disable=SC2086
        kill -STOP $struck
        until_true hung
        [ "$(blamed)" = "$who " ] && [ "$(grep -c '"event":"hang"' ev)" = 1 ]
        ok $? "over two hosts: rank $who, stopped after step $from"
        # shellcheck disable=SC2086
        kill -CONT $struck
        # shellcheck disable=SC2046
        kill -TERM $(ranks)
        wait $pid
    done
fi
echo "1..$n"
