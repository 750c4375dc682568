#!/bin/sh
# The parts of the dashboard that need no browser.
. "${PT_SRC:?}/tests/ui/node.sh"
run_node "$PT_SRC/tests/ui/modules.mjs"
