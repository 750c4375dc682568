#!/bin/sh
# Every page of the dashboard in Chromium, against the real daemon with a real campaign.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
[ -x "$PT_BUILD/partune-train" ] || skip "built without the trainer"
run_node "$PT_SRC/tests/ui/pages.mjs"
