#!/bin/sh
# The log of each layer: what it adds up to, the same in every layout, and the norms of what checkpoints hold.
. "${PT_SRC:?}/tests/mpi/folder.sh"
job() { # name, ranks, options...: NAME.ev and NAME.metrics
    rm -f "$1.ev" "$1.metrics"
    name=$1 many=$2
    shift 2
    timeout -k 2 120 mpiexec -n "$many" "$train" --data-dir "$dir" --global-batch 8 --quiet --events "$name.ev" --metrics "$name.metrics" "$@" </dev/null >out 2>&1
}
cat >read.py <<'END'
import json, sys
def steps(name):
    """{step: (its metrics, its rows)} of the steps that have them."""
    return {m["step"]: (m, m["layers"]) for m in map(json.loads, open(name + ".metrics")) if "layers" in m}
def events(name):
    rows = {}
    for e in map(json.loads, open(name + ".ev")):
        if e.pop("event") == "layer":
            del e["v"], e["t"]
            rows.setdefault(e.pop("n"), []).append(e)
    return rows
END
adds_up() { # name, layers, top_k, tolerance: events are the metrics' rows; squares and tokens add up
    python3 - "$@" <<'END'
import sys
sys.path.insert(0, ".")
from read import *
name, layers, top_k, tolerance = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
assert steps(name).keys() == {2, 4}, steps(name).keys()
assert events(name) == {n: rows for n, (m, rows) in steps(name).items()}
for n, (m, rows) in steps(name).items():
    assert [r["layer"] for r in rows] == list(range(layers)) + [None], rows
    total = sum(r["grad_norm"] ** 2 for r in rows) ** 0.5
    assert abs(total - m["grad_norm"]) <= tolerance * total, (n, total, m["grad_norm"])
    for r in rows:
        assert r["grad_norm"] > 0 and r["params_norm"] > 0, r
        tokens = r.get("tokens_per_expert")
        if tokens is None:
            assert "imbalance" not in r, r
            continue
        assert sum(tokens) == 8 * 16 * top_k, (n, r)
        assert abs(r["imbalance"] - max(tokens) * len(tokens) / sum(tokens)) < 1e-12, r
END
}
alike() { # two names: norms within 1e-4; of the choices at most one in a hundred may fall otherwise
    python3 - "$@" <<'END'
import sys
sys.path.insert(0, ".")
from read import *
one, other = map(steps, sys.argv[1:])
assert one.keys() == other.keys()
for n in one:
    for a, b in zip(one[n][1], other[n][1], strict=True):
        assert a.keys() == b.keys(), (a, b)
        for key in "grad_norm", "params_norm":
            assert abs(a[key] - b[key]) <= 1e-4 * a[key], (n, key, a, b)
        for key in set(a) & {"tokens_per_expert"}:
            assert sum(abs(x - y) for x, y in zip(a[key], b[key], strict=True)) <= 0.02 * sum(a[key]), (n, a, b)
END
}

# A dense layer first, shared experts, a bias of the choice, an embedding that both ends of a pipeline hold; 259 is
# no multiple of tp.
cat >moe.json <<'END'
{"name":"moe","layers":4,"hidden":32,"heads":4,"kv_heads":2,"ffn":48,"vocab":259,"seq":16,"tied":true,
 "moe":{"experts":4,"top_k":2,"expert_ffn":24,"shared_ffn":16,"dense_layers":1,"router":"sigmoid","balance_bias":true}}
