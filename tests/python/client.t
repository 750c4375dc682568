#!/bin/sh
# partune.Client and a real daemon; with pandas where some python3 has it.
. "${PT_SRC:?}/tests/python/python.sh"
find_python 'import pandas' || find_python 'pass' || skip "python3 is not installed"
unset PARTUNE_SERVER PARTUNE_TOKEN PARTUNE_DATA
cd "$PT_SRC/tests/python" && exec "$python" tap.py client_test.py
