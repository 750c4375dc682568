#!/bin/sh
# Plans and campaigns over spaces of any size: each is answered soon, with what it says true; one token's plans hold up
# nobody else's requests; who hangs up ends his; and a stop does not wait for any of them.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
start
client
# SECONDS are many times what is wanted (two), for machines that are busy.
post() { # path, body; further arguments of curl
    path=$1 body=$2
    shift 2
    rm -f body # what an earlier request was answered is no answer to this one
    curl -s -m 15 -o body -w '%{http_code}' -H "${as:-$A}" -H "$J" -d "$body" "$@" "$url$path"
}
field() { [ ! -f "${2:-body}" ] || tr ',{}' '\n\n\n' <"${2:-body}" | sed -n "s/^\"$1\"://p" | head -n 1; }
# As post, until the answer is of the whole space, ten times at most: on a busy machine two seconds are less.
whole() {
    for try in 1 2 3 4 5 6 7 8 9 10; do
        status=$(post "$@")
        [ "$status" = 200 ] && [ "$(field exact)" != true ] || break
    done
    echo "$status"
}
cpu() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; } # hundredths of a second
token() { $C -X POST -H "$A" -H "$J" -d "{\"name\":\"$1\",\"scope\":\"$2\"}" "$url/v1/tokens" | sed -n 's/.*"token":"\([^"]*\)".*/\1/p'; }

llama='"model":"llama-70b","cluster":{"profile":"dgx-h100","nodes":64},"workload":{"global_batch":1024}'
mixtral='"model":"mixtral-8x7b","cluster":{"profile":"dgx-h100","nodes":8},"workload":{"global_batch":256}'
huge='"model":"deepseek-v3-like","cluster":{"profile":"dgx-h100","nodes":1024},"workload":{"global_batch":8192},"trainer":"any","space":{"cp":"auto","world":"auto","precision":"auto"}'
# Longer than an answer takes on any machine, but not for minutes.
large='"model":"deepseek-v3-like","cluster":{"profile":"dgx-h100","nodes":1024},"workload":{"global_batch":8192},"trainer":"any","space":{"cp":"auto"}'
simulated='"launcher":{"kind":"simulated","speed":1000000}'

# ---- plans
before=$(cpu)
is "a plan without a trainer" "$(post /v1/plan "{$llama}")" 200
ok "takes a moment" test $(($(cpu) - before)) -lt 300
is "and covers the whole space" "$(whole /v1/plan "{$llama}") $(field exact)" "200 true"
ok "with thousands of layouts" test "$(field legal)" -gt 10000
is "a plan over an enormous space" "$(post /v1/plan "{$huge}")" 200
is "says that it is not exact" "$(field exact)" false
ok "how far it came" test "$(field legal)" -gt 1000
has "and lists layouts" "$(cat body)" '"tokens_per_s"'

# A shape has millions of layouts there: one alone takes longer than there is.
every_option=$(python3 -c 'print(",".join("\"%s\":\"auto\"" % k for k in "cp_comm shard recompute_method recompute_num_layers tp_overlap cuda_graphs offload_optimizer offload_params offload_activations recompute_mlp recompute_layernorm recompute_core_attn".split()))')
before=$(cpu)
is "a plan with every option" "$(post /v1/plan "{$llama,\"trainer\":\"megatron\",\"space\":{$every_option}}")" 200
ok "takes a moment, too" test $(($(cpu) - before)) -lt 300
has "and lists layouts that have options" "$(cat body)" '"tp_overlap":1'
is "and its dry run" "$(post '/v1/campaigns?dry_run=true' "{\"name\":\"a\",$llama,\"trainer\":\"megatron\",\"space\":{$every_option},$simulated}")" 200
has "knows that some fit" "$(cat body)" '"fitting":[1-9]'

deepseek='"model":"deepseek-v3","cluster":{"profile":"dgx-h100","nodes":64},"workload":{"global_batch":1024},"trainer":"megatron"'
few='"tp":[4],"pp":[4,8],"ep":[64]'
# It is looked for in the time that is left: on a busy machine the next answer may be the one that has it.
is "a plan whose space does not name what would help most" "$(post /v1/plan "{$deepseek,\"space\":{$few}}")" 200
says() { post /v1/plan "{$deepseek,\"space\":{$few}}" >answer && grep -q '"beyond":{"keys":"[^"]*moe_dispatch ' body; }
ok "says what that is" wait_for 30 says
printf '{%s,"space":{%s}}' "$deepseek" "$few" >file.json
prints() { "$PT_BUILD/partune" --server "$url" --data data plan file.json >printed && grep -q 'options that this space does not name:.*moe_dispatch' printed; }
ok "the client, too" wait_for 30 prints
is "one that names it" "$(post /v1/plan "{$deepseek,\"space\":{$few,$every_option,\"moe_dispatch\":\"auto\",\"recompute_mla_up_proj\":\"auto\",\"recompute_moe_act\":\"auto\",\"recompute_moe\":\"auto\",\"recompute_shared_experts\":\"auto\",\"fp8_param_gather\":\"auto\"}}")" 200
has "has nothing more to say" "$(cat body)" '"beyond":null'

