#!/bin/sh
# Uneven pipeline stages as people run them: the losses of one rank, planned memory that is what each rank takes, checkpoints
# and weights that pass from one division to another, models whose layers differ, and one line for what is wrong.
. "${PT_SRC:?}/tests/mpi/folder.sh"
job() { # events, ranks, options...
    rm -f "$1"
    ev=$1 many=$2
    shift 2
    timeout -k 2 120 mpiexec -n "$many" "$train" --data-dir "$dir" --global-batch 8 --lr 3e-3 --lr-warmup 2 --quiet --events "$ev" "$@" </dev/null >out 2>&1
}
near() { # two files of events: the same losses of the steps that both have
    python3 - "$1" "$2" <<'END'
import json, sys
runs = [{e["n"]: e for e in map(json.loads, open(name)) if e["event"] == "step"} for name in sys.argv[1:]]
both = runs[0].keys() & runs[1].keys()
assert both, "no step is in both"
for n in both:
    for key in "loss", "grad_norm":
        one, other = (run[n][key] for run in runs)
        assert abs(one - other) <= 1e-4 * abs(one), (n, key, one, other)
END
}
taken() { # events: what the worst rank took is what was planned for it, class by class
    python3 - "$1" <<'END'
import json, sys
memory = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "summary"][0]["memory"]
assert memory["planned"] == memory["measured"], memory
END
}

cat >thirty.json <<'END'
{"name":"thirty","layers":30,"hidden":16,"heads":2,"kv_heads":2,"ffn":32,"vocab":97,"seq":16}
END
cat >dense-first.json <<'END'
{"name":"dense-first","layers":7,"hidden":16,"heads":2,"kv_heads":2,"ffn":32,"vocab":97,"seq":16,"tied":true,
 "moe":{"experts":4,"top_k":2,"expert_ffn":16,"shared_ffn":16,"dense_layers":3,"aux_loss":"huggingface","aux_loss_coef":0.1}}
END
cat >every.json <<'END'
{"name":"every","layers":7,"hidden":16,"heads":2,"kv_heads":2,"ffn":32,"vocab":97,"seq":16,"norm":"layernorm","mlp_bias":false,"positions":"learned",
 "moe":{"experts":4,"top_k":2,"expert_ffn":16,"every":3,"aux_loss":"sequence","aux_loss_coef":0.1}}
END

# ---- divisions of each model against one rank
while read -r model ranks layout; do
    [ -f "$model.one" ] || job "$model.one" 1 --model "$model.json" --steps 4
    # shellcheck disable=SC2086
    job uneven.ev "$ranks" --model "$model.json" --steps 4 $layout && near "$model.one" uneven.ev && taken uneven.ev
    ok $? "$model: the losses of one rank, and the memory that was planned: $layout"
done <<'END'
thirty 4 --pp 4 --stages balanced
thirty 4 --pp 4 --stages 8,8,7,7 --schedule gpipe --overlap-p2p 1
thirty 4 --pp 4 --stages 0,15,15,0 --schedule zero-bubble --overlap-p2p 1
thirty 2 --pp 2 --vp 3 --stages 0,7*2,8*2,0 --schedule interleaved
thirty 4 --pp 4 --vp 2 --stages balanced --schedule interleaved --overlap-p2p 1 --recompute full
thirty 4 --pp 2 --stages 30,0 --zero 3 --zero-scope ep-aware --overlap-grad-reduce 1 --overlap-param-gather 1
thirty 4 --pp 2 --stages 0,30 --zero 2 --zero-scope ep-aware --overlap-grad-reduce 1 --overlap-param-gather 1 --precision fp32
thirty 4 --pp 2 --stages 11,19 --tp 2 --sp 1 --recompute selective
dense-first 4 --pp 4 --stages 3,2*2,0 --schedule 1f1b
dense-first 4 --pp 2 --stages 2,5 --ep 2 --zero 1 --zero-scope ep-aware --overlap-grad-reduce 1 --overlap-moe-a2a 1
dense-first 4 --pp 2 --stages 0,7 --tp 2 --sp 1 --etp 2
every 4 --pp 4 --stages 1,4,2,0 --schedule zero-bubble
every 4 --pp 2 --stages 5,2 --cp 2 --zero 3 --zero-scope ep-aware --overlap-param-gather 1
END

# ---- checkpoints and weights from one division to another
job a.ev 4 --model thirty.json --steps 6 --pp 4 --stages 0,14,16,0 --zero 0 --checkpoint a --checkpoint-every 3 --save-hf a.hf
[ -f a/step-00000003/trainer.json ]
ok $? "a checkpoint of four uneven stages"
while read -r ranks layout; do
    rm -rf b && mkdir b && cp -r a/step-00000003 b/
    # shellcheck disable=SC2086
    job b.ev "$ranks" --model thirty.json --steps 6 --checkpoint b --resume $layout && grep -q '"event":"resumed"' b.ev && near a.ev b.ev
    ok $? "resumes with another division: $layout"
done <<'END'
1
2 --pp 2 --stages 29,1
4 --pp 4 --stages balanced --schedule zero-bubble
4 --pp 2 --vp 2 --stages 5,9,16,0 --schedule interleaved --zero 3 --zero-scope ep-aware
END
cmp b/step-00000006/config.json a/step-00000006/config.json && [ -f a.hf/model.safetensors ]
ok $? "weights are saved under one division"
job c.ev 4 --init a.hf --seq 16 --steps 1 --lr 0 --min-lr 0 --pp 4 --stages 12,0,18,0 --save-hf c.hf
[ $? != 0 ] && grep -qF 'stages 12,0,18,0 leaves virtual stage 1 of 4 without a layer' out
ok $? "a stage between the ends without a layer is refused"
job c.ev 4 --init a.hf --seq 16 --steps 1 --lr 0 --min-lr 0 --pp 4 --stages 0,1,28,1 --save-hf c.hf && cmp a.hf/model.safetensors c.hf/model.safetensors
ok $? "and read and saved, bit for bit, under another"

# ---- what is wrong
while IFS='|' read -r text layout; do
    # shellcheck disable=SC2086
    job d.ev 4 --model thirty.json --steps 1 $layout
    [ $? != 0 ] && grep -qF -e "$text" out && tail -1 d.ev | grep -qF '"class":"illegal"'
    ok $? "refused: $text"
done <<'END'
layers 30 is not a multiple of pp 4 x vp 1|--pp 4
stages lists 3 virtual stages, not pp 4 x vp 1|--pp 4 --stages 10*3
stages lists 31 layers, the model has 30|--pp 4 --stages 8*3,7
stages 7,8*2,7 is not canonical here: use balanced|--pp 4 --stages 7,8*2,7
END
job d.ev 4 --model thirty.json --steps 1 --pp 4 --stages ten
[ $? != 0 ] && grep -qF 'is neither a word (even, balanced' out
ok $? "and a text that is no division"
echo "1..$n"
