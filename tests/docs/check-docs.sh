#!/bin/sh
# Runs the commands that the documents print. docs/howto/contribute.md states the convention:
#
#   ```sh             run here, in order, page by page, in a fresh folder, against a real daemon
#   ```sh elsewhere   for another cluster, for root, or for hours: must be shell, and every option of our programs in it
#                     must be one that the program's --help knows
#   text              in README.md: lines that its commands print
#   any other word    no commands of ours
#
# A page is run as one script with `set -eu`; http://127.0.0.1:8417, where the documents expect the daemon, is replaced
# by the free port that this one got. Usage: check-docs.sh [PAGE...]; without pages, README.md and all pages below docs/.
src=${PT_SRC:?} build=${PT_BUILD:?}
work=$build/tests/run/docs.$$
export PATH="$build:$PATH" PARTUNE_DATA="$work/data" XDG_CONFIG_HOME="$work/config" NO_COLOR=1
daemon='' n=0

if ! command -v mpiexec >/dev/null || [ ! -x "$build/partune-train" ]; then
    echo "1..0 # SKIP built without MPICH: there is nothing to run trials with"
    exit 0
fi
mkdir -p "$work/data"

finish() {
    if [ -n "$daemon" ]; then
        kill -TERM "$daemon" 2>/dev/null
        wait "$daemon" 2>/dev/null
    fi
    [ -n "${keep:-}" ] || rm -rf "$work"
}
trap finish EXIT
trap 'exit 99' INT TERM

result() { # status name [log]
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        [ -z "${3:-}" ] || tail -n 20 "$3" | sed 's/^/#   /'
    fi
}

title() { # page: its path below the documents
    t=${1#"$src"/}
    echo "${t#docs/}"
}

# Blocks of PAGE whose fence has the words WORDS, one after the other; a page may indent them.
blocks() { # page words
    awk -v want="$2" '
        /^ *```/ {
            inside = !inside; words = $0; sub(/^ *```/, "", words)
            on = inside && words == want
            next
        }
        on' "$1"
}

# ---- the form of the pages ----

# A fence without a known word, or a command of ours outside the two kinds of shell blocks, would be a command that
# nobody runs.
form() {
    awk '
        /^ *```/ {
            if (inside) { inside = 0; next }
            inside = 1; words = $0; sub(/^ *```/, "", words)
            if (words !~ /^(sh|sh elsewhere|json|ini|text|c|make|python)$/) print FILENAME ":" FNR ": unknown fence `" words "`"
            next
        }
        FNR == 1 { inside = 0 }
        (inside ? words !~ /^sh/ : /^    /) &&
            /^ *(\$ |sudo )?(partuned?|partune-(train|data|search)|mpiexec|\.\/quickstart|make|curl|srun|sbatch|\.\.?\/configure) / {
                print FILENAME ":" FNR ": a command outside ```sh: " $0 }
    ' "$@"
}

# ---- commands for elsewhere: shell, and options that exist ----

# What PROGRAM [COMMAND] says of its options.
help_of() {
    case $1 in
    partune) partune "${2:-}" --help 2>/dev/null || partune --help ;;
    *) "$1" --help ;;
    esac
}

options() { # script: every --option of one of our programs, as "program command option"
    sed -e ':a' -e '/\\$/N' -e 's/\\\n//' -e 'ta' "$1" | sed 's/#.*//; s/&&/\n/g; s/|/\n/g; s/;/\n/g' |
        awk '{
            program = ""; command = "-"
            for (i = 1; i <= NF; i++) {
                if ($i ~ /^(partune|partuned|partune-train|partune-data|partune-search|partune-run)$/) {
                    program = $i; command = $(i + 1) ~ /^[a-z]+$/ ? $(i + 1) : "-"
                } else if (program != "" && $i ~ /^--[a-z]/) {
                    option = $i; sub(/=.*/, "", option); gsub(/["]/, "", option); print program, command, option
                }
            }
        }'
}

elsewhere() { # page
    blocks "$1" "sh elsewhere" >"$work/elsewhere.sh"
    [ -s "$work/elsewhere.sh" ] || return 0
    bash -n "$work/elsewhere.sh" || return 1
    options "$work/elsewhere.sh" | sort -u | while read -r program command option; do
        [ "$command" != - ] || command=
        # shellcheck disable=SC2086
        help_of "$program" $command 2>&1 | grep -q -- "$option\\b" || echo "$program ${command:-} has no option $option"
    done >"$work/unknown"
    cat "$work/unknown"
    [ ! -s "$work/unknown" ]
}

# ---- commands that run here ----

start_daemon() {
    partuned --listen 127.0.0.1:0 --hang 300 --stop requeue >"$work/partuned.log" 2>&1 &
    daemon=$!
    tries=100
    while [ $tries -gt 0 ]; do
        PARTUNE_SERVER=$(sed -n 's/.* ready at \([^ ]*\) .*/\1/p' "$work/partuned.log")
        [ -n "$PARTUNE_SERVER" ] && break
        sleep 0.1
        tries=$((tries - 1))
    done
    export PARTUNE_SERVER
    [ -n "$PARTUNE_SERVER" ]
}

run() { # page
    mkdir -p "$work/$name/docs" # paths are those of a clone, at whose top a reader is
    cp -R "$src/docs/examples" "$work/$name/docs/"
    chmod -R u+w "$work/$name/docs"
    { echo 'set -eu'; blocks "$1" sh; } | sed "s#http://127.0.0.1:8417#$PARTUNE_SERVER#g" >"$work/$name.sh"
    (cd "$work/$name" && timeout 1800 bash -x "$work/$name.sh") >"$work/$name.log" 2>&1 </dev/null
}

# Lines of text blocks of PAGE that its commands did not print.
unprinted() { # page
    blocks "$1" text | grep -vxFf "$work/$name.log"
}

if [ $# = 0 ]; then
    # shellcheck disable=SC2046
    set -- "$src/README.md" $(find "$src/docs" -name '*.md' | sort)
fi
running=0
for page; do
    if [ -n "$(blocks "$page" sh)" ]; then
        running=$((running + 1))
    fi
    [ "$page" != "$src/README.md" ] || running=$((running + 1))
done
echo "1..$((2 + $# + running))"

form "$@" >"$work/form.log"
[ ! -s "$work/form.log" ]
result $? "every command is in a block that is run or checked" "$work/form.log"
for page; do
    elsewhere "$page" >"$work/elsewhere.log" 2>&1
    result $? "commands of $(title "$page") for elsewhere are shell, with options that exist" "$work/elsewhere.log"
done
start_daemon
result $? "a daemon starts" "$work/partuned.log"
[ -n "$PARTUNE_SERVER" ] || exit 1
partune-data prepare --name documentation --data "$work/data" "$src/docs" >"$work/data.log" 2>&1
for page; do
    [ -n "$(blocks "$page" sh)" ] || continue
    name=$(title "$page" | tr / -)
    name=${name%.md}
    began=$(date +%s)
    run "$page"
    result $? "the commands of $name run" "$work/$name.log"
    if [ "$page" = "$src/README.md" ]; then
        unprinted "$page" >"$work/unprinted.log"
        [ ! -s "$work/unprinted.log" ]
        result $? "and print what it says" "$work/unprinted.log"
    fi
    echo "# $name: $(($(date +%s) - began)) s"
done
