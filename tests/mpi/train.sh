#!/bin/sh
# partune-train as people run it: data, checkpoints, resume under the same and under another layout, stops, kills, and
# one line for each thing that can be wrong.
. "${PT_SRC:?}/tests/mpi/folder.sh"
# A test that is ended from outside takes its job along: mpiexec hands the signal to the ranks.
pid=
trap '[ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
run() { # ranks, options...
    ranks=$1
    shift
    mpiexec -n "$ranks" "$train" --data-dir "$dir" "$@" >out 2>&1
}
refused() { # name, exit code, class, text, ranks, options...
    name=$1 code=$2 class=$3 text=$4
    shift 4
    rm -f ev
    run "$@" --events ev
    got=$?
    # After MPI has started, mpiexec ends the others, and its own code may win: the event decides (docs/reference/protocol.md).
    { [ $got = "$code" ] || { [ $got != 0 ] && grep -qE 'BAD TERMINATION|MPI_ABORT was invoked' out; }; } && grep -qF -e "$text" out && tail -1 ev | grep -F '"event":"error"' | grep -qF "\"class\":\"$class\""
    status=$?
    [ $status = 0 ] || echo "# exit $got, not $code; $(tail -1 ev 2>/dev/null)"
    ok $status "$name"
}
losses() { # file: "n loss" of each step
    sed -n 's/.*"event":"step".*"n":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1"
}

cat >small.json <<"END"
{"name":"small","layers":1,"hidden":16,"heads":2,"ffn":16,"vocab":100,"seq":16}
END
cat >mixtral.json <<"END"
{"name":"m","layers":1,"hidden":16,"heads":2,"vocab":256,"seq":16,"moe":{"experts":2,"top_k":1,"expert_ffn":16,"shared_ffn":8}}
END


rank_one() { # process of rank 1 of the job that carries our mark
    grep -lszx "PARTUNE_TRIAL=train-sh-$$" /proc/[0-9]*/environ | xargs -r grep -lszxE "(PMI|OMPI_COMM_WORLD)_RANK=1" |
        sed -n 's,^/proc/\([0-9]*\)/environ$,\1,p; 1q'
}

# ---- data and a plain run
i=0
while [ $i -lt 400 ]; do
    echo "line $i of a text that is about nothing but lines, this one and that one"
    i=$((i + 1))
done >text
"$PT_BUILD/partune-data" prepare --name lines --data "$dir" --validation 0.2 text >out 2>&1
ok $? "text becomes a data set"
run 2 --model nano-moe --ep 2 --data lines --steps 8 --lr 3e-3 --lr-warmup 2 --checkpoint a --checkpoint-every 4 --events a.ev \
    --validate-every 4 --validate-samples 8 --metrics a.metrics --prometheus a.prom --save-hf a.hf
ok $? "a model with experts trains on it"
losses a.ev >a.losses
awk 'NR == 1 { first = $2 } END { exit !($2 < first - 0.1) }' a.losses
ok $? "its loss falls"
head -1 a.ev | grep -q '"hosts":\["[^",]*"\],"device":"cpu","binding":\["[0-9][-0-9,]*","[0-9][-0-9,]*"\]'
ok $? "hello names the host and every rank's CPUs"
[ "$(grep -c '"event":"validation"' a.ev)" = 2 ]
ok $? "validation is reported"
[ "$(wc -l <a.metrics)" = 8 ] && grep -q '^partune_train_step{model="nano-moe"} 8$' a.prom
ok $? "metrics and the Prometheus file are written"
[ -f a/step-00000004/model.safetensors ] && [ -f a/step-00000008/model.safetensors ] && [ "$(cat a/latest)" = step-00000008 ]
ok $? "checkpoints are on schedule"

# ---- resume
mkdir b && cp -r a/step-00000004 b/
run 2 --model nano-moe --ep 2 --data lines --steps 8 --lr 3e-3 --lr-warmup 2 --checkpoint b --resume --events b.ev &&
    grep -q '"event":"resumed".*step-00000004' b.ev
ok $? "a run resumes"
cmp a/step-00000008/model.safetensors b/step-00000008/model.safetensors &&
    cmp a/step-00000008/optimizer.safetensors b/step-00000008/optimizer.safetensors
ok $? "bit for bit under the same layout"
for layout in "1" "2 --tp 2" "2 --cp 2" "2 --zero 1" "2 --pp 2" "4 --tp 2 --ep 2 --zero 1" "4 --cp 2 --ep 2 --zero 1"; do
    # shellcheck disable=SC2086
    set -- $layout
    rm -rf c c.ev && mkdir c && cp -r a/step-00000004 c/
    ranks=$1
    shift
    run "$ranks" --model nano-moe "$@" --data lines --steps 8 --lr 3e-3 --lr-warmup 2 --checkpoint c --resume --events c.ev
    losses c.ev >c.losses
    near a.losses c.losses 1e-4
    ok $? "with the same losses under another layout: $layout"
