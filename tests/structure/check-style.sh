#!/bin/sh
# What a reader should never meet: tabs and overlong lines, trailing blanks, leftovers, files and functions past their idea.
src=${PT_SRC:?}
cd "$src" || exit 99
export LC_ALL=C.UTF-8 # columns are characters

code=$(find base plan kernels search db web trainer tuner tests \( -name node_modules -o -name vendor -o -name npm \) -prune \
       -o \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.js' -o -name '*.css' \) -print | sort)
c=$(echo "$code" | grep -v '\.js$\|\.css$')
product=$(echo "$code" | grep -v '^tests/')
product_c=$(echo "$c" | grep -v '^tests/')
js=$(echo "$product" | grep '\.js$')
longest=59 # lines of a function
columns=$(sed -n "s/^ColumnLimit: //p" .clang-format)
. "$PT_SRC/tests/structure/say.sh"

echo "1..9"
say "no tab" "$(echo "$code" | xargs grep -nP '\t' | cut -c1-100)"
say "no trailing blank" "$(echo "$code" | xargs grep -nE ' +$' | cut -c1-100)"
say "no line of C or CUDA over the formatter's $columns columns" "$(echo "$c" | xargs grep -nE "^.{$((columns + 1)),}" | cut -c1-100)"
say "no other line over 120 columns" "$(echo "$code" | grep '\.js$\|\.css$' | xargs grep -nE '^.{121,}' | cut -c1-100)"
say "no section separator over more than one line" "$(echo "$c" | xargs grep -nE '^/\* ----' | grep -v '\*/$' | cut -c1-100)"
say "no mark of unfinished work" "$(echo "$code" | xargs grep -nE '\b(TODO|FIXME|XXX|HACK)\b' | cut -c1-100)"
say "no source file over 700 lines" "$(echo "$product" | xargs wc -l | awk '$2 != "total" && $1 > 700 { print $2 ": " $1 " lines" }')"
say "no function of C or CUDA over $longest lines" "$(echo "$product_c" | xargs awk -v longest="$longest" '
    FNR == 1 { start = 0 }
    /^\{/    { start = FNR }
    /^\}/    { if (start && FNR - start + 1 > longest) print FILENAME ":" start ": " FNR - start + 1 " lines"; start = 0 }')"
if command -v python3 >/dev/null 2>&1; then
    say "no function of JavaScript over $longest lines" "$(echo "$js" | xargs python3 tests/structure/js-functions.py "$longest" 2>&1)"
else
    echo "ok 9 - no function of JavaScript over $longest lines # SKIP python3 is not installed"
fi
