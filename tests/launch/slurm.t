#!/bin/sh
# Campaigns in a real Slurm: an allocation shared by steps, one job a trial; restarts of the daemon, scancel, preemption,
# requeueing, a node that goes down; every trainer under every launcher. PT_LONG adds what Slurm does by the minute: the end
# of a job's time, and an allocation whose time is over.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--grace 500 --config partuned.conf'
. "${PT_SRC:?}/tests/launch/cluster.sh"
slurm_begin

fake="$PT_BUILD/tests/fault/fake_train"
configure() { # lines of [slurm]
    {
        printf '[slurm]\npoll = 0.3\nidle = 2\npartition = low\n'
        printf '%s\n' "$@"
        cat <<END
[trainer "program"]
launch = mpiexec
command = \\"$fake\\" --config {config} --events {folder}/events --step-ms 50 --fault once=hang
[trainer "slow"]
launch = mpiexec
command = \\"$fake\\" --config {config} --events {folder}/events --step-ms 600
[trainer "logs"]
parser = megatron
log = stdout
command = \\"$fake\\" --log megatron --config {config} --events {folder}/unused --step-ms 20
END
    } >partuned.conf
}
stop() { kill -"${1:-TERM}" "$pid"; wait "$pid" 2>/dev/null; cat err >>all.err; }
# name, mode, then keys of the campaign that win over those here: sets id
submit() {
    id=$($C -H "$A" -H 'Content-Type: application/json' "$url/v1/campaigns" -d '{
        "name": "'"$1"'", "launcher": {"kind": "slurm", "mode": "'"$2"'"},
        "model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "four", "nodes": 2, "devices_per_node": 2,
                    "device": {"name": "core", "memory_gib": 24, "peak_tflops": {"fp32": 1}, "memory_gbs": 10},
                    "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"},
                              {"span": 4, "gbs": 1, "latency_us": 20, "kind": "tcp"}]},
        "workload": {"global_batch": 8}'"${3:+, $3}"'}' | tee answer | id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
}
few='"budget": {"trials": 3}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3}'
# Its first attempt falls silent after three steps and never ends, so that something is there to be ended.
program='"trainer": "program", "budget": {"trials": 1}, "trial": {"warmup_steps": 1, "min_steps": 5, "max_steps": 5}'
state() { call "/v1/campaigns/$id" | sed -n 's/^{"id":"[^"]*","name":"[^"]*","state":"\([^"]*\)".*/\1/p'; }
over() { case $(state) in done | paused | cancelled) ;; *) return 1 ;; esac; }
by_state() { call "/v1/campaigns/$id" | sed -n 's/.*"by_state":{\([^}]*\)}.*/\1/p'; }
outcomes() { # of the attempts of trial 1, in order
    sqlite3 data/partune.db "SELECT group_concat(outcome, ' ') FROM (SELECT outcome FROM attempt WHERE campaign = '$id' AND n = 1 ORDER BY attempt)"
}
why() { sqlite3 data/partune.db "SELECT failure FROM attempt WHERE campaign = '$id' AND n = 1 AND attempt = $1"; }
# The id of the job of attempt $1 of trial 1, once its first step is there.
running() { call "/v1/campaigns/$id/trials/1" | grep -q '"state":"running"' && grep -q '"step"' "data/campaigns/$id/trials/1/$1/events"; }
job_of() { sqlite3 data/partune.db "SELECT job FROM attempt WHERE campaign = '$id' AND n = 1 AND attempt = $1"; }
done_ok() { # what
    ok "$1: the campaign ends" wait_for ${PT_WAIT:-60} over
    is "$1: done" "$(state)" done
}