END
cat >dense.json <<'END'
{"name":"dense","layers":4,"hidden":32,"heads":4,"ffn":48,"vocab":259,"seq":16,"mlp":"gelu","norm":"layernorm","positions":"learned","qkv_bias":true}
END
often="--steps 5 --layer-metrics-every 2 --lr 3e-3 --lr-warmup 2"
for model in moe dense; do
    top_k=$([ $model = moe ] && echo 2 || echo 0)
    # shellcheck disable=SC2086
    job "$model" 1 --model $model.json $often && adds_up $model 4 "$top_k" 1e-6
    ok $? "$model: the rows of a step add up to its norm and its tokens"
    for layout in "1 --micro-batch 4" "2" "4 --tp 2" "4 --tp 2 --sp 1" "2 --pp 2" "2 --pp 2 --vp 2 --schedule interleaved" "2 --cp 2" "4 --cp 2 --tp 2 --zero 1" \
        "2 --zero 1" "4 --zero 2 --shard 2" "2 --zero 3" "4 --tp 2 --zero 3 --overlap-param-gather 1 --overlap-grad-reduce 1" \
        "2 --ep 2" "4 --ep 2 --zero 2" "4 --ep 4 --zero 3" "4 --ep 2 --tp 2 --etp 2" "4 --pp 2 --ep 2" "4 --ep 2 --zero 1 --zero-scope plain"; do
        case "$model $layout" in dense*--ep*) continue ;; esac
        # shellcheck disable=SC2086
        set -- $layout
        ranks=$1
        shift
        # shellcheck disable=SC2086
        job l "$ranks" --model $model.json "$@" $often && adds_up l 4 "$top_k" 1e-6 && alike "$model" l
        ok $? "$model: the same in $layout"
    done
done
for optimizer in lamb muon; do # they overwrite gradients
    # shellcheck disable=SC2086
    job one 1 --model moe.json --optimizer $optimizer $often && job two 2 --model moe.json --optimizer $optimizer --zero 3 --ep 2 $often && adds_up two 4 2 1e-6 && alike one two
    ok $? "and with $optimizer"
done
# shellcheck disable=SC2086
job bf16 2 --model moe.json --precision bf16 --zero 2 $often && adds_up bf16 4 2 1e-6
ok $? "and in bf16"

# ---- against what checkpoints hold: by SGD without anything else, weights move by the gradient
job sgd 2 --model moe.json --ep 2 --zero 1 --optimizer sgd --sgd-momentum 0 --weight-decay 0 --clip 0 --lr 1 --min-lr 1 --lr-warmup 0 \
    --steps 2 --layer-metrics-every 2 --checkpoint saved --checkpoint-every 1 && python3 - <<'END'
import array, json, math, re, struct, sys
sys.path.insert(0, ".")
from read import *
def read(folder):
    with open(folder + "/model.safetensors", "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {k: array.array("f", data[slice(*t["data_offsets"])]) for k, t in header.items() if k != "__metadata__" and "correction_bias" not in k}
before, after = read("saved/step-00000001"), read("saved/step-00000002")
square = {}
for name, w in before.items():
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    s = square.setdefault(int(layer[1]) if layer else None, [0, 0])
    s[0] += sum((x - y) ** 2 for x, y in zip(w, after[name], strict=True))
    s[1] += sum(x * x for x in w)
rows = steps("sgd")[2][1]
assert {r["layer"] for r in rows} == square.keys()
for r in rows: # a weight is rounded to 2^-24 of itself, at most of 1
    grad, params = map(math.sqrt, square[r["layer"]])
    assert abs(grad - r["grad_norm"]) <= 1e-4 * grad and abs(params - r["params_norm"]) <= 1e-6 * params, (r, grad, params)
END
ok $? "norms are those of the weights and of their change in checkpoints"

# ---- only when asked for
job none 2 --model moe.json --steps 3 && ! grep -q '"event":"layer"' none.ev && ! grep -q layers none.metrics
ok $? "without the option there are no rows"
job trial 2 --model moe.json --layer-metrics-every 1 --trial --warmup-steps 0 --min-steps 2 --max-steps 2 && ! grep -q '"event":"layer"' trial.ev && grep -q '"experts":{"imbalance":' trial.ev
ok $? "nor in a trial, whose summary has the imbalance"
echo "1..$n"
