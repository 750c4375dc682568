#!/bin/sh
# Two ranks of torch.distributed around a trial.
. "${PT_SRC:?}/tests/python/python.sh"
with_torch
cd "$PT_SRC/tests/python" && exec "$python" tap.py ranks_test.py
