#!/bin/sh
# The Python package without a daemon and without torch.
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
cd "${PT_SRC:?}/tests/python" && exec python3 tap.py parts_test.py trial_test.py
