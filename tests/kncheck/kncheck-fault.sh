#!/bin/sh
# Damage every operation's results in small ways; kncheck must notice each.
exec "${PT_BUILD:?}/tests/kncheck/kncheck" --fault
