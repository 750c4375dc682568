#!/bin/sh
# Asynchronous checkpoints of real jobs: the bytes of synchronous ones, in several layouts; kills, stops and errors while they are written.
. "${PT_SRC:?}/tests/mpi/folder.sh"
mark="PARTUNE_TRIAL=async-save-$$"
run() { # ranks, options...
    ranks=$1
    shift
    env "$mark" timeout -k 2 120 mpiexec -n "$ranks" "$train" --data-dir "$dir" --quiet --global-batch 4 "$@" >out 2>&1
}
event() { # file, event: how many
    grep -c "\"event\":\"$2\"" "$1" 2>/dev/null
}
saved() { # file: the steps of its checkpoints, in a line
    sed -n 's/.*"event":"checkpoint".*"n":\([0-9]*\),.*/\1/p' "$1" | tr '\n' ' '
}
ranks() { # processes of our ranks
    grep -lzx "$mark" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
        p=${file%/environ}
        [ "$(cat "$p/comm" 2>/dev/null)" = partune-train ] && grep -qz "^PMI_RANK=" "$file" 2>/dev/null && echo "${p#/proc/}"
    done
}
until_true() { # command: waits for it, up to a minute
    i=0
    while [ $i -lt 600 ] && ! eval "$1"; do
        sleep 0.1
        i=$((i + 1))
    done
    [ $i -lt 600 ]
}
same() { # two folders of checkpoints
    rm -f "$1/.lock" "$2/.lock"
    diff -r "$1" "$2" >out 2>&1
}

for layout in "1 --model nano-llama" "2 --model nano-llama --tp 2 --precision bf16" "2 --model nano-llama --pp 2 --optimizer muon" \
    "2 --model nano-llama --zero 3 --overlap-param-gather 1 --overlap-grad-reduce 1" "2 --model nano-moe --ep 2 --zero 1 --precision bf16" \
    "4 --model nano-moe --tp 2 --ep 2 --zero 2 --optimizer sgd"; do
    rm -rf sync async *.ev
    # shellcheck disable=SC2086
    run $layout --steps 7 --checkpoint sync --checkpoint-every 1 --events sync.ev && [ "$(saved sync.ev)" = "1 2 3 4 5 6 7 " ] &&
        run $layout --steps 7 --checkpoint async --checkpoint-every 1 --checkpoint-async --events async.ev &&
        [ "$(saved async.ev)" = "1 2 3 4 5 6 7 " ] && same sync async
    ok $? "the same bytes as a synchronous save after each step: $layout"
    sed -n 's/.*"event":"summary".*"planned":{"total":\([0-9.]*\),.*"snapshot":\([0-9.]*\)},"measured":{"total":\([0-9.]*\),.*"snapshot":\([0-9.]*\)}.*/\1 \2 \3 \4/p' async.ev |
        awk '{ good = $1 == $3 && $2 == $4 && $2 > 0 } END { exit !good }' && ! grep -q snapshot sync.ev
    ok $? "and the copy is planned as it is handed out, and only then: $layout"
done
[ "$(event async.ev warning)" -le 1 ] && [ "$(event async.ev warning)" = "$(grep -c slow-checkpoint async.ev)" ]
ok $? "a wait for an earlier checkpoint is said once"

rm -rf sync async *.ev
quick="--model nano-llama --lr-warmup 2"
# shellcheck disable=SC2086
run 2 $quick --steps 4 --lr-decay-steps 8 --checkpoint sync --events sync.ev &&
    run 2 $quick --steps 8 --checkpoint async --checkpoint-every 4 --checkpoint-async --events async.ev &&
    run 2 $quick --steps 8 --checkpoint sync --resume --checkpoint-every 2 --checkpoint-async --events more.ev &&
    cmp async/step-00000008/optimizer.safetensors sync/step-00000008/optimizer.safetensors &&
    cmp async/step-00000008/model.safetensors sync/step-00000008/model.safetensors && [ "$(saved more.ev)" = "6 8 " ]
