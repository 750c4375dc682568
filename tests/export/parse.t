#!/bin/sh
# Every target's files through the real parser of their format, with a campaign's name made to break out of comments.
dir=${PT_BUILD:?}/tests/run/export.$$
command -v python3 >/dev/null || { echo "1..0 # SKIP there is no python3"; exit 0; }
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"
"$PT_BUILD/tests/export/dump" "$dir" >/dev/null || { echo "Bail out! dump fails"; exit 99; }
PYTHONDONTWRITEBYTECODE=1 python3 "${PT_SRC:?}/tests/export/parse.py" "$dir" "$PT_SRC/tests/data/export/keys"
