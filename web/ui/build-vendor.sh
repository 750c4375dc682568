#!/bin/sh
# build-vendor.sh SRC OUT VEGA [tried]: build the chart library OUT (…/vendor/vega.min.js) by esbuild.
#
# SRC is this folder in the source tree, which is only read. VEGA is the folder of Vega's modules, those of Debian's
# node-vega or any node_modules (configure --with-vega). No network is needed.
# Without esbuild or Vega, OUT becomes a module without charts (the dashboard shows tables), and one line says so. That
# module is older than its sources, so that the next make tries again; "tried" says that this make did.
set -eu
src=$1
out=$2
vega=$3
mark='// no chart library'

stand_in() { head -n 1 "$out" 2>/dev/null | grep -qF "$mark"; }

[ "${4:-}" != tried ] || [ ! -f "$out" ] || exit 0
mkdir -p "$(dirname "$out")"
why=''
command -v esbuild >/dev/null 2>&1 || why='esbuild is not installed (Debian: apt-get install esbuild node-vega)'
[ -f "$vega/vega-view/package.json" ] || why="${why:-no Vega in $vega (Debian: apt-get install node-vega)}"
if [ -n "$why" ] && [ -f "$out" ] && ! stand_in; then
    echo "dashboard: keeps the chart library of an earlier build ($why)"
    exit 0
fi
if [ -n "$why" ]; then
    printf '%s: Vega was missing when the dashboard was built, and panels show tables.\nexport const View = null;\n' "$mark" >"$out"
    touch -t 200001010000 "$out"
    echo "dashboard: tables in place of charts; the next make tries again ($why)"
    exit 0
fi
version=$(sed -n 's/^ *"version": "\(.*\)",*$/\1/p' "$vega/vega/package.json" | head -n 1)
{
    printf '/*! Vega %s, the parts that the dashboard draws with.\n\n' "$version"
    cat "$src/vega-license.txt"
    printf '*/\n'
    NODE_PATH=$vega esbuild "$src/vega-entry.js" --bundle --minify --format=esm --target=es2020 --legal-comments=none \
        --log-level=warning
} >"$out.tmp"
mv -f "$out.tmp" "$out"
touch "$(dirname "$out")/built" # make clean takes it away
