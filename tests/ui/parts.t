#!/bin/sh
# Plans on two kinds of devices in the dashboard, in Chromium.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
run_node "$PT_SRC/tests/ui/parts.mjs"
