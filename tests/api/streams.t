#!/bin/sh
# Event streams that nobody reads: the daemon's memory stays bounded however many there are and however large the events,
# readers who read are served meanwhile, and one who was cut off misses nothing when it comes back.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
ulimit -n "$(ulimit -Hn)"
[ "$(ulimit -n)" -ge 4096 ] || { echo "1..0 # SKIP too few files may be open"; exit 0; }
mute=2000     # connections
bound=32      # MiB of all streams together
a_reader=32   # KiB of a connection
old=400 new=200 # events of 10 kB before and after they come

start
private() { awk '/^Private_(Clean|Dirty)/ { n += $2 } END { print n }' "/proc/$pid/smaps_rollup"; } # KiB

id=$($C -H "$A" -H "$J" "$url/v1/campaigns" -d '{"name": "a", "model": "nano-llama", "cluster": {"profile": "dgx-a100", "nodes": 1},
    "workload": {"global_batch": 8}, "launcher": {"kind": "simulated", "speed": 1000000}, "budget": {"trials": 1}}' | id_of)
[ -n "$id" ] || { echo "Bail out! no campaign"; exit 99; }
wait_for 60 is_in "$id" done
text=$(head -c 9900 /dev/zero | tr '\0' x)
publish() { # how many: one after the other, over one connection
    i=0
    while [ $i -lt "$1" ]; do
        i=$((i + 1))
        echo "next"
        echo "url = \"$url/v1/campaigns/$id\""
        echo "request = PATCH"
        echo "header = \"$A\""
        echo "header = \"$J\""
        echo "data = \"{\\\"notes\\\":\\\"$text\\\"}\""
        echo "output = /dev/null"
    done | tail -n +2 >requests
    curl -sS -m 120 -K requests
}
publish $old
idle=$(private)
first=$(sql "SELECT min(id) FROM event")

# ---- somebody who reads, somebody who stops reading, and the crowd that reads nothing
curl -sN -H "$A" "$url/v1/events?last_event_id=$first" >honest &
pids="$pids $!"
mkfifo pipe
curl -sN -H "$A" "$url/v1/events?last_event_id=$first" >pipe 2>/dev/null &
lazy=$!
pids="$pids $lazy"
exec 3<pipe
"$PT_BUILD/tests/api/flood" "${url##*:}" $mute "GET /v1/events?last_event_id=$first HTTP/1.1
Host: localhost
$A

" >flood 2>&1 &
mob=$!
pids="$pids $mob"
wait_for 30 grep -q flooding flood
most=0 slowest=0
measure() {
    now=$(private)
    [ "$now" -gt "$most" ] && most=$now
    took=$(curl -s -m 20 -o /dev/null -w '%{time_total}' -H "$A" "$url/v1/campaigns/$id")
    slowest=$(awk "BEGIN { print ($took > $slowest) ? $took : $slowest }")
}
publish $new &
publisher=$!
while kill -0 $publisher 2>/dev/null; do
    measure
    sleep 0.1
done
wait $publisher
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    measure
    sleep 0.2
done
allowed=$((idle + 1024 * bound + a_reader * mute))
echo "# private memory: $((idle / 1024)) MiB before, $((most / 1024)) MiB at most, $((allowed / 1024)) MiB allowed; a GET meanwhile took $slowest s at most"
ok "$mute readers that never read: memory stays bounded" test "$most" -le "$allowed"
last=$(sql "SELECT max(id) FROM event")
ok "a reader gets every event" wait_for 30 grep -q "^id: $last$" honest
kill -TERM $mob
wait $mob
echo "# $(tail -n 1 flood)"
ok "readers that never read were cut off" test "$(sed -n 's/.*cut //p' flood)" -gt 0

# ---- who was cut off comes back
timeout 60 cat <&3 >part
exec 3<&-
seen=$(sed -n 's/^id: //p' part | sed '$d' | tail -n 1) # the last may be torn
ok "and so was one that stopped for a while" test "${seen:-$last}" -lt "$last"
curl -sN -m 60 -H "$A" -H "Last-Event-ID: ${seen:-0}" "$url/v1/events" >rest &
again=$!
pids="$pids $again"
wait_for 60 grep -q "^id: $last$" rest
kill $again
sed -n 's/^id: //p' part | awk -v seen="${seen:-0}" '$1 <= seen' >ids
sed -n 's/^id: //p' rest >>ids
sql "SELECT id FROM event WHERE id > $first ORDER BY id" >all
ok "on reconnect it misses and repeats nothing" cmp ids all
sleep 1
echo "# private memory afterwards: $(($(private) / 1024)) MiB"
kill -TERM "$pid"
wait "$pid"
is "the daemon exits cleanly" $? 0
finish
