#!/bin/sh
# two_hosts.sh RATE RANKS COMMAND...: the command under mpiexec on two hosts (tests/launch/network.sh) with RANKS ranks each,
# which a link of RATE (as tc says it: 1gbit) joins; exit 77 where they cannot be made.
. "$(dirname "$0")/../launch/network.sh"
rate=$1 ranks=$2
shift 2
[ -z "$(hosts_missing)" ] || exit 77
launch=$(mktemp "${TMPDIR:-/tmp}/two-hosts.XXXXXX") || exit 99
trap 'hosts_end; rm -f "$launch"' EXIT
trap 'exit 99' HUP INT TERM
hosts_make "$rate" "$launch" || exit 77
(hosts_exec mpiexec -launcher ssh -launcher-exec "$launch" -iface eth0 -hosts "10.111.0.1:$ranks,10.111.0.2:$ranks" -n $((2 * ranks)) "$@")
