#!/bin/sh
# `make wheel`: a wheel and an sdist of configure's version, and the package works from the wheel.
. "${PT_SRC:?}/tests/api/tap.sh"
cd "$run" || exit 99
. "$PT_SRC/tests/python/python.sh"
find_python 'import build, setuptools, wheel; assert int(setuptools.__version__.split(".")[0]) >= 61' ||
    skip "no python3 here has build, setuptools and wheel"
version=$(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p; s/^PACKAGE_VERSION = //p' "$PT_BUILD/Makefile")
ok "make wheel" env -u MAKEFLAGS -u MFLAGS make -C "$PT_BUILD" wheel PYTHON="$python"
dist=$PT_BUILD/python/dist
is "a wheel of this version that runs everywhere, and an sdist" "$(cd "$dist" && echo *)" "partune-$version-py3-none-any.whl partune-$version.tar.gz"
is "every module is in the wheel" "$("$python" -m zipfile -l "$dist"/*.whl | sed -n 's|^\(partune/[a-z_]*\.py\).*|\1|p' | sort | tr '\n' ' ')" \
    "$(cd "$PT_SRC/python" && find partune -name '*.py' | sort | tr '\n' ' ')"
is "it works, and knows its version" "$(cd / && PYTHONPATH=$(echo "$dist"/*.whl) "$python" -c 'import partune
with partune.trial(layout={"micro_batch": 2}) as trial:
    with trial.step() as step: step.loss = 1.0
    print(partune.__version__, trial.layout.micro_batch, trial.done)')" "$version 2 False"
finish
