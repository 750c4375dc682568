# Sourced by tests of this folder: lines of TAP about jobs that print to the file out.
n=0
ok() { # condition's exit status, name
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        ! command -v explain >/dev/null || explain # what else a test knows of its job
        tail -5 out 2>/dev/null | cut -c1-300 | sed 's/^/#   /'
    fi
}
