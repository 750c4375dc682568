#!/bin/sh
# What ./quickstart asks an administrator for on a machine without any of it: Vega for the charts of a clone, not where a
# release archive has brought them; Node for the tests of the dashboard only.
. "${PT_SRC:?}/tests/api/tap.sh"
command -v dpkg-query >/dev/null 2>&1 || { echo "1..0 # SKIP there is no dpkg-query"; exit 0; }
cd "$run" || exit 99
mkdir -p tree/web/ui/vendor bin
cp "$PT_SRC/quickstart" tree/
for tool in sh dirname grep sed cat; do ln -s "$(command -v $tool)" bin/; done
printf '#!/bin/sh\nexit 1\n' >bin/dpkg-query # nothing is installed
printf '#!/bin/sh\necho 1000\n' >bin/id       # and there is no sudo, npm
chmod +x bin/dpkg-query bin/id
asked() { PATH="$run/bin" sh tree/quickstart "$@" | sed -n 's/.*--no-install-recommends//p'; }
has "a clone: the libraries" "$(asked)" ' libjansson-dev .* libopenblas-dev '
has "and Vega" "$(asked)" ' esbuild node-vega$'
is "and no npm" "$(asked | grep -cE 'nodejs|npm')" 0
printf '// no chart library: Vega was missing\n' >tree/web/ui/vendor/vega.min.js
has "where a build without charts was left, too" "$(asked)" ' esbuild node-vega$'
printf '/*! Vega */\n' >tree/web/ui/vendor/vega.min.js
has "an archive: the libraries" "$(asked)" ' libjansson-dev .* libopenblas-dev '
is "and no Vega" "$(asked | grep -cE 'esbuild|vega|nodejs|npm')" 0
has "the tests of the dashboard need it" "$(asked check)" ' nodejs npm$'
finish
