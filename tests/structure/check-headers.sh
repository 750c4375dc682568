#!/bin/sh
# Every header compiles alone, so that include order never matters.
cd "${PT_SRC:?}" || exit 99
flags=$(pkg-config --cflags jansson libuv sqlite3 libmicrohttpd libcurl nettle mpich cmocka 2>/dev/null)
headers=$(find base plan kernels search db web trainer tuner -name '*.h' | grep -v '/vendor/' | sort)
echo "1..$(echo "$headers" | wc -w)"
n=0
for h in $headers; do
    n=$((n + 1))
    if ${CC:-cc} -D_GNU_SOURCE -I. -I"$PT_BUILD" $flags -march=native -Werror -fsyntax-only -x c -include "$h" /dev/null 2>"$PT_BUILD/headers.log"; then
        echo "ok $n - $h"
    else
        echo "not ok $n - $h"
        head -5 "$PT_BUILD/headers.log" | sed 's/^/#   /'
    fi
done
rm -f "$PT_BUILD/headers.log"
