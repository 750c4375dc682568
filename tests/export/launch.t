#!/bin/sh
# Job scripts run what they carry: each is executed, with programs in the place of launchers and trainers that note how they were
# called, and the file is then read as the trainer reads it.
dir=${PT_BUILD:?}/tests/run/launch.$$
command -v python3 >/dev/null || { echo "1..0 # SKIP there is no python3"; exit 0; }
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/files"
"$PT_BUILD/tests/export/dump" "$dir/files" >/dev/null || { echo "Bail out! dump fails"; exit 99; }
PYTHONDONTWRITEBYTECODE=1 python3 "${PT_SRC:?}/tests/export/launch.py" "$dir/files" "$dir"
