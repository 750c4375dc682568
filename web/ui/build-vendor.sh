#!/bin/sh
# build-vendor.sh SRC OUT: build the chart library OUT (…/vendor/echarts.min.js) from the locked packages.
#
# SRC is this folder in the source tree, which is only read. The packages are installed in npm/ beside OUT's folder, where
# the browser tests find theirs, too.
set -eu
src=$1
out=$2
npm=$(dirname "$out")/../npm

"$src/install-packages.sh" "$src" "$npm" || {
    echo "build-vendor.sh: without npm, build from a release archive: it carries the chart library" >&2
    exit 1
}
mkdir -p "$(dirname "$out")"
cp -f "$src/echarts-entry.js" "$npm/echarts-entry.js"
chmod u+w "$npm/echarts-entry.js"
version=$(sed -n 's/^ *"version": "\(.*\)",*$/\1/p' "$npm/node_modules/echarts/package.json" | head -n 1)
"$npm/node_modules/.bin/esbuild" "$npm/echarts-entry.js" --bundle --minify --format=esm --target=es2020 \
    --legal-comments=none --log-level=warning \
    "--banner:js=/*! Apache ECharts $version, custom build. Licensed under the Apache License 2.0. */" \
    --define:process.env.NODE_ENV='"production"' "--outfile=$out.tmp"
mv -f "$out.tmp" "$out"
