#!/bin/sh
# The trainer with Open MPI, next to MPICH: parity of layouts, a daemon's trials, and its faults. PT_LONG: parity of all models,
# and train.sh.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
skip() { echo "1..0 # SKIP $1"; exit 0; }
[ -x "$PT_BUILD/tests/mpi/openmpi/partune-train" ] || skip "the tests were built without Open MPI (libopenmpi-dev), or all was built with it"
open=$(command -v mpiexec.openmpi) || skip "no mpiexec.openmpi (openmpi-bin)"
hydra=$(command -v mpiexec.mpich || command -v mpiexec.hydra)

# A build directory of it: copies, because programs look for each other next to themselves.
build="$run/build"
mkdir -p "$build/tests/mpi" "$build/tests/run" "$run/bin" "$run/tmp" && cd "$run" || exit 99
cp "$PT_BUILD/partuned" "$PT_BUILD/partune" "$PT_BUILD/partune-run" "$PT_BUILD/partune-data" "$build" || exit 99
cp "$PT_BUILD/tests/mpi/openmpi/partune-train" "$build" && cp "$PT_BUILD/tests/mpi/openmpi/parity" "$build/tests/mpi" || exit 99
partuned="$build/partuned"
# What Open MPI leaves behind would lie there.
export TMPDIR="$run/tmp"

# ---- scripts that call mpiexec, in an environment that says what the daemon says by options
ln -s "$open" bin/mpiexec
under_open() { # script argument...: its lines that are not ok, as comments
    script=$1
    shift
    env -u PT_LONG PATH="$run/bin:$PATH" PT_BUILD="$build" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 \
        OMPI_MCA_odls_base_sigkill_timeout=8 sh "$PT_SRC/tests/mpi/$script" "$@" >"$script.out" 2>&1
    code=$?
    grep -A 4 '^not ok' "$script.out" | sed 's/^/# /'
    [ $code = 0 ] && grep -q '^ok' "$script.out" && ! grep -q '^not ok' "$script.out" &&
        [ "$(grep -c '^ok' "$script.out")" = "$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$script.out")" ] || {
        tail -n 5 "$script.out" | sed 's/^/# /'
        return 1
    }
}
passes() { # script argument...
    under_open "$@"
    is "$1 passes: $(grep -c '^ok' "$1.out") checks" $? 0
}
if [ -n "$PT_LONG" ]; then
    passes train.sh
    passes parity.sh
else
    passes parity.sh 0 2 # a dense model, and one with experts
fi
has "the trainer names its MPI" "$("$build/partune-train" --version)" '^partune-train [0-9.]+, with Open MPI [0-9]'

# ---- an mpiexec of another MPI
if [ -n "$hydra" ]; then
    "$hydra" -n 2 "$build/partune-train" --model nano-llama --tp 2 --steps 1 --quiet --events alone.ev >out 2>&1
    is "ranks that MPICH starts are refused" $? 69
    has "by rank 0, which says why" "$(cat alone.ev)" '"class":"comm".*2 ranks were started .PMI_RANK., but the MPI of this program, Open MPI [0-9.]+, sees 1'
    is "once" "$(grep -c 'sees 1' out)" 1
fi
if [ -x "$PT_BUILD/partune-train" ] && "$PT_BUILD/partune-train" --version | grep -q MPICH; then
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$open" --map-by slot:OVERSUBSCRIBE --bind-to none -n 2 \
        "$PT_BUILD/partune-train" --model nano-llama --tp 2 --steps 1 --quiet --events alone2.ev >out 2>&1
    is "so are ranks with MPICH that Open MPI starts" $? 69
    has "with the reason" "$(cat alone2.ev)" '2 ranks were started .OMPI_COMM_WORLD_RANK., but the MPI of this program, MPICH [0-9.]+, sees 1'
fi

