#!/bin/sh
# The packages of the browser tests where npm cannot have them: one line says why, without npm's long waits.
. "${PT_SRC:?}/tests/api/tap.sh"
ui=$PT_SRC/web/ui
command -v npm >/dev/null 2>&1 || { echo "1..0 # SKIP npm is not installed"; exit 0; }
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
cd "$run" || exit 99

# npm's own patience is five minutes a request and three requests; ours must end long before one of them.
install() { # folder registry
    npm_config_registry=$2 timeout 100 sh "$ui/install-packages.sh" "$ui" "$1" >"$1.out" 2>&1
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

# A first call waits longest; it does so in a folder of its own, while the rest follows.
install first "http://127.0.0.1:$(cat port)/" &
first=$!
pids="$pids $first"

install next http://127.0.0.1:1/
is "a closed port: the call ends with 1" $? 1
is "and says so in one line" "$(wc -l <next.out)" 1
has "with the reason" "$(cat next.out)" '^npm packages: .*ECONNREFUSED'
install next "http://127.0.0.1:$(cat port)/"
is "a registry that never answers: the next call ends with 1" $? 1
has "and says why" "$(cat next.out)" '^npm packages: .*timeout'
wait "$first"
is "a registry that never answers: a first call ends with 1" $? 1
has "and says why" "$(cat first.out)" '^npm packages: .*timeout'
finish
