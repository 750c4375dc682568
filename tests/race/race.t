#!/bin/sh
# The referee of a race between searches: what it counts, that all get the same, and what becomes of searches that end, stay silent,
# cheat or talk nonsense. `make race` is the real one.
race=${PT_BUILD:?}/tests/race/race searches=${PT_SRC:?}/tests/race/searches
search=$PT_BUILD/partune-search
dir=$PT_BUILD/tests/run/race.$$
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
export PYTHONDONTWRITEBYTECODE=1 TMPDIR="$dir" PYTHONPATH="$searches"
python=/usr/bin/python3
n=0
is() { # name, command that must succeed
    n=$((n + 1))
    name=$1
    shift
    if "$@" >"$dir/said" 2>&1; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        sed 's/^/# /' "$dir/said" "$dir/out" "$dir/err"
    fi
}
run() { "$race" --seeds 2 --generated 0 "$@" >"$dir/out" 2>"$dir/err"; }
got() { # search, field, value
    grep -F "/$1\"" "$dir/out" | grep -q "\"$2\":$3[,}]"
}
says() { grep -qF -- "$1" "$dir/err"; }

# Eight layouts, two of them out of memory, the best known.
cat >"$dir/table.json" <<'E'
{"model":"gpt","system":"dgx-a100","gpus":8,"global_batch":32,"hidden":2048,"layers":24,"heads":16,"seq":1024,"ffn":8192,"rows":[
{"tp":1,"pp":1,"vp":1,"mb":1,"recompute":"none","zero":0,"sp":0,"tokens_per_s":100},
{"tp":1,"pp":1,"vp":1,"mb":2,"recompute":"none","zero":0,"sp":0,"tokens_per_s":null},
{"tp":2,"pp":1,"vp":1,"mb":1,"recompute":"none","zero":0,"sp":0,"tokens_per_s":200},
{"tp":2,"pp":1,"vp":1,"mb":2,"recompute":"none","zero":0,"sp":0,"tokens_per_s":1000},
{"tp":4,"pp":1,"vp":1,"mb":1,"recompute":"none","zero":0,"sp":0,"tokens_per_s":960},
{"tp":4,"pp":1,"vp":1,"mb":2,"recompute":"none","zero":0,"sp":0,"tokens_per_s":400},
{"tp":8,"pp":1,"vp":1,"mb":1,"recompute":"none","zero":0,"sp":0,"tokens_per_s":300},
{"tp":8,"pp":1,"vp":1,"mb":2,"recompute":"none","zero":0,"sp":0,"tokens_per_s":null}]}
E
# Layouts in the order of the list, over and over; the log has what was told of them.
cat >"$dir/listed.py" <<'E'
import sys
import racing
class Search:
    def __init__(self, campaign, layouts):
        self.layouts, self.at, self.log = layouts, 0, open(sys.argv[0] + ".log", "a")
        print(campaign["search"]["seed"], campaign["budget"]["trials"], file=self.log)
    def ask(self):
        self.at += 1
        return self.layouts[(self.at - 1) % len(self.layouts)]
    def tell(self, layout, tokens_per_s):
        print(layout["tp"], layout["micro_batch"], tokens_per_s, file=self.log, flush=True)
racing.serve(Search(*racing.files()))
E
sed 's/(self.at - 1)/0 * self.at/' "$dir/listed.py" >"$dir/first.py"
cat >"$dir/cheat.py" <<'E'
import racing
class Search:
    def __init__(self, campaign, layouts):
        self.layout = dict(layouts[0], micro_batch=16)
    def ask(self):
        return self.layout
    def tell(self, layout, tokens_per_s):
        assert tokens_per_s is None
racing.serve(Search(*racing.files()))
E

is "a race is run" run --noise 0 "listed=$python '$dir/listed.py'" "$dir/table.json"
is "trials to within 5 % of the best" got listed value 4
is "trials to within 1 %" got listed trials_to_1pct 4
is "the share that ran out of memory on the way" got listed oom_share 0.2500
is "all of the table's layouts are listed" got listed layouts 8
is "the last table has it" grep -q '^computed  *listed  *4  *4  *4  *25.0%  *1$' "$dir/out"
printf '%s\n' '1 120' '1 1 100.0' '1 2 0.0' '2 1 200.0' '2 2 1000.0' '2 120' '1 1 100.0' '1 2 0.0' '2 1 200.0' '2 2 1000.0' >"$dir/wanted"
is "a search is told what it measured, out of memory as such" diff "$dir/wanted" "$dir/listed.py.log"
is "two searches race" run "one=$python '$dir/listed.py'" "two=$python '$dir/first.py'" "$dir/table.json"
one=$(grep '^1 1 ' "$dir/listed.py.log" | tail -n 1) two=$(grep '^1 1 ' "$dir/first.py.log" | sed -n 121p)
is "both see the same noise of one layout" [ "$one" = "$two" ]
is "a layout measured again has other noise" sh -c '[ "$(grep "^1 1" "$0" | sort -u | wc -l)" -gt 100 ]' "$dir/first.py.log"
is "what is never near the best is -1" got two value -1
is "and never in the table" grep -q '^computed  *two  *never' "$dir/out"

