#!/bin/sh
# The PyTorch script of the documents: every layout trains the same model on the same batches.
. "${PT_SRC:?}/tests/python/python.sh"
with_torch
cd "$PT_SRC/tests/python" && exec "$python" tap.py layouts_test.py
