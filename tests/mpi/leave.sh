#!/bin/sh
# Jobs over two hosts end: every one of a dozen short runs leaves once it has said its summary, with the code of its end.
# Before trainer/finalize.c about one in five stayed in MPI_Finalize for good.
train="${PT_BUILD:?}/partune-train"
dir="$PT_BUILD/tests/run/leave it.$$"
mkdir -p "$dir" || exit 99
trap 'rm -rf "$dir"' EXIT
trap 'exit 99' HUP INT TERM
export ASAN_OPTIONS="detect_leaks=0:$ASAN_OPTIONS"
cd "$dir" || exit 99
two() { sh "${PT_SRC:?}/tests/mpi/two_hosts.sh" 200mbit "$@"; } # ranks a host, command...
two 1 true >/dev/null 2>&1
[ $? = 77 ] && { echo "1..0 # SKIP two hosts need root, ip and tc"; exit 0; }
cat >model.json <<'END'
{"name": "wide", "layers": 2, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 256, "seq": 256}
END
n=0
runs() { # times, name, ranks a host, options: 0 after a summary each time; what stays is ended after a minute
    n=$((n + 1)) times=$1 name=$2 ranks=$3 i=0 status=ok
    shift 3
    while [ $i -lt "$times" ] && [ "$status" = ok ]; do
        i=$((i + 1))
        rm -f ev
        two "$ranks" timeout -k 2 60 "$train" --model model.json --global-batch 4 --steps 3 --quiet --events ev "$@" >out 2>&1
        code=$?
        [ $code = 0 ] && tail -1 ev | grep -q '"event":"summary"' || status="not ok"
    done
    echo "$status $n - $name"
    [ "$status" = ok ] || { echo "# run $i: exit $code"; tail -1 ev | cut -c1-200 | sed 's/^/#   /'; tail -5 out | sed 's/^/#   /'; }
}
runs 8 "a pipeline over two hosts ends, every time" 1 --pp 2
runs 4 "replicas on two hosts end" 1 --dp 2
runs 2 "two ranks a host end" 2 --tp 2 --pp 2

# A stop in the middle: the ranks agree, and their code is the one of a stop.
n=$((n + 1))
rm -f ev
two 1 timeout --preserve-status -s TERM -k 60 4 "$train" --model model.json --global-batch 4 --steps 100000 --quiet --events ev --pp 2 >out 2>&1
code=$?
if [ $code = 75 ] && tail -1 ev | grep -q '"event":"stopped"'; then
    echo "ok $n - a stop over two hosts ends with 75"
else
    echo "not ok $n - a stop over two hosts ends with 75"
    echo "# exit $code"
    tail -5 out | sed 's/^/#   /'
fi
echo "1..$n"
