#!/bin/sh
# docs/examples/slurm-rank: what a task of srun tells torch.distributed of itself.
dir=${PT_BUILD:?}/tests/run/rank.$$
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"
printf '#!/bin/sh\nprintf "n1\\nn2\\n"\n' >"$dir/scontrol"
chmod +x "$dir/scontrol"
task() { # STEP COMMAND...
    step=$1
    shift
    env PATH="$dir:$PATH" SLURM_PROCID=9 SLURM_LOCALID=1 SLURM_NTASKS=16 SLURM_STEP_NODELIST='n[1-2]' SLURM_JOB_ID=4242 \
        SLURM_STEP_ID="$step" sh "${PT_SRC:?}/docs/examples/slurm-rank" "$@"
}
n=0
is() { # name got want
    n=$((n + 1))
    if [ "$2" = "$3" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; echo "#   \`$2\`, not \`$3\`"; fi
}
# shellcheck disable=SC2016
say='echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR"'
echo 1..4
is "ranks are tasks and rendezvous on the first host" "$(task 3 sh -c "$say")" "9 1 16 n1"
# shellcheck disable=SC2016
is "steps of one allocation have different ports" \
    "$(for s in 0 1 2; do task $s sh -c 'echo "$MASTER_PORT"'; done | sort -u | wc -l | tr -d ' ')" 3
is "arguments arrive unchanged" "$(task 0 printf '%s|' 'a b' '*' '')" "a b|*||"
task 0 sh -c 'exit 7'
is "the program's exit code is the task's" $? 7
