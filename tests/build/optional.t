#!/bin/sh
# Libraries that configure can do without: --without-NAME leaves one out even where it is installed, --with-NAME is an error
# that names it where it is missing, --with-NAME=DIR takes it from there. A library that is hidden from pkg-config is missing.
# One macro does it for all of them: make check asks for some, PT_LONG for each.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS
real=$(command -v pkg-config) || { echo "1..0 # SKIP there is no pkg-config"; exit 0; }
[ -f "$PT_SRC/config.status" ] && { echo "1..0 # SKIP the source tree was configured in place"; exit 0; }
. "$PT_SRC/tests/build/answers.sh"
mkdir -p "$run/tree" && cd "$run/tree" || exit 99
src=$(realpath --relative-to=. "$PT_SRC") # configure takes a source folder with a blank in its path by a relative name only
# The prefixes and the tool are outside the tree, whose path may have a blank.
away=$(mktemp -d "${TMPDIR:-/tmp}/partune-optional.XXXXXX") || exit 99
trap 'rm -rf "$away"; cleanup' EXIT
cat >"$away/pkg-config" <<SH
#!/bin/sh
read -r hidden <'$away/hidden'
for word; do
    case " \$hidden " in *" \${word%% *} "*) exit 1 ;; esac
done
exec '$real' "\$@"
SH
chmod +x "$away/pkg-config"
hide() { echo "$*" >"$away/hidden"; } # modules from pkg-config
hide
configure() { # arguments: what it says is in said
    "$src/configure" PKG_CONFIG="$away/pkg-config" --disable-dependency-tracking "$@" >said 2>&1
}
# Libraries that no case after the first ones is about: what pkg-config says of them is not asked for again each time.
known() { for module in "$@"; do export "${module%=*}_CFLAGS= $("$real" --cflags "${module#*=}")" "${module%=*}_LIBS=$("$real" --libs "${module#*=}")"; done; }
error() { sed -n 's/^configure: error: //p' said; }

# ---- libraries that it cannot do without
for name in jansson lapack ${PT_LONG:+uv curl sqlite mhd zlib nettle}; do
    configure --without-mpi --without-$name
    has "--without-$name is refused" "$? $(error)" "^1 --without-$name: partune needs [a-z]"
done

# ---- all others left out, though they are there
known JANSSON=jansson UV=libuv CURL=libcurl SQLITE=sqlite3 MHD=libmicrohttpd ZLIB=zlib NETTLE=nettle LAPACK=openblas
without="--without-mpi --without-cmocka --without-dnnl --without-deflate --without-pcre2 --without-utf8proc --without-sentencepiece"
# shellcheck disable=SC2086
ok "configure without every other library" configure $without
for line in cmocka=cmocka dnnl=dnnl deflate=libdeflate pcre2=libpcre2-8 utf8proc=libutf8proc sentencepiece=sentencepiece; do
    has "the summary tells ${line%=*} as left out" "$(cat said)" "^ *${line#*=} +no +--without-${line%=*}\$"
done
is "make does not ask for them later" "$(grep -cE 'cmocka|dnnl|deflate|pcre2|utf8proc|sentencepiece' configure.answers)" 0
ok "files that call them compile" make -j2 trainer/libtrainer_a-crc.o trainer/libtrainer_a-pattern.o trainer/libtrainer_a-normal.o \
    trainer/libtrainer_a-tokenizer.o trainer/libtrainer_a-no_sentencepiece.o
is "and call none of them" "$(nm -u trainer/libtrainer_a-*.o | grep -E '^ *U (libdeflate_|pcre2_|utf8proc_)' | sort -u)" ""
# shellcheck disable=SC2016
printf 'told:\n\t@echo "$(DEFLATE_LIBS) $(TOKENIZER_LIBS)"\n' >told.mk
is "make links none of them" "$(make -s -f Makefile -f told.mk told | tr -d ' ')" ""
has "make says what the tests need" "$(make tests/unit/base_text 2>&1)" 'the tests need cmocka'

# ---- asked for, and missing
hide cmocka dnnl libdeflate libpcre2-8 libutf8proc sentencepiece mpich ompi-c
for line in pcre2=libpcre2-8 sentencepiece=sentencepiece ${PT_LONG:+cmocka=cmocka deflate=libdeflate utf8proc=libutf8proc}; do
    configure --without-mpi "--with-${line%=*}"
    has "--with-${line%=*} is refused where it is missing" "$? $(error)" "^1 --with-${line%=*}: ${line#*=}.* was not found: install"
done
configure --with-openmpi
has "so is --with-openmpi" "$? $(error)" '^1 --with-openmpi: ompi-c >= 4 was not found'
configure --with-mpich
has "so is --with-mpich" "$? $(error)" '^1 --with-mpich: mpich >= 4 was not found'
hide cmocka dnnl libdeflate libpcre2-8 libutf8proc mpich ompi-c
ok "not asked for, it is left out; so is SentencePiece with a C++ compiler of no use" configure --without-mpi --no-create CXX=false pt_cv_cxx=no
has "as the summary tells" "$(cat said)" '^ *libpcre2-8 +missing *$'
has "of both" "$(cat said)" '^ *sentencepiece .*left out: false does not compile C\+\+20$'
configure --without-mpi --with-sentencepiece CXX=false pt_cv_cxx=no
has "but not where it was asked for" "$? $(error)" '^1 --with-sentencepiece: false does not compile C\+\+20; install g\+\+$'

hide
printf 'Name: x\nDescription: x\nVersion: 0.2\nRequires.private: not-there\nLibs: -lsentencepiece\n' >"$away/sentencepiece.pc"
ok "a module that requires a missing one for itself alone" configure --without-mpi --no-create PKG_CONFIG_PATH="$away"
has "is used where its library links" "$(cat said)" '^ *sentencepiece +found +the linker$'

# ---- contradictions
for name in mpich openmpi; do
    configure --without-mpi --with-$name
    has "--with-$name is refused where no MPI is wanted" "$? $(error)" "^1 --with-$name: --without-mpi leaves out the trainer"
done
configure --with-mpi=/usr
has "--with-mpi=DIR, which is no option, names those that are" "$? $(error)" '^1 --with-mpi=/usr: name the prefix by --with-mpich=DIR or --with-openmpi=DIR'

# ---- in a prefix
mkdir -p "$away/old/lib/pkgconfig" "$away/plain/lib" "$away/plain/include"
printf 'Name: x\nDescription: x\nVersion: 10.39\nLibs: -lpcre2-8\n' >"$away/old/lib/pkgconfig/libpcre2-8.pc"
configure --without-mpi --with-pcre2="$away/old"
has "too old a library in the prefix is refused" "$? $(error)" "^1 --with-pcre2: libpcre2-8 >= 10.40 was not found in $away/old\$"
cp -L "$(pkg-config --variable=libdir libpcre2-8)/libpcre2-8.so" "$(pkg-config --variable=libdir libutf8proc)/libutf8proc.so" \
    "$(pkg-config --variable=libdir sentencepiece)/libsentencepiece.so" "$away/plain/lib" && cp /usr/include/pcre2.h /usr/include/utf8proc.h "$away/plain/include"
ok "libraries of a prefix without pkg-config's files" configure --without-mpi --with-pcre2="$away/plain" --with-utf8proc="$away/plain" \
    --with-sentencepiece="$away/plain"
for line in PCRE2=pcre2-8 UTF8PROC=utf8proc SENTENCEPIECE=sentencepiece; do
    is "${line%=*} is that one" "$(grep -E "^${line%=*}_(CFLAGS|LIBS) =" Makefile | sed 's/^[A-Z0-9_]* = //' | tr '\n' ' ')" \
        "-I$away/plain/include -L$away/plain/lib -l${line#*=} -Wl,--disable-new-dtags -Wl,-rpath,$away/plain/lib "
done
finish
