#!/bin/sh
# `partune mcp` in real sessions of JSON-RPC, against a real daemon.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
start
client
PYTHONDONTWRITEBYTECODE=1 python3 "$PT_SRC/tests/client/mcp_test.py" "$PT_BUILD/partune"
