#!/bin/sh
# Several batch sizes and world sizes in the dashboard, in Chromium.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
run_node "$PT_SRC/tests/ui/batches.mjs"
