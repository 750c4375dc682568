#!/bin/sh
# Ranks that cannot begin alike do not begin: one has another configuration, another data set, no file, no memory. Each time all of
# them leave, with one reason that names rank and host, and none waits for the others.
dir="${PT_BUILD:?}/tests/run/start it.$$"
train="$PT_BUILD/partune-train"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
trap 'exit 99' HUP INT TERM
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
unset PARTUNE_DATA
cd "$dir" || exit 99
n=0
host=$(hostname)

i=0
while [ $i -lt 200 ]; do
    echo "line $i of a text that is about nothing but lines, this one and that one"
    i=$((i + 1))
done >text
"$PT_BUILD/partune-data" prepare --name lines --data here --validation 0.2 text >/dev/null 2>&1 &&
    "$PT_BUILD/partune-data" prepare --name lines --data there --validation 0 text >/dev/null 2>&1 || exit 99
mkdir empty

refused() { # name, code, texts (one word each) in its reason, options of rank 0, of rank 1, of both
    n=$((n + 1)) name=$1 code=$2 texts=$3 zero=$4 one=$5
    shift 5
    rm -f ev
    # shellcheck disable=SC2086
    timeout -s KILL 60 mpiexec -n 1 "$train" --model nano-llama --quiet --global-batch 4 --events ev "$@" $zero : \
        -n 1 "$train" --model nano-llama --quiet --global-batch 4 --events ev "$@" $one >out 2>&1
    got=$?
    status=ok
    # Hydra's code is the OR of what the ranks left with and what it ended them by.
    [ $got = "$code" ] || { [ $got != 0 ] && [ $got != 137 ] && grep -q 'BAD TERMINATION' out; } || status="not ok"
    for text in $texts; do grep -F 'partune-train: ' out | grep -qF -e "$text" || status="not ok"; done
    [ "$(grep -c '^partune-train: ' out)" = 1 ] || status="not ok"
    grep -q '"event":"step"' ev 2>/dev/null && status="not ok"
    [ "$code" = 2 ] || [ "$code" = 70 ] || grep -q '"event":"error"' ev || status="not ok"
    echo "$status $n - $name"
    [ "$status" = ok ] || { echo "# exit $got; $(tail -1 ev 2>/dev/null | cut -c1-200)"; tail -5 out | cut -c1-200 | sed 's/^/#   /'; }
}

refused "another number of steps" 2 "1 $host /train/steps 8 4" "--steps 4" "--steps 8"
refused "another batch" 2 "1 $host global_batch" "" "--global-batch 8" --steps 4
refused "a trial next to a training run" 2 "1 $host" "" "--trial" --steps 4
refused "weights saved by one only" 2 "1 $host save_hf" "--save-hf hf" "" --steps 1
refused "a timeline of one only" 2 "1 $host timeline" "" "--timeline t.json" --steps 4
refused "checkpoints of one only" 2 "1 $host checkpoint" "--checkpoint c" "" --steps 1
refused "a resume of one only" 2 "1 $host resume" "" "--resume" --steps 1 --checkpoint c
refused "a configuration that one lacks" 2 "1 $host nothing.json" "" "--config nothing.json" --steps 1
refused "an option that one does not know" 2 "1 $host no-such" "" "--no-such" --steps 1
refused "too little memory on one" 66 "1 $host budget" "" "--device-memory 1M" --steps 1
refused "an event file that rank 0 cannot create" 70 "nowhere" "--events nowhere/ev" "--events ev" --steps 1
refused "a data set that one lacks" 68 "lines" "--data-dir here" "--data-dir empty" --steps 1 --data lines
refused "a data set that differs" 70 "1 $host lines" "--data-dir here" "--data-dir there" --steps 1 --data lines --validate-every 1
echo "1..$n"
