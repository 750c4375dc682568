#!/bin/sh
# Every command of the client against a daemon with a finished campaign (of the simulated launcher): as text, as JSON,
# and with the exit codes that docs/reference/command-line.md lists.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
partune=$PT_BUILD/partune

start
client

exits() { # code, command...: does it leave with that code?
    want=$1
    shift
    "$@" >out 2>err.text </dev/null
    got=$?
    [ "$got" = "$want" ] || { echo "exit $got, wanted $want"; cat out err.text; return 1; }
}
text() { # pattern, command...: exit 0 and the pattern in what it prints
    pattern=$1
    shift
    exits 0 "$@" && { grep -qE -- "$pattern" out || { cat out; return 1; }; }
}
json() { # command...: exit 0 and JSON
    exits 0 "$partune" --json "$@" && { python3 -m json.tool <out >/dev/null || { cat out; return 1; }; }
}

ok "new writes a file that check accepts" sh -c '"$0" new first.json && "$0" check first.json | grep -q "legal layouts"' "$partune"
has "with comments" "$(cat first.json)" '^  // '
mkdir hf
echo '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
 "max_position_embeddings": 64, "vocab_size": 512}' >hf/config.json
ok "new writes a file for a folder of Hugging Face" exits 0 "$partune" new --force --model hf --launcher simulated hf.json
ok "which check accepts" text "legal layouts" "$partune" check hf.json
ok "and plan" text "legal layouts, .* fit" "$partune" plan hf.json
ok "plan takes another model by its repository" text "legal layouts" "$partune" plan hf.json --model meta-llama/Llama-2-7b-hf
ok "plan takes a campaign file, too" text "legal layouts, .* fit" "$partune" plan first.json
ok "and a model on a cluster without a file" text "^global_batch 512;" \
    "$partune" plan --top 2 --model llama-8b --cluster dgx-h100 --nodes 2 --trainer megatron
has "ranked for them" "$(cat out)" "^   1  .* bf16"
ok "but not both" exits 2 "$partune" plan first.json --nodes 2
for trainer in megatron torchtitan deepspeed; do
    ok "a campaign of $trainer on another cluster is written" \
        sh -c '"$0" new --force --model mixtral-8x7b --cluster dgx-h100 --nodes 2 --trainer "$1" --launcher simulated new.json' "$partune" "$trainer"
    ok "and accepted" text "legal layouts" "$partune" check new.json
done
printf '{"name": "x", "model": "llama-8b", "cluster": {"profile": "dgx-h100", "nodes": 2}, "workload": {"global_batch": 64}, "trainer": "megatron",
 "space": {"zero": [3], "tp": [2], "pp": [2], "micro_batch": [1], "recompute": ["none"]}, "budget": {"trials": 3}}' >zero.json
ok "an unsupported combination gets the smallest change" text '"pp": \[1\] instead of \[2\];' "$partune" plan zero.json
sed -e 's/megatron/torchtitan/' -e 's/"zero": \[3\]/"zero": [1]/' zero.json >one.json
ok "an unsupported value gets the nearest supported one" text '"zero": \[[02]\] instead of \[1\];' "$partune" plan one.json
sed 's/"zero": \[3\]/"zero": [1]/' zero.json >one.json
ok "and it is right" text '^ *1  .*tp2' "$partune" plan one.json
printf '{"model": "deepseek-v3", "cluster": {"profile": "dgx-h100", "nodes": 2}, "workload": {"global_batch": 64}, "trainer": "deepspeed"}' >lacks.json
ok "a model that a trainer cannot train is named first" \
    text '^  trainer deepspeed cannot train this model in any layout: .* mtp > 0 .*trainer "any"' "$partune" plan lacks.json
ok "and no list is explained that is not there" sh -c '! grep -q "variants differ" out'
printf '{"model": "llama-8b", "cluster": {"profile": "dgx-h100", "nodes": 2}, "workload": {"global_batch": 64}, "trainer": "megatron",
 "space": {"tp": [1, 2, 4], "pp": [1, 2, 4]}}' >fold.json
