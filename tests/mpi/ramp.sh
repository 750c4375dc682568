#!/bin/sh
# A batch that grows, and steps that are skipped: the same in every layout, and exact over a resume in the middle.
. "${PT_SRC:?}/tests/mpi/folder.sh"
run() { # ranks, options...
    ranks=$1
    shift
    timeout -k 2 120 mpiexec -n "$ranks" "$train" --data-dir "$dir" --quiet "$@" >out 2>&1
}
losses() { # file: "n loss grad_norm" of each step
    sed -n 's/.*"event":"step".*"n":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1"
}
near() { # two files of losses, relative difference: as many steps, losses that near
    [ -s "$1" ] && [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] && awk -v tol="$3" 'NR == FNR { a[$1] = $2; next }
        { d = ($2 - a[$1]) / a[$1]; if (d < 0) d = -d; if (!($1 in a) || !(d <= tol)) bad = 1 } END { exit bad }' "$1" "$2"
}
tokens() { # file: tokens of each step, in a line
    sed -n 's/.*"event":"step".*"tokens":\([0-9]*\),.*/\1/p' "$1" | tr '\n' ' '
}
same() { # two checkpoints: weights and moments, and what trainer.json says but for the moment's sums
    cmp "$1/model.safetensors" "$2/model.safetensors" && cmp "$1/optimizer.safetensors" "$2/optimizer.safetensors" &&
        cmp "$1/trainer.json" "$2/trainer.json"
}
quick="--lr 3e-3 --lr-warmup 2 --lr-decay-steps 12"

# ---- the ramp: 4 to 16 by 4 over 36 samples, shares of 12
ramp="--global-batch 16 --rampup-batch-size 4,4,36 $quick"
# shellcheck disable=SC2086
run 1 --model nano-moe $ramp --steps 9 --events one.ev --metrics one.metrics
# seq is 32
[ "$(tokens one.ev)" = "128 128 128 256 256 384 512 512 512 " ]
ok $? "a step's tokens are those of its batch"
tail -1 one.metrics | grep -q '"tokens":2816}'
ok $? "and are added up"
losses one.ev >one.losses
# A fixed batch of 4, and then of 8, has the same samples: the ramp changes how many, never which.
# shellcheck disable=SC2086
run 1 --model nano-moe --global-batch 4 $quick --steps 3 --events four.ev --checkpoint four &&
    run 1 --model nano-moe --global-batch 8 $quick --steps 5 --events eight.ev --resume-from four/step-00000003 --checkpoint eight &&
    run 1 --model nano-moe --global-batch 12 $quick --steps 6 --events twelve.ev --resume-from eight/step-00000005 --checkpoint twelve &&
    run 1 --model nano-moe --global-batch 16 $quick --steps 9 --events sixteen.ev --resume-from twelve/step-00000006 &&
    { losses four.ev && losses eight.ev && losses twelve.ev && losses sixteen.ev; } | cmp - one.losses
ok $? "it is the run that is resumed by hand with each batch, bit for bit"

i=0
for layout in "1 --micro-batch 2" "1 --micro-batch 4" "2" "2 --micro-batch 2" "2 --tp 2" "2 --cp 2" "2 --ep 2 --zero 1" "2 --zero 2" "2 --zero 3 --overlap-param-gather 1" \
    "2 --pp 2" "2 --pp 2 --schedule gpipe --overlap-p2p 1" "2 --pp 2 --schedule zero-bubble" "2 --pp 2 --micro-batch 4" \
    "4 --pp 2 --ep 2 --zero 1" "4 --pp 2 --tp 2 --overlap-grad-reduce 1" "4 --cp 2 --ep 2 --zero 2"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1
    shift
    rm -f l.ev
    # shellcheck disable=SC2086
    run "$ranks" --model nano-moe "$@" $ramp --steps 9 --events l.ev
    losses l.ev >l.losses
    near one.losses l.losses 1e-4 && [ "$(tokens l.ev)" = "$(tokens one.ev)" ]
    ok $? "the same losses in $layout"
