#!/bin/sh
# Several data sets by weight, as people run them: layouts, resume, what is compared, what is refused.
. "${PT_SRC:?}/tests/mpi/folder.sh"
run() { # ranks, options...
    ranks=$1
    shift
    rm -f ev
    timeout -k 2 60 mpiexec -n "$ranks" "$train" --data-dir "$dir" --model nano-llama --global-batch 4 --lr-warmup 1 --events ev "$@" >out 2>&1
}
losses() { # file: "n loss" of each step and validation
    sed -n 's/.*"event":"\(step\|validation\)".*"n":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \3/p' "$1"
}
refused() { # name, exit code, text, options...
    name=$1 code=$2 text=$3
    shift 3
    run "$@"
    got=$?
    [ $got = "$code" ] && grep -qF -e "$text" out && ! grep -q '"event":"step"' ev 2>/dev/null
    ok $? "$name"
}
prepare() { # name, options...
    name=$1
    shift
    "$PT_BUILD/partune-data" prepare --name "$name" --data "$dir" --force "$@" >out 2>&1
}
text() { # lines, word
    i=0
    while [ $i -lt "$1" ]; do
        echo "line $i of $2, which has nothing but $2 and $i"
        i=$((i + 1))
    done
}

text 300 prose >a.txt
text 100 programs >b.txt
prepare web --validation 0.3 a.txt && prepare code --validation 0.3 b.txt
ok $? "two data sets"
mix="0.7 web 0.3 code"

# ---- the same in every layout, and in any form
run 1 --data "$mix" --steps 10 --lr-decay-steps 10 --validate-every 5 --checkpoint whole --checkpoint-every 5 && losses ev >losses && [ "$(wc -l <losses)" = 12 ]
ok $? "a run trains on both"
for layout in "2 --dp 2" "2 --tp 2" "2 --pp 2" "2 --cp 2" "2 --zero 3" "4 --dp 2 --tp 2 --zero 1" "1 --micro-batch 2"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1
    shift
    run "$ranks" "$@" --data "$mix" --steps 10 --lr-decay-steps 10 --validate-every 5 && losses ev >other &&
        awk 'NR == FNR { a[FNR] = $2; next } { d = $2 / a[FNR] - 1; if (!(d < 1e-4 && d > -1e-4)) bad = 1; n++ } END { exit bad || n != 12 }' losses other
    ok $? "with the same losses in another layout: $layout"
done
cat >array.json <<END
{"run": {"data": [{"path": "$dir/datasets/web", "weight": 7}, {"path": "code", "weight": 3}]}}
END
run 1 --config array.json --steps 3 --lr-decay-steps 10 && losses ev >other && head -3 losses | cmp - other
ok $? "an array of paths and weights is the same run"
run 1 --config array.json --steps 3 --dump-config && cp out dumped.json && run 1 --config dumped.json --steps 3 --lr-decay-steps 10 && losses ev | cmp - other
ok $? "so is the configuration that is printed of it"
run 1 --data web --steps 10 --lr-decay-steps 10 && losses ev >alone && ! cmp -s alone losses
ok $? "one of them alone is another"
run 1 --data "1 web" --steps 10 --lr-decay-steps 10 && losses ev | cmp - alone
ok $? "and is the same with a weight"

# ---- resume
for ranks in 1 2; do
    [ $ranks = 1 ] || run 2 --data "$mix" --steps 10 --lr-decay-steps 10 --checkpoint two --checkpoint-every 5
    [ $ranks = 1 ] && from=whole || from=two
    rm -rf rest && mkdir rest && cp -r $from/step-00000005 rest/
    run $ranks --data "7 web 3 code" --steps 10 --lr-decay-steps 10 --checkpoint rest --resume && ! grep -q other-data ev &&
        cmp $from/step-00000010/model.safetensors rest/step-00000010/model.safetensors &&
        cmp $from/step-00000010/optimizer.safetensors rest/step-00000010/optimizer.safetensors
    ok $? "a resumed run on $ranks is the uninterrupted one, bit for bit"
