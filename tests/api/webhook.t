#!/bin/sh
# Webhooks: what a receiver gets, that it is signed, tried again under the same id also after kill -9,
# and never sent to a private address unless the administrator says so.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--config conf'
cd "$run" || exit 99
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
secret=0123456789abcdef0123456789abcdef
printf '%s\n' "$secret" >secret

receiver() { # name, statuses: leaves the port in $port
    python3 "$PT_SRC/tests/api/receiver.py" "$1" "$2" 2>"$1.err" &
    pids="$pids $!"
    wait_for 20 test -s "$1.port" || { echo "Bail out! no receiver"; exit 99; }
    port=$(cat "$1.port")
}
refused() { # words of the refusal
    "$PT_BUILD/partuned" --config conf --data refused --listen unix:never 2>refusal
    [ $? -ne 0 ] && grep -q "$1" refusal
}
campaign() { # name: leaves its id in $id
    $C -H "$A" -H 'Content-Type: application/json' -d "{\"name\":\"$1\",\"model\":\"tiny-moe\",
        \"workload\":{\"global_batch\":8},\"budget\":{\"trials\":2},
        \"launcher\":{\"kind\":\"simulated\",\"speed\":1000}}" "$url/v1/campaigns" >body
    id=$(sed -n 's/.*"id":"\([a-z0-9]*\)".*/\1/p' body | head -1)
}
lines() { test "$(grep -c . "$1")" -ge "$2"; }
judged() { python3 "$PT_SRC/tests/api/webhook_check.py" "$secret" "$1" | sort; }
sql() { python3 -c 'import sqlite3, sys
for row in sqlite3.connect("file:data/partune.db?mode=ro", uri=True).execute(sys.argv[1]): print(*row)' "$1"; }
over() { [ "$(sql "SELECT count(*) FROM delivery WHERE status = 'pending'")" = 0 ]; }

receiver all 200
all=$port
receiver flaky 500,307,200
flaky=$port
receiver never 503
never=$port
receiver private 200
private=$port
cat >conf <<END
[webhook "all"]
url = http://127.0.0.1:$all/in
secret-file = $PWD/secret
events = campaign.done, trial.ended
allow-private = yes
[webhook "flaky"]
url = http://localhost:$flaky/hook
secret = $secret
allow-private = yes
retry = 0.2
[webhook "never"]
url = http://127.0.0.1:$never/
secret = $secret
allow-private = yes
retry = 0.1
attempts = 3
[webhook "private"]
url = http://127.0.0.1:$private/
secret = $secret
[webhook "named"]
url = http://localhost:$private/
secret = $secret
END
start
campaign first
ok "the campaign is created" test -n "$id"
ok "all requested events arrive" wait_for 60 sh -c 'test "$(grep -c campaign.done all)" -ge 1 && test "$(grep -c trial.ended all)" -ge 2'
ok "deliveries finish" wait_for 60 over
has "the end of the campaign, signed" "$(judged all)" '/in campaign.done [0-9]+ 200 done None signed'
has "the end of a trial, signed" "$(judged all)" '/in trial.ended [0-9]+ 200 [a-z]+ 1 signed'
is "every delivery is signed" "$(judged all | grep -c WRONG)" 0
is "each once" "$(sql "SELECT count(*) FROM delivery WHERE hook = 'all' AND attempts <> 1")" 0
is "tried again after 500 and 307, under the same id, no redirect followed" "$(judged flaky)" \
    "/hook campaign.done 1 200 done None signed
/hook campaign.done 1 307 done None signed
/hook campaign.done 1 500 done None signed"
is "given up after so many attempts" "$(judged never | wc -l)" 3
is "and the store says so" "$(sql "SELECT status, attempts, detail FROM delivery WHERE hook = 'never'")" "failed 3 503"
ok "nothing goes to a private address" test ! -e private
has "by default, and the delivery has the reason" "$(sql "SELECT status, attempts, detail FROM delivery WHERE hook = 'private'")" \
    '^failed 1 127.0.0.1 is not a public address'
has "nor by a name that resolves to one" "$(sql "SELECT status, attempts, detail FROM delivery WHERE hook = 'named'")" \
    '^failed 1 (127.0.0.1|::1) is not a public address'
has "the audit has each attempt" "$(sql "SELECT result FROM audit WHERE who = 'webhook flaky' ORDER BY id" | tr '\n' ' ')" \
    '^500 307 200 $'
is "no secret is in the database" "$(cat data/partune.db* | grep -ac "$secret")" 0

# Nobody listens, the daemon is killed, another one delivers.
kill -KILL "$pid"
wait "$pid" 2>/dev/null
cat >conf <<END
[webhook "late"]
url = http://127.0.0.1:1/
secret = $secret
events = campaign.done
allow-private = yes
retry = 1
END
start
campaign second
tried() { [ "$(sql "SELECT count(*) FROM delivery WHERE hook = 'late' AND attempts > 0")" = 1 ]; }
ok "a closed receiver is tried" wait_for 60 tried
first=$(sql "SELECT uuid FROM delivery WHERE hook = 'late'")
kill -KILL "$pid"
wait "$pid" 2>/dev/null
receiver late 200
sed -i "s|127.0.0.1:1/|127.0.0.1:$port/|" conf
start
ok "the next daemon delivers" wait_for 60 lines late 1
ok "and finishes the delivery" wait_for 20 over
is "under the same id" "$(grep -c "\"partune-delivery\": \"$first\"" late)" 1
has "signed" "$(judged late)" '/ campaign.done 1 200 done None signed'
kill -TERM "$pid"
wait "$pid"

printf '[webhook "x"]\nurl = ftp://example.org/\nsecret = %s\n' "$secret" >conf
ok "a url other than http and https is refused" refused 'url must begin'
printf '[webhook "x"]\nurl = https://example.org/\nsecret = short\n' >conf
ok "a short secret is refused" refused '16 bytes'
printf '[webhook "x"]\nurl = https://example.org/\nsecret = %s\nevents = campaign.don\n' "$secret" >conf
ok "an unknown event is refused" refused 'did you mean campaign.done'
printf '[webhook "x"]\nurl = https://example.org/\nsecrte = %s\n' "$secret" >conf
ok "an unknown key is refused" refused 'conf:3: .webhook. has no key secrte; did you mean secret?'
finish
