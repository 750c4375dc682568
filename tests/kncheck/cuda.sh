#!/bin/sh
# Every kernel of the CUDA backend, run by the host, on arrays off alignment.
exec "${PT_BUILD:?}/tests/kncheck/kncheck-cuda"
