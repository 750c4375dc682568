#!/bin/sh
# Campaigns drawn at random, as plan, dry run and campaign: drawn_campaigns.py. PT_LONG: a thousand; PT_SEED: others; PT_FIRST and PT_COUNT:
# some of them.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
start
count=${PT_COUNT:-${PT_LONG:+1000}}
python3 "$PT_SRC/tests/api/drawn_campaigns.py" "$url" "$(cat data/token)" "$pid" "${PT_SEED:-1}" "${PT_FIRST:-0}" "${count:-20}" >drawn 2>&1 || echo "not ok they are all drawn" >>drawn
told drawn

campaigns() { sql 'SELECT id, state, reason FROM campaign ORDER BY id'; }
campaigns >before
is "the log has no error but that nothing fits" "$(grep '^error' err | grep -v 'none of the .* fits')" ""
stop KILL
start
ok "a daemon that was killed has all of them" test "$(campaigns)" = "$(cat before)"
stop
is "and stops when it is told to" "$?" 0
finish
