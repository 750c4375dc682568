#!/bin/sh
# Checkpoints of real jobs: damage that is passed over, two runs with one folder, ranks that see different folders.
. "${PT_SRC:?}/tests/mpi/folder.sh"
host=$(hostname)
job() { # options...: two ranks; a job that hangs is ended after a minute, which no test takes for an end
    timeout -k 2 60 mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --quiet "$@" >out 2>&1
}
event() { # file, event, text: an event of that name with that text
    grep -F "\"event\":\"$2\"" "$1" 2>/dev/null | grep -qF -e "$3"
}
refused() { # name, class, texts, then options: ended by an error of that class before the first step
    name=$1 class=$2 texts=$3
    shift 3
    rm -f ev
    "$@" --events ev
    code=$?
    [ $code != 0 ] && [ $code != 124 ] && [ $code != 137 ] && event ev error "\"class\":\"$class\"" && ! event ev step ''
    status=$?
    for text in $texts; do
        event ev error "$text" || status=1
    done
    [ $status = 0 ] || echo "# exit $code; $(tail -1 ev 2>/dev/null)"
    ok $status "$name"
}
killed() { # mark: the ranks of the job that carries it in its environment
    for p in $(grep -lszx "PARTUNE_TRIAL=$1-$$" /proc/[0-9]*/environ | xargs -r grep -lsz "^PMI_RANK="); do
        p=${p%/environ}
        kill -KILL "${p#/proc/}"
    done 2>/dev/null
}
flip() { # file, byte
    printf 'X' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# ---- what trainer.json says
job --checkpoint a --checkpoint-every 2 --steps 6 --global-batch 4
cp -r a whole
grep -q '"samples": 24' a/step-00000006/trainer.json
ok $? "six steps with three checkpoints"
sed -i 's/"samples": 24/"samples": 52/' a/step-00000006/trainer.json
refused "a changed data position is an error with its name" data 'step-00000006/trainer.json key samples' \
    job --steps 8 --global-batch 4 --resume-from a/step-00000006
sed -i '/"samples"/d' a/step-00000006/trainer.json
refused "and so is a missing one" data 'trainer.json samples missing' job --steps 8 --global-batch 4 --resume-from a/step-00000006

# ---- falling back
rm -f ev
job --checkpoint a --resume --steps 8 --global-batch 4 --events ev && event ev warning damaged-checkpoint && event ev warning samples &&
    event ev resumed step-00000004
ok $? "--resume falls back to the newest whole one and says so"
[ -f a/step-00000006.damaged/trainer.json ] && [ "$(cat a/latest)" = step-00000008 ]
ok $? "and sets the damaged one aside"
rm -rf a && cp -r whole a
flip a/step-00000006/optimizer.safetensors 40000
rm -f ev
job --checkpoint a --resume --steps 7 --global-batch 4 --events ev && event ev warning optimizer.safetensors && event ev resumed step-00000004
ok $? "one changed byte of a tensor does not stop the job"
rm -rf a && cp -r whole a
for step in 2 4 6; do flip a/step-0000000$step/model.safetensors 20000; done
refused "if none is whole, the run does not start afresh" data 'whole step-00000006 tensor' \
    job --checkpoint a --resume --steps 7 --global-batch 4
[ -d a/step-00000006 ] && [ -d a/step-00000002 ]
ok $? "and all are unchanged"
rm -rf a && cp -r whole a
rm -rf a/step-00000004 a/step-00000002
flip a/step-00000006/model.safetensors 20000
mv a/step-00000006 a/step-00000006.damaged
refused "nor if the only one was set aside" data step-00000006.damaged job --checkpoint a --resume --steps 7 --global-batch 4
rm -rf a && cp -r whole a
sed -i -e '/"sums_crc"/,$d' -e 's/"v": 2/"v": 1/' a/step-00000006/trainer.json
sed -i '$s/,$//' a/step-00000006/trainer.json
echo '}' >>a/step-00000006/trainer.json
rm -f ev
job --checkpoint a --resume --steps 7 --global-batch 4 --events ev && event ev warning old-checkpoint && event ev resumed step-00000006
ok $? "the previous format is read, with a warning"

# ---- two runs, one folder
try=0 bad=0
while [ $try -lt 10 ]; do
    try=$((try + 1))
    rm -rf shared x.ev y.ev
    for run in x y; do
        (
            timeout -k 2 60 mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --quiet --steps 40 --global-batch 4 --checkpoint shared \
                --checkpoint-every 1 --checkpoint-keep 2 --resume --events $run.ev >$run.out 2>&1
            echo $? >$run.code
        ) &
    done
    wait
    if event x.ev summary ''; then won=x lost=y; else won=y lost=x; fi
    event $won.ev summary '' && [ "$(cat $won.code)" = 0 ] && [ "$(cat shared/latest)" = step-00000040 ] && [ "$(cat $lost.code)" != 0 ] &&
        event $lost.ev error '"class":"io"' && event $lost.ev error "on host $host, since 20" && ! event $lost.ev step '' &&
        event $lost.ev error "process $(sed -n 's/.*"event":"hello".*"pid":\([0-9]*\).*/\1/p' $won.ev) on" && continue
    bad=$((bad + 1))
    for run in x y; do echo "# try $try, $run: $(cat $run.code) $(tail -1 $run.ev | cut -c1-250)"; done
done
[ $bad = 0 ]
ok $? "of two runs with one directory the second is refused and told of the first, ten times of ten"
job --checkpoint shared --resume --steps 41 --global-batch 4
ok $? "the first's checkpoint is whole"
rm -rf shared x.ev
PARTUNE_TRIAL="resume-sh-$$" mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --quiet --steps 1000000 --global-batch 4 --checkpoint shared \
    --checkpoint-every 1 --checkpoint-keep 2 --events x.ev >x.out 2>&1 &
pid=$!
i=0
while [ $i -lt 300 ] && ! grep -q '"n":3,' x.ev 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
refused "so is a third run" io "another since" job --checkpoint shared --resume --steps 41 --global-batch 4
killed resume-sh
wait $pid
rm -f ev
job --checkpoint shared --resume --trial --max-steps 3 --min-steps 2 --global-batch 4 --events ev && event ev resumed step-
ok $? "a killed run leaves no lock"

# ---- two runs, one folder of weights
# The first is in the middle of its training, so only what was claimed at its start can keep the second out.
rm -f x.ev
PARTUNE_TRIAL="resume-hf-$$" mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --quiet --steps 1000000 --global-batch 4 --save-hf weights \
    --events x.ev >x.out 2>&1 &
pid=$!
i=0
while [ $i -lt 300 ] && ! grep -q '"n":3,' x.ev 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
refused "a second run with the same weights directory is refused and told of the first" io \
    "another weights process $(sed -n 's/.*"event":"hello".*"pid":\([0-9]*\).*/\1/p' x.ev) $host since" job --save-hf weights/ --steps 1 --global-batch 4
[ ! -e weights ]
ok $? "and writes nothing there"
rm -f ev
job --save-hf others --steps 1 --global-batch 4
[ -f others/config.json ]
ok $? "while a run with its own directory saves"
killed resume-hf
wait $pid
job --save-hf weights --steps 1 --global-batch 4 && [ -f weights/config.json ]
ok $? "a killed run leaves no lock there either"

# ---- ranks that do not see the same
two() { # folder of rank 0, of rank 1, options...
    first=$1 second=$2
    shift 2
    timeout -k 2 60 mpiexec -n 1 "$train" --data-dir "$dir" --model nano-llama --quiet --global-batch 4 --checkpoint "$first" "$@" : \
        -n 1 "$train" --data-dir "$dir" --model nano-llama --quiet --global-batch 4 --checkpoint "$second" "$@" >out 2>&1
}
rm -rf a b c && cp -r whole a && cp -r whole b && mkdir c
rm -rf b/step-00000006 b/step-00000004
echo step-00000002 >b/latest
for resume in --resume ''; do
    # shellcheck disable=SC2086
    refused "a rank that sees an older directory is named, with its host: ${resume:-a fresh start}" io "rank 1 host $host folder b" two a b $resume --steps 8
    # shellcheck disable=SC2086
    refused "and so is one that sees an empty one: ${resume:-a fresh start}" io "rank 1 host $host folder c" two a c $resume --steps 8
done
refused "also where rank 0 has the empty one" io "rank 1 host $host folder a" two c a --resume --steps 8
apart() { # as two, with the weights' folder instead of checkpoints
    timeout -k 2 60 mpiexec -n 1 "$train" --data-dir "$dir" --model nano-llama --quiet --steps 1 --save-hf c/hf "$@" : \
        -n 1 "$train" --data-dir "$dir" --model nano-llama --quiet --steps 1 --save-hf b/hf "$@" >out 2>&1
}
refused "weights that would be saved into two directories" io "rank 1 host $host" apart
one_of() { # as two, --resume-from
    timeout -k 2 60 mpiexec -n 1 "$train" --data-dir "$dir" --model nano-llama --quiet --global-batch 4 --steps 7 --resume-from "$first" "$@" : \
        -n 1 "$train" --data-dir "$dir" --model nano-llama --quiet --global-batch 4 --steps 7 --resume-from "$second" "$@" >out 2>&1
}
first=whole/step-00000006 second=whole/step-00000004
refused "--resume-from two checkpoints" io "rank 1 host $host step-00000004" one_of
second=nowhere/step-00000006
refused "--resume-from that one rank lacks" io "rank 1 host $host nowhere/step-00000006" one_of
cp -r whole copy
second=copy/step-00000006
one_of
ok $? "--resume-from equal copies"
echo "1..$n"
