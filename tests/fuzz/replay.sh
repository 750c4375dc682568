#!/bin/sh
# Every fuzz target over its corpus: no crash, no refusal without a reason. One TAP line for each target.
set -- safetensors megatron dataset hf target request campaign events logs conf import token checkpoint
echo "1..$#"
n=0
for target; do
    n=$((n + 1))
    if out=$("${PT_BUILD:?}/tests/fuzz/fuzz_$target" "${PT_SRC:?}/tests/fuzz/corpus/$target" 2>&1) &&
       ! echo "$out" | grep -q '^not ok'; then
        echo "ok $n - $target: $(echo "$out" | grep -c '^ok') inputs and what is near them"
    else
        echo "not ok $n - $target"
        echo "$out" | tail -20 | sed 's/^/#   /'
    fi
done
