#!/bin/sh
# The release archive on a machine where nobody is root: in a bare Debian with a compiler, make and pkg-config, a user builds it
# with libraries and an MPI that lie in a prefix below the home directory, installs it there and tunes the bundled trainer.
# The libraries are Debian's packages, unpacked. For make check-long alone: it takes minutes. Needs root and mmdebstrap (or
# debootstrap) to make the root file system.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS PT_LONG
command -v mmdebstrap >/dev/null 2>&1 || command -v debootstrap >/dev/null 2>&1 || { echo "1..0 # SKIP mmdebstrap is not installed"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP making a root file system needs root"; exit 0; }
. "$PT_SRC/tests/packages/archive.sh"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/partune-unprivileged.XXXXXX") || exit 99
trap 'rm -rf --one-file-system "$work"; cleanup' EXIT
root_home=/root
. "$PT_SRC/tests/bare/debian.sh"
suite=${PT_SUITE:-$suite}
cd "$work" || exit 99
mkdir archives

as_root() { inside "$work/root" root env DEBIAN_FRONTEND=noninteractive "$@"; }
as_user() { inside "$work/root" newcomer sh -euc "cd; deps=\$HOME/deps/usr; libs=\$deps/lib/$triplet
$1"; }

ok "an archive" make_archive
ok "a Debian without anything" bare "$work/root"
ok "apt's lists" as_root apt-get update
ok "a compiler, make and pkg-config" as_root apt-get install -y --no-install-recommends gcc libc6-dev make pkg-config xz-utils
triplet=$(chroot "$work/root" gcc -print-multiarch)
rm -f archives/*.deb
ok "packages of libraries, not installed" as_root apt-get install -y --no-install-recommends --download-only mpich \
    libmpich-dev libuv1-dev libcurl4-openssl-dev libsqlite3-dev libjansson-dev libmicrohttpd-dev zlib1g-dev nettle-dev \
    libopenblas-dev libpcre2-dev
ok "a user" chroot "$work/root" useradd --create-home newcomer
users="$work/root/home/newcomer"
mkdir "$users/debs" && cp archives/*.deb "$users/debs/" && cp "$run/archive/partune-$version.tar.xz" "$users/" &&
    chroot "$work/root" chown -R newcomer: /home/newcomer

# ---- the prefix: modules of pkg-config say where it is, but two libraries have none
ok "the user unpacks them into a prefix" as_user "
    for deb in debs/*.deb; do dpkg -x \$deb deps; done
    find \$deps -name '*.pc' -type f | xargs sed -i \"s|/usr|\$deps|g\"
    rm \$libs/pkgconfig/zlib.pc \$libs/pkgconfig/libuv*.pc"
as_user "tar xf partune-$version.tar.xz && mkdir build && cd build && ../partune-$version/configure --prefix=\$HOME/.local" >out 2>&1
has "without the prefix, configure names what is missing, and the option" "$? $(tail -n 1 out)" \
    '^1 configure: error: jansson >= 2.13 was not found: .*--with-jansson=DIR'
configure_all="
    cd build
    for name in jansson uv curl sqlite mhd zlib nettle mpich pcre2; do set -- \"\$@\" --with-\$name=\$deps; done
    ../partune-$version/configure --prefix=\$HOME/.local \"\$@\" \\
        LAPACK_LIBS=\"-L\$libs/openblas-pthread -lopenblas -Wl,--disable-new-dtags,-rpath,\$libs/openblas-pthread:\$libs\""
ok "with it, configure runs" as_user "$configure_all >said 2>&1 || { tail -n 3 said; exit 1; }"
summary=$(sed -n '/^partune.*to be installed/,$p' "$users/build/said")
for line in jansson libuv libcurl sqlite3 libmicrohttpd zlib nettle mpich libpcre2-8; do
    has "its summary says where $line is" "$summary" "^ *$line +[^ ]+ +/home/newcomer/deps/usr\$"
done
has "and which LAPACK it takes" "$summary" '^ *openblas .*another LAPACK: -L/home/newcomer/deps/usr'
has "and what is missing" "$summary" '^ *libdeflate +missing'
has "of all" "$summary" '^ *sentencepiece +missing'
ok "make" as_user 'make -C build -j"$(nproc)"'
ok "make install" as_user 'make -C build install'
is "nothing outside the home directory is the user's" "$(find "$work/root" -xdev -user "$(stat -c %u "$users")" ! -path "$users*" ! -path '*/tmp/*' ! -path '*/mail/*' | head -n 3)" ""

# ---- what was installed
for program in partuned partune partune-run partune-search partune-data partune-train; do
    has "$program runs without LD_LIBRARY_PATH" "$(as_user ".local/bin/$program --version" 2>&1)" "^$program $version"
done
# zlib, nettle and PCRE2 are in a bare Debian, too, and their packages were not downloaded again.
is "and takes no other library of the build from elsewhere" \
    "$(as_user 'for program in .local/bin/partune*; do ldd $program; done' | grep -E 'not found|lib(jansson|uv|curl|sqlite3|microhttpd|openblas|mpich)\.so' |
        grep -v '=> /home/newcomer/deps/' | sort -u)" ""

# ---- a campaign, with what a module of the cluster would set for its MPI
cat >"$users/campaign" <<'SH'
export NO_COLOR=1 PARTUNE_DATA=$HOME/partune PATH=$HOME/.local/bin:$deps/bin:$PATH LD_LIBRARY_PATH=$libs
partune-data prepare --name documentation --data "$PARTUNE_DATA" --max-bytes 4M .local/share/doc/partune
partuned --data "$PARTUNE_DATA" --listen 127.0.0.1:0 2>log &
daemon=$!
trap 'kill $daemon; wait $daemon || :' EXIT
tries=600
until grep -q 'ready at' log; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { cat log; exit 1; }
    sleep 0.1
done
PARTUNE_SERVER=$(sed -n 's/.*ready at \([^ ]*\).*/\1/p' log)
export PARTUNE_SERVER
partune doctor --data "$PARTUNE_DATA" || :
sed -e 's/"trials": 16/"trials": 3/' -e 's/"max_steps": 20/"max_steps": 6/' -e 's/"min_steps": 6/"min_steps": 3/' \
    .local/share/doc/partune/examples/quickstart.json >campaign.json
partune submit --watch campaign.json
partune trials last --json >trials.json
partune export last --to partune --output winner.json
mpiexec.mpich -n 2 partune-train --config winner.json --data-dir "$PARTUNE_DATA" --steps 4 --quiet --events training.jsonl
SH
as_user "$(cat "$users/campaign")" >out 2>&1
is "a campaign runs, and the winner trains on" "$?" 0
sed 's/^/# /' out | tail -n 30
has "doctor starts two processes by the prefix's MPI" "$(cat out)" '^ok +MPI start'
is "every trial was measured, or stopped because it cannot win" "$(grep -oE '"state": *"(ok|pruned)"' "$users/trials.json" | wc -l)" 3
is "four steps of the winner" "$(grep -c '"event":"step"' "$users/training.jsonl")" 4
finish
