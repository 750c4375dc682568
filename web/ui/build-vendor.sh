#!/bin/sh
# build-vendor.sh SRC OUT: build the chart library OUT (vendor/echarts.min.js) from the locked packages.
#
# SRC is this folder in the source tree, which is only read. Packages are installed beside OUT's folder, in npm/, where
# the browser tests find theirs too. Nothing is written to the home directory.
set -eu
src=$1
out=$2
work=$(dirname "$out")/../npm

command -v npm >/dev/null 2>&1 || {
    echo "build-vendor.sh: npm is needed to build the dashboard's chart library from the repository." >&2
    echo "build-vendor.sh: install it (Debian: apt-get install npm), or build from a release archive, which has it." >&2
    exit 1
}

mkdir -p "$work" "$(dirname "$out")"
work=$(cd "$work" && pwd)
for f in package.json package-lock.json .npmrc echarts-entry.js; do
    cp -f "$src/$f" "$work/$f"
    chmod u+w "$work/$f"
done

export npm_config_cache="$work/cache" npm_config_update_notifier=false
(cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
rm -rf "$work/cache"

# esbuild's own file names the platform's program; the version is kept so that a licence question has an answer.
version=$(sed -n 's/^ *"version": "\(.*\)",*$/\1/p' "$work/node_modules/echarts/package.json" | head -n 1)
"$work/node_modules/.bin/esbuild" "$work/echarts-entry.js" --bundle --minify --format=esm --target=es2020 \
    --legal-comments=none --log-level=warning \
    "--banner:js=/*! Apache ECharts $version, custom build. Licensed under the Apache License 2.0. */" \
    --define:process.env.NODE_ENV='"production"' "--outfile=$out.tmp"
mv -f "$out.tmp" "$out"
