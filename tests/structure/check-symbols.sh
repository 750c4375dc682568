#!/bin/sh
# External names carry the prefix of their folder, so that a name tells where it lives.
cd "${PT_BUILD:?}" || exit 99

check() { # library pattern
    n=$((n + 1))
    if [ ! -f "$1" ]; then
        echo "ok $n # SKIP $1 is not built"
        return
    fi
    bad=$(nm -g --defined-only "$1" 2>/dev/null | awk 'NF == 3 { print $3 }' |
          grep -vE "$2" | grep -vE '^(__asan|__odr_asan|__ubsan|__sanitizer|__start_|__stop_|_GLOBAL_|__gcov|__llvm|__profc|__tsan|\.)' | sort -u)
    if [ -z "$bad" ]; then
        echo "ok $n - $1 exports only names like $2"
    else
        echo "not ok $n - $1 exports only names like $2"
        echo "$bad" | sed 's/^/#   /'
    fi
}

n=0
echo "1..8"
check base/libbase.a       '^(err|mem|arena|str|log|opt|conf|jx|rng|clock|file|ranks|dl)_'
check plan/libplan.a       '^pl_'
check kernels/libkn.a      '^kn_'
check search/libsearch.a   '^se_'
check db/libdb.a           '^db_'
check web/libweb.a         '^web_'
check trainer/libtrainer.a '^tr_'
check tuner/libtuner.a     '^(tn|cl)_'
