#!/bin/sh
# Damage every operation's results in small ways; kncheck must notice each. Small cases show what large ones do; PT_LONG takes
# all.
[ -n "${PT_LONG:-}" ] || set -- --most=300000
exec "${PT_BUILD:?}/tests/kncheck/kncheck" --fault "$@"
