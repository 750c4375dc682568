# Source this: run_node FILE [ARGS] runs a test with node, or says why it cannot.
skip() {
    echo "1..0 # SKIP $*"
    exit 0
}

run_node() {
    command -v node >/dev/null 2>&1 || skip "node is not installed"
    exec node "$@"
}

# The packages of the browser tests and the browser itself.
need_browser() {
    command -v chromium >/dev/null 2>&1 || skip "chromium is not installed"
    [ -d "${PT_BUILD:?}/web/ui/npm/node_modules/playwright-core" ] || skip "playwright-core is missing: npm is not installed, or does not reach its registry"
}
