#!/bin/sh
# A campaign over the PyTorch script of the documents: trials under torchrun, a winner that is verified, failures by name.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
. "$PT_SRC/tests/python/python.sh"
with_torch
find_rendezvous
cd "$run" || exit 99
examples=$PT_SRC/docs/examples/pytorch

# The example's section with its paths. Options -r and -t only because torch 1.13 fails without them under Python 3.11.
trainer() { # name, script
    sed -n "s|^command = torchrun|command = '$python' -m torch.distributed.run -r 2 -t 2 --log_dir {folder}|; s|--rdzv.*localhost:0|$meet|; s|/opt/train/train.py|'$2'|
        s|\"pytorch\"|\"$1\"|; p" "$examples/partuned.conf"
    printf 'env = PYTHONPATH=%s/python\nenv = PYTHONDONTWRITEBYTECODE=1\nenv = GLOO_SOCKET_IFNAME=lo\n%s\n' "$PT_SRC" "$meet_env"
}
cat >fails.py <<'END'
import torch, partune
with partune.trial() as trial:
    torch.distributed.init_process_group("gloo")
    while True:
        with trial.step() as step:
            if trial.rank == 1 and trial.n == 2:
                torch.empty(1 << 60)
            step.loss = float("nan") if trial.workload.global_batch == 2 and trial.n == 3 else 1.0
END
mkdir "a folder" && cp "$examples/train.py" "a folder/"
trainer pytorch "$run/a folder/train.py" >partuned.conf
trainer fails "$run/fails.py" | grep -v '^#' >>partuned.conf

start --config partuned.conf --cores 2
PARTUNE_SERVER=$url PARTUNE_DATA=$run/data
export PARTUNE_SERVER PARTUNE_DATA
partune() { "$PT_BUILD/partune" "$@"; }
call() { $C -H "$A" "$PARTUNE_SERVER/v1/campaigns/$id$1"; }

# The example, with three layouts and few steps.
sed -e 's/"micro_batch": \[1, 2, 4, 8\]/"micro_batch": [1, 2, 8]/; s/"recompute": \["none", "full"\]/"recompute": ["none"]/' \
    -e 's/"overlap_grad_reduce": \[0, 1\]/"overlap_grad_reduce": [0]/; s/"layers": 4, "hidden": 128/"layers": 2, "hidden": 64/' \
    -e 's/"trials": 10/"trials": 3/; s/"min_steps": 8, "max_steps": 30/"min_steps": 4, "max_steps": 6/' \
    -e 's/"timeout_s": 120/"timeout_s": 600/' "$examples/campaign.json" >campaign.json
ok "the example is accepted as it is" partune submit --dry-run "$examples/campaign.json"
ok "the campaign starts" partune submit campaign.json --json
id=$(sed -n 's/.*"id": *"\([a-z0-9]*\)".*/\1/p' ok.log | head -n 1)
ok "and ends" partune watch "$id"
trials=$(call /trials)
is "every trial has a result, or was stopped because it cannot win" "$(echo "$trials" | grep -oE '"state":"(ok|pruned)"' | wc -l | tr -d ' ')" 3
events=$(call '/trials/1/log?stream=events')
has "the script speaks for itself" "$events" '"program":"train.py"'
has "it ended itself, by the trial's limits" "$events" '"event":"summary".*"ended":"(max_steps|ci)"'
is "with no steps beyond them" "$([ "$(echo "$events" | grep -c '"event":"step"')" -le 8 ] && echo yes)" yes
has "steps say how far the ranks are apart" "$events" '"ranks":\{"min":[0-9.]+,.*"busy":\[[0-9.]+,[0-9.]+\]'
has "memory is known" "$(call /trials/1)" '"measured":\{"total":[1-9]'
has "there is a winner with its ratio" "$(call '')" '"best":\{"trial":[0-9]+,.*"ratio":[0-9.]+'
partune verify "$id" --wait --pairs 2 --steps 6 >verify.log 2>&1
has "it is measured against the baseline again" "$(call '')" '"verify":\{"state":"done".*("ratio":[0-9.]+,.*"verdict":"(holds|within noise|does not hold)"|"ratio":null,.*"verdict":"same")'
sed 's/^/# /' verify.log | tail -n 5

# The example of tp and FSDP2: all of its layouts but a few values, each trained.
ok "the sharded example is accepted as it is" partune submit --dry-run "$examples/campaign-sharded.json"
if "$python" -c 'import torch; from torch.distributed.fsdp import fully_shard' 2>/dev/null; then
    sed -e 's/"micro_batch": \[1, 2, 4, 8\]/"micro_batch": [2, 8]/; s/"overlap_grad_reduce": \[0, 1\]/"overlap_grad_reduce": [1]/' \
        -e 's/"layers": 4, "hidden": 128/"layers": 2, "hidden": 64/; s/"min_steps": 8, "max_steps": 30/"min_steps": 4, "max_steps": 6/' \
        -e 's/"micro_batch": 1}/"micro_batch": 2}/; s/"timeout_s": 120/"timeout_s": 600/; s/"budget"/"search": {"method": "grid"}, "budget"/' \
        "$examples/campaign-sharded.json" >sharded.json
    ok "a campaign over tp, zero, micro-batch and recomputation starts" partune submit sharded.json --json
    id=$(sed -n 's/.*"id": *"\([a-z0-9]*\)".*/\1/p' ok.log | head -n 1)
    ok "and ends" partune watch "$id"
    PYTHONPATH=$PT_SRC/python "$python" -c 'import partune, sys
for row in partune.Client().campaign(sys.argv[1]).results():
    print(row["state"], *(row[key] for key in ("tp", "zero", "micro_batch", "recompute")))' "$id" | sort >rows
    sed 's/^/# /' rows
    is "every layout was tried" "$(sed 's/^[a-z]* //' rows | sort -u)" "$(
        for how in '1 0' '1 3' '2 0'; do for micro in 2 8; do echo "$how $micro full"; echo "$how $micro none"; done; done)"
    cannot=nothing # FSDP2 of torch 2.6 does not run on CPUs
    "$python" -c 'import sys, torch; sys.exit(hasattr(torch.cpu.Stream, "record_event"))' && cannot='illegal 1 3'
    is "and trained, or stopped because it cannot win" "$(grep -vE "^(ok|pruned|$cannot) " rows)" ""
    partune verify "$id" --wait --pairs 2 --steps 6 >verify.log 2>&1
    has "its winner is measured against the baseline again" "$(call '')" '"verify":\{"state":"done".*("ratio":[0-9.]+,.*"verdict":"(holds|within noise|does not hold)"|"ratio":null,.*"verdict":"same")'
    sed 's/^/# /' verify.log | tail -n 5
fi

first() { # global_batch: trial 1 of a script that fails
    sed -e 's/"trainer": "pytorch"/"trainer": "fails"/; s/"trials": 3/"trials": 1/' -e "s/\"global_batch\": 16/\"global_batch\": $1/" campaign.json >one.json
    partune submit one.json --json >one.out 2>&1
    id=$(sed -n 's/.*"id": *"\([a-z0-9]*\)".*/\1/p' one.out | head -n 1)
    partune watch "$id" >/dev/null 2>&1
    call /trials/1
}
t=$(first 16)
has "an allocation that fails on another rank is oom" "$t" '"state":"oom"'
has "of that rank, with its words" "$t" '"detail":"RuntimeError: .*[Mm]emory.*"rank":1'
has "a loss that is no number is numeric" "$(sed -i 's/trial.rank == 1/False/' fails.py; first 2)" '"state":"numeric".*loss is nan in step 4'
stop
finish