families() { # options: different ones among the first eight layouts, without the flags that make variants
    "$partune" plan --top 8 "$@" fold.json | sed -n 's/^ *[1-8]  \(.* bf16\) .*/\1/p' | sed -E 's/ (sp|overlap-[a-z0-9-]+)( |$)/\2/g' | sort -u | wc -l
}
is "a plan lists one layout of each family" "$(families)" 8
ok "and all of them with --unfold" sh -c 'test "$1" -gt 0 && test "$1" -lt 8' - "$(families --unfold)"
printf '{"name": "x", "modle": "llama-8b", "budgte": 3, "workload": {"global_batch": 64}}' >odd.json
ok "an unknown key is refused" exits 1 "$partune" plan odd.json
cat >c.json <<EOF
{"name": "sim", "model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 16},
 "trainer": "megatron", "launcher": {"kind": "simulated", "speed": 100000}, "budget": {"trials": 6},
 "search": {"method": "random", "seed": 3}, "space": {"micro_batch": [1, 2], "pp": [1, 2], "recompute": ["none"]}}
EOF
printf '{"model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 16}, "trainer": "megatron"}' >p.json
printf '{"budget": {"trials": 3}}' >with.json
printf '{"name": "bad", "model": "gpt-1.4B", "workload": {"global_batch": -1}}' >bad.json
printf '{"model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 15}, "layout": {"tp": 5}}' >layout.json
printf '{"model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 16}, "trainer": "megatron", "layout": {"tp": 2}, "against": {"tp": 1}}' >why.json
sed 's/100000/0.001/' c.json >slow.json
sed -e 's/"trials": 6/"trials": 1/' -e 's/{"kind": "simulated"[^}]*}/{"kind": "remote"}/' c.json >none.json
printf '%s' '--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16' >m.args
ok "submit --watch follows to the end" text "^campaign .*: done" "$partune" submit --watch c.json
is "a line for each trial" "$(grep -c '^trial ' out)" 6
has "which knows the best so far" "$(cat out)" '^trial .* simulated tokens/s  best [0-9,]* \([0-9.]* x baseline\)  trial [1-6] of 6'
is "and has no time left after the last" "$(sed -n '/trial 6 of 6/p' out | grep -c left)" 0
has "the end says what won" "$(tail -n 2 out)" '^best +[0-9,]+ .* simulated tokens/s  [0-9.]+ x baseline .* trial [1-6] '
sed 's/"trials": 6/"trials": 1/' c.json >single.json
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do "$partune" submit --watch single.json; done >singles
is "a trial that ends at once has its line, with the best of that time" \
    "$(grep -cE '^trial   1 .* ([0-9,]+) simulated tokens/s  best \1 \(1.00 x baseline\)' singles) of $(grep -c '^campaign .*: done' singles)" "12 of 12"
"$partune" submit --watch c.json >out
id=$(sed -n 's/^campaign \([^ ]*\) (.*/\1/p' out)
ok "watch --json prints events only" sh -c '"$0" --json watch last | python3 -c "import json,sys; [json.loads(l) for l in sys.stdin]"' "$partune"

while read -r pattern command; do
    # shellcheck disable=SC2086 # words are meant
    ok "partune $command" text "$pattern" "$partune" $command
    # shellcheck disable=SC2086
    ok "partune --json $command" json $command