done
run 1 --model nano-moe --data lines --steps 8 --checkpoint c --resume --events d.ev && grep -q '"event":"summary"' d.ev
ok $? "a finished run ends at once"
run 1 --model nano-moe --steps 5 --seed 5 --resume-from a/step-00000004 --events o.ev &&
    grep '"what":"other-data"' o.ev | grep -q "trained on lines" && grep '"what":"other-seed"' o.ev | grep -q "seed 1;"
ok $? "a resume on other data, or in another order, is reported"
"$PT_BUILD/partune-data" prepare --name whole --data "$dir" --validation 0 text >out 2>&1 &&
    run 1 --model nano-llama --data whole --steps 1 --validate-every 1 --events w.ev && grep -q '"what":"validation"' w.ev
ok $? "and so is a validation without data"
rm -rf c && run 1 --model nano-moe --data lines --steps 2 --checkpoint c --checkpoint-every 1 --checkpoint-keep 1 --resume &&
    [ "$(ls -d c/step-* | wc -l)" = 1 ]
ok $? "a resume without a checkpoint starts afresh; old ones are not kept"

# ---- validation: each sample once, whatever the batch and the layout
validated() { # expected tokens, ranks, options...: the loss
    want=$1 ranks=$2
    shift 2
    rm -f v.ev
    run "$ranks" --model nano-llama --data lines --steps 1 --lr 0 --min-lr 0 --validate-every 1 --events v.ev "$@" &&
        sed -n "s/.*\"event\":\"validation\".*\"loss\":\([^,]*\),\"tokens\":$want[,}].*/\1/p" v.ev
}
seq=$("$train" --model nano-llama --dump-config | sed -n 's/^ *"seq": \([0-9]*\),*$/\1/p' | head -1)
have=$((($(wc -c <datasets/lines/validation.bin) - 1) / seq))
for each in "$have 100000" "5 5"; do
    count=${each% *}
    asked=${each#* }
    for layout in "1 --global-batch $count" "1 --global-batch 1" "1 --global-batch 16" "2 --global-batch 6 --dp 2 --micro-batch 3" \
        "2 --global-batch 6 --tp 2 --micro-batch 2" "2 --global-batch 4 --pp 2"; do
        # shellcheck disable=SC2086
        echo "1 $(validated $((count * seq)) $layout --validate-samples "$asked")"
    done >v.losses
    [ "$(wc -l <v.losses)" = 6 ] && head -1 v.losses >v.first && [ "$(wc -w <v.losses)" = 12 ] &&
        awk -v want="$(cut -d' ' -f2 v.first)" '{ d = $2 / want - 1; if (!(d < 1e-6 && d > -1e-6)) bad = 1 } END { exit bad }' v.losses
    ok $? "validation on $count of $asked samples is the same in every layout"
    grep '"what":"validation"' v.ev | grep -q "only $have samples of $seq tokens, --validate-samples is $asked"
    [ $? = $((count == asked)) ]
    ok $? "and warns when there are fewer"
done

# ---- the learning rate's horizon
rates() { # file: "n rate" of each step
    sed -n 's/.*"event":"step".*"n":\([0-9]*\),.*"lr":\([^,]*\),.*/\1 \2/p' "$1"
}
nano() { # events, options...
    ev=$1
    shift
    run 1 --model nano-llama --global-batch 2 --lr 2e-3 --min-lr 2e-4 --lr-warmup 2 --events "$ev" "$@"
}
nano h.ev --steps 6 --checkpoint h && nano i.ev --steps 12 --checkpoint h --resume &&
    rates i.ev | awk '{ if ($2 > 2.001e-4) bad = 1; n++ } END { exit bad || n != 6 }' &&
    grep '"what":"other-horizon"' i.ev | grep -q 'with --lr-decay-steps 6, and --steps is 12'
ok $? "a prolonged run keeps its horizon, and warns"
nano j.ev --steps 12 --lr-decay-steps 14 --resume-from h/step-00000006 &&
    grep '"what":"other-horizon"' j.ev | grep -q 'with --lr-decay-steps 6, this run has 14: step 7 has the learning rate 0.00133.* instead of 0.0002'
ok $? "another horizon is reported, with both"
nano k.ev --steps 12 && nano l.ev --steps 6 --lr-decay-steps 12 --checkpoint l && nano m.ev --steps 12 --checkpoint l --resume &&
    rates k.ev >k.rates && { rates l.ev && rates m.ev; } | cmp - k.rates && ! grep -q other-horizon m.ev
ok $? "a run in pieces has the learning rates of a whole one"
wsd="--lr-decay-style wsd --lr-wsd-decay-style linear --lr-wsd-decay-steps 4"
nano wsd1.ev --steps 12 $wsd && nano wsd2.ev --steps 6 --lr-decay-steps 12 $wsd --checkpoint wsd &&
    nano wsd3.ev --steps 12 --checkpoint wsd --resume && rates wsd1.ev >wsd.rates &&
    { rates wsd2.ev && rates wsd3.ev; } | cmp - wsd.rates && ! grep -q other-horizon wsd3.ev &&
    awk '$1 >= 2 && $1 <= 8 && $2 != 0.002 { exit 1 } $1 == 10 && ($2 < 0.00109 || $2 > 0.00111) { exit 1 }' wsd.rates
ok $? "warm-up, stable, decay: a resumed run keeps the style of its checkpoint"
nano wsd4.ev --steps 12 --lr-decay-style constant --resume-from wsd/step-00000006 && rates wsd4.ev | awk '$2 != 0.002 { exit 1 }' &&
    nano wsd5.ev --steps 12 --lr-decay-style linear --resume-from wsd/step-00000006 &&
    grep '"what":"other-horizon"' wsd5.ev | grep -q 'with --lr-decay-style wsd (linear over 4 steps), this run has linear: step 7 has the learning rate 0.0011 instead of 0.002'
ok $? "another style is reported, with both"

# ---- optimizers: state in checkpoints
opt() { # optimizer, ranks, events, options...
    word=$1 ranks=$2 ev=$3
    shift 3
    run "$ranks" --model nano-moe --optimizer "$word" --global-batch 4 --lr 3e-3 --lr-warmup 1 --lr-decay-steps 4 --events "$ev" "$@"
}
for word in sgd lamb muon; do
    opt $word 2 $word.ev --steps 4 --ep 2 --zero 1 && losses $word.ev >$word.whole &&
        opt $word 2 $word.1.ev --steps 2 --ep 2 --zero 1 --checkpoint $word &&
        opt $word 2 $word.2.ev --steps 4 --ep 2 --zero 1 --resume-from $word/step-00000002 &&
        losses $word.2.ev >$word.rest && tail -2 $word.whole | cmp - $word.rest
    ok $? "$word: a resumed run is the uninterrupted one, bit for bit"
    opt $word 1 $word.3.ev --steps 4 --resume-from $word/step-00000002 && losses $word.3.ev >$word.other && near $word.whole $word.other 1e-5
    ok $? "$word: state is read in another layout"
done
refused "a checkpoint of another optimizer is refused" 68 data "trained with the optimizer muon, this run has sgd: resume with --optimizer muon" 1 --model nano-moe --optimizer sgd --resume-from muon/step-00000002 --steps 4

# ---- gradients in bf16
half() { # ranks, events, options...
    ranks=$1 ev=$2
    shift 2
    run "$ranks" --model nano-moe --precision bf16 --grad-dtype bf16 --global-batch 8 --lr 3e-3 --lr-warmup 1 --lr-decay-steps 4 --events "$ev" "$@"
}
for options in "--zero 0 --overlap-grad-reduce 1" "--zero 3 --overlap-grad-reduce 1 --overlap-param-gather 1" "--dp 1 --pp 2 --schedule zero-bubble"; do
    rm -rf half half2
    # shellcheck disable=SC2086
    half 2 half.ev $options --steps 4 --checkpoint half --checkpoint-every 2 &&
        half 2 half2.ev $options --steps 4 --resume-from half/step-00000002 --checkpoint half2 &&
        cmp half/step-00000004/model.safetensors half2/step-00000004/model.safetensors &&
        cmp half/step-00000004/optimizer.safetensors half2/step-00000004/optimizer.safetensors
    ok $? "gradients in bf16: a run resumes bit for bit: $options"
done
refused "and are AdamW's alone" 65 illegal "does not support grad_dtype bf16 with optimizer sgd: only adamw" 1 --model nano-moe --precision bf16 --grad-dtype bf16 --optimizer sgd --steps 1

# ---- z-losses
zloss() { # ranks, options...: a model with experts and both
    ranks=$1
    shift
    run "$ranks" --model nano-moe --data lines --lr 3e-3 --lr-warmup 2 --lr-decay-steps 8 --z-loss-coef 0.01 --moe-z-loss-coef 0.02 "$@"
}
zlosses() { # file: "n z_loss" of each step, and "n moe_z_loss"
    sed -n 's/.*"event":"step".*"n":\([0-9]*\),.*"'"$2"'":\([^,]*\),.*/\1 \2/p' "$1"
}
zloss 2 --ep 2 --steps 6 --checkpoint z --checkpoint-every 3 --events z.ev --metrics z.metrics
zlosses z.ev z_loss >z.output && zlosses z.ev moe_z_loss >z.routers && [ "$(wc -l <z.output)" = 6 ] && [ "$(wc -l <z.routers)" = 6 ] &&
    [ "$(grep -c '"z_loss":[0-9.]*,"moe_z_loss":[0-9.]*,' z.metrics)" = 6 ] && ! grep -q z_loss a.ev a.metrics
ok $? "z-losses are in events and metrics where they are on"
losses z.ev >z.losses && [ "$(head -1 z.losses)" = "$(head -1 a.losses)" ] && [ "$(tail -1 z.losses)" != "$(sed -n 6p a.losses)" ]
ok $? "and not in the loss"
zloss 2 --ep 2 --steps 6 --resume-from z/step-00000003 --checkpoint z2 --events z2.ev &&
    cmp z/step-00000006/model.safetensors z2/step-00000006/model.safetensors &&
    cmp z/step-00000006/optimizer.safetensors z2/step-00000006/optimizer.safetensors
ok $? "a run with z-losses resumes bit for bit"
zloss 4 --tp 2 --pp 2 --steps 6 --resume-from z/step-00000003 --events z3.ev && zlosses z3.ev z_loss >z3.output && near z.output z3.output 1e-4 &&
    zlosses z3.ev moe_z_loss >z3.routers && near z.routers z3.routers 1e-4
ok $? "and with the same z-losses under another layout"
refused "a checkpoint of another z-loss of routers is refused" 68 data "moe.z_loss_coef" 1 --model nano-moe --resume-from z/step-00000003 --steps 6

# ---- Hugging Face folders
run 2 --init a.hf --tp 2 --data lines --steps 1 --events e.ev --seq 32 && losses e.ev >e.losses &&
    run 1 --model nano-moe --resume-from a/step-00000008 --data lines --steps 9 --events f.ev
e=$(losses e.ev | cut -d' ' -f2)
f=$(losses f.ev | head -1 | cut -d' ' -f2)
awk -v e="$e" -v f="$f" 'BEGIN { d = e / f - 1; exit !(d < 0.05 && d > -0.05 && e < 5) }'
ok $? "--init reads what --save-hf wrote, without --model"

run 1 --init a.hf --precision bf16 --data lines --seq 32 --steps 1 --lr 0 --min-lr 0 --save-hf same.hf/ &&
    cmp a.hf/model.safetensors same.hf/model.safetensors
ok $? "in bf16 the masters are the directory's weights, not rounded"

run 2 --model nano-moe --pp 2 --trial --min-steps 2 --max-steps 3 --timeline t.json --events t.ev && tail -1 t.ev | grep -q '"ended":"\(max_steps\|ci\)"'
ok $? "a trial ends by itself"
awk -F'[:,}]' '/"ph":"X"/ { for (i = 1; i <= NF; i++) { if ($i == "\"ts\"") ts = $(i + 1); if ($i == "\"dur\"") dur = $(i + 1); if ($i == "\"tid\"") tid = $(i + 1) }
    if (ts < end[tid] - 0.002) bad = 1; end[tid] = ts + dur; n[tid]++; if (/"forward"/) f[tid]++ }
    END { exit bad || !f[0] || !f[1] || n[0] < 5 }' t.json && [ "$(tail -1 t.json)" = "]}" ]
