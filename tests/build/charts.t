#!/bin/sh
# A build whose npm cannot have its packages: it ends well, without npm's long waits, says so in one line, and the next build
# has the charts where npm can. The dashboard that results is tests/ui/tables.t's.
. "${PT_SRC:?}/tests/api/tap.sh"
ui=$PT_SRC/web/ui
vendor="$run/web tree/vendor/echarts.min.js"
command -v npm >/dev/null 2>&1 || { echo "1..0 # SKIP npm is not installed"; exit 0; }
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
cd "$run" || exit 99
unset MAKEFLAGS MFLAGS MAKELEVEL

# npm's own patience is five minutes a request and three requests; ours must end long before one of them.
build() { # registry [tried]
    npm_config_registry=$1 timeout 100 sh "$ui/build-vendor.sh" "$ui" "$vendor" ${2:+"$2"} >out 2>&1
}

# Takes connections and never answers.
python3 -c '
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(64)
print(s.getsockname()[1], flush=True)
kept = []
while True: kept.append(s.accept())
' >port &
pids="$pids $!"
wait_for 20 test -s port

# A first build waits longest; it does so in a tree of its own, while the rest follows.
mkdir first
(
    cd first || exit 99
    vendor="$run/first/web tree/vendor/echarts.min.js"
    build "http://127.0.0.1:$(cat ../port)/"
) &
first=$!
pids="$pids $first"

ok "a closed port: the build succeeds" build http://127.0.0.1:1/
is "and says so in one line" "$(wc -l <out)" 1
has "with the reason" "$(cat out)" '^dashboard: tables in place of charts; the next make tries again \(.*ECONNREFUSED'
has "it wrote a module without charts" "$(cat "$vendor")" '^export const init = null;'
is "which is older than its sources" "$(find "$vendor" -newer "$ui/package.json")" ""
ok "sub-makes do not try again" build http://127.0.0.1:1/ tried
is "and print nothing" "$(cat out)" ""

ok "a registry that never answers: the next build succeeds" build "http://127.0.0.1:$(cat port)/"
has "and says why" "$(cat out)" '^dashboard: tables in place of charts; .*timeout'

if timeout 200 sh "$ui/build-vendor.sh" "$ui" "$vendor" >out 2>&1 && [ "$(wc -c <"$vendor")" -gt 100000 ]; then
    ok "the next build that reaches a registry has the charts" grep -q 'Apache ECharts' "$vendor"
    touch -t 200001010000 "$vendor"
    ok "an existing library stays when it cannot be built again" build http://127.0.0.1:1/
    ok "and is intact" grep -q 'Apache ECharts' "$vendor"
else
    n=$((n + 1))
    echo "ok $n - the next build that reaches its registry has the charts # SKIP npm reaches none here: $(tail -n 1 out)"
fi
ok "a registry that never answers: a first build succeeds" wait "$first"
has "and says why" "$(cat first/out)" '^dashboard: tables in place of charts; .*timeout'
finish
