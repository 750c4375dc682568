#!/bin/sh
# The table of layout keys in the documents is the one that the program has.
echo 1..1
page=${PT_SRC:?}/docs/reference/layout.md
want=$("${PT_BUILD:?}/plan/print-keys" md)
got=$(awk '/^key \| means \| values/ { on = 1 } on && !NF { exit } on' "$page")
if [ "$want" = "$got" ]; then
    echo "ok 1 - docs/reference/layout.md has the rows of plan/keys.def"
else
    echo "not ok 1 - docs/reference/layout.md has the rows of plan/keys.def"
    echo "$want" | sed 's/^/# expected: /'
fi