# ---- the bundled trainer: steps of one allocation, the daemon killed and started again in the middle
mkdir -p shared data && chmod 700 data && ln -s "$run/shared" data/campaigns # where a site would have its shared file system
configure
start
submit steps steps "$few, \"search\": {\"parallel\": 2}"
ok "steps: a first trial runs" wait_for 30 test -e "data/campaigns/$id/trials/1/1/run.json"
allocation=$(job_of 1)
stop KILL
# As if sbatch of the daemon that was killed had arrived after the next one's.
double=$(sbatch --parsable -p low -N1 -n1 -J "$(squeue -h -j "$allocation" -o %j)" -o /dev/null --wrap 'exec sleep 600')
start
ok "steps: a second allocation of that name is released" wait_for 20 sh -c "! squeue -h -t running,pending -o %A | grep -qx $double"
done_ok "steps after kill -9 of the daemon"
has "steps: every trial is ok" "$(by_state)" '"ok":3'
is "steps: in one allocation" "$(sqlite3 data/partune.db "SELECT DISTINCT job FROM attempt WHERE campaign = '$id'")" "$allocation"
ok "steps: which is released" wait_for 20 sh -c "! squeue -h -t running,pending -o %A | grep -qx $allocation"

# ---- one job a trial, found again while it runs
submit jobs jobs "$few"
ok "jobs: a first trial runs" wait_for 30 test -e "data/campaigns/$id/trials/1/1/run.json"
stop KILL
start
done_ok "jobs after kill -9 of the daemon"
has "jobs: every trial is ok" "$(by_state)" '"ok":3'
is "jobs: each in its own job" "$(sqlite3 data/partune.db "SELECT count(DISTINCT job), count(*) FROM attempt WHERE campaign = '$id'")" "3|3"

# ---- what happens to a trial from outside: it is tried again and ends well
submit scancel jobs "$program"
ok "scancel: it runs" wait_for 30 running 1
scancel "$(job_of 1)"
first=$id
submit preempt jobs "$program"
ok "preemption: it runs" wait_for 30 running 1
victim=$(job_of 1)
high=$(sbatch --parsable -p high -N2 -n4 -o /dev/null --wrap 'sleep 1')
second=$id id=$first
done_ok "scancel"
is "scancel: one attempt ended, the next succeeds" "$(outcomes)" "preempted ok"
has "scancel: and says why" "$(why 1)" 'CANCELLED'
id=$second
done_ok "preemption"
is "preemption: likewise" "$(outcomes)" "preempted ok"
has "preemption: and says why (job $victim, by $high)" "$(why 1)" 'PREEMPTED'

submit node jobs "$program"
ok "node down: it runs" wait_for 30 running 1
node=$(squeue -h -j "$(job_of 1)" -o %N)
scontrol update nodename="$node" state=down reason=test
done_ok "node down"
is "node down: the next attempt runs on the other" "$(outcomes)" "node_fail ok"
has "node down: and says why" "$(why 1)" 'NODE_FAIL'
scontrol update nodename="$node" state=resume 2>/dev/null # unless it has come back by itself
wait_for 20 nodes_idle

submit cancel steps "$program"
ok "cancel: it runs" wait_for 30 running 1
$C -o answer -H "$A" -H 'Content-Type: application/json' -X POST "$url/v1/campaigns/$id:cancel"
ok "cancel: no step is left" wait_for 20 sh -c "! squeue -h -s -o %j | grep -q $id"
ok "cancel: no process is left" wait_for 20 sh -c "! grep -qsz '^PARTUNE_TRIAL=[^/]*/$id/' /proc/[0-9]*/environ"
submit supervisor steps "$program"
ok "kill -9 of the supervisor: it runs" wait_for 30 running 1
kill -9 "$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "data/campaigns/$id/trials/1/1/run.json")"
done_ok "kill -9 of the supervisor"
is "kill -9 of the supervisor: tried once more" "$(outcomes)" "crash ok"
submit logs jobs '"trainer": "logs", "budget": {"trials": 1}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 5}'
done_ok "a trainer that starts its own ranks"
has "whose log is read" "$(by_state)" '"ok":1'
stop

# ---- mpiexec instead of srun, both ways; a requeue that the administrator allows; a partition that is not there
configure 'launch = mpiexec' 'extra = --requeue'
start
for mode in steps jobs; do
    submit "mpiexec $mode" $mode '"budget": {"trials": 1}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3}'
    done_ok "mpiexec, $mode"
    has "mpiexec, $mode: every trial is ok" "$(by_state)" '"ok":1'
