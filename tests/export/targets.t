#!/bin/sh
# Exported files in the targets' own code: what their parsers and validators hold of drawn legal layouts is compared with the
# layouts. Runs for the targets whose checkouts are named; see docs/howto/test.md.
dir=${PT_BUILD:?}/tests/run/targets.$$
python=${PYTHON_TORCH:-python3}
set -- "megatron:${MEGATRON_LM:-}" "torchtitan:${TORCHTITAN:-}" "torchtitan-toml:${TORCHTITAN_TOML:-}" "deepspeed:${DEEPSPEED:-}" \
    "accelerate:${ACCELERATE:-}"
named=0
for pair; do [ -z "${pair#*:}" ] || named=$((named + 1)); done
[ $named -gt 0 ] || {
    echo "1..0 # SKIP name checkouts: MEGATRON_LM, TORCHTITAN, TORCHTITAN_TOML, DEEPSPEED; ACCELERATE=1"
    exit 0
}
$python -c 'import torch' 2>/dev/null || { echo "1..0 # SKIP $python has no torch: set PYTHON_TORCH"; exit 0; }
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"
PT_EXPORTS=$dir "$PT_BUILD/tests/unit/tuner_lossless" >/dev/null || { echo "Bail out! tuner_lossless fails"; exit 99; }
echo "1..$named"
for pair; do
    [ -n "${pair#*:}" ] || continue
    PYTHONDONTWRITEBYTECODE=1 $python "${PT_SRC:?}/tests/export/targets.py" "${pair%%:*}" "${pair#*:}" "$dir" 2>"$dir.log" || tail -n 3 "$dir.log" | sed 's/^/# /'
    rm -f "$dir.log"
done
