#!/bin/sh
# Runs the commands that the documents print: every fenced block marked `sh` of every page, in order, in a fresh folder,
# against a real daemon on a free loopback port. A block of another mark (console, json, text) is not run.
src=${PT_SRC:?} build=${PT_BUILD:?}
work=$build/tests/run/docs.$$
mkdir -p "$work/data"
export PATH="$build:$PATH" PARTUNE_DATA="$work/data" XDG_CONFIG_HOME="$work/config" NO_COLOR=1

partuned --listen 127.0.0.1:0 >"$work/partuned.log" 2>&1 &
daemon=$!
finish() {
    kill -TERM "$daemon" 2>/dev/null
    wait "$daemon" 2>/dev/null
    [ -n "${keep:-}" ] || rm -rf "$work"
}
trap finish EXIT
n=0
while [ $n -lt 100 ]; do
    PARTUNE_SERVER=$(sed -n 's/.* ready at \([^ ]*\) .*/\1/p' "$work/partuned.log")
    [ -n "$PARTUNE_SERVER" ] && break
    sleep 0.1
    n=$((n + 1))
done
export PARTUNE_SERVER
if [ -z "$PARTUNE_SERVER" ]; then
    echo "1..1"
    echo "not ok 1 - the daemon starts"
    sed 's/^/#   /' "$work/partuned.log"
    exit 0
fi

partune-data prepare --name documentation --data "$work/data" "$src/docs" >"$work/data.log" 2>&1
cp "$src"/docs/examples/*.json "$work/"
pages=$(grep -lE '^ *```sh$' "$src"/README.md "$src"/docs/*.md)
echo "1..$(echo "$pages" | wc -w)"
n=0
for page in $pages; do
    n=$((n + 1))
    name=$(basename "$page" .md)
    mkdir -p "$work/$name"
    cp "$work"/*.json "$work/$name/"
    { echo 'set -eu'; awk '/^ *```sh$/ { on = 1; next } /^ *```$/ { on = 0 } on' "$page"; } >"$work/$name.commands"
    if (cd "$work/$name" && timeout 600 bash -x "$work/$name.commands") >"$work/$name.log" 2>&1 </dev/null; then
        echo "ok $n - the commands of $name run"
    else
        echo "not ok $n - the commands of $name run"
        tail -n 15 "$work/$name.log" | sed 's/^/#   /'
    fi
done
