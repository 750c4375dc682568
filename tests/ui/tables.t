#!/bin/sh
# The dashboard of a build that could not have the chart library: every chart is a table, in Chromium against the real daemon.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
[ -x "$PT_BUILD/partune-train" ] || skip "built without the trainer"
run_node "$PT_SRC/tests/ui/tables.mjs"
