#!/bin/sh
# What a header states and code relies on is asserted: at least so many asserts in 1,000 lines of each folder. Asserts in
# loops over elements (kernels/simd and the folders of instruction sets) are not asked for, and not counted.
src=${PT_SRC:?}
cd "$src" || exit 99

measure() { # name, files: density times ten on stdout, a remark behind it
    name=$1
    shift
    cat "$@" | awk -v name="$name" '
        { lines++; line = $0 }
        { n += gsub(/(^|[^A-Za-z_])assert\(/, "", line) }
        END { printf "%d %s: %d asserts in %d lines, %.1f in 1,000\n", 10000 * n / lines, name, n, lines, 1000 * n / lines }'
}

n=0
echo "1..5"
for bar in search/1:5 trainer/1:5 kernels/1:5 tuner/3:3; do # folder/depth:asserts
    n=$((n + 1))
    folder=${bar%%/*} depth=${bar#*/} least=${bar##*:}
    depth=${depth%:*}
    # shellcheck disable=SC2046 # names of sources have no blanks
    set -- $(measure "$folder/" $(find "$folder" -maxdepth "$depth" -name '*.[ch]' | sort))
    tenths=$1
    shift
    if [ "$tenths" -ge $((10 * least)) ]; then echo "ok $n - at least $least asserts in 1,000 lines of $folder/"
    else echo "not ok $n - at least $least asserts in 1,000 lines of $folder/"; fi
    echo "# $*"
done
off=$(grep -rnE '(-D|# *define +)NDEBUG' configure.ac Makefile.am m4 ./*/Makemodule.am base db kernels plan search trainer tuner web |
      grep -v '/node_modules/')
if [ -z "$off" ]; then echo "ok 5 - no build switches them off"
else echo "not ok 5 - no build switches them off"; echo "$off" | sed 's/^/#   /'; fi
