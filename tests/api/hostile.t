#!/bin/sh
# Hostile clients against the daemon itself: each of them is answered or cut off, the daemon's memory stays bounded, and
# who comes with an honest request meanwhile is served. web.t has more of what one request can be wrong in.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
flood="$PT_BUILD/tests/api/flood"
ulimit -n "$(ulimit -Hn)" # the daemon takes as many connections as it has files for
start --stop requeue
port=${url##*:}
post() { status -H "$A" -H "$J" --data-binary @- "$url$1"; }
memory() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$pid/status"; }
metric() { $C -H "$A" "$url/metrics" | sed -n "s/^partune_$1 //p"; }

# An honest campaign, which the others must not disturb.
id=$(printf '{"name":"honest","model":"nano-moe","workload":{"global_batch":8},"launcher":{"kind":"simulated","speed":1000000},
    "budget":{"trials":4},"space":{"world":[1]}}' | post /v1/campaigns >/dev/null && id_of <body)
ok "a campaign ends" wait_for 60 is_in "$id" done
timeout 300 curl -sN -H "$A" "$url/v1/campaigns/$id/events" >live &
pids="$pids $!"
ok "a client follows its events" wait_for 10 grep -q retry live
honest() { # the number of requests of 4, each on a connection of its own, that were served
    served=0
    for i in 1 2 3 4; do
        curl -s -m 60 -o body -w '%{http_code} %{time_total}\n' -H "$A" "$url/v1/campaigns/$id" >>took
        [ "$(tail -n 1 took | cut -c1-3)" = 200 ] && served=$((served + 1))
    done
    echo $served
}

# ---- JSON
deep=20000 # levels; within the size that a campaign may have
is "arrays in arrays, $deep deep: 400" "$(awk "BEGIN { for (i = 0; i < $deep; i++) printf \"[\" }" | post /v1/campaigns)" 400
is "objects in objects: 400" "$(awk "BEGIN { for (i = 0; i < $deep; i++) printf \"{\\\"a\\\":\" }" | post /v1/campaigns)" 400
is "a complete document, as deep below a key: 400" "$(awk "BEGIN { printf \"{\\\"space\\\":\"; for (i = 0; i < $deep; i++) printf \"[\"; for (i = 0; i < $deep; i++) printf \"]\"; print \"}\" }" | post /v1/campaigns)" 400
has "with the reason" "$(cat body)" 'nest|deep'
for body in '{"name":"a\377b"}' '{"name":"\300\200"}' '{"name":"\355\240\200"}' '{"\370\210\200\200\200":1}' '\377\376{}'; do
    is "no UTF-8, $(echo "$body" | tr -d '{}"' | sed 's/\\/o/g'): 400" "$(printf "$body" | post /v1/campaigns)" 400
done
is "half of a surrogate pair: 400" "$(printf '{"name":"\\ud800"}' | post /v1/campaigns)" 400
is "no UTF-8 in a path: 400" "$(status -H "$A" "$url/v1/campaigns/%ff%fe")" 400
is "nor in a query: 400" "$(status -H "$A" "$url/v1/campaigns?tag=%c0%80")" 400
is "nor a header that is read: 401" "$(status -H "$(printf 'Authorization: Bearer \377\376')" "$url/v1/campaigns")" 401
spec='"model":"nano-moe","workload":{"global_batch":8},"launcher":{"kind":"simulated"}'
is "a key twice: 400" "$(printf '{"name":"a",%s,"name":"b"}' "$spec" | post /v1/campaigns)" 400
has "with the key's name" "$(cat body)" 'name'
is "one spelled by an escape: 400" "$(printf '{"name":"a",%s,"n\\u0061me":"b"}' "$spec" | post /v1/campaigns)" 400
is "twice below another key: 400" "$(printf '{"name":"a",%s,"budget":{"trials":1,"trials":9}}' "$spec" | post /v1/campaigns)" 400
is "twice inside an array: 400" "$(printf '{"name":"a",%s,"tags":[{"x":1,"x":1}]}' "$spec" | post /v1/campaigns)" 400
is "ten thousand keys: refused" "$(awk 'BEGIN { printf "{"; for (i = 0; i < 10000; i++) printf "\"k%d\":0,", i; print "\"z\":0}" }' | post /v1/campaigns)" 422
is "a number of 60,000 digits: refused" "$(awk 'BEGIN { printf "{\"name\":"; for (i = 0; i < 60000; i++) printf "9"; print "}" }' | post /v1/campaigns | cut -c1)" 4
is "none of them created a campaign" "$($C -H "$A" "$url/v1/campaigns" | sed -n 's/.*"total":\([0-9]*\).*/\1/p')" 1

# ---- a gigabyte
before=$(memory VmHWM)
truncate -s 1G gigabyte # of zeros, which take no room
send() { # arguments of curl: the status, 000 where the connection was cut before it could be read
    curl -s -m 60 -o body -w '%{http_code}' -H "$J" -X POST "$@" "$url/v1/campaigns" 2>/dev/null
}
refused() { case $1 in 413 | *000) ;; *) echo "$1"; false ;; esac; }
is "1 GB with Expect: 413" "$(send -H "$A" -H 'Expect: 100-continue' -T gigabyte)" 413
ok "1 GB sent at once: 413, or cut off" refused "$(send -H "$A" -H Expect: -T gigabyte)"
ok "1 GB in chunks: 413, or cut off" refused "$(send -H "$A" -H Expect: -T - <gigabyte)"
is "1 GB with Expect, without a token: 401" "$(send -H 'Expect: 100-continue' -T gigabyte)" 401
after=$(memory VmHWM)
echo "# highest resident memory: $before kB before the gigabytes, $after kB after them"
ok "they leave no trace in its memory" test "$after" -lt $((before + 8192))

