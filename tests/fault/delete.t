#!/bin/sh
# A campaign with very many trials is deleted: gone for everybody with the answer, removed while other work runs, and a daemon
# that is killed in the middle leaves what the next one finishes, or the whole campaign.
#   PT_TRIALS  how many (10000; 100000 with PT_LONG)
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
trials=${PT_TRIALS:-${PT_LONG:+100000}}
trials=${trials:-10000}
cd "$run" || exit 99
command -v sqlite3 >/dev/null || { echo "1..0 # SKIP no sqlite3"; exit 0; }
killed() { kill -9 "$pid"; wait "$pid" 2>/dev/null; }
submit() {
    $C -H "$A" -H 'Content-Type: application/json' "$url/v1/campaigns" -d '{"name": "'"$1"'", "model": "gpt-1.4B",
        "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 8}, "trainer": "megatron", "budget": {"trials": 2},
        "space": {"world": [8]}, "launcher": {"kind": "simulated", "speed": 1000000}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3}}' |
        id_of
}
is_done() { [ "$(code "/v1/campaigns/$1")" = 200 ] && grep -q '"state":"done"' body; }
rows() { # in all tables
    sql "SELECT sum(n) FROM (SELECT count(*) n FROM campaign WHERE id = '$id' UNION ALL SELECT count(*) FROM trial WHERE campaign = '$id'
        UNION ALL SELECT count(*) FROM attempt WHERE campaign = '$id' UNION ALL SELECT count(*) FROM step WHERE campaign = '$id'
        UNION ALL SELECT count(*) FROM event WHERE campaign = '$id' UNION ALL SELECT count(*) FROM trial_tally WHERE campaign = '$id')"
}
removed() { [ "$(rows)" = 0 ]; }
whole() { [ "$(rows)" = "$all" ]; }
begun() { ! whole; }
folders() { [ ! -e "data/campaigns/$id" ] && [ -z "$(ls -A data/trash 2>/dev/null)" ]; }

# ---- one campaign becomes a large one: its second trial many times, each with its attempt, a step and an event
start
id=$(submit large)
ok "a campaign ends" wait_for 60 is_done "$id"
stop
columns() { sql "SELECT group_concat(name, ', ') FROM pragma_table_info('$1')"; }
copy() { # table, its column of the trial's number, more to replace
    values=$(columns "$1" | sed "s/\b$2\b/k.i/")
    sql "WITH RECURSIVE k(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM k WHERE i < $trials)
        INSERT INTO $1 ($(columns "$1")) SELECT $values FROM k, $1 WHERE campaign = '$id' AND $2 = 2 ${3:-}"
}
copy trial n
copy attempt n
copy step trial 'AND step.n = 2'
sql "WITH RECURSIVE k(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM k WHERE i < $trials)
    INSERT INTO event (campaign, trial, kind, data, t) SELECT '$id', i, 'trial', '{}', 0 FROM k"
all=$(rows)
ok "it has many rows now: $all" test "$all" -gt $((4 * trials - 20))
cp -R data pristine

# ---- with the answer it is gone, whatever is still there
start
is "delete it" "$(code "/v1/campaigns/$id" -X DELETE)" 204
is "it is gone" "$(code "/v1/campaigns/$id")" 404
is "its trials, too" "$(code "/v1/campaigns/$id/trials")" 404
is "each of them" "$(code "/v1/campaigns/$id/trials/$trials")" 404
is "its steps" "$(code "/v1/campaigns/$id/trials/$trials/steps")" 404
is "its results" "$(code "/v1/campaigns/$id/best")" 404
is "its events" "$(code "/v1/campaigns/$id/events")" 404
is "it is not in the list" "$(code /v1/campaigns; grep -o '"total":[0-9]*' body)" '200"total":0'
is "delete it again" "$(code "/v1/campaigns/$id" -X DELETE)" 404
is "change it" "$(code "/v1/campaigns/$id" -X PATCH -d '{"notes": "x"}')" 404
is "resume it" "$(code "/v1/campaigns/$id:resume" -X POST -d '{}')" 404
is "clone it" "$(code "/v1/campaigns/$id:clone" -X POST -d '{}')" 404
ok "its directory is gone" test ! -e "data/campaigns/$id"
left=$(rows)
ok "all this while rows remained: $left" test "$left" -gt 0
other=$(submit other)
ok "other campaigns run meanwhile" wait_for 60 is_done "$other"
ok "its rows are deleted" wait_for 300 removed
ok "and nothing else" is_done "$other"
stop
is "the daemon exits cleanly" $? 0

# ---- killed in the middle, twice
rm -rf data && cp -R pristine data
start
is "delete it once more" "$(code "/v1/campaigns/$id" -X DELETE)" 204
wait_for 60 begun
killed
left=$(rows)
ok "killed with rows left: $left of $all" test "$left" -gt 0 -a "$left" -lt "$all"
start
is "the next daemon does not show it" "$(code "/v1/campaigns/$id")" 404
fewer() { [ "$(rows)" -lt "$left" ]; }
ok "it continues the deletion" wait_for 60 fewer
killed
start
ok "and the one after it completes it" wait_for 300 removed
stop
is "the daemon exits cleanly" $? 0
is "the database is intact" "$("$PT_BUILD/partuned" --data data check 2>&1 | grep -cE '^ok +database')" 1

# ---- killed at any instant around the request: whole, or gone
for delay in 0 0.005 0.01 0.02 0.05; do
    rm -rf data && cp -R pristine data
    start
    $C -X DELETE -H "$A" "$url/v1/campaigns/$id" >answer 2>/dev/null &
    sleep "$delay"
    killed
    wait $! 2>/dev/null
    start
    case $(code "/v1/campaigns/$id") in
    200) ok "killed after $delay s: it is whole" whole ;;
    404) ok "killed after $delay s: it goes to the end" wait_for 300 removed
         ok "with its directory" wait_for 20 folders ;;
    *) is "killed after $delay s" "$(cat body)" "200 or 404" ;;
    esac
    stop
done

# ---- by age
rm -rf data && cp -R pristine data
start --retain 0.000001
ok "a campaign past --retain is deleted the same way" wait_for 300 removed
ok "with its directory" wait_for 20 folders
stop
is "the last daemon exits cleanly" $? 0
finish
