#!/bin/sh
# The job around the bundled trainer's file starts it again after a lost rank, and not after an end that would come again.
dir=${PT_BUILD:?}/tests/run/job.$$
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/jobs"
"$PT_BUILD/tests/export/dump" "$dir/jobs" >/dev/null || { echo "Bail out! dump fails"; exit 99; }
# A launcher whose Nth start ends with the Nth code of file "codes", after the last event of its ranks where that is said
# (oom:137); nobody sleeps. Asked for its version, it is the MPI of file "mpi".
cat >"$dir/bin/srun" <<'END'
#!/bin/sh
[ "$*" != --version ] || exec cat mpi
echo "$*" >>starts
code=$(sed -n "$(wc -l <starts | tr -d ' ')p" codes)
[ "$code" = vanish ] && exec "$PWD/not-there"
events=$(echo "$*" | sed -n 's/.* --events \([^ ]*\).*/\1/p')
case $code in
    stopped:*) echo '{"v":1,"event":"stopped","t":1,"n":7,"reason":"signal"}' >>"$events" ;;
    *:*) echo "{\"v\":1,\"event\":\"error\",\"t\":1,\"class\":\"${code%:*}\",\"rank\":1,\"detail\":\"stopped\"}" >>"$events" ;;
esac
exit "${code#*:}"
END
for name in mpiexec mpirun; do cp "$dir/bin/srun" "$dir/bin/$name"; done
printf '#!/bin/sh\n' >"$dir/bin/sleep"
chmod +x "$dir"/bin/*
cd "$dir" || exit 99
mpich="HYDRA build details:
    Version:                                 4.0.2"
echo "$mpich" >mpi
n=0
is() { # name got want
    n=$((n + 1))
    if [ "$2" = "$3" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; echo "#   \`$2\`, not \`$3\`"; fi
}
job() { # FILE CODES...: exit status and number of starts
    file=$1
    shift
    rm -f starts
    printf '%s\n' "$@" >codes
    PATH="$dir/bin:$PATH" PBS_O_WORKDIR="$dir" bash "$file" >out 2>&1
    echo "$? $(wc -l <starts | tr -d ' ')"
}
first() { find jobs -name "*.$1+partune" | sort | head -n 1; }
# What the launcher of an MPIJob is told to run.
sed -n '/^            - |$/,/^    Worker:$/{s/^              //p}' "$(first mpijob)" >mpijob.sh
echo 1..44
# mpiexec that was itself signalled may say 0 of a run that stopped, srun the signal by which it ended the ranks that had not
# left yet; an earlier start's event is not this one's.
for kind in slurm pbs; do
    file=$(first $kind)
    is "$kind: 0 from a stopped run is a stop" "$(job "$file" stopped:0)" "75 1"
    is "$kind: and so are ranks killed with it" "$(job "$file" stopped:137)" "75 1"
    is "$kind: 0 from a finished run is success" "$(job "$file" 0)" "0 1"
    is "$kind: ranks killed after oom are not lost ranks" "$(job "$file" 137 oom:137 0)" "66 2"
    is "$kind: nor after illegal" "$(job "$file" illegal:143 0)" "65 1"
    is "$kind: nor after data or numeric" "$(job "$file" data:137) $(job "$file" numeric:3)" "68 1 67 1"
    is "$kind: after a lost connection they are" "$(job "$file" comm:137 0)" "0 2"
done
for kind in slurm pbs mpijob; do
    file=$(first $kind)
    [ $kind = mpijob ] && file=mpijob.sh
    is "$kind: success ends the job" "$(job "$file" 0)" "0 1"
    is "$kind: a lost rank restarts the job" "$(job "$file" 1 137 0)" "0 3"
    is "$kind: a stop by signal does not" "$(job "$file" 75)" "75 1"
    is "$kind: nor does an error that would recur" "$(job "$file" 9 66)" "66 2"
    is "$kind: nor an I/O error that recurs at once" "$(job "$file" 70 70 70 70 70 70 0)" "70 5"
    is "$kind: an I/O error that goes away restarts it" "$(job "$file" 70 70 70 137 0)" "0 5"
    is "$kind: a missing program does not" "$(job "$file" vanish 0)" "127 1"
    job "$file" 9 66 >again
    # As the daemon starts a trial: a rank that may move to another's core makes both of them wait.
    is "$kind: every start binds ranks to cores" "$(grep -c -- '-bind-to core \|--cpu-bind=cores ' starts)" 2
done
# Open MPI's words for the same, and its way to hand the environment on, which Hydra does by itself.
echo "mpiexec (OpenRTE) 4.1.4" >mpi
export HANDED=on OMPI_MCA_made_up=1
for kind in pbs mpijob; do
    file=$(first $kind)
    [ $kind = mpijob ] && file=mpijob.sh
    is "$kind: a lost rank restarts the job under Open MPI" "$(job "$file" 137 0)" "0 2"
    is "$kind: every start binds ranks to cores" "$(grep -c -- '--map-by ppr:[0-9]*:node.* --bind-to core .* partune-train ' starts)" 2
    is "$kind: every start hands on the environment, but not Open MPI's own" \
        "$(grep -c -- ' -x HANDED ' starts) $(grep -c -- ' -x OMPI_' starts)" "2 0"
done
