# Sourced by tests of this folder: a line of TAP for each thing that no file may have.
n=0
say() { # name, offenders
    n=$((n + 1))
    if [ -z "$2" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        echo "$2" | head -40 | sed 's/^/#   /'
    fi
}
