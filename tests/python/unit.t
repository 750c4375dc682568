#!/bin/sh
# The Python package without a daemon and without torch.
. "${PT_SRC:?}/tests/python/python.sh"
find_python 'pass' || skip "python3 is not installed"
cd "$PT_SRC/tests/python" && exec "$python" tap.py parts_test.py trial_test.py callbacks_test.py
