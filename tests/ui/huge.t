#!/bin/sh
# The dashboard with ten thousand trials, and with names that try to be markup.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
[ -x "$PT_BUILD/partune-train" ] || skip "built without the trainer"
command -v sqlite3 >/dev/null 2>&1 || skip "sqlite3 is not installed"
run_node "$PT_SRC/tests/ui/huge.mjs"
