#!/bin/sh
# The images' files, read as their builders read them: every instruction and section is one that they know, every file that
# is copied is one that the build's folder has, stages are named before they are used, and both images do the same by one
# script, which installs the libraries that the programs link. That the images build is not shown here.
. "${PT_SRC:?}/tests/api/tap.sh"
cd "$PT_SRC/packaging/containers" || exit 99
words() { sed 's/^\([A-Z]*\) .*/\1/' | sort -u; } # of instructions
instructions=$(sed -e '/^#/d' -e '/^$/d' Containerfile)
is "Containerfile: every instruction is known" \
    "$(echo "$instructions" | words | grep -vxE 'ARG|CMD|COPY|ENTRYPOINT|EXPOSE|FROM|RUN|USER|VOLUME')" ""
is "it begins with the base image" "$(echo "$instructions" | head -n 2 | words | tr '\n' ' ')" "ARG FROM "
is "what it copies is the script and the archive, or of its first stage" \
    "$(echo "$instructions" | sed -n 's/^COPY \(.*\) [^ ]*$/\1/p' | tr '\n' ';')" "install partune-*.tar.xz;--from=build /out/;install;"
is "lists of words are JSON" "$(echo "$instructions" | sed -n 's/^\(ENTRYPOINT\|CMD\) \(\[.*\)/\2/p' |
    while read -r list; do python3 -c 'import json, sys; print(len(json.loads(sys.argv[1])))' "$list"; done 2>&1 | tr '\n' ' ')" "3 2 "
is "partune.def: every section is known" \
    "$(sed -n 's/^%\([a-z]*\).*/\1/p' partune.def | grep -vxE 'files|post|runscript|test|help|environment|labels')" ""
is "it has two stages" "$(sed -n 's/^Stage: //p' partune.def | tr '\n' ' ')" "build final "
is "each from a base image" "$(grep -c '^From: ' partune.def) $(grep -c '^Bootstrap: docker$' partune.def)" "2 2"
is "and takes files of the first" "$(sed -n 's/^%files from //p' partune.def)" "build"
base=$(sed -n 's/^ARG BASE=//p' Containerfile)
is "both are made of the same base" "$(sed -n 's/^From: //p' partune.def | sort -u)" "$base"
is "by the same script" "$(grep -ohE 'sh /src/install (build|run)' Containerfile partune.def | sort | uniq -c | awk '{ print $1 $NF }' | tr '\n' ' ')" "2build 2run "
ok "the script is shell" sh -n install
sh install both >"$run/said" 2>&1
is "it refuses another stage" "$? $(cat "$run/said")" "2 usage: install build|run"
is "the build's packages are those of ./quickstart and configure's needs" \
    "$(sed -n '/^build)/,/zlib1g-dev$/p' install | grep -oE '(lib[a-z0-9-]+|nettle|zlib1g)-dev' | grep -v libc6 | sort | tr '\n' ' ')" \
    "$(sed -n '/^build_packages=/,/"$/p' "$PT_SRC/quickstart" | grep -oE '(lib[a-z0-9-]+|nettle|zlib1g)-dev' | grep -v libc6 | sort | tr '\n' ' ')"
# As Debian's packages, without those that every Debian has, and a sanitizer's.
programs=$(for name in partune partuned partune-search partune-run partune-data partune-train; do [ ! -x "$PT_BUILD/$name" ] || echo "$name"; done)
# shellcheck disable=SC2086 # names have no blanks
linked=$(cd "$PT_BUILD" && objdump -p $programs | awk '$1 == "NEEDED" { print $2 }' | sort -u >"$run/needed"
    cd "$PT_BUILD" && ldd $programs | awk 'NR == FNR { needed[$1] = 1; next } $1 in needed && $3 ~ /^\// { print $3 }' "$run/needed" - |
    sort -u | while read -r library; do
        real=$(readlink -f "$library")
        dpkg -S "$real" 2>/dev/null || dpkg -S "${real#/usr}" 2>/dev/null
    done | sed 's/:.*//; s/^libopenblas0-.*/libopenblas0/' | grep -vxE 'libc6|libgcc-s1|zlib1g|lib[a-z]*san[0-9]+' | sort -u | tr '\n' ' ')
case $linked in
*libdeflate0*libmpich12*libpcre2-8-0*libsentencepiece0*libutf8proc2*)
    is "the image's libraries are those that the programs link" \
        "$(sed -n '/^run)/,/passwd$/p' install | grep -oE '\blib[a-z0-9+-]+' | sort | tr '\n' ' ')" "$linked" ;;
*) ok "the image's libraries are those that the programs link # SKIP no build for Debian 12 with MPICH and all libraries: $linked" true ;;
esac
finish
