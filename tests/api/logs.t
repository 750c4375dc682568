#!/bin/sh
# Trials of other trainers through a real daemon: a program that prints what they print, on both streams, as several ranks.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
# Steps of 512 tokens at 5,120 tokens/s a device, whatever they take here. What else happens is the first word.
cat >program <<'END'
#!/bin/sh
titan() { # rank, step, loss, words before "step:"
    printf '[rank%s]:[titan] 2026-03-04 11:12:13,345 - root - INFO - \033[31m%sstep: %2d  \033[32mloss: %8s  \033[36mmemory:  1.50GiB(9.10%%)  \033[34mtps: 5,120  \033[35mmfu: 12.00%%\033[39m\n' "$1" "$4" "$2" "$3"
}
echo 'UserWarning: buffers are pooled to avoid running out of memory' >&2
i=0
while [ $i -lt 400 ]; do
    i=$((i + 1))
    sleep 0.03
    loss=8.25000
    case $1.$i in
        oom.2)
            echo '[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.1 GiB' >&2
            exit 1 ;;
        silent.2)
            echo 'RuntimeError: Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)' >&2
            exec sleep 600 ;;
        lost.2)
            mkdir "${0%/*}/lost" 2>/dev/null && { # the second attempt has another GPU
                echo 'torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered' >&2
                exit 1
            } ;;
        crash.2) echo 'AssertionError: the data set has no such split' >&2; exit 1 ;;
        nan.2) loss=nan ;;
    esac
    for rank in 2 0 1; do titan $rank $i $loss; done
    [ $((i % 3)) != 0 ] || for rank in 0 1 2; do titan $rank $i 9.0000 'validate ' | sed 's/5,120/51,200/'; done
done
END
chmod +x program
for word in fine oom lost silent crash nan; do
    printf '[trainer "%s"]\nparser = torchtitan\nlog = stderr\ncommand = \\"%s/program\\" %s\n' $word "$run" $word
done >partuned.conf
# A program with events of its own: twelve steps, more than a trial has. The first word is a key of its `hello`.
cat >own <<'END'
#!/bin/sh
[ "$2 $3" = "$PARTUNE_TRIAL_CONFIG $PARTUNE_TRIAL_EVENTS" ] && [ -n "$PARTUNE_TRIAL_DATA" ] || exit 2
echo "$TRACEPARENT" >"${0%/*}/traceparent"
trap 'exit 75' TERM
say() { printf '{"v":1,"event":%s}\n' "$1" >>"$3"; }
say "\"hello\",\"$1\":true" "" "$3"
grep -q '"trial":{"warmup_steps":1,"min_steps":4,"max_steps":4,' "$2" || exit 2
i=0
while [ $i -lt 12 ]; do
    i=$((i + 1))
    sleep 0.2
    say "\"step\",\"n\":$i,\"ms\":100,\"tokens\":512,\"warmup\":$([ $i = 1 ] && echo true || echo false)" "" "$3"
done
say '"summary","steps":11,"tokens_per_s":7777,"tokens_per_s_se":1' "" "$3"
[ "$4" != stays ] || exec sleep 600
END
chmod +x own
printf '[trainer "stays"]\nparser = jsonl\ncommand = \"%s/own\" ends_itself {config} {events} stays\n' "$run" >>partuned.conf
for word in ends_itself other; do
    printf '[trainer "%s"]\nparser = jsonl\ncommand = \"%s/own\" %s {config} {events}\n' $word "$run" $word
done >>partuned.conf
start --config partuned.conf --hang 2
submit() { # trainer, curl's arguments
    word=$1
    shift
    id=$(call /v1/campaigns "$@" -d '{"name": "'"$word"'", "trainer": "'"$word"'",
        "model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "workload": {"global_batch": 8}, "space": {"world": [1]}, "budget": {"trials": 1},
        "trial": {"warmup_steps": 1, "min_steps": 4, "max_steps": 4}}' | tee answer | id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
}
over() { call "/v1/campaigns/$id" | grep -qE '"state":"(done|paused|failed)","reason"'; }
trial() { # trainer, curl's arguments: its first trial when the campaign has ended
    submit "$@"
    wait_for 60 over
    call "/v1/campaigns/$id/trials/1"
}

