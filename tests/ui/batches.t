#!/bin/sh
# Several batch sizes, world sizes and clusters in the dashboard, in Chromium.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
command -v sqlite3 >/dev/null || skip "no sqlite3"
run_node "$PT_SRC/tests/ui/batches.mjs"