is "our search and two examples" run "partune='$search'" "random=$python '$searches/random_order.py'" "grid=$python '$searches/grid.py'" "$dir/table.json"
is "all find the best of eight" sh -c '! grep -q "\"value\":-1" "$0" && [ "$(grep -c "\"value\"" "$0")" = 3 ]' "$dir/out"
is "our search with other settings" run "plain=$python '$searches/partune_with.py' '$search' '{\"prior\": \"none\"}'" "$dir/table.json"
is "finds it, too" sh -c 'grep -q "\"value\":[1-8]," "$0"' "$dir/out"
if $python -c 'import optuna' 2>/dev/null; then
    is "Optuna's sampler" run "tpe=$python '$searches/optuna_sampler.py' tpe" "$dir/table.json"
    is "finds it, too" sh -c 'grep -q "\"value\":[1-8]\(\.5\)*," "$0"' "$dir/out"
fi
is "random landscapes" run --generated 1 --trials 3 "random=$python '$searches/random_order.py'"
is "are named by their number" grep -q '"case":"generated-5000/random"' "$dir/out"

is "a search that ends" run "ended=true" "listed=$python '$dir/listed.py'" "$dir/table.json"
is "is named" says 'race: ended on table, seed 1, after 0 trials: ended has ended'
is "and the race goes on" got listed layouts 8
is "a search that stays silent" run --patience 0.2 "silent=sh -c 'sleep 60'" "$dir/table.json"
is "has its time" says 'silent did not answer within 0.2 s'
is "a search that talks nonsense" run "odd=sh -c 'while read -r line; do echo hello; done'" "$dir/table.json"
is "is quoted" says 'odd answered "hello"'
is "a search that proposes what is not in the list" run --seeds 1 "cheat=$python '$dir/cheat.py'" "$dir/table.json"
is "is stopped" says 'more than 10000 layouts that are not in the list'
is "an ask that is answered with something else" run "other=sh -c 'while read -r line; do echo {}; done'" "$dir/table.json"
is "is said" says 'an ask was answered neither "trial" nor "done"'
is "without a search there is no race" sh -c '! "$0" "$1"' "$race" "$dir/table.json"
is "what is no table is refused" sh -c '! "$0" --generated 0 random=true "$1"' "$race" "$dir/listed.py"
is "nothing is left behind" sh -c '[ -z "$(find "$0" -name "partune-race.*")" ]' "$dir"

# ---- partune-search --layouts, which a race uses ----
cat >"$dir/campaign.json" <<'E'
{"model": {"name": "m", "layers": 24, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 51200, "seq": 1024},
 "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 32}, "trainer": "megatron",
 "space": {"tp": [1, 2, 4], "pp": [1, 2], "micro_batch": [1, 2]}, "search": {"seed": 3}}
E
printf '%s\n' '{"tp":1,"pp":2}' '' '{"tp":2,"pp":1,"micro_batch":2}' '{"pp":2,"tp":1}' >"$dir/list"
printf '%s\n' '{"op":"ask"}' '{"op":"tell","id":1,"status":"oom"}' '{"op":"ask"}' '{"op":"tell","id":2,"status":"oom"}' '{"op":"ask"}' >"$dir/session"
search() { "$search" --layouts "$dir/list" "$dir/campaign.json" <"$dir/session" >"$dir/out" 2>"$dir/err"; }
is "a search over a list" search
is "tries each of its layouts once" sh -c '[ "$(grep -c "\"op\":\"trial\"" "$0")" = 2 ] && grep -q exhausted "$0"' "$dir/out"
refused() { ! search && grep -qF "$dir/list:$1: $2" "$dir/err"; }
refuse() { # line, reason, layout
    printf '%s\n' '{"tp":1,"pp":2}' "$3" >"$dir/list"
    is "refused: $3" refused "$1" "$2"
}
refuse 2 "world-dense" '{"tp":3}'
refuse 2 "tp8" '{"tp":8}'
refuse 2 '"nope" is unknown' '{"nope":1}'
refuse 2 "not JSON" 'tp 1'
: >"$dir/list"
empty() { ! search && grep -qF "$dir/list has no layouts" "$dir/err"; }
is "an empty list is refused" empty
echo "1..$n"