done
cat >four.json <<"END"
{"name":"four","layers":4,"hidden":32,"heads":4,"ffn":48,"vocab":256,"seq":16,"tied":true}
END
# shellcheck disable=SC2086
run 1 --model four.json $ramp --steps 9 --events f.ev && losses f.ev >f.losses
for layout in "2 --pp 2 --vp 2" "2 --pp 2 --vp 2 --micro-batch 2" "2 --pp 2 --vp 2 --overlap-p2p 1" "4 --pp 4" "4 --pp 2 --vp 2 --zero 2 --overlap-p2p 1 --overlap-grad-reduce 1" "4 --pp 4 --schedule zero-bubble"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1
    shift
    case $* in *--vp*) set -- "$@" --schedule interleaved ;; esac
    rm -f l.ev
    # shellcheck disable=SC2086
    run "$ranks" --model four.json "$@" $ramp --steps 9 --events l.ev
    losses l.ev >l.losses
    near f.losses l.losses 1e-4 && [ "$(tokens l.ev)" = "$(tokens one.ev | awk '{ for (i = 1; i <= NF; i++) printf "%d ", $i / 2 }')" ]
    ok $? "a stage of few micro-batches: $layout"
done
# Balancing: pools of a micro-batch, and a bias that the counts of a step move.
cat >pools.json <<"END"
{"name":"pools","layers":4,"hidden":32,"heads":4,"ffn":48,"vocab":256,"seq":16,
 "moe":{"experts":4,"top_k":2,"expert_ffn":24,"aux_loss":"huggingface","aux_loss_coef":0.2,"router":"sigmoid","balance_bias":true}}
END
# shellcheck disable=SC2086
run 1 --model pools.json $ramp --steps 9 --events p.ev && losses p.ev >p.losses &&
    run 2 --model pools.json --pp 2 $ramp --steps 9 --validate-every 4 --validate-samples 5 --events q.ev && losses q.ev >q.losses && near p.losses q.losses 1e-4 &&
    run 2 --model pools.json --ep 2 --zero 3 $ramp --steps 9 --events r.ev && losses r.ev >r.losses && near p.losses r.losses 1e-4
ok $? "pools of micro-batches between stages, with validations of the full batch"

# ---- a resume in the middle of it
# shellcheck disable=SC2086
for layout in "2 --pp 2" "2 --ep 2 --zero 3"; do
    set -- $layout
    ranks=$1
    shift
    rm -rf whole pieces
    run "$ranks" --model nano-moe "$@" $ramp --steps 9 --checkpoint whole --checkpoint-every 1 &&
        for stop in 2 5 6; do
            rm -rf pieces && mkdir pieces && cp -r whole/step-0000000$stop pieces/ &&
                run "$ranks" --model nano-moe "$@" $ramp --steps 9 --checkpoint pieces --resume && same whole/step-00000009 pieces/step-00000009 || break
        done && [ $stop = 6 ] && same whole/step-00000009 pieces/step-00000009
    ok $? "a resume anywhere in the ramp is the uninterrupted run, bit for bit: $layout"
done
grep -q '"samples": 88,' pieces/step-00000009/trainer.json
ok $? "the position is in samples"

# ---- refusals, before MPI starts
# shellcheck disable=SC2086
run 2 --model nano-moe --micro-batch 4 $ramp --steps 9 --events no.ev
[ $? = 65 ] && grep -q "illegal layout: rampup-batch-divides: a batch of 4 in rampup_batch_size 4,4,36 is not a multiple of micro_batch 4 x dp 2" out && ! grep -q '"event":"hello"' no.ev
ok $? "a batch that cannot be divided"
# shellcheck disable=SC2086
run 2 --model four.json --pp 2 --vp 2 --schedule interleaved --micro-batch 4 $ramp --steps 9
[ $? = 65 ] && grep -q "rampup-interleave-microbatches: 1 micro-batches (a batch of 4" out
ok $? "and one of too few micro-batches to interleave"
# shellcheck disable=SC2086
run 2 --model nano-moe --micro-batch 8 $ramp --trial --warmup-steps 0 --min-steps 2 --max-steps 2 --events t.ev && [ "$(tokens t.ev)" = "512 512 " ]
ok $? "a trial has the full batch"

# ---- spikes: text of few words with a stretch of random tokens in the middle
awk 'BEGIN { srand(7); for (i = 0; i < 9000; i++) {
    t = i >= 4300 && i < 4430 ? int(rand() * 256) : 40 + (i * 7 + int(i / 50)) % 11
    printf "\\%03o\\000%s", t, i % 50 == 49 ? "\n" : "" } }' | while IFS= read -r line; do printf "$line"; done >ids
