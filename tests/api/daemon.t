#!/bin/sh
# The daemon over HTTP: every resource without a campaign, bad input, tokens, and what a restart keeps.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--listen "127.0.0.1:0 unix:sock"'
cd "$run" || exit 99


start
is "alive without a token" "$(status "$url/healthz")" 200
is "ready, without a token" "$(status "$url/readyz" && grep -c "$run" body)" "2000"
is "a wrong token sees no details" "$(status -H 'Authorization: Bearer wrong' "$url/readyz" && grep -c "$run" body)" "2000"
is "a reader sees details" "$(code /readyz && grep -c "$run" body)" "2001"
is "the token file is private" "$(stat -c %a data/token)" 600
is "campaigns need a token" "$(status "$url/v1/campaigns")" 401
for path in /v1/campaigns /v1/presets/models /v1/presets/clusters /v1/presets/stacks /v1/datasets /v1/exporters /v1/tokens \
            /metrics /openapi.json /v1/presets/models/tiny-moe /v1/presets/clusters/dgx-h100 /v1/presets/stacks/megatron-core /v1/plan/examples \
            /v1/plan/examples/megascale-175b; do
    is "GET $path" "$(code "$path")" 200
done
is "the dashboard" "$($C -o body -w '%{http_code} %{content_type}' "$url/")" "200 text/html; charset=utf-8"
has "OpenAPI lists If-Match" "$(code /openapi.json; grep -o '"If-Match"' body | wc -l)" '^2006$'
has "and If-None-Match" "$(grep -o '"If-None-Match"' body | wc -l) $(grep -o '"304"' body | wc -l)" '^([2-9][0-9]) \1$'
is "a byte order mark is named" "$(printf '\357\273\277{}' | post /v1/check @-; grep -c 'byte order mark' body)" 4001
is "an invalid number in a path: 404" "$(code /v1/campaigns/x/trials/abc)" 404
has "named" "$(cat body)" 'abc.. is not a valid n'
is "no such preset: 404" "$(code /v1/presets/models/nothing)" 404
is "no such example: 404" "$(code /v1/plan/examples/nothing)" 404
is "no such campaign: 404" "$(code /v1/campaigns/nothing)" 404
is "nor its trials" "$(code /v1/campaigns/nothing/trials)" 404
is "nor its events" "$(code /v1/campaigns/nothing/events)" 404
is "an unknown state: 400" "$(code '/v1/campaigns?state=runing')" 400
is "an empty state: 400" "$(code '/v1/campaigns?state=')" 400
is "an invalid event id: 400" "$(code '/v1/events?last_event_id=abc')" 400
is "sort by an unknown key: 400" "$(code '/v1/campaigns?sort=color')" 400

