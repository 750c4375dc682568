#!/bin/sh
# What a reader should never meet: tabs and overlong lines in C, trailing blanks, leftovers, functions past their idea.
cd "${PT_SRC:?}" || exit 99

sources=$(find base plan kernels search db web trainer tuner tests \( -name node_modules -o -name vendor \) -prune \
          -o \( -name '*.c' -o -name '*.h' \) -print | sort)
n=0
say() { # name, offenders
    n=$((n + 1))
    if [ -z "$2" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        echo "$2" | head -20 | sed 's/^/#   /'
    fi
}

echo "1..6"
say "no tab in C" "$(echo "$sources" | xargs grep -nP '\t' | cut -c1-100)"
say "no trailing blank in C" "$(echo "$sources" | xargs grep -nE ' +$' | cut -c1-100)"
say "no line of C over 120 columns" "$(echo "$sources" | xargs awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns" }')"
say "no unfinished mark" "$(echo "$sources" | xargs grep -nE '\b(TODO|FIXME|XXX|HACK)\b' | cut -c1-100)"
say "no source file over 700 lines" "$(echo "$sources" | grep -v '^tests/' | xargs wc -l | awk '$2 != "total" && $1 > 700 { print $2 ": " $1 " lines" }')"
say "no function over 100 lines" "$(echo "$sources" | grep -v '^tests/' | xargs awk '
    FNR == 1 { start = 0 }
    /^\{/    { start = FNR }
    /^\}/    { if (start && FNR - start > 100) print FILENAME ":" start ": " FNR - start " lines"; start = 0 }')"
