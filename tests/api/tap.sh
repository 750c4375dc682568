# Sourced by tests of this folder: TAP lines, a folder of their own below the build directory, and curl.
n=0
failed=0
run="${PT_BUILD:?}/tests/run/$(basename "$0" .t).$$"
mkdir -p "$run" || exit 99
pids=""

cleanup() {
    for p in $pids; do
        kill "$p" 2>/dev/null && wait "$p" 2>/dev/null
    done
    rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 99' INT TERM

ok() { # name, then a command that must succeed
    n=$((n + 1))
    name=$1
    shift
    if "$@" >"$run/ok.log" 2>&1; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        tail -c 900 "$run/ok.log" | sed 's/^/#   /'
        failed=$((failed + 1))
    fi
}

is() { # name got wanted
    n=$((n + 1))
    if [ "$2" = "$3" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        printf 'got    %s\nwanted %s\n' "$2" "$3" | head -c 900 | sed 's/^/#   /'
        echo
        failed=$((failed + 1))
    fi
}

has() { # name text pattern
    n=$((n + 1))
    if grep -qE -- "$3" <<END
$2
END
    then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        printf 'no %s in:\n%s\n' "$3" "$2" | head -c 900 | sed 's/^/#   /'
        echo
        failed=$((failed + 1))
    fi
}

told() { # a file of TAP lines without numbers and of remarks, by another program
    while IFS= read -r line; do
        case $line in
        'ok '*) n=$((n + 1)); echo "ok $n - ${line#ok }" ;;
        'not ok '*) n=$((n + 1)); failed=$((failed + 1)); echo "not ok $n - ${line#not ok }" ;;
        *) echo "# ${line#\#}" ;;
        esac
    done <"$1"
}

wait_for() { # seconds, then a command: until it succeeds
    # Asking costs more than the daemon's answer: the longer it took so far, the less often. Twice the seconds, for busy machines.
    waited=0 most=$(($1 * 2000))
    shift
    while [ "$waited" -lt "$most" ]; do
        "$@" >/dev/null 2>&1 && return 0
        pause=$((50 + waited / 8))
        [ "$pause" -le 500 ] || pause=500
        waited=$((waited + pause)) pause=$((1000 + pause))
        sleep "0.${pause#1}"
    done
    return 1
}

finish() {
    echo "1..$n"
    [ "$failed" = 0 ]
}

C="curl -sS -m 20"
J='Content-Type: application/json'
status() { $C -o body -w '%{http_code}' "$@"; } # curl's arguments: the answer's status; the answer is in body
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" body; } # a text of it by its key
id_of() { sed -n 's/^{"id":"\([^"]*\)".*/\1/p'; } # of the resource on standard input
