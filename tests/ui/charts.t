#!/bin/sh
# What can be done in a chart, in Chromium: tooltips, the legend, zoom, clicks, the theme.
. "${PT_SRC:?}/tests/ui/node.sh"
need_browser
run_node "$PT_SRC/tests/ui/charts.mjs"
