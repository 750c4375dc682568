#!/bin/sh
# A version is said once, in configure.ac; files that cannot take it from there say the same.
. "${PT_SRC:?}/tests/api/tap.sh"
version=$(sed -n 's/^AC_INIT(\[partune\], \[\([^]]*\)\].*/\1/p' "$PT_SRC/configure.ac")
has "configure.ac has a semantic version" "$version" '^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$'
is "it is the newest of CHANGELOG.md" "$(sed -n 's/^## \([0-9].*\)/\1/p' "$PT_SRC/CHANGELOG.md" | head -n 1)" "$version"
is "and that of the dashboard's package" "$(sed -n 's/^ *"version": "\(.*\)",/\1/p' "$PT_SRC/web/ui/package.json")" "$version"
is "and of the package for Debian" "$(sed -n '1s/^partune (\(.*\)-[0-9]*).*/\1/p' "$PT_SRC/debian/changelog")" "$version"
finish
