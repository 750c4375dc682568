#!/bin/sh
# The recipes of Spack and EasyBuild, made for a file in the place of the archive. Neither tool is here: recipes.py runs the
# recipes, which are Python, and compares them, the RPM spec and debian/control with configure.ac.
command -v python3 >/dev/null || { echo "1..0 # SKIP there is no python3"; exit 0; }
unset MAKEFLAGS MFLAGS MAKELEVEL
run=$(mktemp -d "${TMPDIR:-/tmp}/partune-recipes.XXXXXX") || exit 99
trap 'rm -rf "$run"' EXIT
version=$(sed -n 's/^PACKAGE_VERSION = //p' "${PT_BUILD:?}/Makefile")
archive=$run/partune-$version.tar.xz
echo "$$" >"$archive"
made=$PT_BUILD/packaging
make -C "$PT_BUILD" recipes ARCHIVE="$run/none" >"$run/said" 2>&1 && { echo "Bail out! recipes were made of no archive"; exit 99; }
grep -q 'none is not there; run make dist' "$run/said" || { cat "$run/said"; echo "Bail out! make recipes does not say what it needs"; exit 99; }
make -C "$PT_BUILD" recipes ARCHIVE="$archive" >"$run/said" 2>&1 || { cat "$run/said"; echo "Bail out! make recipes fails"; exit 99; }
PYTHONDONTWRITEBYTECODE=1 python3 "${PT_SRC:?}/tests/packages/recipes.py" "$PT_SRC" "$made/spack/package.py" \
    "$made/easybuild/partune-$version-GCC-14.3.0.eb" "$(sha256sum "$archive" | cut -d' ' -f1)" "file://$archive"