# ---- ten thousand connections. Each may cost its buffer (16 KiB) and what libmicrohttpd and the kernel's answer need.
attack() { # name, text
    rm -f flood
    "$flood" "$port" 10000 "$2" >flood 2>&1 &
    mob=$!
    pids="$pids $mob"
    # 10,000 handshakes with a daemon that has one core of a busy machine take their time.
    if ! wait_for 120 grep -qE 'flooding|too few' flood || grep -q 'too few' flood; then
        n=$((n + 1))
        grep -q 'too few' flood && echo "ok $n - $1 # SKIP $(cat flood)" && return
        echo "not ok $n - $1: not connected within two minutes: $(cat flood)"
        failed=$((failed + 1))
        return
    fi
    is "$1: four honest requests are served" "$(honest)" 4
    is "$1: a change is accepted" "$(curl -s -m 60 -o body -w '%{http_code}' -X PATCH -H "$A" -H "$J" \
        -d "{\"notes\":\"during $1\"}" "$url/v1/campaigns/$id")" 200
    ok "$1: the event stream continues" wait_for 20 grep -q "during $1" live
    kill -TERM "$mob"
    wait "$mob"
    echo "# $(tail -n 1 flood); seconds until served: $(tail -n 4 took | cut -c5- | tr '\n' ' ')"
    ok "$1: they were cut off" test "$(sed -n 's/.*cut //p' flood)" -gt 0
}
attack "10,000 silent connections" ""
attack "10,000 heads, a byte a second" "$(printf 'GET / HTTP/1.1\r\nX: ')"
attack "10,000 bodies, a byte a second" "$(printf 'POST /v1/check HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s\r\nContent-Length: 3000\r\n\r\n{' "$A" "$J")"
attack "10,000 answers that nobody takes" "$(for i in 1 2 3 4 5 6 7 8; do printf 'GET /vendor/vega.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n'; done)"
limit=$(sed -n 's/^Max open files *\([0-9]*\).*/\1/p' "/proc/$pid/limits")
most=$((limit < 4288 ? limit : 4096))
now=$(memory VmHWM)
echo "# highest resident memory: $now kB, at most $most connections"
# AddressSanitizer keeps 256 MiB of what is freed, and red zones around what is not.
padding=0
grep -q libasan "/proc/$pid/maps" && padding=$((256 * 1024 + most * 96))
ok "its memory stayed bounded" test "$now" -lt $((after + most * 24 + 16384 + padding))
attack "10,000 large answers that nobody takes" "$(for i in 1 2 3 4 5 6 7 8; do printf 'GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'; done)"
large=$(memory VmHWM)
echo "# highest resident memory: $large kB with large answers"
ok "at most 64 MiB of answers are unread" test "$large" -lt $((now + 64 * 1024 + 16384 + padding))
few() { [ "$(metric http_connections)" -lt 20 ]; }
ok "the connections are gone" wait_for 60 few
is "the daemon serves as before" "$(honest)" 4
kill -TERM "$pid"
wait "$pid"
is "the daemon exits cleanly" $? 0
finish
