#!/bin/sh
# configure takes a library from the prefix that --with-NAME=DIR names, with pkg-config's module there or without, and says so;
# and another LAPACK where OpenBLAS is missing.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS
cd "$run" || exit 99
src=$(realpath --relative-to=tree -m "$PT_SRC") # configure takes a source folder with a blank in its path by a relative name only
[ -x "$PT_SRC/configure" ] || { echo "1..0 # SKIP there is no configure"; exit 0; }
. "$PT_SRC/tests/build/answers.sh"
lib=$(pkg-config --variable=libdir jansson) && include=$(pkg-config --variable=includedir jansson) ||
    { echo "1..0 # SKIP pkg-config does not know jansson"; exit 0; }

# The prefixes are outside the tree, whose path may have a blank.
prefixes=$(mktemp -d "${TMPDIR:-/tmp}/partune-prefix.XXXXXX") || exit 99
trap 'rm -rf "$prefixes"; cleanup' EXIT
mkdir -p tree
cd "$prefixes" || exit 99
mkdir -p one/lib/pkgconfig one/include two/lib two/include none 'a blank'
cp -P "$lib"/libjansson.so* one/lib && cp "$include"/jansson*.h one/include
sed -e "s|^prefix=.*|prefix=$prefixes/one|" -e "s|^libdir=.*|libdir=$prefixes/one/lib|" -e "s|^includedir=.*|includedir=$prefixes/one/include|" \
    -e 's|^Version:.*|Version: 2.99|' "$(pkg-config --variable=pcfiledir jansson)/jansson.pc" >one/lib/pkgconfig/jansson.pc
zlib=$(pkg-config --variable=libdir zlib)
cp -P "$zlib"/libz.so* two/lib && cp "$(pkg-config --variable=includedir zlib)"/z*.h two/include

cd "$run/tree" || exit 99
configure() { "$src/configure" --without-mpi "$@" >said 2>&1; }
configure --with-jansson="$prefixes/three"
has "a prefix that is none is named" "$(tail -n 1 said)" "--with-jansson: $prefixes/three is not a directory"
configure --with-jansson="$prefixes/none"
has "so is one without the library" "$(tail -n 1 said)" "--with-jansson: $prefixes/none has neither jansson.pc .* nor libjansson"
configure --with-jansson="$prefixes/a blank"
has "so is one with a blank in its path" "$(tail -n 1 said)" "--with-jansson: $prefixes/a blank has a blank in it"

# ---- libraries there that no program links with
mkdir -p "$prefixes/old/include" "$prefixes/old/lib" "$prefixes/broken/lib" "$prefixes/moved/lib/pkgconfig"
cp -P "$prefixes"/one/lib/libjansson.so* "$prefixes/old/lib"
sed 's/define JANSSON_MAJOR_VERSION .*/define JANSSON_MAJOR_VERSION 1/' "$prefixes/one/include/jansson.h" >"$prefixes/old/include/jansson.h"
cp "$prefixes"/one/include/jansson_config.h "$prefixes/old/include"
configure --with-jansson="$prefixes/old"
has "too old a library without a module is named" "$(tail -n 1 said)" "--with-jansson: jansson >= 2.13 in $prefixes/old: .*is needed"
touch "$prefixes/broken/lib/libz.so"
configure --with-zlib="$prefixes/broken"
has "so is one that does not link" "$(tail -n 1 said)" "--with-zlib: zlib in $prefixes/broken: a program does not link with -L$prefixes/broken/lib -lz"
cp "$prefixes/one/lib/pkgconfig/jansson.pc" "$prefixes/moved/lib/pkgconfig/" && sed -i "s|$prefixes/one|/nowhere|; s|-ljansson|-lnothing|" "$prefixes/moved/lib/pkgconfig/jansson.pc"
configure --with-jansson="$prefixes/moved"
has "and a module whose library is elsewhere" "$(tail -n 1 said)" "--with-jansson: jansson >= 2.13 in $prefixes/moved: a program does not link with .*-lnothing"
has "with the compiler's words" "$(cat config.log)" "cannot find -lnothing"

# ---- libraries that serve
cat >pkg-config <<'END'
#!/bin/sh
case " $* " in *" openblas "*) exit 1 ;; esac
exec pkg-config "$@"
END
chmod +x pkg-config
ok "configure runs with two prefixes" configure PKG_CONFIG="./pkg-config" --with-jansson="$(realpath --relative-to=. "$prefixes")/one" --with-zlib="$prefixes/two"
has "the summary has the version of the prefix's module" "$(cat said)" "^ *jansson +2\\.99 +$prefixes/one\$"
has "and a library without one" "$(cat said)" "^ *zlib +[^ ]+ +$prefixes/two\$"
has "and one from elsewhere" "$(cat said)" "^ *libuv +1[^ ]* +pkg-config\$"
has "and a LAPACK that is not OpenBLAS" "$(cat said)" "^ *openblas +no +another LAPACK: -"
has "and what is left out" "$(cat said)" "bundled trainer +no \\(--without-mpi\\)"
has "the Makefile has the prefix, and where programs find it" "$(grep '^JANSSON_LIBS' Makefile)" "-L$prefixes/one/lib -ljansson .*-Wl,--disable-new-dtags -Wl,-rpath,$prefixes/one/lib"
is "also without pkg-config's help" "$(grep -E '^ZLIB_(CFLAGS|LIBS)' Makefile | xargs -0)" "$(printf 'ZLIB_CFLAGS = -I%s/two/include\nZLIB_LIBS = -L%s/two/lib -lz -Wl,--disable-new-dtags -Wl,-rpath,%s/two/lib\n' "$prefixes" "$prefixes" "$prefixes" | xargs -0)"
ok "a library is built against it" make base/libbase.a
has "by its header" "$(cat base/.deps/libbase_a-jx.Po)" "$prefixes/one/include/jansson.h"
finish
