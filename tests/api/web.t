#!/bin/sh
# The HTTP library through a small service of its own: what a client sees, and what a hostile one gets.
. "${PT_SRC:?}/tests/api/tap.sh"
server="$PT_BUILD/tests/api/web_server"
cd "$run" || exit 99

start() { # arguments after the folder; sets pid, url
    rm -f out
    "$server" . "$@" >out 2>err &
    pid=$!
    pids="$pids $pid"
    wait_for 10 grep -q . out || { echo "Bail out! the server does not start"; exit 99; }
    url=$(sed -n 's/^ready //p' out)
}

start 127.0.0.1:0 unix:sock
A="Authorization: Bearer $(cat token)"
R="Authorization: Bearer $(cat reader)"
W="Authorization: Bearer $(cat writer)"

is "a public route needs no token" "$(status "$url/healthz")" 200
is "a token file is for its owner alone" "$(stat -c %a token)" 600
is "a socket is for its owner alone" "$(stat -c %a sock)" 600
is "no token: 401" "$(status "$url/v1/things")" 401
has "401 has WWW-Authenticate" "$($C -i "$url/v1/things")" 'WWW-Authenticate: Bearer'
is "a wrong token: 401" "$(status -H 'Authorization: Bearer pt_wrong' "$url/v1/things")" 401
is "the local token reads" "$(status -H "$A" "$url/v1/things")" 200
is "the owner of the socket needs no token" "$(status --unix-socket sock http://localhost/v1/things)" 200
is "a reader must not write: 403" "$(status -H "$R" -H "$J" -d '{"name":"x"}' "$url/v1/things")" 403
is "a writer must not administrate: 403" "$(status -H "$W" -X DELETE "$url/v1/things/0")" 403

