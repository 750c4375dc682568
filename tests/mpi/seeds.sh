#!/bin/sh
# Four published systems in small, from a campaign to production: the daemon measures a layout like the published one, its exported file
# trains under partune-train, a checkpoint resumes in other layouts with the losses of one undisturbed rank, the weights are a Hugging
# Face directory where the family has one, and every export target writes the layout or refuses it by a named setting. PT_LONG: resumes
# in two dozen layouts of each model.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
unset PARTUNE_DATA
train="$PT_BUILD/partune-train"
start

# The published shapes, shrunk: heads (queries and keys alike), layers and experts by the given divisors; a head is 8 wide, which
# shrinks the hidden width, and inner widths shrink by the same factor, so that every ratio of widths, of heads and of experts
# is the published one. 128 words, samples of 32 tokens. The rest of the model, and top_k, stay.
cat >shrink.py <<'END'
"""shrink.py FILE HEADS LAYERS EXPERTS CHANGES: the model of a preset or an example, divided; CHANGES are set in it."""
import json, sys
path, heads, layers, experts = sys.argv[1], *map(int, sys.argv[2:5])
published = json.load(open(path))
published = published.get("model", published)
small = dict(published, name=published["name"] + "-small", vocab=128, seq=32)
def divide(at, key, by):
    if key in at:
        assert at[key] % by == 0, (path, key, by)
        at[key] //= by
divide(small, "layers", layers)
divide(small, "heads", heads)
divide(small, "kv_heads", heads)
assert "head_dim" not in small, path
small["hidden"] = 8 * small["heads"]
assert published["hidden"] % small["hidden"] == 0, path
width = published["hidden"] // small["hidden"]
divide(small, "ffn", width)
if "moe" in small:
    small["moe"] = dict(published["moe"])
    divide(small["moe"], "experts", experts)
    divide(small["moe"], "expert_ffn", width)
small.update(json.loads(sys.argv[5]))
json.dump(small, sys.stdout)
END

job() { # events, ranks, options...: out has what it says
    events=$1 ranks=$2
    shift 2
    rm -f "$events"
    timeout -k 2 300 mpiexec -n "$ranks" "$train" --data synthetic --lr 3e-3 --lr-warmup 2 --lr-decay-steps 6 --quiet --events "$events" "$@" \
        </dev/null >out 2>&1 || { code=$?; tail -n 3 out; return $code; }
}
curve() { # events, first and last step: "n loss" and "n norm" of each
    python3 - "$@" <<'END'
import json, sys
steps = {e["n"]: e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "step"}
for n in range(int(sys.argv[2]), int(sys.argv[3]) + 1):
    print(f"{n}.loss", steps[n]["loss"])
    print(f"{n}.norm", steps[n]["grad_norm"])
END
}
near() { # two files of "n value" lines: as many, within the tolerances of tests/mpi/parity.c
    python3 - "$@" <<'END'
import sys
one, other = ([line.split() for line in open(name)] for name in sys.argv[1:])
assert one and [n for n, _ in one] == [n for n, _ in other], (one, other)
for (n, a), (_, b) in zip(one, other):
    assert abs(float(a) - float(b)) <= (1e-3 if "norm" in n else 1e-4) * abs(float(a)), (n, a, b)
END
}
validation() { # events: the last validation, whatever its step
    sed -n 's/.*"event":"validation".*"loss":\([^,}]*\).*/validation \1/p' "$1" | tail -n 1
}
targets() { # those that must write the layout without loss: any other does, too, or names each setting that it lacks
    python3 - "$url" "$(cat data/token)" "$id" "$@" <<'END'
import json, sys, urllib.error, urllib.request
url, token, id, *must = sys.argv[1:]
def ask(path):
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, headers={"Authorization": "Bearer " + token}), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()
def named(text):
    rules = json.loads(text)["rules"]
    assert rules and all(r["rule"] == "target-expresses" and r["key"] and r["detail"] for r in rules), text
    return [r["key"] for r in rules]