done <<EOF
$id ls --sort -created
tokens/s show $id
tokens/s show last
strong.scaling project $id --sizes 8,16,7
baseline trials $id --kind baseline
phases|state trial $id 1
ms steps $id 1 --limit 2
summary log $id 1 --stream events
traceEvents timeline $id 1
tokens/s best $id
tokens/s baseline $id
cost.model|trial why $id 2
against.trial.2 why $id 1 --against 2
share|nothing importance $id
worker workers
memory pareto $id
predicted predictions $id
expected surface $id tp micro_batch
{ diagnosis $id
layout compare $id/1 $id/2
layout compare last/1 last/2
best.layout compare last $id
tensor-model export $id --to megatron --allow-loss --allow-simulated
gpt-22B presets models
dgx-a100 presets clusters
synthetic datasets
megatron exporters
layouts plan p.json
devices plan --example frontier-1t
legal check c.json
no|id tokens
openapi get /openapi.json
campaign edit $id --notes=x --tags=a,b
EOF
ok "importance lists the largest shares first" sh -c '"$0" importance "$1" >shares; grep -q "too few" shares ||
    sed -n "2,/^values/s/^[^ ]*  *\([0-9.]*\) %.*/\1/p" shares | sort -c -r -n' "$partune" "$id"
ok "a name filters the list" text "$id" "$partune" ls --name Im
ok "no match is reported" text "no campaign matches" "$partune" ls --name nothing
ok "the priority is changed" sh -c '"$0" edit "$1" --priority -7 && "$0" --json show "$1" | grep -q "\"priority\": -7"' "$partune" "$id"
# Part of a character, an escape sequence, more than one answer holds, and no end of line.
out=$(ls -d data/campaigns/"$id"/trials/1/*/ | tail -n 1)stdout
{ printf '\303 \033[31m'; seq 200000; printf 'the end'; } >"$out"
ok "any log is one JSON object" sh -c '"$0" --json log "$1" 1 | python3 -c "import json,sys; t = json.load(sys.stdin)[\"text\"]; assert t.startswith(\"? \") and t.endswith(\"200000\\nthe end\"), t[:9]"' "$partune" "$id"
for command in "ls" "trials $id" "compare $id/1 $id/2" "presets models" "workers" "steps $id 1" "pareto $id" "predictions $id" \
    "importance $id"; do
    # shellcheck disable=SC2086 # words are meant
    COLUMNS=40 "$partune" $command >out
    is "no line of partune $command is wider than a terminal of 40 columns" "$(python3 -c 'import sys
print(max(len(l) for l in open("out").read().splitlines()) <= 40)')" True
done
ok "check explains a layout against another" text "^tp  *1  *2 " "$partune" check why.json
ok "a plan says what the rules exclude" text "excluded from" "$partune" plan p.json
cat >tight.json <<'END'
{"name": "tight", "model": "llama-8b", "cluster": {"profile": "dgx-h100", "nodes": 1}, "workload": {"global_batch": 64},
 "trainer": "megatron", "constraints": {"memory_headroom": 0.5}, "budget": {"trials": 3},
 "space": {"tp": [1, 2, 4, 8], "precision": ["bf16"]}, "launcher": {"kind": "simulated"}}
END
"$partune" submit --dry-run tight.json >tight.text
has "a dry run says what the models expect of the baseline" "$(cat tight.text)" '^                 expected: [0-9.]+ s an iteration, [0-9.]+ GiB of 40.0 GiB$'
is "and nothing of a timeout that is long enough" "$(grep -c '^timeout' tight.text)" 0
sed 's/"budget"/"trial": {"timeout_s": 62}, "budget"/; s/"global_batch": 64/"global_batch": 1024/' tight.json >short.json
has "and that a timeout is too short for the fewest steps" "$("$partune" submit --dry-run short.json)" '^timeout          trial.timeout_s 62 is too short: the fewest steps of the baseline take about [0-9]+ s$'
sed 's/"tp": \[1, 2, 4, 8\]/"tp": [8]/; s/"memory_headroom": 0.5/"memory_headroom": 0.05/' tight.json >eight.json
has "a default baseline outside the space is named" "$("$partune" submit --dry-run eight.json)" '^baseline  *default: .*, outside the space: tp [124](, |; name)'
has "a plan leaves as much memory free as its campaign" "$("$partune" plan tight.json | grep '^memory ')" 'need more than the 40 GiB that a device offers$'
sed 's/"space".*/"layout": {"tp": 1, "precision": "bf16"}}/' tight.json >tight-layout.json
ok "a campaign with a layout is that layout's check" exits 1 "$partune" check tight-layout.json
has "which says how much is missing" "$("$partune" check tight-layout.json)" '^fits     no: needs [0-9.]+ GiB more than the 40.0 GiB of a device'
ok "clone with changes" text "campaign" "$partune" clone "$id" --with with.json --name again
ok "its budget is the changed one" sh -c '"$0" show last | grep -q "^trials  *[0-9]* of 3;"' "$partune"
ok "a timeline goes into a file" sh -c '"$0" timeline "$1" 1 -o t.json && grep -q traceEvents t.json' "$partune" "$id"
printf 'torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --bf16 "$@"\n' >job.sh
sed 's/"budget"/"launcher": {"kind": "simulated"}, "budget"/' one.json >script.json
ok "a job script is a baseline" text "^baseline  *given: the campaign's own layout" "$partune" submit --dry-run script.json --baseline job.sh --world 8
ok "of check, too" text "^baseline  *given" "$partune" check script.json --baseline job.sh
ok "read as what --from says" exits 1 "$partune" check script.json --baseline job.sh --from deepspeed
has "by its importer" "$(cat err.text)" "/baseline/text"
ok "a script that is not there is exit 6" exits 6 "$partune" check script.json --baseline none.sh
ok "and without one --from is wrong usage" exits 2 "$partune" check script.json --from megatron
ok "an import gives a layout" text '"tp": 2' "$partune" import megatron m.args --model gpt-1.4B --world 8
called="$PT_SRC/tests/data/import/called.sh"
ok "a job script that takes arguments is read as it is called" text '"tp": 4' "$partune" import megatron "$called" --model llama-70b --world 32 \
    --call "DTYPE=fp8 bash called.sh 70b --micro-batch=2 --tp 4"
ok "without a call it is refused" exits 1 "$partune" import megatron "$called" --model llama-70b --world 32
has "by the option that gives one" "$(cat err.text)" '--call'
printf 'torchrun pretrain_gpt.py --tensor-model-parallel-size $1 --micro-batch-size 1 --bf16\n' >sized.sh
ok "as a baseline, too" text "^baseline  *given" "$partune" check script.json --baseline sized.sh --world 8 --call "sbatch sized.sh 2"
ok "with a tp that no layout has" exits 1 "$partune" check script.json --baseline sized.sh --world 8 --call "sbatch sized.sh 3"
ok "a call without a script is wrong usage" exits 2 "$partune" check script.json --call "sbatch sized.sh 2"
cat >deepseek.args <<'END'
--kv-channels 128 --mtp-num-layers 1 --v-head-dim 64 --micro-batch-size 1 --lr 3e-4 --train-samples 10 --min-lr 3e-5
END
"$partune" import megatron deepseek.args --model deepseek-v3 --world 8 >imported.text 2>&1
has "settings of another model are by themselves" "$(cat imported.text)" '^  ignored --v-head-dim: 64, but deepseek-v3 has 128: another model\?'
is "and latent attention has no --kv-channels" "$(grep -c ' ignored ' imported.text)" 1
has "others are one paragraph" "$(cat imported.text)" '^  no settings of the layout: --kv-channels --lr --train-samples --min-lr$'
"$partune" import megatron c.json --model deepseek-v3 --world 8 >imported.text 2>&1
is "what is refused there is not for partune check" "$(grep -c 'partune check' imported.text)" 0
ok "a token is made" sh -c '"$0" token-add ci --scope read >token && "$0" tokens | grep -q " ci "' "$partune"
PARTUNE_TOKEN=$(cat token) ok "and may read, not more (5)" exits 5 "$partune" --token "$(cat token)" cancel "$id"
has "and the missing scope is named" "$(cat err.text)" "token with a wider scope"
ok "a token is revoked" sh -c '"$0" --json tokens | sed -n "s/.*\"id\": \"\([^\"]*\)\".*/\1/p" | while read -r t; do "$0" token-rm "$t"; done' "$partune"
ok "no access is exit 5" exits 5 "$partune" --token pt_wrong ls
ok "what does not exist is exit 4" exits 4 "$partune" show zzzzzzzz
has "with the command that lists them" "$(cat err.text)" "partune ls"
ok "so is an export target that does not exist" exits 4 "$partune" export "$id" --to megatro
has "with those that do" "$(cat err.text)" 'there are .*megatron, .*; slurm\+'
ok "an unknown path is exit 4" exits 4 "$partune" get /v1/nothing
has "with where all paths are listed" "$(cat err.text)" "openapi.json"
ok "so is a trial without a number" exits 4 "$partune" trial "$id" abc
has "with a message" "$(cat err.text)" "is not a valid"
ok "a refusal is exit 1" exits 1 "$partune" pause "$id"
has "with a fix" "$(cat err.text)" "partune show"
ok "a campaign that breaks the schema is exit 1" exits 1 "$partune" check bad.json
has "and the field is named" "$(cat err.text)" "/workload/global_batch"
ok "a layout that breaks a rule is exit 1" exits 1 "$partune" check layout.json
has "by the rule's name" "$(cat out)" "heads-tp"
ok "wait: a timeout is exit 9" sh -c '"$0" submit slow.json && { "$0" wait last --timeout 1; [ $? = 9 ]; }' "$partune"
ok "a paused campaign is exit 8" sh -c '"$0" pause last && { "$0" wait last; [ $? = 8 ]; }' "$partune"
"$partune" resume last >out
"$partune" wait last >waited 2>&1 &
waiter=$!
ok "a cancelled campaign is exit 7" sh -c 'sleep 1; "$0" cancel last' "$partune"
wait "$waiter"
is "also for a client that has waited" "$?: $(grep -c '^campaign .*: cancelled' waited)" "7: 1"
ok "a campaign that is done is exit 0, with its best" text "^best .* simulated tokens/s" "$partune" wait "$id"
ok "wait --json prints the campaign" sh -c '"$0" --json wait "$1" | python3 -c "import json,sys; assert json.load(sys.stdin)[\"state\"] == \"done\""' "$partune" "$id"
"$partune" submit c.json >out
ok "the end is waited for" text "^campaign .*: done" "$partune" wait last
ok "an unknown campaign is exit 4" exits 4 "$partune" wait zzzzzzzz
none=$("$partune" --json submit none.json | sed -n '1,3s/.*"id": "\([^"]*\)".*/\1/p')
call "/v1/campaigns/$none:suggest" -d '{"worker": "w", "wait_s": 10}' >offer
call "/v1/campaigns/$none/trials/1:complete" -d "{\"lease\": \"$(sed 's/.*"lease":"\([^"]*\)".*/\1/' offer)\", \"status\": \"oom\"}" >told
ok "a campaign that is done without a success is exit 6" exits 6 "$partune" wait "$none" --timeout 30
"$partune" best "$none" >out 2>&1
has "it has no best, and none is promised" "$(cat out)" 'no trial of campaign [a-z0-9]* succeeded$'
has "but a hint where to look" "$(cat out)" 'partune trials ID'
ok "submit --watch --json prints an event a line, also those before it listened" python3 - "$partune" <<'EOF'
import json, signal, subprocess, sys, time
partune = [sys.argv[1], "--json"]
client = subprocess.Popen([*partune, "submit", "--watch", "c.json"], stdout=subprocess.PIPE, text=True)
first = json.loads(client.stdout.readline())
client.send_signal(signal.SIGSTOP)
while json.loads(subprocess.check_output([*partune, "show", first["data"]["id"]]))["state"] != "done":
    time.sleep(0.05)
client.send_signal(signal.SIGCONT)
events = [first, *map(json.loads, client.stdout)]
assert {e["data"]["n"] for e in events if e["event"] == "trial"} == {1, 2, 3, 4, 5, 6}, events
assert events[0]["event"] == "campaign" and [e for e in events if e["event"] == "campaign"][-1]["data"]["state"] == "done", events
assert client.wait() == 0
EOF
ok "verify --wait --json, too" sh -c '"$0" --json verify last --wait --pairs 2 --steps 5 >out; tail -n 1 out | grep -q "^{\"event\":\"verify\"" && python3 -c "import json; [json.loads(l) for l in open(\"out\")]"' "$partune"
ok "new - --json is the campaign" sh -c '"$0" --json new - | python3 -c "import json,sys; assert json.load(sys.stdin)[\"budget\"]"' "$partune"
"$partune" --json manual >manual.json
is "manual --json has every command" "$(python3 -c 'import json; print(" ".join(c["name"] for c in json.load(open("manual.json"))["commands"]))')" \
    "$("$partune" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' | xargs)"
is "the documents have its exit codes" "$(sed -n '/^## Exit status/,/^## Commands/s/^\([0-9][0-9]*\) | \(.*\)/\1 \2/p' "$PT_SRC/docs/reference/command-line.md")" \
    "$(python3 -c 'import json
for e in json.load(open("manual.json"))["exit_status"]: print(e["code"], e["meaning"])')"
ok "a cancelled campaign that is watched is exit 6" sh -c '"$0" submit slow.json && "$0" cancel last && { "$0" watch last; [ $? = 6 ]; }' "$partune"
ok "delete" text "deleted" "$partune" rm "$id"
ok "and it is deleted" exits 4 "$partune" show "$id"

# Every resource of the API has its command in the manual of commands.
"$partune" get /openapi.json | python3 -c 'import json,sys
for path, methods in json.load(sys.stdin)["paths"].items():
    for m in methods: print(m.upper(), path)' >routes
missing=$(while read -r method path; do grep -qF "\`$method $path\`" "$PT_SRC/docs/reference/command-line.md" || echo "$method $path"; done <routes)
is "docs/reference/command-line.md names a command for each route" "$missing" ""
finish
