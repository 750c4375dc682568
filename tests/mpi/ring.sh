#!/bin/sh
# Context parallelism as people run it: checkpoints into and out of it, repetition bit for bit, the end of a job whose rank is
# killed, and sequences of 32,768 tokens.
. "${PT_SRC:?}/tests/mpi/folder.sh"
pid=
trap '[ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
job() { # ranks, options...
    ranks=$1
    shift
    timeout -k 2 120 mpiexec -n "$ranks" "$train" --data-dir "$dir" --quiet "$@" >out 2>&1
}
losses() { # file: "n loss" of each step
    sed -n 's/.*"event":"step".*"n":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1"
}
moe() { # ranks, options...: eight steps
    ranks=$1
    shift
    job "$ranks" --model nano-moe --steps 8 --global-batch 4 --lr 3e-3 --lr-warmup 2 "$@"
}

# ---- checkpoints and repetition
moe 4 --cp 2 --ep 2 --zero 1 --checkpoint a --checkpoint-every 4 --validate-every 8 --validate-samples 8 --events a.ev
ok $? "a model with experts trains on half sequences"
losses a.ev >a.losses
moe 1 --validate-every 8 --validate-samples 8 --events one.ev && losses one.ev >one.losses && near one.losses a.losses 1e-4
ok $? "with the losses of one rank"
validation() { sed -n 's/.*"event":"validation".*"loss":\([^,}]*\).*/8 \1/p' "$1"; }
validation a.ev >a.val
validation one.ev >one.val
[ -s a.val ] && near one.val a.val 1e-4
ok $? "and its validation"
moe 4 --cp 2 --ep 2 --zero 1 --checkpoint b --checkpoint-every 4
cmp a/step-00000008/model.safetensors b/step-00000008/model.safetensors && cmp a/step-00000008/optimizer.safetensors b/step-00000008/optimizer.safetensors
ok $? "twice the same, bit for bit"
for layout in "1" "4 --cp 4" "4 --tp 2 --cp 2" "2 --pp 2" "4 --cp 2 --pp 2 --micro-batch 2"; do
    # shellcheck disable=SC2086
    set -- $layout
    rm -rf c c.ev && mkdir c && cp -r a/step-00000004 c/
    moe "$@" --checkpoint c --resume --events c.ev
    losses c.ev >c.losses
    grep -q '"event":"resumed".*step-00000004' c.ev && near a.losses c.losses 1e-4
    ok $? "another layout resumes from its checkpoint: $layout"
done
rm -rf c && mkdir c && cp -r a/step-00000004 c/
moe 4 --cp 2 --ep 2 --zero 1 --checkpoint c --resume --events c.ev
cmp a/step-00000008/model.safetensors c/step-00000008/model.safetensors
ok $? "and the same layout bit for bit"

# ---- a rank that is killed
rank_two() {
    grep -lszx "PARTUNE_TRIAL=ring-sh-$$" /proc/[0-9]*/environ | xargs -r grep -lszx PMI_RANK=2 |
        sed -n 's,^/proc/\([0-9]*\)/environ$,\1,p; 1q'
}
PARTUNE_TRIAL="ring-sh-$$" timeout -k 2 120 mpiexec -n 4 "$train" --data-dir "$dir" --model nano-llama --quiet --cp 4 --steps 1000000 \
    --global-batch 4 --events k.ev >out 2>&1 &
pid=$!
i=0
while [ $i -lt 300 ] && ! grep -q '"n":3,' k.ev 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
kill -KILL "$(rank_two)"
wait $pid
code=$?
pid=
[ $code != 0 ] && [ $code != 124 ] && [ $code != 137 ]
ok $? "a job whose rank is killed in the ring ends"

# ---- long sequences
cat >long.json <<"END"
{"name":"long","layers":1,"hidden":16,"heads":2,"kv_heads":1,"ffn":16,"vocab":64,"seq":32768}
END
long() { # ranks, options...: two steps
    ranks=$1
    shift
    job "$ranks" --model ./long.json --steps 2 --global-batch 1 "$@"
}
long 8 --cp 8 --events l.ev
ok $? "32,768 tokens on eight ranks"
losses l.ev >l.losses
long 1 --events m.ev && losses m.ev >m.losses && near m.losses l.losses 1e-5
ok $? "with the losses of one rank"
activations() { sed -n 's/.*"event":"memory".*"activations":\([0-9]*\).*/\1/p' "$1"; }
[ "$(activations m.ev)" -gt $((7 * $(activations l.ev))) ]
ok $? "and an eighth of its activations"
echo "1..$n"
