#!/bin/sh
# Hugging Face's Trainer, by the package's callback, and Accelerate's loop: trials of a real daemon under torchrun.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
. "$PT_SRC/tests/python/python.sh"
with_torch
find_python 'import transformers, accelerate, torch.distributed' || skip "no python3 here has transformers and accelerate"
find_rendezvous
cd "$run" || exit 99

for loop in trainer accelerate; do
    for how in runs oom nan; do
        printf '[trainer "%s-%s"]\nparser = jsonl\ncommand = %s -m torch.distributed.run -r 2 -t 2 --log_dir {folder} %s' $loop $how "'$python'" "$meet"
        printf " --nproc_per_node {world} '%s/tests/python/transformers_trial.py' %s %s {folder}/out\n" "$PT_SRC" $loop $how
        printf 'env = PYTHONPATH=%s/python\nenv = PYTHONDONTWRITEBYTECODE=1\nenv = GLOO_SOCKET_IFNAME=lo\nenv = HF_HUB_OFFLINE=1\n%s\n' \
            "$PT_SRC" "$meet_env"
    done
done >partuned.conf
start --config partuned.conf --cores 2
client

campaign() { # trainer, trials: $id of a campaign that has ended
    cat >campaign.json <<END
{"name": "$1", "model": {"name": "gpt2", "layers": 2, "hidden": 32, "heads": 2, "ffn": 128, "vocab": 64, "seq": 16, "mlp": "gelu",
 "norm": "layernorm", "positions": "learned"}, "workload": {"global_batch": 8, "precision": "fp32"}, "trainer": "$1",
 "baseline": {"world": 2, "micro_batch": 2}, "space": {"world": [2], "tp": [1], "pp": [1], "cp": [1], "zero": [0],
 "overlap_param_gather": [0], "micro_batch": [2, 4], "recompute": ["none", "full"], "overlap_grad_reduce": [0]},
 "budget": {"trials": $2}, "search": {"method": "grid"},
 "trial": {"warmup_steps": 1, "min_steps": 4, "max_steps": 5, "ci": 0.0001, "timeout_s": 1800}}
END
    "$PT_BUILD/partune" submit campaign.json --json >submitted
    id=$(sed -n 's/.*"id": *"\([a-z0-9]*\)".*/\1/p' submitted | head -n 1)
    "$PT_BUILD/partune" watch "$id" >watched 2>&1
}

for loop in trainer accelerate; do
    campaign $loop-runs 3
    events=$(call "/v1/campaigns/$id/trials/1/log?stream=events")
    has "$loop: the trial says hello for both ranks" "$events" '"event":"hello".*"ranks":2'
    has "$loop: its steps have the tokens of the whole job, and times of both ranks" "$events" '"event":"step".*"tokens":128.*"busy":\[[0-9.]+,[0-9.]+\]'
    has "$loop: it ends at the trial's limits" "$events" '"event":"summary",.*"steps":5,.*"ended":"max_steps"'
    is "$loop: and takes no step more" "$(echo "$events" | grep -c '"event":"step"')" 6
    has "$loop: memory is known" "$(call "/v1/campaigns/$id/trials/1")" '"measured":\{"total":[1-9]'
    is "$loop: every trial has a result, or was stopped because it cannot win" \
        "$(call "/v1/campaigns/$id/trials" | grep -oE '"state":"(ok|pruned)"' | wc -l | tr -d ' ')" 3
    campaign $loop-oom 1
    has "$loop: an allocation that fails on one rank is oom of that rank" "$(call "/v1/campaigns/$id/trials/1")" \
        '"state":"oom".*"detail":"RuntimeError: .*[Mm]emory.*"rank":1'
    campaign $loop-nan 1
    has "$loop: a loss that is no number is numeric" "$(call "/v1/campaigns/$id/trials/1")" '"state":"numeric".*loss'
done
stop
finish