job='"model":"tiny-moe","workload":{"global_batch":8}'
is "check a legal layout" "$(post /v1/check "{$job,\"layout\":{\"world\":1}}")" 200
has "is legal, and fits" "$(cat body)" '"legal":true.*"fits":true'
is "check with a headroom that leaves it no room" "$(post /v1/check "{$job,\"constraints\":{\"memory_headroom\":0.9},\"cluster\":{\"devices_per_node\":1,\"device\":{\"memory_gib\":0.01,\"memory_gbs\":100,\"peak_tflops\":{\"fp32\":1}},\"links\":[{\"span\":\"all\",\"gbs\":10}]},\"layout\":{\"world\":1}}")" 200
has "says what is offered" "$(cat body)" '"fits":false,"offered":1073741\.8'
is "an unknown constraint: 422" "$(post /v1/plan "{$job,\"constraints\":{\"memory_headroem\":0.1}}")" 422
is "with its pointer" "$(field pointer)" /constraints/memory_headroem
is "check an illegal layout" "$(post /v1/check "{$job,\"layout\":{\"world\":2,\"tp\":2,\"micro_batch\":3}}")" 200
has "names the rule" "$(cat body)" '"rule":"batch-divides","key":"micro_batch","detail":"global_batch 8'
is "an unknown model: 422" "$(post /v1/check '{"model":"tiny-mo","workload":{"global_batch":8},"layout":{}}')" 422
is "with the pointer" "$(field pointer)" /model
is "an unknown layout key: 422" "$(post /v1/check "{$job,\"layout\":{\"tpp\":2}}")" 422
is "with the pointer into the layout" "$(field pointer)" /layout/tpp
is "an unknown field: 422" "$(post /v1/check "{$job,\"layuot\":{}}")" 422
has "with the nearest name" "$(cat body)" 'did you mean \\"layout\\"'
is "no layout: 422" "$(post /v1/check "{$job}")" 422
is "a batch that is not a number: 422" "$(post /v1/check '{"model":"tiny-moe","workload":{"global_batch":"8"},"layout":{}}')" 422
is "with the pointer into the workload" "$(field pointer)" /workload/global_batch
pair='{"devices_per_node":2,"device":{"memory_gib":8,"memory_gbs":100,"peak_tflops":{"fp32":1}},"links":[{"span":"all","gbs":10,"per_pair":"yes"}]}'
is "a link whose per_pair is not a boolean: 422" "$(post /v1/check "{$job,\"layout\":{\"world\":1},\"cluster\":$pair}")" 422
is "with the pointer into the link" "$(field pointer)" /cluster/links/0/per_pair
has "and what it must be" "$(cat body)" 'per_pair.*must be true or false, found a string'
is "the same link with true" "$(post /v1/check "{$job,\"layout\":{\"world\":1},\"cluster\":$(echo "$pair" | sed 's/"yes"/true/')}")" 200
is "a cluster with such links" "$(code /v1/presets/clusters/aurora-pvc)" 200
has "says so" "$(cat body)" '"per_pair":true'
has "OpenAPI has the key" "$(code /openapi.json; cat body)" '"per_pair":\{"type":"boolean"'

is "plan" "$(post /v1/plan '{"model":"gpt-22B","cluster":{"profile":"dgx-a100","nodes":1},"workload":{"global_batch":16},"trainer":"megatron","top":3}')" 200
has "ranks" "$(cat body)" '"items":\[\{"layout":\{"world":8'
has "counts what the rules exclude" "$(cat body)" '"excluded":\[\{"rule":"[a-z-]+","count":[1-9][0-9]*,"sentence":"[0-9.]+ % of the candidates break this rule; for example: '
has "and what memory excludes" "$(cat body)" '\{"rule":"memory","count":[1-9][0-9]*,"sentence":"[0-9.]+ % of the legal layouts need more than the 76 GiB'
is "plan what cannot fit" "$(post /v1/plan '{"model":"gpt-1T","cluster":{"profile":"dgx-a100","nodes":1},"workload":{"global_batch":8},"trainer":"megatron"}')" 200
has "says that nothing fits" "$(cat body)" '"fitting":0,"exact":true,"items":\[\],"reason":"'
is "import" "$(post /v1/import/megatron '{"model":"gpt-22B","world":16,"text":"--tensor-model-parallel-size 8 --micro-batch-size 2"}')" 200
has "gives a layout" "$(cat body)" '"tp":8'
is "import of a script as it is called" "$(post /v1/import/megatron '{"model":"gpt-22B","world":16,"text":"torchrun pretrain_gpt.py --micro-batch-size 1 --tensor-model-parallel-size $1","call":"sbatch job.sh 4"}')" 200
has "has its argument" "$(cat body)" '"tp":4'
is "a call that is no text: 422" "$(post /v1/import/megatron '{"model":"gpt-22B","world":16,"text":"","call":4}')" 422
is "with the pointer" "$(field pointer)" /call
is "import from an unknown source: 404" "$(post /v1/import/nothing '{"model":"gpt-22B","world":8,"text":""}')" 404

is "dry run" "$(status -H "$A" -H 'Content-Type: application/json' -d "{\"name\":\"d\",$job}" "$url/v1/campaigns?dry_run=true")" 200
has "counts layouts" "$(cat body)" '"legal":[1-9]'
is "stores nothing" "$(code /v1/campaigns && sed 's/.*"total":\([0-9]*\).*/ \1/' body)" "200 0"
is "no legal layout: 422" "$(post /v1/campaigns "{\"name\":\"x\",$job,\"space\":{\"tp\":[7]}}")" 422
is "no such data set: 422" "$(post /v1/campaigns '{"name":"x","model":"tiny-moe","workload":{"global_batch":8,"data":"nowhere"}}')" 422
is "with the pointer" "$(field pointer)" /workload/data
is "a negative batch: 422" "$(post /v1/campaigns '{"name":"x","model":"tiny-moe","workload":{"global_batch":-1}}')" 422
is "an array for a campaign: 422" "$(post /v1/campaigns '[]')" 422

