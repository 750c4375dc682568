#!/bin/sh
# `partune log-to`: event files of TensorBoard and MLflow's REST API, of a campaign of the simulated launcher.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
start
client
cat >c.json <<'JSON'
{"name": "to be logged", "model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 16},
 "trainer": "megatron", "launcher": {"kind": "simulated", "speed": 1000000}, "budget": {"trials": 4},
 "trial": {"min_steps": 1200, "max_steps": 1200}, "space": {"micro_batch": [1, 2], "pp": [1, 2], "recompute": ["none"]}}
JSON
"$PT_BUILD/partune" submit --watch c.json >out || { cat out; exit 99; }
PYTHONDONTWRITEBYTECODE=1 python3 "$PT_SRC/tests/client/log_to_test.py" "$PT_BUILD/partune" "$(sed -n 's/^campaign \([^ ]*\) (.*/\1/p' out)"
