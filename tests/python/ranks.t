#!/bin/sh
# Two ranks of torch.distributed around a trial.
. "${PT_SRC:?}/tests/python/torch.sh"
cd "$PT_SRC/tests/python" && exec "$python" tap.py ranks_test.py