ok $? "a resumed run continues, and ends, as the uninterrupted one"

rm -rf keep
run 2 --model nano-llama --steps 9 --checkpoint keep --checkpoint-every 1 --checkpoint-keep 2 --checkpoint-async --events keep.ev &&
    [ "$(ls -A keep | tr '\n' ' ')" = ".lock latest step-00000008 step-00000009 " ]
ok $? "only the newest are kept, and nothing else is left"

# ---- killed
try=0 bad=0
while [ $try -lt 5 ]; do
    try=$((try + 1))
    rm -rf k *.ev
    run 2 --model nano-llama --steps 1000000 --checkpoint k --checkpoint-every 1 --checkpoint-keep 2 --checkpoint-async --events k.ev &
    pid=$!
    until_true "[ \"\$(event k.ev checkpoint)\" -gt $try ] 2>/dev/null"
    for p in $(ranks); do kill -KILL "$p"; done 2>/dev/null
    wait $pid
    newest=$(sed -n 's/.*"event":"checkpoint".*"n":\([0-9]*\),.*/\1/p' k.ev | tail -1)
    run 2 --model nano-llama --steps 1000000 --checkpoint k --resume --trial --max-steps 3 --min-steps 2 --events r.ev &&
        from=$(sed -n 's/.*"event":"resumed".*"n":\([0-9]*\),.*/\1/p' r.ev) && [ "$from" -ge "$newest" ] && [ "$(event r.ev warning)" = 0 ] && continue
    bad=$((bad + 1))
    echo "# try $try: saved $newest, resumed from $from"
done
[ $bad = 0 ]
ok $? "a job that is killed resumes from the newest checkpoint that it has reported, or a newer one"

# ---- stopped
rm -rf s *.ev
run 2 --model nano-llama --steps 1000000 --checkpoint s --checkpoint-every 3 --checkpoint-async --events s.ev &
pid=$!
until_true '[ "$(event s.ev checkpoint)" -gt 0 ] 2>/dev/null'
for p in $(ranks); do kill -TERM "$p"; done
wait $pid
stopped=$(tail -1 s.ev | sed -n 's/.*"event":"stopped".*"n":\([0-9]*\),.*/\1/p')
[ -n "$stopped" ] && [ "$(cat s/latest)" = "$(printf 'step-%08d' "$stopped")" ] && ! ls -A s | grep -q saving && run 2 --model nano-llama \
    --steps $((stopped + 1)) --checkpoint s --resume --events r.ev && grep -q "\"event\":\"resumed\".*\"n\":$stopped," r.ev
ok $? "a stop finishes what is being written, and then the last step's checkpoint"
[ "$(event s.ev checkpoint)" = $(((stopped - 1) / 3 + 1)) ]
ok $? "so that every checkpoint that was due is there"

# ---- failed
rm -rf f moved *.ev
mkdir moved && ln -s moved f && : >none && ln -s none blocked
run 2 --model nano-llama --steps 1000000 --checkpoint f --checkpoint-every 2 --checkpoint-async --events f.ev &
pid=$!
until_true '[ "$(event f.ev checkpoint)" -gt 0 ] 2>/dev/null'
mv -T blocked f # at once: the next checkpoint would make a folder that is gone again
wait $pid
tail -1 f.ev | grep '"event":"error"' | grep '"class":"io"' | grep -q '"detail":"save f/step-'
ok $? "a checkpoint that cannot be written ends the run as a synchronous one does"
rm -f f && mv moved f && run 2 --model nano-llama --steps 1000000 --checkpoint f --resume --trial --max-steps 3 --min-steps 2 --events r.ev &&
    [ "$(event r.ev resumed)" = 1 ] && [ "$(event r.ev warning)" = 0 ]
ok $? "and leaves the ones before it whole"
run 1 --model nano-llama --steps 1 --checkpoint-async
grep -q 'checkpoints need a folder' out
ok $? "without a directory it is refused"
echo "1..$n"
