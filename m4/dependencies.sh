#!/bin/sh
# dependencies.sh MAKEFILE DEPDIR: the empty files of dependencies that MAKEFILE includes and that are missing, some thousand,
# by a few processes. automake's own rule starts three for each, which was half of the time of configure.
set -e
awk -v deps="$2" '
    /^am__depfiles_remade =/ { on = 1 }
    on { for (i = 1; i <= NF; i++) if (sub(/\$\(DEPDIR\)/, deps, $i)) print $i }
    on && !/\\$/ { exit }' "$1" >conftest.deps
sed 's,/[^/]*$,,' conftest.deps | sort -u | tr '\n' '\0' | xargs -0 mkdir -p
awk '{ if ((getline line <$0) < 0) print "# dummy" >$0; close($0) }' conftest.deps
rm -f conftest.deps