is "create: 201" "$(status -D head -H "$W" -H "$J" -d '{"name":"first"}' "$url/v1/things")" 201
has "201 has the Location" "$(cat head)" '^Location: /v1/things/0'
is "the owner is the token's name" "$(field owner)" writer
is "a string for a number: 422" "$(status -H "$W" -H "$J" -d '{"name":"x","size":"2"}' "$url/v1/things")" 422
is "with the pointer" "$(field pointer)" /size
is "an unknown key: 422" "$(status -H "$W" -H "$J" -d '{"nmae":"x"}' "$url/v1/things")" 422
has "with the nearest name" "$(cat body)" 'did you mean'
is "not JSON: 400" "$(status -H "$W" -H "$J" -d '{name:1}' "$url/v1/things")" 400
is "a key given twice: 400" "$(status -H "$W" -H "$J" -d '{"name":"a","name":"b"}' "$url/v1/things")" 400
is "bytes that are not UTF-8: 400" "$(printf '{"name":"\377"}' | status -H "$W" -H "$J" --data-binary @- "$url/v1/things")" 400
is "no body where one is needed: 400" "$(status -H "$W" -H "$J" -X POST "$url/v1/things")" 400
is "deep JSON: 400" "$(awk 'BEGIN { for (i = 0; i < 2000; i++) printf "[" }' | status -H "$W" -H "$J" --data-binary @- "$url/v1/things")" 400
is "a form: 415" "$(status -H "$W" -d 'name=x' "$url/v1/things")" 415
is "text: 415" "$(status -H "$W" -H 'Content-Type: text/plain' -d '{"name":"x"}' "$url/v1/things")" 415
is "text with a parameter that says JSON: 415" "$(status -H "$W" -H 'Content-Type: text/plain;,application/json' -d '{"name":"x"}' "$url/v1/things")" 415
is "JSON with a parameter" "$(status -H "$W" -H 'Content-Type: Application/JSON; charset=utf-8' -d '{"name":1}' "$url/v1/things")" 422
is "a compressed body: 415" "$(status -H "$W" -H "$J" -H 'Content-Encoding: gzip' -d '{"name":"x"}' "$url/v1/things")" 415
is "a long body: 413" "$(head -c 5000 /dev/zero | status -H "$W" -H "$J" --data-binary @- "$url/v1/things")" 413
is "a long body in chunks: 413" "$(head -c 5000 /dev/zero | status -H "$W" -H "$J" -H 'Transfer-Encoding: chunked' --data-binary @- "$url/v1/things")" 413
is "a body where none is allowed: 413" "$(status -X GET -H "$A" -d '{}' "$url/v1/things" -H "$J")" 413
is "an unknown path: 404" "$(status "$url/v1/nothing")" 404
is "an unknown thing: 404" "$(status -H "$A" "$url/v1/things/77")" 404
is "an id that is not a number: 404" "$(status -H "$A" "$url/v1/things/abc")" 404
is "a path with a dot segment: 400" "$(status --path-as-is "$url/v1/../etc")" 400
is "a broken escape: 400" "$(status "$url/v1/%zz")" 400
is "an escaped NUL: 400" "$(status "$url/v1/%00")" 400
is "an unknown query parameter: 400" "$(status -H "$A" "$url/v1/things?page_siz=2")" 400
has "with the nearest name" "$(cat body)" 'page_size'
is "a query parameter given twice: 400" "$(status -H "$A" "$url/v1/things?page_size=2&page_size=3")" 400
is "an error is problem+json" "$($C -o body -w '%{content_type}' "$url/v1/nothing")" application/problem+json
is "another method: 405" "$(status -X PUT "$url/v1/things")" 405
has "405 lists the methods" "$($C -i -X PUT "$url/v1/things")" '^Allow: GET, HEAD, POST, OPTIONS'
is "OPTIONS: 204" "$(status -X OPTIONS "$url/v1/things")" 204
has "OPTIONS lists the methods" "$($C -i -X OPTIONS "$url/v1/things/1")" '^Allow: GET, HEAD, PATCH, DELETE, OPTIONS'
is "OPTIONS *: 204" "$(status -X OPTIONS --request-target '*' "$url")" 204
if command -v bash >/dev/null; then
    raw() { # head, body: the status
        printf 'POST /v1/things/0:touch HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s\r\n%b\r\n\r\n%b' "$W" "$J" "$1" "$2" >request
        bash -c 'exec 3<>/dev/tcp/127.0.0.1/"$0"; cat request >&3; read -r -t 10 -u 3 _ code _; echo "$code"' "${url##*:}"
    }
    is "a body in chunks" "$(raw 'Transfer-Encoding: chunked' '2\r\n{}\r\n0\r\n\r\n')" 204
    is "a length and chunks: 400" "$(raw 'Transfer-Encoding: chunked\r\nContent-Length: 12' '2\r\n{}\r\n0\r\n\r\n')" 400
    is "two lengths: 400" "$(raw 'Content-Length: 2\r\nContent-Length: 3' '{} ')" 400
    is "another transfer coding: 400" "$(raw 'Transfer-Encoding: gzip, chunked' '2\r\n{}\r\n0\r\n\r\n')" 400
fi
is "HEAD has no body" "$($C -I -o /dev/null -w '%{http_code} %{size_download}' -H "$A" "$url/v1/things/0")" "200 0"
is "a verb" "$(status -X POST -H "$J" -H "$W" "$url/v1/things/0:touch")" 204
is "a verb on an unknown thing: 404" "$(status -X POST -H "$J" -H "$W" "$url/v1/things/9:touch")" 404

etag=$($C -I -H "$A" "$url/v1/things/0" | sed -n 's/^ETag: \(.*\)\r$/\1/p')
is "If-None-Match: 304" "$(status -H "$A" -H "If-None-Match: $etag" "$url/v1/things/0")" 304
is "another tag: 200" "$(status -H "$A" -H 'If-None-Match: "0"' "$url/v1/things/0")" 200
is "If-Match of another state: 412" "$(status -X PATCH -H "$W" -H "$J" -H 'If-Match: "0"' -d '{"name":"n"}' "$url/v1/things/0")" 412
is "If-Match of this state: 200" "$(status -X PATCH -H "$W" -H "$J" -H "If-Match: $etag" -d '{"name":"n"}' "$url/v1/things/0")" 200
is "If-Match of the previous state: 412" "$(status -X PATCH -H "$W" -H "$J" -H "If-Match: $etag" -d '{"name":"m"}' "$url/v1/things/0")" 412

is "GET with If-Match of the previous state: 412" "$(status -H "$A" -H "If-Match: $etag" "$url/v1/things/0")" 412
is "GET with If-Match: *: 200" "$(status -H "$A" -H 'If-Match: *' "$url/v1/things/0")" 200
is "a change with If-None-Match: *: 412" "$(status -X PATCH -H "$W" -H "$J" -H 'If-None-Match: *' -d '{"name":"m"}' "$url/v1/things/0")" 412

is "with Idempotency-Key: 201" "$(status -H "$W" -H "$J" -H 'Idempotency-Key: k1' -d '{"name":"once"}' "$url/v1/things")" 201
cp body first
is "the same again: 201" "$(status -D head -H "$W" -H "$J" -H 'Idempotency-Key: k1' -d '{"name":"once"}' "$url/v1/things")" 201
ok "is the same answer" cmp body first
has "with the same Location" "$(cat head)" '^Location: /v1/things/1'
is "the same key for another body: 422" "$(status -H "$W" -H "$J" -H 'Idempotency-Key: k1' -d '{"name":"twice"}' "$url/v1/things")" 422
is "the same key of another caller: 201" "$(status -H "$A" -H "$J" -H 'Idempotency-Key: k1' -d '{"name":"other"}' "$url/v1/things")" 201

for i in 1 2 3 4 5 6 7; do status -H "$W" -H "$J" -d "{\"name\":\"t$i\"}" "$url/v1/things" >/dev/null; done
is "a page" "$(status -H "$A" "$url/v1/things?page_size=4")" 200
next=$(field next_page_token)
is "the next page" "$(status -H "$A" "$url/v1/things?page_size=4&page_token=$next")" 200
has "continues where the first ended" "$(cat body)" '"items":\[\{"id":4,'
is "an invalid page_token: 400" "$(status -H "$A" "$url/v1/things?page_token=AAAA")" 400
is "a modified page_token: 400" "$(status -H "$A" "$url/v1/things?page_token=$(echo "$next" | sed 's/./1/3')")" 400

is "a foreign Host: 421" "$(status -H 'Host: evil.example' "$url/healthz")" 421
is "localhost with any port" "$(status -H 'Host: localhost:9000' "$url/healthz")" 200
is "a page of another origin: 403" "$(status -H 'Origin: https://evil.example' "$url/healthz")" 403
is "a page without origin: 403" "$(status -H 'Origin: null' "$url/healthz")" 403
is "our own page" "$(status -H "Origin: $url" "$url/healthz")" 200
has "a page of an allowed origin, with CORS" "$($C -i -H 'Origin: https://friend.example' "$url/healthz")" '^Access-Control-Allow-Origin: https://friend.example'
has "the preflight of an allowed origin" "$($C -i -X OPTIONS -H 'Origin: https://friend.example' -H 'Access-Control-Request-Method: POST' "$url/v1/things")" '^Access-Control-Allow-Headers: Authorization'

plain=$($C -H "$A" "$url/v1/big" | cksum)
is "gzip decompresses to the same" "$($C --compressed -H "$A" "$url/v1/big" | cksum)" "$plain"
ok "and is smaller" test "$($C -H 'Accept-Encoding: gzip' -o /dev/null -w '%{size_download}' -H "$A" "$url/v1/big")" -lt 40000
has "q=0 means no gzip" "$($C -o /dev/null -D - -H 'Accept-Encoding: gzip;q=0' -H "$A" "$url/v1/big")" '^Content-Length: 17'
has "q=0 of another coding does not matter" "$($C -o /dev/null -D - -H 'Accept-Encoding: gzip;q=1.0, *;q=0' -H "$A" "$url/v1/big")" '^Content-Encoding: gzip'
has "Vary names what an answer depends on" "$($C -o /dev/null -D - -H "$A" "$url/v1/big")" '^Vary: Accept-Encoding'
has "also for other origins" "$($C -i -H 'Origin: https://friend.example' "$url/healthz")" '^Vary: .*Origin'
has "an answer from another thread" "$($C -H "$A" "$url/v1/slow")" '"answer":42'

timeout 10 curl -sN -H "$A" "$url/v1/events" >live &
pids="$pids $!"
timeout 10 curl -sN -H "$A" -H 'Last-Event-ID: 1' "$url/v1/events" >resumed &
pids="$pids $!"
wait_for 5 grep -q retry live
status -H "$W" -H "$J" -d '{"name":"news"}' "$url/v1/things" >/dev/null
ok "a subscriber gets the event" wait_for 5 grep -q news live
ok "a resuming one also gets missed events" wait_for 5 grep -q news resumed
is "in order, from the next on" "$(sed -n 's/^id: //p' resumed | head -3 | tr '\n' ' ')" "2 3 4 "

has "the dashboard's policy is strict" "$($C -I "$url/")" "^Content-Security-Policy: default-src 'none'"
is "an asset is the same with and without compression" "$($C "$url/app.js" | cksum)" "$($C --compressed "$url/app.js" | cksum)"
ok "OpenAPI is JSON" sh -c "$C '$url/openapi.json' | grep -q '^{\"openapi\":\"3.1.0\"'"

# hostile clients; idle_s of this server is 2
is "1 GB is refused by its length" "$(head -c 3000000 /dev/zero | status -H "$W" -H "$J" -H 'Content-Length: 1073741824' --data-binary @- "$url/v1/things" 2>/dev/null)" 413
head -c 300000000 /dev/zero | $C -o /dev/null -T - -X POST -H "$W" -H "$J" "$url/v1/things" 2>/dev/null
ok "300 MB in chunks leave its memory small" test "$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/$pid/status)" -lt "${PT_HWM_KB:-60000}"
port=${url##*:}
cat >loris.sh <<LORIS
trap '' PIPE
exec 3<>/dev/tcp/127.0.0.1/$port
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf G 2>/dev/null >&3 || exit 0; sleep 0.5; done
exit 1
LORIS
if command -v bash >/dev/null; then
    ok "a client that sends a byte at a time is cut off" bash loris.sh
    for i in 1 2 3 4 5; do
        bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; sleep 20" &
        pids="$pids $!"
    done
fi
is "and others are served meanwhile" "$(status "$url/healthz")" 200
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do
    last=$(status -H "Authorization: Bearer guess$i" "$url/v1/things")
done
is "guessing tokens: 429" "$last" 429
is "a token in use still works" "$(status -H "$R" "$url/v1/things")" 200

kill -TERM "$pid"
wait "$pid"
is "it ends cleanly, with streams open" $? 0
ok "the streams were ended, not cut" grep -q news live

THINGS_ONLY_LOCAL=1 "$server" . 0.0.0.0:0 >out 2>err
is "a public address without a configured token: refused" "$? $(cut -c1-32 out)" "3 refused other machines can reach"
echo precious >precious
"$server" . unix:precious >out 2>err
is "a file at the socket's path: refused" "$? $(cut -c1-25 out)" "3 refused listen on preciou"
is "and the file is unchanged" "$(cat precious)" precious
THINGS_NO_TOKENS=1 "$server" . 127.0.0.1:0 >out 2>err
is "loopback without any token: refused" "$? $(cut -c1-25 out)" "3 refused 127.0.0.1:0 needs"
# 500 connections, each with 400 requests at once: seconds of work. What else the process has to do comes in between.
start 127.0.0.1:0
"$PT_BUILD/tests/api/flood" "${url##*:}" 500 "$(for i in $(seq 400); do printf 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n'; done)" >flood &
pids="$pids $!"
wait_for 20 grep -q flooding flood
sleep 3
kill -TERM $!
is "after a flood of requests: 200" "$(status -m 20 "$url/healthz")" 200
longest=$(sed -n 's/.*"longest_ms":\([0-9]*\).*/\1/p' body)
echo "# between two ticks of 10 ms: at most $longest ms"
ok "a timer ran all the while" test "$longest" -lt 500
THINGS_CONNECTIONS=40
export THINGS_CONNECTIONS
start 127.0.0.1:0
if command -v bash >/dev/null; then
    bash -c "for i in {1..100}; do exec {fd}<>/dev/tcp/127.0.0.1/${url##*:} || exit 1; done; echo open; sleep 30" >many &
    pids="$pids $!"
    wait_for 10 grep -q open many
fi
is "above the connection limit, idle ones are closed" "$(status "$url/healthz")" 200
THINGS_PREFIX=/deep
export THINGS_PREFIX
start 127.0.0.1:0
A="Authorization: Bearer $(cat token)"
is "the token file survives a restart" "$(status -H "$A" "$url/v1/things")" 200
is "it serves below a prefix" "${url##*:[0-9]*/}" deep
is "and nowhere else" "$(status "${url%/deep}/healthz")" 404
p=${url%/deep}
"$server" . "127.0.0.1:${p##*:}" >out 2>err
has "a port in use is named" "$(cat out)" "listen on 127.0.0.1:[0-9]+: Address already in use"
finish
