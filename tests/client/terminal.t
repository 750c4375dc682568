#!/bin/sh
# The client on a terminal of its own: the live view, tables of every width, colors, signals.
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
run=${PT_BUILD:?}/tests/run/terminal.$$
mkdir -p "$run" || exit 99
trap 'rm -rf "$run"' EXIT
trap 'exit 99' INT TERM
python3 "${PT_SRC:?}/tests/client/terminal.py" "$run"
