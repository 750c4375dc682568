#!/bin/sh
# Divisions of layers in campaigns of the bundled trainer: a model whose layers do not divide has pipelines without being told, a space
# that lists divisions has those, the plan knows that a large vocabulary weighs as layers do, and what real trials of them take is what
# was planned.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
[ -x "$PT_BUILD/partune-train" ] || { echo "1..0 # SKIP the trainer is not built"; exit 0; }
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
start
client
partune=$PT_BUILD/partune

# The output projection of 4,096 words is six of these layers.
model='"model":{"name":"thirty","layers":30,"hidden":64,"heads":4,"kv_heads":4,"ffn":128,"vocab":4096,"seq":64},"workload":{"global_batch":16}'
cluster() { # devices
    echo '"cluster":{"name":"cores","nodes":1,"devices_per_node":'"$1"',"oversubscribe":true,
        "device":{"name":"core","kind":"cpu","gemm_tflops":0.08,"memory_gib":8,"memory_gbs":10},"links":[{"span":"all","gbs":5,"latency_us":2}]}'
}
pipeline='"tp":[1],"pp":[4],"micro_batch":[1],"recompute":["none"],"zero":[0],"schedule":["1f1b"],"overlap_p2p":[0]'
lists='"stages":["even","balanced","balanced-loss","8*2,7*2","9*3,3","10*3,0"]'
see() { python3 -c 'import json, sys; v = json.load(open("body")); print('"$1"')' 2>&1; }

# ---- plans
is "a plan that does not name the key" "$(post /v1/plan "{$model,$(cluster 4),\"trainer\":\"partune\",\"top\":500,\"space\":{\"world\":[4],\"tp\":[1]}}")" 200
divisions='sorted({l["layout"].get("stages", "even") for l in v["items"] if l["layout"]["pp"] == '
is "has balanced stages where even ones are illegal" "$(see "$divisions 4})")" "['balanced']"
is "and even ones where they are legal" "$(see "$divisions 2})")" "['even']"
is "a plan of listed divisions" "$(post /v1/plan "{$model,$(cluster 4),\"trainer\":\"partune\",\"top\":50,\"space\":{\"world\":[4],$pipeline,$lists}}")" 200
is "has them all but the illegal one" "$(see 'len(v["items"])')" 5
is "the one that allows for the vocabulary first" "$(see 'v["items"][0]["layout"]["stages"]')" "9*3,3"
is "ahead of the straightforward one" "$(see '[l["layout"]["stages"] for l in v["items"]].index("9*3,3") < [l["layout"]["stages"] for l in v["items"]].index("8*2,7*2")')" True
is "even stages alone are refused" "$(post '/v1/campaigns?dry_run=true' "{\"name\":\"even\",$model,$(cluster 4),\"trainer\":\"partune\",\"space\":{\"world\":[4],$pipeline,\"stages\":[\"even\"]}}")" 422
has "by their rule" "$(cat body)" 'layers-pp-vp'

# ---- the search, on the simulator
id=$(call /v1/campaigns -d "{\"name\":\"simulated\",$model,$(cluster 4),\"trainer\":\"partune\",\"launcher\":{\"kind\":\"simulated\",\"speed\":1000000},
    \"space\":{\"world\":[4],$pipeline,$lists},\"baseline\":{\"pp\":4,\"micro_batch\":1,\"stages\":\"8,8,7,7\"},\"budget\":{\"trials\":3}}" | id_of)
[ -n "$id" ] || { echo "Bail out! no campaign"; exit 99; }
ok "a simulated campaign from the straightforward division" wait_for 60 is_in "$id" done
code "/v1/campaigns/$id/best" >/dev/null
is "finds the better one" "$(see 'v["layout"]["stages"]')" "9*3,3"

# ---- trials that run
id=$(call /v1/campaigns -d "{\"name\":\"real\",$model,$(cluster 4),\"space\":{\"world\":[4],$pipeline,$lists},\"baseline\":{\"pp\":4,\"micro_batch\":1,\"stages\":\"8,8,7,7\"},
    \"search\":{\"method\":\"grid\"},\"budget\":{\"trials\":5},\"trial\":{\"warmup_steps\":1,\"min_steps\":2,\"max_steps\":3}}" | id_of)
[ -n "$id" ] || { echo "Bail out! no campaign"; exit 99; }
ok "a campaign of the bundled trainer" wait_for 240 is_in "$id" done
code "/v1/campaigns/$id/trials?page_size=50" >/dev/null
is "ran every division" "$(see 'sorted({t["layout"]["stages"] for t in v["items"] if t["state"] == "ok"})')" "['10*3,0', '8*2,7*2', '9*3,3', 'balanced', 'balanced-loss']"
taken() { # the worst rank of each trial took what its layout was planned to take
    python3 - data/campaigns/"$id" <<'END'
import glob, json, sys
seen = 0
for name in glob.glob(sys.argv[1] + "/trials/*/1/events"):
    events = [json.loads(line) for line in open(name)]
    for e in events:
        if e["event"] == "summary":
            assert e["memory"]["planned"] == e["memory"]["measured"], (name, e["memory"])
            seen += 1
assert seen >= 5, seen
END
}
ok "in the memory that was planned" taken
code "/v1/campaigns/$id/best" >/dev/null
is "export the best" "$(code "/v1/campaigns/$id/export/partune" && python3 -c 'import json; v = json.load(open("body")); print(" ", v["layout"]["stages"] in ("10*3,0", "8*2,7*2", "9*3,3", "balanced", "balanced-loss"))')" "200  True"
cp body winner.json
ok "and run it alone" sh -c 'mpiexec -n 4 "$1" --config winner.json --steps 1 --quiet </dev/null' sh "$PT_BUILD/partune-train"
finish
