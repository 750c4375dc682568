#!/bin/sh
# A disk without room when a trial ends: how it ended is written as soon as there is some, and a daemon that starts meanwhile
# takes the trial over. The disk is a small one in memory, mounted where nobody else sees it.
if [ -z "${PT_INSIDE:-}" ]; then
    PT_INSIDE=1 unshare -m true 2>/dev/null || { echo "1..0 # SKIP no mount namespaces here"; exit 0; }
    exec env PT_INSIDE=1 unshare -m sh "$0"
fi
. "${PT_SRC:?}/tests/api/tap.sh"
cd "$run" || exit 99
mkdir small
mount -t tmpfs -o size=128k none small 2>/dev/null || { echo "1..0 # SKIP no disk in memory can be mounted here"; exit 0; }
trap 'umount "$run/small"; cleanup' EXIT

mkdir small/a
PARTUNE_TRIAL=full/test/1/1 "$PT_BUILD/partune-run" --folder small/a -- \
    sh -c 'head -c 1000000 /dev/zero >small/ballast 2>/dev/null; echo "last words"; exit 3' &
pid=$!
pids="$pid"
ok "the trial runs" wait_for 20 test -s small/a/run.json
is_over() { ! pgrep -P "$pid" >/dev/null; }
ok "it fills the disk, and ends" wait_for 20 is_over
sleep 1
ok "its supervisor waits for room" kill -0 "$pid"
ok "its end is not recorded yet" test ! -e small/a/exit.json
rm small/ballast
wait "$pid"
is "with free space the supervisor exits" $? 0
has "and exit.json is complete" "$(cat small/a/exit.json)" '"code":3'
finish
