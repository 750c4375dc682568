#!/bin/sh
# Where the documents list states of a trial or outcomes of an attempt, they have the rows of db/states.def.
docs=${PT_SRC:?}/docs
print=${PT_BUILD:?}/db/print-states
n=0
echo 1..3
same() { # name, expected, found
    n=$((n + 1))
    if [ -n "$2" ] && [ "$2" = "$3" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        echo "$2" | sed 's/^/# expected: /'
        echo "$3" | sed 's/^/# found:    /'
    fi
}

same "reference/protocol.md has the table of outcomes" "$("$print" md)" \
    "$(awk '/^outcome \| recognized by/ { on = 1 } on && !NF { exit } on' "$docs/reference/protocol.md")"

# The picture's boxes are <text>name, name</text>; TRIAL_STATES has lines "    name: [".
states=$("$print" js | sed -n '/TRIAL_STATES/,/^}/s/^ *\([a-z_]*\): \[.*/\1/p' | sort)
same "pictures/trial.svg shows every state" "$states" \
    "$(sed 's/<[^>]*>/\n/g' "$docs/pictures/trial.svg" | grep -E '^[a-z_]+(, [a-z_]+)*$' | sed 's/, /\n/g' |
        grep -Fx "$states" | sort -u)"

# REPORTED is the row's eighth column: a row stands behind STATE( with its first ones on the same line.
same "reference/http.md lists what a worker may report" \
    "$({ sed -n 's/^STATE([A-Z_]*, \([a-z_]*\),.* REPORTED,.*/\1/p' "$PT_SRC/db/states.def"; echo comm; } | sort)" \
    "$(sed -n '/answers the trial. `status`: /,/without it events/p' "$docs/reference/http.md" |
        sed 's/.*answers the trial. `status`: //; s/; without it.*//' | grep -oE '`[a-z_]+`' | tr -d '`' | sort)"