# ---- the daemon
campaign() { # name, options of the campaign: its id
    call /v1/campaigns -d '{"name": "'"$1"'", "model": "nano-moe", "workload": {"global_batch": 8}, "search": {"method": "random"},
        '"$2"'}' | tee said | id_of
}
none_left() { ! grep -lsz "^PARTUNE_TRIAL=" /proc/[0-9]*/environ | while read -r f; do tr '\0' '\n' <"$f" | grep -q "$run" && echo "$f"; done | grep -q .; }
start
has "/readyz names its mpiexec" "$(call /readyz)" '"name":"mpiexec","ok":true,"detail":"[^"]*/mpiexec.openmpi, Open MPI [0-9.]*'
has "and the trainer's MPI" "$(call /readyz)" '"name":"partune-train","ok":true,"detail":"[^"]*, with Open MPI [0-9.]*'
id=$(campaign plain '"space": {"world": [2], "threads": [1]}, "budget": {"trials": 2},
    "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3}')
ok "a campaign ends" wait_for 180 is_in "$id" done
is "every trial is ok" "$(sql "select count(*) from trial where state = 'ok'")" 2
hello=$(head -n 1 data/campaigns/"$id"/trials/1/1/events)
has "hello names Open MPI" "$hello" '"build":"[^"]*, Open MPI [0-9.]+"'
[ "$(nproc)" -lt 2 ] || has "each rank has a core of its own" "$hello" '"binding":\["[0-9]+","[0-9]+"\]' # '
is "not the same" "$(printf '%s\n' "$hello" | sed -n 's/.*"binding":\["\([0-9]*\)","\1"\].*/same/p')" ""
call "/v1/campaigns/$id/export/partune" >exported.json
has "the exported line starts ranks as the daemon did" "$(cat exported.json)" \
    '"launch": "mpiexec --map-by slot:OVERSUBSCRIBE --bind-to none -n 2 partune-run --bind [0-9]+,[0-9]+ -- partune-train --config FILE'

# ---- a killed rank, and a stop
rank_of() { # rank: its process
    for p in /proc/[0-9]*; do
        tr '\0' '\n' <"$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && tr '\0' '\n' <"$p/environ" | grep -q "^PARTUNE_TRIAL=.*/$2/" &&
            [ "$(cat "$p/comm")" = partune-train ] && echo "${p#/proc/}"
    done 2>/dev/null | head -n 1
}
long='"space": {"world": [2]}, "budget": {"trials": 1}, "trial": {"warmup_steps": 1, "min_steps": 100000, "max_steps": 100000, "timeout_s": 600}'
steps() { grep -q '"n":3,' "data/campaigns/$1/trials/1/$2/events"; }
id=$(campaign killed "$long")
ok "a long trial runs" wait_for 120 steps "$id" 1
kill -KILL "$(rank_of 1 "$id")"
ok "a killed rank ends the attempt, and it is tried again" wait_for 120 steps "$id" 2
has "mpiexec's status is kept" "$(cat data/campaigns/"$id"/trials/1/1/exit.json)" '"code": *[1-9]'
call "/v1/campaigns/$id:cancel" -d '{}' >/dev/null
ok "a running one is stopped" wait_for 60 is_in "$id" cancelled
ok "no process is left" wait_for 20 none_left
is "and no file of Open MPI outside the attempts" "$(find "$run/tmp" -mindepth 1)" ""
stop

# By hand, with time for the others: they are asked to stop, and say that one is gone; every time, whichever it is.
for rank in 0 1; do
    rm -f lost.ev
    env "PARTUNE_TRIAL=$run/by-hand/$rank" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$open" --map-by slot:OVERSUBSCRIBE \
        --bind-to none --mca odls_base_sigkill_timeout 15 -n 2 "$build/partune-train" --model nano-llama --global-batch 2 --steps 1000000 \
        --quiet --events lost.ev >out 2>&1 &
    mpiexec_pid=$!
    ok "ranks run by hand" wait_for 60 grep -q '"n":3,' lost.ev
    kill -KILL "$(rank_of $rank by-hand)"
    wait $mpiexec_pid
    is "rank $rank killed: mpiexec's status is not 75" "$(expr $? != 75)" 1
    has "the last event names it, and is no stop" "$(tail -n 1 lost.ev)" '"class":"comm","rank":'$((1 - rank))',"detail":"rank '$rank' is gone from this host'
done

# ---- mpiexec and trainer of two MPIs
if [ -n "$hydra" ]; then
    start --mpiexec "$hydra"
    has "/readyz tells a mismatch" "$(call /readyz)" '"name":"mpiexec","ok":false,"detail":"[^"]* is from MPICH [0-9.]*, but [^"]*partune-train is linked with Open MPI [0-9.]*: each rank would run alone'
    id=$(campaign alone '"space": {"world": [2]}, "budget": {"trials": 1}')
    ok "and a campaign pauses" wait_for 20 is_in "$id" paused
    has "with the reason" "$(call "/v1/campaigns/$id")" 'each rank would run alone; install openmpi-bin, or give the mpiexec of Open MPI [0-9.]* with --mpiexec PATH'
    stop
fi

# ---- doctor
client
doctor=$(PARTUNE_SERVER=http://127.0.0.1:1 "$build/partune" doctor --data "$run/other" 2>&1)
has "doctor names Open MPI" "$doctor" '^ok +MPI +Open MPI [0-9.]*: /.*mpiexec.openmpi'
has "and starts two processes by it" "$doctor" '^ok +MPI start'
finish
