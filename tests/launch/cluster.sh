# Sourced after tap.sh: a Slurm of our own on loopback, two nodes of two CPUs, all its state below $run; never a system
# service. Slurm's and munge's files want short paths without blanks, so that they are reached by a link.
slurm_missing() { # prints the first program that is not there
    for p in slurmctld slurmd munged srun sbatch; do
        command -v "$p" >/dev/null || [ -x "/usr/sbin/$p" ] || { echo "$p"; return; }
    done
}
free_ports() { # prints $1 neighbors that nobody listens on
    p=$((20000 + $$ % 12000)) # below those that outgoing connections take
    while [ "$(ss -Htln "sport >= :$p and sport <= :$((p + $1))" 2>/dev/null | wc -l)" != 0 ]; do p=$((p + 17)); done
    echo "$p"
}
slurm_configure() {
    user=$(id -un)
    cat >"$S/slurm.conf" <<END
ClusterName=test
SlurmctldHost=localhost
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$S/munge.sock
CredType=cred/munge
SlurmctldPort=$port
StateSaveLocation=$S/state
SlurmdSpoolDir=$S/spool.%n
SlurmctldPidFile=$S/slurmctld.pid
SlurmdPidFile=$S/slurmd.%n.pid
SlurmctldLogFile=$S/slurmctld.log
SlurmdLogFile=$S/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_min_interval=100000
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MinJobAge=60
KillWait=2
ReturnToService=2
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=low Nodes=n[1-2] Default=YES MaxTime=60 State=UP PriorityTier=1 PreemptMode=CANCEL
PartitionName=high Nodes=n[1-2] MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
END
}
slurm_run() { # name command...: one of the daemons, in the foreground of a child of ours
    name=$1
    shift
    "$@" >"$S/$name.out" 2>&1 &
    pids="$pids $!"
}
slurm_start() {
    mkdir -p "$run/slurm/state" "$run/slurm/spool.n1" "$run/slurm/spool.n2"
    short=$(mktemp -d "${TMPDIR:-/tmp}/pt.XXXXXX") || exit 99
    chmod 755 "$short"
    ln -s "$run/slurm" "$short/s"
    S=$short/s
    PATH=$PATH:/usr/sbin:/sbin
    port=$(free_ports 3)
    slurm_configure
    export SLURM_CONF="$S/slurm.conf"
    dd if=/dev/urandom of="$S/munge.key" bs=1024 count=1 2>/dev/null
    chmod 600 "$S/munge.key"
    slurm_run munged munged --foreground --force --socket="$S/munge.sock" --key-file="$S/munge.key" \
        --pid-file="$S/munged.pid" --log-file="$S/munged.log" --seed-file="$S/munged.seed" --num-threads=1
    wait_for 10 test -S "$S/munge.sock" || slurm_fails
    slurm_run slurmctld slurmctld -D -i
    slurm_run slurmd.n1 slurmd -D -N n1
    slurm_run slurmd.n2 slurmd -D -N n2
    wait_for 30 nodes_idle || slurm_fails
}
nodes_idle() { [ "$(sinfo -h -N -p low -o '%T' | sort -u)" = idle ]; }
slurm_fails() {
    tail -n 3 "$S"/*.out | sed 's/^/# /'
    echo "Bail out! Slurm does not start"
    exit 99
}
slurm_stop() {
    [ -n "${short:-}" ] || return 0
    for job in $(squeue -h -o %A 2>/dev/null); do scancel "$job"; done
    n_left=0
    while [ -n "$(squeue -h -o %A 2>/dev/null)" ] && [ $n_left -lt 40 ]; do sleep 0.1; n_left=$((n_left + 1)); done
    rm -rf "$short"
}
# What every test with a Slurm begins with: the test is skipped where that cannot be run, else it continues in $run.
slurm_begin() {
    missing=$(slurm_missing)
    if [ -n "$missing" ] || [ ! -x "$PT_BUILD/partune-train" ]; then
        echo "1..0 # SKIP ${missing:-the trainer} is missing (Debian: slurm-wlm, munge)"
        exit 0
    fi
    [ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
    trap 'slurm_stop; cleanup' EXIT
    cd "$run" || exit 99
    slurm_start
}