for i in 1 2; do post /v1/plan "{$llama,\"top\":$i}" -H 'Idempotency-Key: one' >status.$i; done
is "a plan is not stored under its Idempotency-Key" "$(cat status.1 status.2)" 200200

# ---- one answer
whole /v1/plan "{$mixtral}" >/dev/null
legal=$(field legal) fitting=$(field fitting)
is "a dry run without space and trainer" "$(whole '/v1/campaigns?dry_run=true' "{\"name\":\"a\",$mixtral,$simulated}")" 200
is "counts as the plan does" "$(field legal) $(field fitting) $(field exact)" "$legal $fitting true"
ruled="$mixtral,\"trainer\":\"any\",\"rules\":\"megatron\""
is "a plan for a trainer with another's rules" "$(whole /v1/plan "{$ruled}")" 200
by=$(field legal)
is "is held to them, as its campaign is" "$(whole '/v1/campaigns?dry_run=true' "{\"name\":\"a\",$ruled,$simulated}") $(field legal)" "200 $by"
ok "which are stricter than none" test "$by" -lt "$legal"
printf '{"name":"a","tags":["t"],"notes":"n","priority":1,"objective":"tokens_per_s","budget":{"trials":4},"trial":{"min_steps":3},
    "search":{"seed":2},"baseline":"naive","constraints":{"memory_headroom":0.1},"stack":{"name":"s","like":"aleph-flash2"},"space":{"tp":[1,2]},%s,%s}' "$ruled" "$simulated" >whole.json
for command in plan size 'submit --dry-run'; do
    "$PT_BUILD/partune" --server "$url" --data data $command whole.json >out 2>&1
    is "a campaign file with every key is understood by partune $command" "$? $(grep -c unknown out)" "0 0"
