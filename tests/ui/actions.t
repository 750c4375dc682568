#!/bin/sh
# What can be done on each page, in Chromium, against the real daemon with two real campaigns.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
[ -x "$PT_BUILD/partune-train" ] || skip "built without the trainer"
run_node "$PT_SRC/tests/ui/actions.mjs"