is "create a token" "$(post /v1/tokens '{"name":"reader","scope":"read"}')" 201
secret=$(field token)
id=$(field id)
is "it reads" "$(status -H "Authorization: Bearer $secret" "$url/v1/campaigns")" 200
is "it does not submit" "$(status -H "Authorization: Bearer $secret" -H 'Content-Type: application/json' -d '{}' "$url/v1/campaigns")" 403
is "nor see tokens" "$(status -H "Authorization: Bearer $secret" "$url/v1/tokens")" 403
is "the list hides secrets" "$(code /v1/tokens >/dev/null; grep -c "$secret" body)" 0
is "an unknown scope: 422" "$(post /v1/tokens '{"name":"x","scope":"root"}')" 422
ok "the secret is not in the database" sh -c "! grep -aq '$secret' data/partune.db data/partune.db-wal"
unknown() { for i in 1 2 3; do status -H "$1" -H 'Content-Type: application/json' -d '{}' "$url/v1/campaigns" >/dev/null; done; }
unknown 'Authorization: Bearer nobody'
unknown 'X-None: x'
is "it may not submit, which is recorded" "$(status -H "Authorization: Bearer $secret" -H 'Content-Type: application/json' -d '{}' "$url/v1/campaigns")" 403
stop
if command -v sqlite3 >/dev/null; then
    has "the audit log has who did what" "$(sqlite3 data/partune.db 'SELECT who, what, resource, result FROM audit')" '^reader.POST./v1/campaigns.403$'
    is "but no request without a token" "$(sqlite3 data/partune.db "SELECT count(*) FROM audit WHERE result = '401'")" 0
fi
start
is "it works after a restart" "$(status -H "Authorization: Bearer $secret" "$url/v1/campaigns")" 200
timeout 30 curl -sN -H "Authorization: Bearer $secret" "$url/v1/events" >stream &
reader=$!
pids="$pids $reader"
ok "it follows events" wait_for 10 grep -q retry stream
is "revoke it" "$(status -X DELETE -H "$A" "$url/v1/tokens/$id")" 204
wait "$reader"
is "its stream ends at once, cleanly" $? 0
is "it is refused at once" "$(status -H "Authorization: Bearer $secret" "$url/v1/campaigns")" 401
is "revoke it again: 404" "$(status -X DELETE -H "$A" "$url/v1/tokens/$id")" 404

secret=$("$PT_BUILD/partuned" --data data token add robot read)
hears() { sleep 0.7; [ "$(status -H "Authorization: Bearer $secret" "$url/v1/campaigns")" = 200 ]; }
ok "a running daemon accepts a token made at the command line" wait_for 10 hears
has "it is listed" "$("$PT_BUILD/partuned" --data data token list)" 'read .* robot$'
"$PT_BUILD/partuned" --data data token drop "$("$PT_BUILD/partuned" --data data token list | sed -n 's/ .*robot$//p')"
deaf() { ! hears; }
ok "and revoked" wait_for 10 deaf
"$PT_BUILD/partuned" --data data token add robot root 2>err2
has "an unknown scope is refused" "$? $(cat err2)" '^[1-9].*read, submit or admin'

"$PT_BUILD/partuned" --data data --listen 127.0.0.1:0 2>err2
has "a second daemon on the directory is refused by name" "$? $(cat err2)" '^[1-9].*data'
port=${url##*:}
"$PT_BUILD/partuned" --data other --listen "127.0.0.1:$port" 2>err2
has "a port in use is named" "$? $(cat err2)" "^[1-9].*127.0.0.1:$port"
has "no address at all: refused" "$(timeout 10 "$PT_BUILD/partuned" --data other --listen '' 2>&1; echo $?)" 'names no address'
"$PT_BUILD/partuned" --data other --listen 0.0.0.0:0 2>err2
has "all addresses without a configured token: refused" "$? $(cat err2)" '^[1-9].*no token is configured'
stop
is "the daemon exits cleanly" $? 0
finish