t=$(trial fine)
has "a trainer that logs to stdout is read, whatever its section says" "$t" '"state":"ok"'
has "a step counts once, though each rank prints it; validation does not" "$t" '"tokens_per_s":5120\.0'
is "each step is stored once" "$(call "/v1/campaigns/$id/trials/1/steps" | grep -o '"n":[0-9]*' | sort | uniq -d | wc -l)" 0
has "memory in use is read" "$t" '"measured":\{"total":1610612736'
t=$(trial oom)
has "an exception on the other stream is the cause" "$t" '"state":"oom"'
has "with its text" "$t" 'Tried to allocate 2.00 GiB'
has "after a GPU was lost the trial is tried again" "$(trial lost)" '"state":"ok"'
has "and the loss says nothing about the layout" "$(grep ": trial 1 attempt 1 " err)" ' node_fail, to be retried: .*uncorrectable ECC error'
t=$(trial silent)
has "also when the other ranks wait forever" "$t" '"state":"oom".*OUT_OF_DEVICE_MEMORY'
has "a warning about memory is not a cause" "$(trial crash)" '"state":"crash"'
t=$(trial nan)
has "a loss that is not a number is numeric" "$t" '"state":"numeric"'
has "and ends the trial" "$t" 'loss: *nan'
has "a program with events is stopped when the trial's limits are reached" "$(trial other)" '"state":"ok".*"tokens_per_s":5120\.0'
has "one that does not end after its summary is ended, and its result counts" "$(trial stays)" '"state":"ok".*"tokens_per_s":7777'
has "one that says that it ends itself is not" "$(trial ends_itself)" '"state":"ok".*"tokens_per_s":7777'

# ---- trace ids
trace=0af7651916cd43dd8448eb211c80319c
submit other -H "traceparent: 00-$trace-b7ad6b7169203331-00"
wait_for 60 over
has "a campaign's trace is that of the request" "$(call "/v1/campaigns/$id")" '"trace_id":"'$trace'"'
lines=$(grep "campaign $id" err)
is "every log line of the campaign has it" "$(printf '%s\n' "$lines" | grep -cv "trace_id=$trace")" 0
span=$(printf '%s\n' "$lines" | sed -n 's/.*: trial 1 attempt 1 (.*) ok tokens_per_s=5120 trace_id=.* span_id=\([0-9a-f]\{16\}\)$/\1/p')
is "and those of an attempt its span, which the trial's processes get" "$(cat traceparent)" "00-$trace-$span-00"
submit other -H "traceparent: 00-00000000000000000000000000000000-b7ad6b7169203331-00"
wait_for 60 over
other=$(call "/v1/campaigns/$id" | sed -n 's/.*"trace_id":"\([0-9a-f]\{32\}\)".*/\1/p')
has "with an invalid header it has a trace of its own" "$(cat traceparent)" "^00-$other-[0-9a-f]{16}-01\$"
is "which the log has, too" "$(grep "campaign $id" err | grep -cv "trace_id=$other")" 0
stop
options="--config partuned.conf"
start
has "and which it keeps over a restart" "$(call "/v1/campaigns/$id")" "\"trace_id\":\"$other\""
is "a deleted campaign's last line has it" "$(status -X DELETE -H "$A" "$url/v1/campaigns/$id") $(grep -c "campaign $id deleted trace_id=$other\$" err)" "204 1"
stop

# ---- without MPI
options="--config partuned.conf --mpiexec /nowhere/mpiexec"
start
has "a program that starts its ranks itself needs no mpiexec" "$(trial other)" '"state":"ok"'
trial partune >/dev/null
has "the bundled trainer does" "$(call "/v1/campaigns/$id")" '"state":"paused","reason":"mpiexec was not found: '
stop
finish