"$PT_BUILD/partune-data" prepare --name garbage --data "$dir" --validation 0 --ids u16 --vocab 256 ids >out 2>&1
ok $? "a data set with garbage in it"
spikes="--data garbage --global-batch 4 --lr 3e-3 --lr-warmup 2 --lr-decay-steps 100 --skip-step-sigma 6 --skip-step-interval 16 --steps 60"
skipped() { # file: numbers of the skipped steps, in a line
    sed -n 's/.*"event":"step".*"n":\([0-9]*\),.*"skipped":true.*/\1/p' "$1" | tr '\n' ' '
}
# shellcheck disable=SC2086
timeout -k 2 120 mpiexec -n 1 "$train" --data-dir "$dir" --model nano-moe $spikes --events s1.ev >out 2>&1
losses s1.ev >s1.losses
want=$(awk -v sigma=6 -v most=16 '{ loss[NR] = $2; norm[NR] = $3 }
    function over(x, at,    i, from, n, mean, sum) {
        from = at > most ? at - most : 1; n = at - from
        for (i = from; i < at; i++) mean += x[i] / n
        for (i = from; i < at; i++) sum += (x[i] - mean) ^ 2
        return x[at] - mean > sigma * sqrt(sum / (n - 1))
    }
    END { for (i = int(most / 2); i <= NR; i++) if (over(loss, i) || over(norm, i)) printf "%d ", i }' s1.losses)
got=$(skipped s1.ev)
[ -n "$want" ] && [ "$got" = "$want" ]
ok $? "the steps that are skipped are those of the rule: $want"
count=$(echo "$got" | wc -w)
grep -q " (skipped)  loss" out && grep -q "^$count of 60 steps were skipped$" out && tail -1 s1.ev | grep -q "\"skipped_steps\":$count,"
ok $? "the log and the summary count them"
# shellcheck disable=SC2086
for layout in "1 --micro-batch 2" "2" "2 --tp 2" "2 --pp 2" "2 --cp 2" "2 --ep 2 --zero 1" "2 --zero 2" "2 --ep 2 --zero 3 --overlap-param-gather 1" "4 --pp 2 --tp 2" "4 --ep 2 --pp 2 --zero 1"; do
    set -- $layout
    ranks=$1
    shift
    rm -f l.ev
    run "$ranks" --model nano-moe "$@" $spikes --events l.ev
    losses l.ev >l.losses
    [ "$(skipped l.ev)" = "$got" ] && near s1.losses l.losses 1e-3
    ok $? "the same steps are skipped in $layout"
done
# shellcheck disable=SC2086
run 1 --model nano-moe $spikes --skip-step-sigma 0 --events s0.ev && ! grep -q '"skipped' s0.ev && losses s0.ev >s0.losses &&
    awk -v first="${got%% *}" 'NR == FNR { a[$1] = $2; next } $1 <= first && a[$1] != $2 { bad = 1 } $1 == first + 1 && a[$1] != $2 { other = 1 } END { exit bad || !other }' s1.losses s0.losses
ok $? "until the first of them the run is the one that skips nothing"

# ---- what a skipped step leaves as it was, and a resume before and after it
for each in "adamw 3e-3" "sgd 0.1" "lamb 3e-2" "muon 1e-2"; do
    optimizer=${each% *}
    rm -rf whole o.ev
    # shellcheck disable=SC2086
    run 2 --model nano-moe --zero 1 --optimizer $optimizer $spikes --lr "${each#* }" --steps 40 --events o.ev --checkpoint whole --checkpoint-every 1 &&
        first=$(skipped o.ev) && first=${first%% *} && [ -n "$first" ] &&
        before=$(printf 'whole/step-%08d' $((first - 1))) && after=$(printf 'whole/step-%08d' "$first") && next=$(printf 'whole/step-%08d' $((first + 1))) &&
        cmp "$before/model.safetensors" "$after/model.safetensors" && cmp "$before/optimizer.safetensors" "$after/optimizer.safetensors" &&
        ! cmp -s "$after/model.safetensors" "$next/model.safetensors"
    ok $? "$optimizer: a skipped step leaves weights and moments as they were"
    for stop in "$before" "$after"; do
        rm -rf pieces && mkdir pieces && cp -r "$stop" pieces/
        # shellcheck disable=SC2086
        run 2 --model nano-moe --zero 1 --optimizer $optimizer $spikes --lr "${each#* }" --steps 40 --checkpoint pieces --resume && same whole/step-00000040 pieces/step-00000040
        ok $? "$optimizer: a resume right before or after it is the uninterrupted run, bit for bit"
    done
done
echo "1..$n"
