#!/bin/sh
# answers.sh FILE QUESTION...: what configure's questions are answered by now, one a line, in FILE.
#
# A question is a module of pkg-config (answered by its version) or a header of C (NAME.h). FILE is written only where its
# content changes. PKG_CONFIG, CC and CPPFLAGS are those of configure.
set -eu
file=$1 new=$1.$$ # two that run at once (make all check) do not share it
shift

# An empty search path would not be the default one.
[ -n "${PKG_CONFIG_LIBDIR:-}" ] || unset PKG_CONFIG_LIBDIR

for question; do
    case $question in
    *.h)
        # shellcheck disable=SC2086
        if echo "#include <$question>" | $CC ${CPPFLAGS:-} -E - >/dev/null 2>&1; then answer=found; else answer=missing; fi
        ;;
    *) answer=$($PKG_CONFIG --modversion "$question" 2>/dev/null) || answer=missing ;;
    esac
    echo "$question $answer"
done >"$new"
if cmp -s "$new" "$file"; then rm -f "$new"; else mv -f "$new" "$file"; fi
