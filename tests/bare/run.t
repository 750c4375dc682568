#!/bin/sh
# Both commands in a bare Debian: a test of make check-long. tests/bare/run says what it does, and takes names of tests.
exec "${PT_SRC:?}/tests/bare/run"
