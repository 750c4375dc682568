#!/bin/sh
# The job script that is exported around the bundled trainer, by a real Slurm: it trains, it can be started again, and it is
# given the cores that it asks for.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
. "${PT_SRC:?}/tests/launch/cluster.sh"
slurm_begin
export PATH="$PT_BUILD:$PATH"
start
client

cat >campaign.json <<'JSON'
{"name": "exported", "model": "nano-moe", "workload": {"global_batch": 8}, "space": {"world": [2]}, "budget": {"trials": 1},
 "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3},
 "cluster": {"name": "cores", "nodes": 1, "devices_per_node": 2,
             "device": {"name": "core", "kind": "cpu", "memory_gib": 2, "memory_gbs": 10, "peak_tflops": {"fp32": 1}},
             "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}]}}
JSON
partune submit --watch campaign.json >submit.out
ok "a campaign ends" grep -q ': done' submit.out
ok "its winner is exported as a job" partune export last --to slurm+partune --output job.sbatch
# How long to train is for the user to say; all else is run as it was exported.
sed -i 's/partune-train --config/partune-train --steps 3 --config/' job.sbatch
ok "Slurm runs it to completion" sbatch -p low --wait -o job.out job.sbatch
has "it trains" "$(cat job.out)" '^step +3 .* loss '
has "and leaves a checkpoint" "$(cat job.out)" 'checkpoint .*/step-00000003'
sed -i 's/--steps 3/--steps 5/' job.sbatch
ok "a second job" sbatch -p low --wait -o again.out job.sbatch
has "resumes where the first ended" "$(cat again.out)" '^step +3  resumes from .*/step-00000003'
has "and completes" "$(cat again.out)" '^step +5 .* loss '
is "and repeats none of its steps" "$(grep -c '^step *[123] .* loss ' again.out)" 0
finish