done
submit requeue jobs "$program"
ok "requeue: it runs" wait_for 30 running 1
scontrol requeue "$(job_of 1)"
done_ok "requeue"
is "requeue: the second run of the same job starts nothing" "$(outcomes)" "preempted ok"
stop
configure 'partition = nowhere'
start
submit partition steps "$few"
ok "an unknown partition: the campaign pauses" wait_for 20 over
has "with sbatch's reason" "$(call "/v1/campaigns/$id")" '"reason":"sbatch: [^"]*[Ii]nvalid partition'
stop
# ---- one campaign over two partitions of a node each, each with its section of the configuration
slurm_partition() { scontrol create partitionname="$1" nodes="$2" maxtime=60 state=up; }
slurm_partition fast n1 && slurm_partition cheap n2
node() { # name
    echo '{"name": "'"$1"'", "nodes": 1, "devices_per_node": 2, "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}],
           "device": {"name": "core", "memory_gib": 24, "peak_tflops": {"fp32": 1}, "memory_gbs": 10}}'
}
two() { # mode: a whole campaign over both
    clusters="[$(node "${2:-fast}"), $(node cheap)]"
    echo '{"name": "two", "launcher": {"kind": "slurm", "mode": "'"$1"'"}, "cluster": '"$clusters"', "trainer": "slow",
        "model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3}, "budget": {"trials": 6}, "search": {"parallel": 6}, "workload": {"global_batch": 8}}'
}
put() { $C -H "$A" -H 'Content-Type: application/json' "$url/v1/campaigns" -d "$1" | tee answer; }
both_run() { # on each cluster a trial
    [ "$(sqlite3 data/partune.db "SELECT count(DISTINCT json_extract(layout, '\$.cluster')) FROM trial WHERE campaign = '$id' AND state = 'running'")" = 2 ]
}
# cluster=partition of every attempt's job
places() {
    sqlite3 data/partune.db "SELECT DISTINCT json_extract(t.layout, '\$.cluster'), a.job FROM attempt a JOIN trial t ON t.campaign = a.campaign AND t.n = a.n
        WHERE a.campaign = '$id' AND a.job IS NOT NULL" | while IFS='|' read -r cluster job; do
        echo "$cluster=$(scontrol -o show job "$job" | sed -n 's/.* Partition=\([^ ]*\) .*/\1/p')"
    done | sort -u | tr '\n' ' '
}
configure '[slurm "fast"]' 'partition = fast' 'nodes = 1' '[slurm "cheap"]' 'partition = cheap'
start
for mode in steps jobs; do
    id=$(put "$(two $mode)" | id_of)
    ok "two partitions, $mode: a trial runs in each" wait_for 30 both_run
    stop KILL
    start
    done_ok "two partitions, $mode, after kill -9 of the daemon"
    has "two partitions, $mode: every trial is ok" "$(by_state)" '"ok":6'
    is "two partitions, $mode: each trial in its cluster's" "$(places)" "cheap=cheap fast=fast "
    is "two partitions, $mode: and was adopted, not repeated" "$(sqlite3 data/partune.db "SELECT count(*) FROM attempt WHERE campaign = '$id'")" 6