done
grep -A6 '"sources"' whole/step-00000005/trainer.json | tr -d ' \n' | grep -q '"name":"web","weight":7,"tokens":[0-9]*,"validation_tokens":[0-9]*,"crc32":[0-9]'
ok $? "the checkpoint has the name, size and checksum of each"
run 1 --data "0.6 web 0.4 code" --steps 6 --resume-from whole/step-00000005 && grep '"what":"other-data"' ev | grep -q "trained on 0.7 web 0.3 code; its data position continues in 0.6 web 0.4 code"
ok $? "another weight is reported"
run 1 --data web --steps 6 --resume-from whole/step-00000005 && grep '"what":"other-data"' ev | grep -q "continues in web"
ok $? "so is a source less"
cp -r datasets before
text 101 programs >b.txt && prepare code --validation 0.3 b.txt
run 1 --data "$mix" --steps 6 --resume-from whole/step-00000005 && grep '"what":"other-data"' ev | grep -q "another 0.7 web 0.3 code: source 2 is code (weight 3, "
ok $? "and a changed data set of the same name, by its size and checksum"
sed -i -e 's/"sources"/"saucers"/' whole/step-00000005/trainer.json
refused "a changed key is an error with its name" 68 "trainer.json: key \"saucers\" is damaged" 1 --data "$mix" --steps 6 --resume-from whole/step-00000005

# ---- ranks that do not see the same
apart() { # data directory of rank 1
    rm -f ev
    timeout -k 2 60 mpiexec -n 1 "$train" --data-dir "$dir" --model nano-llama --data "$mix" --steps 1 --events ev : \
        -n 1 "$train" --data-dir "$1" --model nano-llama --data "$mix" --steps 1 --events ev >out 2>&1
}
mkdir elsewhere && mv before elsewhere/datasets
apart elsewhere
[ $? != 0 ] && grep '"event":"error"' ev | grep 'rank 1' | grep -q 'source 2 is code (weight 3, '
ok $? "a rank with another data set of the same name ends the job before the first step"

# ---- a file that shrinks while a thread and the step read it
for data in shrinks "0.5 shrinks 0.5 code"; do
    rm -f ev
    prepare shrinks --validation 0 a.txt
    mpiexec -n 2 "$train" --data-dir "$dir" --model nano-llama --global-batch 4 --data "$data" --steps 1000000 --quiet --events ev >out 2>&1 &
    pid=$!
    i=0
    while [ $i -lt 300 ] && ! grep -q '"n":3,' ev 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
    : >datasets/shrinks/train.bin
    i=0
    while [ $i -lt 300 ] && kill -0 $pid 2>/dev/null; do sleep 0.1; i=$((i + 1)); done
    [ $i -lt 300 ] || kill -TERM $pid
    wait $pid
    [ $? != 0 ] && tail -1 ev | grep '"class":"data"' | grep -q 'shrinks/train.bin was truncated while it was read'
    ok $? "a file that is truncated under a run is an error of the data: $data"
done

# ---- what is wrong
refused "a weight of 0" 2 "/run/data: the weight 0 of web is not in" 1 --data "0 web 1 code" --steps 1
refused "a negative weight" 2 "/run/data: the weight -1 of code" 2 --data "1 web -1 code" --steps 1
refused "a weight without a name" 2 "/run/data: no data set follows the weight 0.3" 1 --data "0.7 web 0.3" --steps 1
refused "synthetic next to another" 2 "/run/data: synthetic" 1 --data "0.7 web 0.3 synthetic" --steps 1
sed 's/"path": "code", //' array.json >bad.json
refused "a missing path" 2 "/run/data/1/path" 1 --config bad.json --steps 1
refused "a missing data set" 68 "no data set nothing" 1 --data "0.7 web 0.3 nothing" --steps 1
head -c 2000 /dev/zero >ids
prepare wide --ids u16 --vocab 256 --validation 0 ids
refused "ids of another width" 68 "the ids of wide have 2 bytes, those of web 1" 1 --data "0.7 web 0.3 wide" --steps 1
head -c 2000 /dev/zero >ids
prepare few --ids u16 --vocab 9 --validation 0 ids
refused "another vocabulary" 68 "data set few has 9 different ids, wide has 256" 1 --data "0.7 wide 0.3 few" --steps 1
echo short >c.txt
prepare short --validation 0 c.txt
refused "fewer tokens than one sample" 68 "datasets/short/train.bin: 7 tokens are not one sample of" 1 --data "0.7 web 0.3 short" --steps 1
prepare whole --validation 0 a.txt
run 1 --data "0.7 web 0.3 whole" --steps 1 --validate-every 1 --validate-samples 50 && grep '"what":"validation"' ev | grep -q "validation splits have by their weights only 1 samples"
ok $? "a validation ends where a source has no sample, and warns"
echo "1..$n"