whole, lossy, refused = [], [], []
every = [x["name"] for x in json.loads(ask("/v1/exporters")[1])["items"]]
for target in every:
    path = f"/v1/campaigns/{id}/export/{target}?trial=1"
    status, text = ask(path)
    if status == 200:
        whole.append(target)
        continue
    assert status == 422, (target, status, text)
    lost = named(text)
    status, text = ask(path + "&allow_loss=true")
    if status == 200:
        assert all(key in text for key in lost), (target, lost, text)
        lossy.append(target)
    else:
        assert status == 422 and named(text) == lost, (target, status, text)
        refused.append(target)
assert len(every) > 9 and set(must) <= set(whole), (must, whole, lossy, refused)
print("whole:", *whole, "; with loss:", *lossy, "; refused:", *refused)
END
}

# ---- steps of each system
begin() { # name, its source, divisors of heads, layers and experts, changes, optimizer: the undisturbed run of one rank
    model=$1 optimizer=$7
    python3 shrink.py "$PT_SRC/plan/$2" "$3" "$4" "$5" "$6" >"$model.json" || { echo "Bail out! no model"; exit 99; }
    cores='"cluster":{"name":"cores","nodes":1,"devices_per_node":8,"oversubscribe":true,
        "device":{"name":"core","kind":"cpu","memory_gib":2,"memory_gbs":10,"gemm_tflops":0.05},"links":[{"span":8,"gbs":5,"latency_us":1}]}'
    work="\"model\":$(cat "$model.json"),\"workload\":{\"global_batch\":8,\"optimizer\":\"$optimizer\"},$cores"
    same="--model ./$model.json --global-batch 8 --optimizer $optimizer"
    rm -rf a a.hf b.hf
    # shellcheck disable=SC2086
    ok "$model: one rank" job one.ev 1 $same --steps 6 --validate-every 6
    curve one.ev 1 3 >first
    curve one.ev 4 6 >rest
}
campaign() { # layout of eight ranks: measured by the daemon, then trained from the exported file
    post /v1/campaigns "{\"name\":\"$model\",$work,\"space\":{\"world\":[8]},\"baseline\":$1,\"budget\":{\"trials\":1},
        \"trial\":{\"warmup_steps\":1,\"min_steps\":2,\"max_steps\":2}}" >/dev/null
    id=$(id_of <body)
    [ -n "$id" ] || { sed 's/^/# /' body; echo "Bail out! no campaign"; exit 99; }
    ok "$model: a campaign from $1" wait_for 600 is_in "$id" "done"
    is "$model: its trial succeeds" "$(call "/v1/campaigns/$id/trials/1" | sed 's/.*"state":"\([a-z]*\)".*/\1/')" ok
    code "/v1/campaigns/$id/export/partune?trial=1" >/dev/null
    cp body exported.json
    ok "$model: the exported file trains" job a.ev 8 --config exported.json --steps 3 --checkpoint a
    curve a.ev 1 3 >a.curve
    ok "$model: with the losses of one rank" near first a.curve
}
resume() { # ranks, options: the end of the undisturbed run
    ranks=$1
    shift
    # shellcheck disable=SC2086
    job b.ev "$ranks" $same --steps 6 --resume-from a/step-00000003 ${folder:+--save-hf b.hf} "$@" && grep -q '"event":"resumed"' b.ev &&
        curve b.ev 4 6 >b.curve && near rest b.curve
}
folder() { # what the last resumed run wrote validates as the model that one rank trained
    # shellcheck disable=SC2086
    job c.ev 2 $same --init b.hf --steps 1 --lr 0 --min-lr 0 --validate-every 1 --tp 2 --sp 1 && validation one.ev >one.validation &&
        validation c.ev >c.validation && near one.validation c.validation
}
planned() { # two dozen of the planned layouts on eight ranks, as options, from the fastest to the slowest
    post /v1/plan "{$work,\"trainer\":\"partune\",\"top\":500,\"space\":{\"world\":[8],\"cp\":[1,2],\"zero\":[0,1,2,3]}}" >/dev/null
    python3 - <<'END'
import json
items = json.load(open("body"))["items"]
for item in items[:: max(1, len(items) // 24)]:
    print(8, *(f"--{key.replace('_', '-')} {value}" for key, value in item["layout"].items() if key not in ("dp", "edp")))
END
}
system() { # folder or refusal, targets that must write it; layouts of other runs on standard input
    folder=$1
    if [ -n "$PT_LONG" ]; then planned >drawn; else : >drawn; fi
    cat - drawn >others
    while read -r layout; do
        # shellcheck disable=SC2086
        ok "$model: resumes under $layout" resume $layout
    done <others
    if [ "$folder" ]; then
        ok "$model: its Hugging Face directory is the trained model" folder
    fi
    shift
    ok "$model: each export target writes it or names what it lacks" targets "$@"
    sed 's/^/# /' ok.log
}

# Frontier (arXiv 2312.12705): GPT 22B; tensor and pipeline parallelism, ZeRO-1.
begin frontier presets/models/gpt-22B.json 8 12 1 '{}' adamw
campaign '{"tp":2,"sp":1,"pp":2,"zero":1}'
system folder partune megatron megatron-script megatron-bridge <<'END'
4 --zero 3 --shard 2 --overlap-grad-reduce 1 --overlap-param-gather 1 --recompute full
4 --cp 2 --pp 2 --schedule zero-bubble
END

# Optimus on Aurora (arXiv 2604.00785): Mula-220B-A10B, many narrow experts; pipeline and expert parallelism, the expert-aware optimizer.
begin mula presets/models/mula-220b-a10b.json 4 16 6 '{}' adamw
campaign '{"pp":2,"ep":4,"zero":1,"zero_scope":"ep-aware"}'
system folder partune megatron megatron-script megatron-bridge <<'END'
4 --cp 2 --pp 2 --stages 1,3 --recompute selective
4 --tp 2 --sp 1 --etp 2 --zero 2 --overlap-grad-reduce 1
END

# Mixtral 8x7B as SageMaker SMP trains it: expert parallelism, hybrid sharding. Its published configuration has no window.
begin mixtral presets/models/mixtral-8x7b.json 4 8 1 '{}' adamw
campaign '{"ep":4,"zero":3,"shard":4,"overlap_grad_reduce":1,"overlap_param_gather":1}'
system folder partune megatron megatron-script megatron-bridge torchtitan-toml <<'END'
4 --tp 2 --sp 1 --pp 2 --vp 2 --schedule interleaved
4 --cp 2 --ep 2 --zero 1 --zero-scope plain --overlap-moe-a2a 1
END

# MegaScale (NSDI 2024): 175B with the parallel block, windows and LAMB; interleaved stages, every overlap.
begin megascale examples/megascale-175b.json 16 12 1 '{"parallel_block": true, "sliding_window": 8}' lamb
campaign '{"tp":2,"sp":1,"pp":2,"vp":2,"schedule":"interleaved","zero":1,"overlap_grad_reduce":1,"overlap_param_gather":1,"overlap_p2p":1}'
system '' partune <<'END'
4 --cp 4 --zero 3 --zero-scope ep-aware --overlap-param-gather 1
2 --pp 2 --stages 3,5 --recompute selective
END
# shellcheck disable=SC2086
job d.ev 1 $same --steps 1 --save-hf d.hf >d.log
is "megascale: no Hugging Face family has it, which is said by name" "$? $(ls -d d.hf 2>/dev/null)$(grep -c 'no Hugging Face class supports' out)" "2 1"
for target in megatron megatron-script megatron-bridge; do
    is "megascale: $target refuses it" "$(code "/v1/campaigns/$id/export/$target?trial=1")" 422
    has "megascale: for its block and its optimizer" "$(cat body)" '"key":"model.parallel_block".*"key":"workload.optimizer"'
done
stop
is "the daemon exits cleanly" "$?" 0
finish
