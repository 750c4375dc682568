#!/bin/sh
# Every page on every size of screen, from a small phone to a wall, in Chromium against the real daemon.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
[ -x "$PT_BUILD/partune-train" ] || skip "built without the trainer"
run_node "$PT_SRC/tests/ui/sizes.mjs"
