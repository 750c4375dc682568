#!/bin/sh
# TLS from configured files: a client that trusts the certificate is served, others refuse it, and no byte goes in the clear.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--listen "127.0.0.1:0 unix:sock"'
cd "$run" || exit 99
command -v openssl >/dev/null || { echo "1..0 # SKIP openssl is missing (Debian: apt-get install openssl)"; exit 0; }
certificate() { # name, common name and address: NAME.pem and NAME.key, signed by itself
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout "$1.key" -out "$1.pem" \
        -subj "/CN=$2" -addext "subjectAltName=$3" 2>openssl.err || { sed 's/^/# /' openssl.err; echo "Bail out! no certificate"; exit 99; }
    chmod 600 "$1.key"
}
certificate mine localhost "IP:127.0.0.1,DNS:localhost"
certificate other localhost "IP:127.0.0.1,DNS:localhost"
certificate elsewhere tuner.example "DNS:tuner.example"

start --tls-cert mine.pem --tls-key mine.key
is "the address says https" "${url%%:*}" https
is "a client that trusts the certificate is served" "$(status --cacert mine.pem -H "$A" "$url/v1/campaigns")" 200
is "by its name, too" "$(status --cacert mine.pem -H "$A" "https://localhost:${url##*:}/v1/campaigns")" 200
status -H "$A" "$url/v1/campaigns" >/dev/null
is "a client without that authority refuses it" $? 60
status --cacert other.pem -H "$A" "$url/v1/campaigns" >/dev/null
is "so does one that trusts another of the same name" $? 60
status -H "$A" "http://${url#https://}/v1/campaigns" >/dev/null
ok "plain HTTP gets no answer" test $? -ne 0
is "TLS 1.1 is not spoken" "$(status --cacert mine.pem --tls-max 1.1 "$url/healthz")" 000
old() { # version: the cipher, of a client that would take any
    openssl s_client "$1" -cipher 'ALL:@SECLEVEL=0' -connect "127.0.0.1:${url##*:}" </dev/null 2>/dev/null | grep -c 'Cipher is [A-Z0-9]'
}
is "nor TLS 1.0 and 1.1, even if the client does" "$(old -tls1) $(old -tls1_1) $(old -tls1_2)" "0 0 1"
is "the token is still required" "$(status --cacert mine.pem "$url/v1/campaigns")" 401
is "the owner of the socket needs no TLS" "$(status --unix-socket sock http://localhost/v1/campaigns)" 200
is "a body arrives" "$(head -c 3000 /dev/zero | tr '\0' ' ' | (cat; echo '{"model":"tiny-moe","workload":{"global_batch":8},"layout":{"world":1}}') |
    status --cacert mine.pem -H "$A" -H 'Content-Type: application/json' --data-binary @- "$url/v1/check")" 200
is "and so does a large answer" "$(curl -s -m 20 --cacert mine.pem "$url/vendor/vega.min.js" | cksum)" "$(curl -s -m 20 --unix-socket sock http://localhost/vendor/vega.min.js | cksum)"
timeout 20 curl -sN --cacert mine.pem -H "$A" "$url/v1/events" >live &
pids="$pids $!"
ok "events are streamed" wait_for 10 grep -q retry live
# Records of TLS that are garbage, handshakes without a request, plain HTTP: all at once, for as long as the daemon bears them.
others=
for i in 1 2 3 4 5 6; do
    printf '\026\003\001\002\000garbage' | curl -s -m 5 "telnet://127.0.0.1:${url##*:}" >/dev/null 2>&1 &
    others="$others $!"
    timeout 5 openssl s_client -quiet -connect "127.0.0.1:${url##*:}" </dev/null >/dev/null 2>&1 &
    others="$others $!"
    printf 'GET / HTTP/1.1\r\n\r\n' | curl -s -m 5 "telnet://127.0.0.1:${url##*:}" >/dev/null 2>&1 &
    others="$others $!"
done
is "who speaks something else disturbs nobody, meanwhile" "$(status --cacert mine.pem "$url/healthz")" 200
# shellcheck disable=SC2086
wait $others
is "or afterwards" "$(status --cacert mine.pem "$url/healthz")" 200
has "partune accepts a trusted certificate" "$("$PT_BUILD/partune" --cacert mine.pem --server "$url" --data data ls 2>&1; echo "exit $?")" '^exit 0'
has "and refuses another" "$("$PT_BUILD/partune" --server "$url" --data data ls 2>&1; echo "exit $?")" 'certificate.*|^exit [1-9]'
stop
is "the daemon exits cleanly" $? 0

start --tls-cert elsewhere.pem --tls-key elsewhere.key
status --cacert elsewhere.pem "$url/healthz" >/dev/null
is "a certificate for another name is refused by the client" $? 60
is "and accepted under its own name" "$(status --cacert elsewhere.pem --connect-to "localhost:${url##*:}:127.0.0.1:${url##*:}" -H 'Host: localhost' --resolve "tuner.example:${url##*:}:127.0.0.1" "https://tuner.example:${url##*:}/healthz")" 200
stop
refused() { timeout 20 "$PT_BUILD/partuned" --data data --listen 127.0.0.1:0 "$@" 2>&1; echo "exit $?"; }
chmod 644 other.key
has "a key that others can read is refused by name" "$(refused --tls-cert other.pem --tls-key other.key)" 'other.key.*others can read'
chmod 600 other.key
has "a key of another certificate is refused at the start" "$(refused --tls-cert mine.pem --tls-key other.key)" 'exit [12]'
has "a certificate alone is refused" "$(refused --tls-cert mine.pem)" 'both a certificate and a key'
has "a file that is not a certificate is refused" "$(refused --tls-cert err --tls-key mine.key)" 'a pair in PEM'
finish