done
# An allocation on a cluster to which no trial goes any more, found after a restart, while the campaign runs elsewhere; also
# one that Slurm has not started yet.
for job in running pending; do
    id=$(put "$(two steps | sed 's/"budget": {"trials": 6}/"budget": {"trials": 1}/; s/"min_steps": 3, "max_steps": 3/"min_steps": 40, "max_steps": 40/')" | id_of)
    runs_here() { call "/v1/campaigns/$id/trials/1" | grep -q '"state":"running"'; }
    ok "$job: a trial runs on the first cluster" wait_for 30 runs_here
    stop KILL
    name=$(squeue -h -t running -o %j | sed -n "s/^\(partune-.*-$id\)\.1$/\1.2/p")
    left=$(sbatch --parsable $([ $job = running ] || echo --hold) --partition=cheap --ntasks=1 --job-name="$name" --output=/dev/null --chdir=/ --wrap='exec sleep infinity')
    start
    gone() { ! squeue -h -t running,pending -o %A | grep -qx "$left"; }
    ok "$job: an unused allocation on the other is released after the restart" wait_for 20 gone
    is "$job: while the campaign runs" "$(state)" running
    has "$job: as one that was recovered" "$(cat err)" "allocation $left was recovered"
    is "$job: and the trial's own is kept" "$(squeue -h -t running -o %j | grep -c "^partune-.*-$id\.1$")" 1
    done_ok "$job: the trial"
    ok "$job: and its allocation is released, too" wait_for 20 sh -c '[ -z "$(squeue -h -t running,pending -o %A)" ]'
done
put "$(two steps other)" >/dev/null
has "a cluster without a section is refused" "$(cat answer)" '"pointer":"/cluster/0/name"'
has "with what to write" "$(cat answer)" 'no section \[slurm .*other'
put "$(two steps | sed 's/"name": "fast", "nodes": 1/"name": "fast", "nodes": 2/; s/"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}\]/"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}, {"span": 4, "gbs": 1, "latency_us": 20, "kind": "tcp"}]/')" >/dev/null
has "more nodes than its section allows are refused" "$(cat answer)" '"pointer":"/cluster/0/nodes"'
stop
configure '[slurm "fast"]' 'partition = fast' '[slurm "cheap"]' 'partition = fast'
start
put "$(two steps)" >/dev/null
has "two sections of the same nodes are refused" "$(cat answer)" '"pointer":"/cluster/1/name"'
has "with both and the partition" "$(cat answer)" 'slurm ..fast..\] and \[slurm ..cheap..\] .*partition fast'
stop
configure '[slurm "fast"]' 'partition = fast' '[slurm "cheap"]' 'partition = fast' 'extra = --constraint=old'
start
is "of one partition by what they ask of it, they are two" "$($C -o answer -w '%{http_code}' -H "$A" -H 'Content-Type: application/json' "$url/v1/campaigns?dry_run=true" -d "$(two steps)")" 200
stop
if [ -n "${PT_LONG:-}" ]; then
    # Its time is over while the trial is silent; squeue calls it running for a while longer.
    configure
    printf '[partuned]\nhang = 63\n' >>partuned.conf
    start
    submit race steps "$program"
    ok "time limit and hang: it runs" wait_for 30 running 1
    scontrol update jobid="$(job_of 1)" TimeLimit=1
    ok "time limit and hang: the trial ends" wait_for 300 over
    has "time limit and hang: in the next allocation" "$(outcomes)" '^(hang|preempted) (preempted )*ok$'
    stop
    configure
    printf '[partuned]\nhang = 600\n' >>partuned.conf # so that Slurm ends it first
    start
    submit limit jobs "$program"
    ok "time limit: it runs" wait_for 30 running 1
    scontrol update jobid="$(job_of 1)" TimeLimit=1
    ok "time limit: the trial ends" wait_for 200 over
    is "time limit: as a timeout" "$(outcomes)" timeout
    submit allocation steps "$program"
    ok "allocation over: it runs" wait_for 30 running 1
    scontrol update jobid="$(job_of 1)" TimeLimit=1
    ok "allocation over: the trial ends" wait_for 300 over
    is "allocation over: in the next one" "$(outcomes)" "preempted ok"
    ok "allocation over: which is released" wait_for 20 sh -c '[ -z "$(squeue -h -t running,pending -o %A)" ]'
    stop
fi
ok "no job is left" wait_for 20 sh -c '[ -z "$(squeue -h -t running,pending -o %A)" ]'
is "no process is left" "$(grep -lsz '^PARTUNE_TRIAL=' /proc/[0-9]*/environ | while read -r e; do grep -qsz "^SLURM_CONF=$SLURM_CONF" "$e" && echo "$e"; done)" ""
[ "$failed" = 0 ] || sed 's/^/# /' all.err | tail -n 60
finish