done
none='"model":"llama-70b","cluster":{"profile":"dgx-h100","nodes":1},"workload":{"global_batch":64},"trainer":"megatron","space":{"tp":[1,2],"pp":[1,2],"zero":[0],"recompute":["none"]}'
baseline='"baseline":{"tp":8,"pp":1,"zero":0,"micro_batch":1,"recompute":"full","precision":"bf16"}'
is "a plan that fits nowhere" "$(post /v1/plan "{$none}")" 200
reason=$(sed -n 's/.*"reason":"\([^"]*\)".*/\1/p' body) legal=$(field legal)
has "says so" "$reason" "^none of $legal legal layouts fits"
is "and its dry run" "$(post '/v1/campaigns?dry_run=true' "{\"name\":\"a\",$none,$baseline,$simulated}")" 200
has "says the same" "$(cat body)" "\"legal\":$legal,\"fitting\":0,\"exact\":true"
is "in the same words" "$(sed -n 's/.*"reason":"\([^"]*\)".*/\1/p' body)" "$reason"
has "and expects no trials but the baseline" "$(cat body)" '"expected_trials":1.0,'
"$PT_BUILD/partune" --server "$url" --data data submit --dry-run - >out 2>&1 <<EOF
{"name":"a",$none,$baseline,$simulated}
EOF
has "and so says the client" "$(cat out)" "^none of $legal legal layouts fits"

# ---- the largest spaces of presets, and a model with more choices than anybody would wait for
# By the daemon's processor time: the clock is shared with whatever else runs.
costs() { # name, path, body, statuses, hundredths
    before=$(cpu)
    status=$(post "$2" "$3")
    took=$(($(cpu) - before))
    echo "# $1: $status, $took hundredths of a second"
    ok "$1: answered" expr "$status" : "$4\$"
    ok "$1: stays within its time limit" test "$took" -lt "${5:-200}"
}
for case in "mula-220b-a10b partune 8192" "mula-220b-a10b partune 512" "deepseek-v3-like torchtitan 8192" "mula-100b-a7b megatron 8192" "mula-20b-a2b deepspeed 8192"; do
    # shellcheck disable=SC2086
    set -- $case
    long="\"model\":\"$1\",\"trainer\":\"$2\",\"cluster\":{\"profile\":\"dgx-h100\",\"nodes\":$(($3 / 8))},\"workload\":{\"global_batch\":$3,\"seq\":131072}"
    costs "a plan of 131,072 tokens, $case" /v1/plan "{$long}" 200
    costs "and its dry run" '/v1/campaigns?dry_run=true' "{\"name\":\"a\",$long,$simulated}" '\(200\|422\)'
done
many='"model":{"name":"many","layers":720,"hidden":11520,"heads":720,"kv_heads":720,"ffn":184320,"vocab":128000,"seq":131072,"moe":{"experts":720,"top_k":8,"expert_ffn":720}},"cluster":{"profile":"dgx-h100","nodes":1024},"workload":{"global_batch":40320}'
costs "a dry run with a baseline among too many layouts" '/v1/campaigns?dry_run=true' "{\"name\":\"a\",$many,$simulated}" 422
has "names the field" "$(cat body)" '"pointer":"/baseline"'

hybrid='"model":"nemotron-3-nano-30b-a3b","cluster":{"profile":"dgx-h100","nodes":1024},"workload":{"global_batch":8192}'
costs "a plan of a model with many layouts, whatever the trainer" /v1/plan "{$hybrid}" 200
costs "a plan of a model that the trainer lacks" /v1/plan "{$hybrid,\"trainer\":\"partune\"}" 200 100
has "names what it lacks" "$(cat body)" '"exact":true,"items":\[\],"reason":"trainer partune cannot train this model'

# ---- campaigns
is "a campaign without space and trainer is accepted" "$(post /v1/campaigns "{\"name\":\"a\",$mixtral,$simulated,\"budget\":{\"trials\":3}}")" 201
id=$(field id | tr -d '"')
state() { $C -H "$A" "$url/v1/campaigns/$1" >"state"; grep -q "$2" state; }
ok "and ends" wait_for 60 state "$id" '"state":"done"'
is "one over a large space is accepted" "$(post /v1/campaigns "{\"name\":\"b\",$large,$simulated,\"budget\":{\"trials\":3}}")" 201
id=$(field id | tr -d '"')
has "with a lower bound of its layouts" "$(cat body)" '"legal":[0-9]+,"fitting":[0-9]+,"exact":false'
has "and the reason why it waits" "$(cat body)" '"reason":"preparing the space"'
kill -KILL "$pid"
wait "$pid" 2>/dev/null
start
ok "a kill in between loses nothing" wait_for 400 state "$id" '"state":"done"'
has "and the reason disappears" "$(cat state)" '"reason":"budget"'

# ---- work without a bound holds up none that has one
curl -s -m 60 -o /dev/null -w '%{http_code}' -H "$A" "$url/v1/campaigns/$id/surface?x=tp&y=micro_batch" >surface &
asker=$!
pids="$pids $asker"
sleep 0.5
is "a dry run, while the same token asks for a surface" "$(post '/v1/campaigns?dry_run=true' "{\"name\":\"a\",$mixtral,$simulated}")" 200
is "does not wait for it" "$(cat surface)" ""
kill "$asker"
idle() { before=$(cpu); sleep 1; [ $(($(cpu) - before)) -lt 20 ]; }
ok "which ends with its client" wait_for 10 idle

# ---- who asks pays
a=$(token a read) b=$(token b read)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    (as="Authorization: Bearer $a"; curl -s -m 40 -D "head.$i" -o /dev/null -w '%{http_code}\n' -H "$as" -H "$J" -d "{$huge}" "$url/v1/plan" >"flood.$i") &
    pids="$pids $!"
done
some() { cat flood.* | grep -q 429; }
ok "a token with several plans is told to wait" wait_for 20 some
has "and for how long" "$(cat head.*)" 'Retry-After: [0-9]'
is "another token's plan is served meanwhile" "$(as="Authorization: Bearer $b"; post /v1/plan "{$llama}")" 200
i=0
while [ $i -lt 100 ]; do
    i=$((i + 1))
    curl -s -m 10 -o /dev/null -w '%{http_code} %{time_total}\n' -H "$A" "$url/v1/campaigns"
done | sort -k 2 -n >gets
is "and a hundred other requests" "$(grep -c '^200' gets)" 100
echo "# seconds of a GET meanwhile: median $(sed -n '50s/200 //p' gets), 99 of 100 under $(sed -n '99s/200 //p' gets)"
ok "soon" awk 'NR == 99 { exit !($2 < 1) }' gets
left() { [ "$(cat flood.* | wc -l)" -eq 16 ]; }
ok "each of the flood is answered" wait_for 60 left

# ---- who hangs up
for i in 1 2 3 4 5 6 7 8; do
    curl -s -m 0.4 -o /dev/null -H "Authorization: Bearer $a" -H "$J" -d "{$huge}" "$url/v1/plan" &
    hung="${hung:-} $!"
done
wait $hung
free() { [ "$(as="Authorization: Bearer $a"; post /v1/plan "{$mixtral}")" = 200 ]; }
ok "a plan of a disconnected client is dropped" wait_for 10 free
before=$(cpu)
sleep 1
ok "and takes no more time" test $(($(cpu) - before)) -lt 40

# ---- two kinds of devices
parts='{"parts":[{"profile":"dgx-h100","nodes":2},{"profile":"dgx-a100","nodes":4}]}'
both='"model":"llama-70b","trainer":"megatron","workload":{"global_batch":256},"cluster":'
is "a plan over parts" "$(post /v1/plan "{$both$parts,\"top\":3}")" 200
cp body parts.json
ok "says which stages lie where" grep -q '"placement":\[{"part":[01],"name":"dgx-[ah]100"' parts.json
ok "what each part does alone" grep -q '"alone":\[{"name":"dgx-h100","devices":16,.*{"name":"dgx-a100","devices":32,' parts.json
ok "and that the link was not given" grep -q '"between_given":false' parts.json
ok "with a list of stages" grep -q '"stages":"[0-9]*[*,]' parts.json
is "a link between may be given" "$(post /v1/plan "{$both${parts%?},\"between\":{\"gbs\":1}},\"top\":1}") $(field between_given)" "200 true"
is "a space has no world there" "$(post /v1/plan "{$both$parts,\"space\":{\"world\":48}}") $(grep -c '/space/world' body)" "422 1"
is "nor does a plan rank by joules" "$(post /v1/plan "{$both$parts,\"objective\":\"tokens_per_joule\"}") $(grep -c '"/objective"' body)" "422 1"
is "parts without a pipeline in common are" "$(post /v1/plan "{$both{\"parts\":[{\"profile\":\"dgx-h100\",\"nodes\":1},{\"profile\":\"dgx-a100\",\"nodes\":99}]}}") $(grep -c '"pointer":"/cluster/parts"' body)" "422 1"
has "with what to do" "$(cat body)" 'too few .*nodes.*more alike'
is "bad parts are named" "$(post /v1/plan "{$both{\"parts\":[\"dgx-h100\",\"local\"]}}") $(grep -c '/cluster/parts/1/device' body)" "422 1"
for path in check size campaigns; do
    is "/v1/$path takes one cluster" "$(post /v1/$path "{\"name\":\"p\",$both$parts}" )" 422
done
post /v1/campaigns "{\"name\":\"p\",$both$parts,$simulated}" >/dev/null
ok "and says which field" grep -q '/cluster/parts' body
echo "{$both$parts}" >parts-job.json
client
ok "the client prints both" sh -c '"$0" plan parts-job.json >parts.txt && grep -q "each part alone:" parts.txt && grep -q "stages of rank 1" parts.txt' "$PT_BUILD/partune"

echo "$parts" >mixed.json
ok "and takes the cluster from a file" sh -c '"$0" plan --model llama-70b --trainer megatron --cluster mixed.json >mixed.txt && grep -q "each part alone:" mixed.txt' "$PT_BUILD/partune"
"$PT_BUILD/partune" plan --model llama-8b --trainer megatron --cluster mixed.json >mixed.txt
has "and two jobs, one on each part" "$(cat mixed.txt)" '^two jobs, one on each part: [0-9,]+ tokens/s, [0-9.]+ times one job over both'

# ---- a stop
post /v1/campaigns "{\"name\":\"c\",$huge,$simulated}" >/dev/null
for i in 1 2 3 4 5 6; do
    curl -s -m 30 -o /dev/null -H "Authorization: Bearer $a" -H "$J" -d "{$huge}" "$url/v1/plan" &
    curl -s -m 30 -o /dev/null -H "$A" -H "$J" -d "{\"name\":\"d\",$huge,$simulated}" "$url/v1/campaigns?dry_run=true" &
    pids="$pids $!"
done
"$PT_BUILD/tests/api/flood" "${url##*:}" 500 "" >flood.log 2>&1 &
mob=$!
pids="$pids $mob"
wait_for 20 grep -q flooding flood.log
from=$(date +%s)
kill -TERM "$pid"
wait "$pid"
is "a stop in the middle of it exits cleanly" $? 0
took=$(($(date +%s) - from))
echo "# it took $took s"
ok "at once" test "$took" -le 6
kill -TERM "$mob"
start
ok "and the campaign is there" wait_for 60 state "$id" '"state":"done"'
finish
