#!/bin/sh
# The dashboard and its tests by ESLint.
. "${PT_SRC:?}/tests/ui/node.sh"
[ -d "${PT_BUILD:?}/web/ui/npm/node_modules/eslint" ] || skip "ESLint is missing: npm is not installed, or does not reach its registry"
command -v python3 >/dev/null 2>&1 || skip "python3 is not installed"
run_node "$PT_SRC/tests/ui/lint.mjs"