ok $? "a timeline has every rank's phases, one after the other"

# ---- stops and kills
mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --steps 100000 --quiet --checkpoint g --events g.ev >out 2>&1 &
pid=$!
i=0
while [ $i -lt 300 ] && ! grep -q '"n":3,' g.ev 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
kill -TERM $pid
wait $pid
code=$?
# Hydra that gets the signal itself reports 75 or, at times, 0, Open MPI 1: the event decides.
{ [ $code = 75 ] || [ $code -le 1 ]; } && tail -1 g.ev | grep -q '"event":"stopped"'
ok $? "SIGTERM stops it"
step=$(sed -n 's/.*"event":"stopped".*"n":\([0-9]*\),.*/\1/p' g.ev)
[ -n "$step" ] && [ -f "g/$(cat g/latest)/trainer.json" ] && [ "$(cat g/latest)" = "$(printf 'step-%08d' "$step")" ]
ok $? "after a checkpoint of that step"
rm -rf g g.ev
PARTUNE_TRIAL="train-sh-$$" mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --steps 1000000 --quiet --checkpoint g \
    --checkpoint-every 2 --checkpoint-keep 2 --events g.ev >out 2>&1 &
pid=$!
i=0
while [ $i -lt 300 ] && ! grep -q '"n":7,' g.ev 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
rank=$(rank_one)
[ -n "$rank" ] && kill -KILL "$rank"
i=0
while [ $i -lt 200 ] && kill -0 $pid 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
! kill -0 $pid 2>/dev/null
ok $? "a killed rank ends the job"
wait $pid
[ $? != 0 ]
ok $? "with an error code"
run 2 --model nano-llama --steps 20000 --quiet --checkpoint g --resume --trial --max-steps 3 --min-steps 2
ok $? "and the checkpoint before it is whole"

