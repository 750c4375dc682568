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
near() { # two files of "n value" lines, such as losses, and their relative difference
    awk -v tol="$3" 'NR == FNR { a[$1] = $2; next }
        ($1 in a) { d = ($2 - a[$1]) / a[$1]; if (d < 0) d = -d; if (!(d <= tol)) bad = 1; n++ }
        END { exit bad || n == 0 }' "$1" "$2"
}
