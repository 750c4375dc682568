#!/bin/sh
# Products by gemm_lt.cu, on a stand-in for cuBLASLt that the host runs, within the bounds of every other backend.
exec "${PT_BUILD:?}/tests/kncheck/kncheck-lt" --op='gemm*'
