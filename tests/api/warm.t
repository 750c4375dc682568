#!/bin/sh
# Warm start: a campaign informed by an earlier one says so, and predicts the same after a restart and without that one.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
campaign() { # name, model, batch, launcher, search
    echo '{"name": "'"$1"'", "model": "'"$2"'", "trainer": "megatron", "cluster": {"profile": "dgx-a100", "nodes": 2},
        "workload": {"global_batch": '"$3"', "precision": "bf16"}, "budget": {"trials": 8},
        "launcher": '"$4"', "search": '"$5"'}'
}
simulated='{"kind": "simulated", "speed": 1000000}'

start
is "an earlier campaign is created" "$(code /v1/campaigns -d "$(campaign earlier gpt-1.4B 64 "$simulated" '{}')")" 201
source=$(id_of <body)
ok "it ends" wait_for 120 is_in "$source" done
is "one of another model and batch names it" "$(code /v1/campaigns -d "$(campaign later llama-8b 32 "$simulated" '{"warm_start": ["'"$source"'"]}')")" 201
later=$(id_of <body)
ok "it ends" wait_for 120 is_in "$later" done
has "its spec names the earlier one" "$(call "/v1/campaigns/$later")" "\"warm_start\":\[\"$source\"\]"
call "/v1/campaigns/$later/diagnosis" >before
has "its diagnosis has it" "$(cat before)" '"warm_start":{"campaigns":1,"trials":[1-9]'
has "with its weight" "$(cat before)" '"weight":[0-9.]*,"memory_weight":'
call "/v1/campaigns/$later/surface?x=tp&y=micro_batch" >surface
has "there is a surface" "$(cat surface)" '"mean":'
has "a campaign without warm start says null" "$(call "/v1/campaigns/$source/diagnosis")" '"warm_start":null'

# ---- what is refused
is "a missing campaign is refused" "$(code /v1/campaigns -d "$(campaign x llama-8b 32 "$simulated" '{"warm_start": ["'"$source"'", "zzzzzzzz"]}')")" 422
has "by its pointer" "$(cat body)" '/search/warm_start/1'
has "and its name" "$(cat body)" 'no campaign zzzzzzzz'
is "a campaign waits for workers" "$(code /v1/campaigns -d "$(campaign waits llama-8b 32 '{"kind": "remote"}' '{}')")" 201
waits=$(id_of <body)
is "a campaign without a result is refused" "$(code /v1/campaigns -d "$(campaign x llama-8b 32 "$simulated" '{"warm_start": ["'"$waits"'"]}')")" 422
has "with the reason" "$(cat body)" 'no trial with a result'
is "random search refuses a warm start" "$(code /v1/campaigns -d "$(campaign x llama-8b 32 "$simulated" '{"method": "random", "warm_start": ["'"$source"'"]}')")" 422
has "and says so" "$(cat body)" '"/search/warm_start"'
is "a dry run of the request answers" "$(code '/v1/campaigns?dry_run=true' -d "$(campaign x llama-8b 32 "$simulated" '{"warm_start": ["'"$source"'"]}')")" 200

# ---- without the earlier one, and after a restart
is "the earlier one is deleted" "$(code "/v1/campaigns/$source" -X DELETE)" 204
stop
start
call "/v1/campaigns/$later/diagnosis" >after
ok "the diagnosis is the same" cmp before after
call "/v1/campaigns/$later/surface?x=tp&y=micro_batch" >surface2
ok "and so is the surrogate of every layout" cmp surface surface2
is "a clone needs the earlier one" "$(code "/v1/campaigns/$later:clone" -d '{"name": "copy"}')" 422
has "and names it" "$(cat body)" "no campaign $source"
finish
