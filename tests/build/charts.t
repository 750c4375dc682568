#!/bin/sh
# A build without esbuild or Vega: it ends well, says so in one line, and the next build has the charts where they have come. The
# dashboard that results is tests/ui/tables.t's.
. "${PT_SRC:?}/tests/api/tap.sh"
ui=$PT_SRC/web/ui
vendor="$run/web tree/vendor/vega.min.js"
vega=$(sed -n 's/^VEGA_DIR = //p' "$PT_BUILD/Makefile")
cd "$run" || exit 99
mkdir -p bin none
for tool in sh dirname mkdir head grep touch sed cat mv; do ln -s "$(command -v $tool)" bin/; done

build() { # Vega's folder [tried]
    PATH=${path:-$PATH} sh "$ui/build-vendor.sh" "$ui" "$vendor" "$@" >out 2>&1
}

path=$run/bin
ok "without esbuild the build succeeds" build "$vega"
is "and says so in one line" "$(wc -l <out)" 1
has "with the reason" "$(cat out)" '^dashboard: tables in place of charts; the next make tries again \(esbuild is not installed'
has "it wrote a module without charts" "$(cat "$vendor")" '^export const View = null;'
is "which is older than its sources" "$(find "$vendor" -newer "$ui/vega-entry.js")" ""
ok "sub-makes do not try again" build "$vega" tried
is "and print nothing" "$(cat out)" ""
printf '#!/bin/sh\n' >bin/esbuild && chmod +x bin/esbuild
ok "without Vega the build succeeds" build "$run/none"
has "and names the folder" "$(cat out)" "^dashboard: tables in place of charts; .*no Vega in $run/none"

path=
if ! command -v esbuild >/dev/null 2>&1 || [ ! -d "$vega/vega-view" ]; then
    echo "ok $((n + 1)) - the next build has the charts # SKIP esbuild or Vega is missing"
    n=$((n + 1))
    finish
fi
ok "the next build has the charts" build "$vega"
is "and prints nothing" "$(cat out)" ""
has "with its version" "$(head -n 1 "$vendor")" 'Vega 5\.'
has "and its license" "$(head -c 4000 "$vendor")" '^License: BSD-3-Clause'
touch -t 200001010000 "$vendor"
ok "an existing library stays when it cannot be built again" build "$run/none"
has "which the build says" "$(cat out)" 'keeps the chart library of an earlier build'
has "and is intact" "$(head -n 1 "$vendor")" 'Vega 5'
finish
