#!/bin/sh
# The same on arrays of whole packs, which take the wide accesses and the matrix instructions; threads and blocks run in the
# opposite order, so that what lacks a barrier differs. PT_LONG: the large cases, too.
[ -n "${PT_LONG:-}" ] || set -- --most=300000
exec "${PT_BUILD:?}/tests/kncheck/kncheck-cuda" --aligned --reverse --seed=7 "$@"
