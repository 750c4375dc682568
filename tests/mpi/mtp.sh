#!/bin/sh
# Multi-token prediction as people run it: events, validations, checkpoints in other layouts, folders of DeepSeek-V3.
. "${PT_SRC:?}/tests/mpi/folder.sh"
model() { # file, depth
    cat >"$1" <<END
{"name": "ahead", "layers": 2, "hidden": 24, "heads": 2, "ffn": 40, "vocab": 64, "seq": 16, "norm_eps": 1e-6, "mtp": $2, "mtp_loss_coef": 0.3,
 "mla": {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6},
 "moe": {"experts": 4, "top_k": 2, "expert_ffn": 16, "shared_ffn": 16, "dense_layers": 1, "router": "sigmoid", "balance_bias": true}}
END
}
run() { # ranks, options...
    ranks=$1
    shift
    timeout -k 2 60 mpiexec -n "$ranks" "$train" --data synthetic --global-batch 4 --lr 3e-3 --lr-warmup 2 --lr-decay-steps 6 --quiet "$@" >out 2>&1 </dev/null
}
of() { # file, event, key: "n value" of each such event
    sed -n 's/.*"event":"'"$2"'".*"n":\([0-9]*\),.*"'"$3"'":\([^,]*\),.*/\1 \2/p' "$1"
}
model ahead.json 2
model plain.json 0

run 1 --model ./ahead.json --steps 6 --checkpoint a --checkpoint-every 3 --events a.ev --metrics a.metrics --save-hf a.hf
of a.ev step mtp_loss >a.mtp && [ "$(wc -l <a.mtp)" = 6 ] && [ "$(grep -c '"mtp_loss":[0-9.]*,' a.metrics)" = 6 ]
ok $? "the loss of multi-token prediction is in events and metrics"
run 1 --model ./plain.json --steps 1 --events p.ev && ! grep -q mtp_loss p.ev && [ "$(of p.ev step loss)" = "$(of a.ev step loss | head -1)" ]
ok $? "and not in the loss; a model without modules has none"
run 1 --model ./ahead.json --steps 1 --lr 0 --min-lr 0 --validate-every 1 --validate-samples 8 --events v.ev &&
    run 1 --model ./plain.json --steps 1 --lr 0 --min-lr 0 --validate-every 1 --validate-samples 8 --events w.ev &&
    [ -n "$(of v.ev validation loss)" ] && [ "$(of v.ev validation loss)" = "$(of w.ev validation loss)" ]
ok $? "validations count the cross-entropy of the next token"

run 1 --model ./ahead.json --steps 6 --resume-from a/step-00000003 --checkpoint b && cmp a/step-00000006/model.safetensors b/step-00000006/model.safetensors &&
    cmp a/step-00000006/optimizer.safetensors b/step-00000006/optimizer.safetensors
ok $? "a run resumes bit for bit"
while read -r ranks layout; do
    # shellcheck disable=SC2086 # several options
    run "$ranks" --model ./ahead.json --steps 6 --resume-from a/step-00000003 --events c.ev $layout && of c.ev step mtp_loss >c.mtp && near a.mtp c.mtp 1e-4
    ok $? "and with the same losses under $layout"
done <<END
4 --tp 2 --pp 2
2 --cp 2
4 --ep 2 --pp 2 --zero 2
2 --pp 2 --schedule zero-bubble
2 --zero 3 --overlap-grad-reduce 1 --overlap-param-gather 1
END

for optimizer in lamb muon; do
    run 1 --model ./ahead.json --steps 4 --optimizer $optimizer --events $optimizer.ev && of $optimizer.ev step mtp_loss >o.mtp &&
        run 4 --model ./ahead.json --steps 4 --optimizer $optimizer --tp 2 --pp 2 --events $optimizer.4.ev && of $optimizer.4.ev step mtp_loss >p.mtp && near o.mtp p.mtp 1e-4
    ok $? "$optimizer has the same losses in another layout"
done

strings a.hf/model.safetensors | head -1 >names
for name in 2.eh_proj 3.enorm 3.hnorm 2.embed_tokens 3.shared_head.norm 3.shared_head.head 2.mlp.experts.3.up_proj; do
    grep -q "\"model.layers.$name.weight\"" names || echo "# no $name"
done >missing
[ ! -s missing ] && grep -q '"num_nextn_predict_layers": 2' a.hf/config.json
ok $? "--save-hf writes the names of DeepSeek-V3"
cat missing
run 2 --pp 2 --init a.hf --steps 1 --lr 0 --min-lr 0 --save-hf b.hf && [ "$(cmp -l a.hf/model.safetensors b.hf/model.safetensors | wc -l)" -le 48 ]
ok $? "--init reads them: only the biases of twelve experts move without a learning rate"

run 1 --model ./ahead.json --seq 2 --steps 1
[ $? != 0 ] && grep -q "trainer partune does not support mtp 2 with seq 2: a sample has no token so far on" out
ok $? "a sample too short for a module is refused with numbers"
echo "1..$n"
