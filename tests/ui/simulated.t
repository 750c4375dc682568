#!/bin/sh
# A simulated campaign in the dashboard, in Chromium: no page reads like a measurement.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
run_node "$PT_SRC/tests/ui/simulated.mjs"
