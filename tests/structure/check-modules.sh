#!/bin/sh
# The modules of tuner/ are its folders, in the order of docs/ARCHITECTURE.md ("In `tuner/`, from the top down"): a file
# includes and calls only what is in its own folder or below it, so no circle runs through two folders.
# Calls are those of the objects, so that a declaration in a low header hides nothing.
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

echo "1..5"
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

if ls "$PT_BUILD"/tuner/core/*.o >/dev/null 2>&1; then
    for source in $(find tuner -name '*.c'); do
        for object in "$PT_BUILD/${source%/*}"/*-"$(basename "$source" .c)".o "$PT_BUILD/${source%.c}.o"; do
            [ -f "$object" ] && nm -g "$object" 2>/dev/null | sed "s|^|$source |"
        done
    done >"$work/symbols"
    awk 'NF == 4 && $3 ~ /^[A-TV-Z]$/ && $4 ~ /^(tn|cl|run)_/ { print $4, $1 }' "$work/symbols" | sort -u >"$work/defined"
    awk 'NR == FNR { home[$1] = $2; next }
        NF == 3 && $2 == "U" && ($3 in home) && home[$3] != $1 { print $1, home[$3], $3 }' \
        "$work/defined" "$work/symbols" | sort -u >"$work/calls"
    say "calls are found" "$([ "$(wc -l <"$work/calls")" -gt 100 ] || echo "only $(wc -l <"$work/calls")")"
    say "calls go down" "$(judge "$work/calls")"
else
    n=$((n + 2))
    echo "ok $((n - 1)) - calls are found # SKIP nothing is built"
    echo "ok $n - calls go down # SKIP nothing is built"
fi

say "no header of a module over 250 lines" "$(find tuner/*/ -name '*.h' | xargs wc -l | awk '$2 != "total" && $1 > 250 { print $2 ": " $1 " lines" }')"
