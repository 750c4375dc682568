#!/bin/sh
# Reproducible builds. The same sources in two folders, of different depth and age, make the same archive, byte for byte, and
# the same programs; an archive made from an archive is the same archive. In the form of make check some objects and programs
# are compared; with PT_LONG all that `make install` installs.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS SOURCE_DATE_EPOCH
export XZ_OPT=-0 # fast: how well it is compressed does not matter
[ -f "$PT_SRC/config.status" ] && { echo "1..0 # SKIP the source tree was configured in place"; exit 0; }
. "$PT_SRC/tests/build/answers.sh"
charts=web/ui/vendor/vega.min.js
for made in "$PT_BUILD/$charts" "$PT_SRC/$charts"; do [ ! -f "$made" ] || break; done
grep -q '^// no chart library' "$made" && { echo "1..0 # SKIP this build has no chart library; an archive needs it"; exit 0; }
tar --sort=name -cf /dev/null "$PT_SRC/configure.ac" 2>/dev/null || { echo "1..0 # SKIP tar cannot sort (GNU tar 1.28 can)"; exit 0; }
version=$(sed -n 's/^PACKAGE_VERSION = //p' "$PT_BUILD/Makefile")
release=partune-$version

cd "$run" || exit 99
with=
[ -x "$PT_BUILD/partune-train" ] || with=--without-mpi
mkdir -p one "two/deeper down"
src=$(realpath --relative-to=one "$PT_SRC") # configure takes a source folder with a blank in its path by a relative name only
there() { # folder command...: with its output in a log
    (cd "$1" && shift && "$@") >"$run/log" 2>&1 || { tail -n 5 "$run/log"; return 1; }
}

# ---- the archive: of the tree, and of itself (the last two are made for their times alone, of one file) ----

ok "configure in a folder of its own" there one "$src/configure" --prefix=/usr $with
mkdir -p "one/${charts%/*}" && cp -p "$made" "one/$charts" || exit 99
mkdir -p one/quickstart/data && echo secret >one/quickstart/data/token # where ./quickstart has run
ok "make dist" there one make dist
inside="two/deeper down/$release"
ok "the archive is unpacked" there "two/deeper down" tar xf "$run/one/$release.tar.xz"
if git -C "$PT_SRC" ls-files >files 2>/dev/null && [ -s files ]; then
    tar tf "one/$release.tar.xz" | sed 's,^[^/]*/,,' | sort >entries
    is "it has every file of the clone" \
        "$(grep -vE '^\.|^docs/screenshots/' files | sort | comm -13 entries - | tr '\n' ' ')" ""
fi
ok "it has the program quickstart, not the folder of its runs" test -f "$inside/quickstart" -a -x "$inside/quickstart"
ok "it is configured in place" there "$inside" ./configure --prefix=/usr $with
umask 077
ok "make dist there, under another umask" there "$inside" make dist
umask 022
ok "is the same archive, byte for byte" cmp "one/$release.tar.xz" "$inside/$release.tar.xz"
is "its entries belong to nobody" "$(tar -tvf "one/$release.tar.xz" --numeric-owner | awk '{ print $2 }' | sort -u)" 0/0
is "and have one time" "$(tar -tvf "one/$release.tar.xz" --full-time | awk '{ print $4, $5 }' | sort -u | wc -l)" 1
mkdir none && printf '#!/bin/sh\nexit 128\n' >none/git && chmod +x none/git # not installed, or it takes the clone for a stranger's
ok "make dist in a clone without git" there one env PATH="$run/none:$PATH" make dist DISTFILES=CHANGELOG.md
is "has the time of the change log" "$(TZ=UTC tar -tvf "one/$release.tar.xz" | awk '{ print $4, $5 }' | sort -u)" \
    "$(TZ=UTC date -r "$PT_SRC/CHANGELOG.md" '+%Y-%m-%d %H:%M')"
ok "make dist at a time of SOURCE_DATE_EPOCH" there "$inside" env TZ=UTC SOURCE_DATE_EPOCH=86400 make dist DISTFILES=CHANGELOG.md
is "has that time" "$(TZ=UTC tar -tvf "$inside/$release.tar.xz" | awk '{ print $4, $5 }' | sort -u)" "1970-01-02 00:00"

# ---- the programs ----

if [ -n "${PT_LONG:-}" ]; then what=all; else what="base/libbase.a db/print-states web/embed tuner/programs/partuned.service"; fi
# shellcheck disable=SC2086 # names of files have no blanks
for folder in one "$inside"; do ok "make in $(basename "$folder")" there "$folder" make -j2 $what; done
differ() { # pattern...: files of the two folders that are not the same
    find one -type f "$@" | while read -r file; do
        cmp -s "$file" "$inside/${file#one/}" || echo "${file#one/}"
    done
}
has "objects were made in both" "$(find one "$inside" -name '*.o' | wc -l)" '^[4-9][0-9]|^[0-9]{3,}'
is "objects are the same, with what debuggers read" "$(differ -name '*.o')" ""
is "programs are the same" "$(differ -perm -u+x ! -name config.status ! -name '*.sh')" ""
is "and contain neither folder" "$(find one "$inside" -type f -perm -u+x ! -name 'config*' ! -name '*.[sh]*' -exec grep -lF -e "$run" -e "$PT_SRC/" {} +)" ""
if [ -n "${PT_LONG:-}" ]; then
    for folder in one "$inside"; do
        ok "make install in $(basename "$folder")" there "$folder" make install DESTDIR="$run/$(basename "$folder").root"
    done
    ok "all that is installed is the same" diff -r "$run/one.root" "$run/$release.root"
fi
finish
