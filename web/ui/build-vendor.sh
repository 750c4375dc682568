#!/bin/sh
# build-vendor.sh SRC OUT [tried]: build the chart library OUT (…/vendor/echarts.min.js) from the locked packages.
#
# SRC is this folder in the source tree, which is only read. The packages are installed in npm/ next to OUT's folder, where
# the browser tests find theirs, too.
# Where npm's registry cannot be reached, OUT becomes a module without charts (the dashboard shows tables), and one line
# says so. That module is older than its sources, so that the next make tries again; "tried" says that this make did.
set -eu
src=$1
out=$2
npm=$(dirname "$out")/../npm
mark='// no chart library'

stand_in() { head -n 1 "$out" 2>/dev/null | grep -qF "$mark"; }

[ "${3:-}" != tried ] || [ ! -f "$out" ] || exit 0
again=''
! stand_in || again=again
mkdir -p "$(dirname "$out")"
status=0
# shellcheck disable=SC2086
why=$("$src/install-packages.sh" "$src" "$npm" $again 2>&1) || status=$?
if [ "$status" = 1 ] && [ -f "$out" ] && ! stand_in; then
    echo "dashboard: keeps the chart library of an earlier build ($why)"
    exit 0
fi
if [ "$status" = 1 ]; then
    printf '%s: npm had none when the dashboard was built, and panels show tables.\nexport const init = null;\n' "$mark" >"$out"
    touch -t 200001010000 "$out"
    echo "dashboard: tables in place of charts; the next make tries again ($why)"
    exit 0
fi
if [ "$status" != 0 ]; then
    printf '%s\n' "$why" >&2
    exit 1
fi
cp -f "$src/echarts-entry.js" "$npm/echarts-entry.js"
chmod u+w "$npm/echarts-entry.js"
version=$(sed -n 's/^ *"version": "\(.*\)",*$/\1/p' "$npm/node_modules/echarts/package.json" | head -n 1)
"$npm/node_modules/.bin/esbuild" "$npm/echarts-entry.js" --bundle --minify --format=esm --target=es2020 \
    --legal-comments=none --log-level=warning \
    "--banner:js=/*! Apache ECharts $version, custom build. Licensed under the Apache License 2.0. */" \
    --define:process.env.NODE_ENV='"production"' "--outfile=$out.tmp"
mv -f "$out.tmp" "$out"
