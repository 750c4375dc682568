#!/bin/sh
# The modules of tuner/ are its folders, in the order of docs/ARCHITECTURE.md ("In `tuner/`, from the top down"): a file
# includes and calls only what is in its own folder or below it, so no circle runs through two folders.
# Calls are those of the objects (file-graph.py), so that a declaration in a low header hides nothing; among the files
# of a folder they run in no circle either.
cd "${PT_SRC:?}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

. "$PT_SRC/tests/structure/say.sh"

# Rows of the table, the lowest first: "folder rank"; folders of one row may use each other's nothing.
awk '/^In `tuner\/`, from the top down/ { table = 1 }
    table && /^`/ {
        rank--
        row = $0; sub(/ \|.*/, "", row)
        while (match(row, /`[a-z]+\/`/)) { print substr(row, RSTART + 1, RLENGTH - 3), 1000 + rank; row = substr(row, RSTART + RLENGTH) }
        rows = 1
    }
    table && rows && !/^`/ { exit }' docs/ARCHITECTURE.md >"$work/order"

echo "1..8"
say "the page lists every folder of tuner/" "$(ls -d tuner/*/ | sed 's|tuner/||; s|/$||' | while read -r folder; do
    grep -q "^$folder " "$work/order" || echo "tuner/$folder/ has no row in docs/ARCHITECTURE.md"; done)"

# Arrows: "from-file to-file by-what".
grep -rnoE --include='*.c' --include='*.h' '^#include "tuner/[a-z_]+/[^"]+"' tuner |
    sed -E 's/^(tuner\/[^:]+):[0-9]+:#include "([^"]+)"/\1 \2 include/' >"$work/includes"
judge() { # arrows: those that do not go down
    awk 'NR == FNR { rank[$1] = $2; next }
        {
            split($1, from, "/"); split($2, to, "/")
            if (from[2] != to[2] && rank[from[2]] <= rank[to[2]])
                print $1 " -> " $2 " (" $3 "): " to[2] "/ is not below " from[2] "/"
        }' "$work/order" "$1" | sort -u
}
say "includes go down" "$(judge "$work/includes")"

graph="python3 tests/structure/file-graph.py"
if ls "$PT_BUILD"/tuner/core/*.o >/dev/null 2>&1; then
    $graph calls >"$work/calls" || echo "Bail out! no calls"
    grep '^tuner/.* tuner/' "$work/calls" >"$work/within"
    say "calls are found" "$([ "$(wc -l <"$work/within")" -gt 100 ] || echo "only $(wc -l <"$work/within")")"
    say "calls go down" "$(judge "$work/within")"
    say "no circle of files" "$($graph circles <"$work/calls")"
    printf 'tuner/a.c tuner/b.c x\ntuner/b.c tuner/c.c y\ntuner/c.c tuner/a.c z\n' >"$work/circle"
    say "a circle of three files is found" "$($graph circles <"$work/circle" | grep -qF 'tuner/a.c -> tuner/b.c (x) -> tuner/c.c (y) -> tuner/a.c (z)' || echo "it is not")"
    # docs/pictures/modules.svg: one path a call or include between modules that does not follow from others.
    cat "$work/includes" "$work/within" |
        sed -nE 's|^tuner/([a-z_]+)/[^ ]* tuner/([a-z_]+)/[^ ]* .*|\1 \2|p' | awk '$1 != $2' | sort -u | $graph reduce >"$work/arrows"
    grep -oE 'data-arrow="[a-z]+ [a-z]+"' docs/pictures/modules.svg | sed 's/data-arrow="//; s/"//' | sort >"$work/drawn"
    say "the picture has the arrows between modules" "$(sort "$work/arrows" | diff "$work/drawn" - | sed -n 's/^</drawn, and not there:/p; s/^>/not drawn:/p')"
else
    for what in "calls are found" "calls go down" "no circle of files" "a circle of three files is found" \
        "the picture has the arrows between modules"; do
        n=$((n + 1))
        echo "ok $n - $what # SKIP nothing is built"
    done
fi

# Public headers are manuals, and vec.h and device.cuh are instructions as functions.
public='base/base.h db/db.h kernels/kernels.h plan/partune.h search/search.h tuner/tuner.h web/web.h'
say "no header over 250 lines but the public ones" "$(find base db kernels plan search trainer tuner web \( -name vendor -o -name node_modules \) -prune \
    -o \( -name '*.h' -o -name '*.cuh' \) ! -name vec.h ! -name device.cuh -print | xargs wc -l |
    awk -v public=" $public " '$2 != "total" && $1 > 250 && !index(public, " " $2 " ") { print $2 ": " $1 " lines" }')"