rm -f s.ev
PARTUNE_TRIAL="train-sh-$$" mpiexec -n 2 "$train" --data-dir "$dir" --model tiny-llama --global-batch 16 --steps 1000000 --quiet \
    --events s.ev >out 2>&1 &
pid=$!
i=0
while [ $i -lt 300 ] && ! grep -q '"n":3,' s.ev 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
rank=$(rank_one)
i=0
while [ -n "$rank" ] && [ $i -lt 300 ] && ! grep -q '"what":"straggler"' s.ev; do
    kill -STOP "$rank"
    sleep 0.15
    kill -CONT "$rank"
    sleep 0.05
    i=$((i + 1))
done
kill -TERM $pid
wait $pid
grep '"what":"straggler"' s.ev | grep -q "rank 1 was busy"
ok $? "a slowed rank is named as straggler"

# ---- what is wrong
refused "an illegal layout" 65 illegal "heads-tp" 3 --model nano-llama --tp 3 --steps 1
refused "too little memory" 66 oom "oom" 1 --model nano-llama --steps 1 --device-memory 1M
refused "numbers that overflow" 67 numeric "loss" 1 --model nano-llama --steps 60 --lr 900 --min-lr 900 --clip 0 --lr-warmup 0 --weight-decay 900
refused "a missing data set" 68 data "nothing" 1 --model nano-llama --data nothing --steps 1
refused "a vocabulary that is too small" 68 data "vocabulary" 1 --model small.json --data lines --steps 1
printf 'X' | dd of=a/step-00000008/model.safetensors bs=1 seek=300000 conv=notrunc 2>/dev/null
rm -f ev
run 4 --model nano-llama --data nothing --steps 1 --events ev
[ "$(grep -c '"event":"error"' ev)" = 1 ] && [ "$(grep -c '^partune-train: rank' out)" = 1 ]
ok $? "what all ranks miss is reported once"
refused "a damaged checkpoint, by tensor" 68 data "tensor model.layers." 2 --model nano-moe --ep 2 --data lines --steps 9 --resume-from a/step-00000008
refused "a checkpoint of another model" 68 data "where this run's has" 1 --model nano-llama --resume-from a/step-00000004 --steps 9
printf '%0100d' 0 >>a/step-00000004/checksums.bin
refused "a checkpoint with truncated sums" 68 data "checksums.bin is larger" 2 --model nano-moe --ep 2 --data lines --steps 9 --resume-from a/step-00000004
printf 'X' | dd of=datasets/lines/train.bin bs=1 seek=100 conv=notrunc 2>/dev/null
refused "a damaged data set, by offset" 68 data "offset 0" 1 --model nano-llama --data lines --steps 9
refused "a checkpoint directory that is a file" 70 io "text" 1 --model nano-llama --steps 1 --checkpoint text
refused "a weights directory with other files" 70 io "is not a model" 1 --model nano-llama --steps 1 --save-hf datasets
! grep -q '"event":"step"' ev
ok $? "found before the training"
# Not even for root, who may write wherever there are permissions only.
refused "a weights directory that cannot be created" 70 io "write to folder /proc: " 1 --model nano-llama --steps 1 --save-hf /proc/weights
! grep -q '"event":"step"' ev
ok $? "also found before it"
run 1 --model nano-llama --steps 1 --events nowhere/ev
[ $? = 70 ] && grep -q "nowhere/ev" out
ok $? "an event file that cannot be created"
run 1 --model mixtral.json --save-hf x --steps 1
[ $? = 2 ] && grep -q "shared_ffn" out
ok $? "a model without a Hugging Face class, before it is trained"
echo "1..$n"
