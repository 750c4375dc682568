#!/bin/sh
# The daemon that cannot start, or starts where something is missing: one clear message, the right exit code, nothing lost.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99

# A short life: prints what it says and its exit code.
try() { # command...
    timeout 20 "$@" 2>&1 </dev/null
    echo "exit $?"
}

start
port=${url##*:}

said=$(try "$PT_BUILD/partuned" --data data --listen 127.0.0.1:0)
has "a second daemon on one directory is refused" "$said" "exit 1"
has "naming the holder" "$said" "$pid"
said=$(try "$PT_BUILD/partuned" --data other --listen "127.0.0.1:$port")
has "a busy port is refused" "$said" "exit 1"
has "with the address" "$said" "127.0.0.1:$port"
has "as in use" "$said" "in use"
is "the first daemon keeps running" "$($C -o /dev/null -w '%{http_code}' "$url/healthz")" 200
said=$(try "$PT_BUILD/partuned" --data other --listen 0.0.0.0:0)
has "an open address without tokens is refused" "$said" "exit [12]"
has "and says why" "$said" "token"
said=$(try "$PT_BUILD/partuned" --data other --lisen 127.0.0.1:0)
has "an unknown option offers the nearest" "$said" "did you mean .listen"
has "as wrong usage" "$said" "exit 2"
printf '[partuned]\n\tlisten = 127.0.0.1:0\n\tcoresss = 2\n' >bad.conf
said=$(try "$PT_BUILD/partuned" --config bad.conf --data other)
has "a wrong key in the configuration names its line" "$said" "bad.conf:3.*did you mean .cores"

# Root may write anywhere, so this is tried as nobody, with a copy of the program where nobody can read it.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    public=$(mktemp -d)
    chmod 755 "$public"
    cp "$PT_BUILD/partuned" "$public/"
    mkdir "$public/data"
    said=$(try setpriv --reuid=65534 --regid=65534 --clear-groups env -u PARTUNE_DATA "$public/partuned" --data "$public/data" --listen 127.0.0.1:0)
    rm -rf "$public"
    has "a data directory that cannot be written is named" "$said" "$public/data.*[Pp]ermission denied"
    has "and the daemon exits" "$said" "exit 1"
else
    said=$(try "$PT_BUILD/partuned" --data /proc/partune --listen 127.0.0.1:0)
    has "a data directory that cannot be made is named" "$said" "/proc/partune"
    has "and the daemon exits" "$said" "exit 1"
fi

mkdir broken
head -c 8192 /dev/zero | tr '\0' 'x' >broken/partune.db
said=$(try "$PT_BUILD/partuned" --data broken --listen 127.0.0.1:0)
has "a file that is not a database is named" "$said" "partune.db"
is "and left as it was" "$(tr -d x <broken/partune.db | wc -c)" 0

# Without an MPI launcher the daemon serves; a campaign waits with the reason, and loses nothing.
"$PT_BUILD/partuned" --data nompi --listen 127.0.0.1:0 --mpiexec /nonexistent/mpiexec 2>err2 &
pid2=$!
pids="$pids $pid2"
wait_for 20 grep -q 'ready at' err2 || { sed 's/^/# /' err2; echo "Bail out! the daemon needs MPI to start"; exit 99; }
url2=$(sed -n 's/.*ready at \([^ ]*\).*/\1/p' err2)
export PARTUNE_SERVER="$url2" PARTUNE_DATA="$run/nompi" XDG_CONFIG_HOME="$run/none" NO_COLOR=1
printf '{"name": "no-mpi", "model": "nano-moe", "workload": {"global_batch": 8}, "budget": {"trials": 2}}' >c.json
"$PT_BUILD/partune" submit c.json >said 2>&1
code=$?
if [ $code = 0 ]; then
    ok "a campaign without mpiexec pauses" wait_for 20 sh -c '"$0" show last | grep -q "^state *paused"' "$PT_BUILD/partune"
    has "with the reason" "$("$PT_BUILD/partune" show last)" "mpiexec"
else
    is "a campaign without mpiexec is refused" $code 1
    has "with the reason" "$(cat said)" "mpiexec"
fi
finish
