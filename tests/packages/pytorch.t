#!/bin/sh
# The Python tests on a current PyTorch: in a bare Debian 13 with python3-torch, a user builds the archive of make dist and runs
# tests/python/ from it, with campaigns over tensor parallelism and FSDP2 under torchrun. PT_SUITE=sid takes that release, with
# transformers and accelerate. For make check-long alone: it takes an hour and 6 GB. Needs root and mmdebstrap.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS PT_LONG
command -v mmdebstrap >/dev/null 2>&1 || { echo "1..0 # SKIP mmdebstrap is not installed"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP making a root file system needs root"; exit 0; }
. "$PT_SRC/tests/packages/archive.sh"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/partune-pytorch.XXXXXX") || exit 99
trap 'rm -rf --one-file-system "$work"; cleanup' EXIT
root_home=/root
. "$PT_SRC/tests/bare/debian.sh"
uri=$(mirror) # of this machine's release; it has the others, too
mirror() { echo "$uri"; }
suite=${PT_SUITE:-trixie}
packages='gcc libc6-dev make pkg-config xz-utils curl procps libuv1-dev libcurl4-openssl-dev libsqlite3-dev libjansson-dev
    libmicrohttpd-dev zlib1g-dev nettle-dev libopenblas-dev libpcre2-dev python3-torch python3-build python3-setuptools python3-wheel'
[ "$suite" != sid ] || packages="$packages python3-transformers python3-accelerate"
cd "$work" || exit 99
mkdir archives

as_root() { inside "$work/root" root env DEBIAN_FRONTEND=noninteractive "$@"; }
as_user() { inside "$work/root" newcomer sh -euc "cd
$1"; }

ok "an archive" make_archive
ok "a Debian $suite without anything" bare "$work/root"
ok "apt's lists" as_root apt-get update
# shellcheck disable=SC2086
ok "a compiler, libraries and PyTorch" as_root apt-get install -y --no-install-recommends $packages
ok "a user" chroot "$work/root" useradd --create-home newcomer
users="$work/root/home/newcomer"
cp "$run/archive/partune-$version.tar.xz" "$users/"
ok "configure" as_user "tar xf partune-$version.tar.xz && mkdir build && cd build && ../partune-$version/configure --without-mpi"
ok "make" as_user 'make -C build -j"$(nproc)"'
echo "# $(as_user 'python3 -c "import sys, torch; print(sys.version.split()[0], torch.__version__)"' 2>&1 | tail -n 1)"
tests=$(as_user "cd partune-$version/tests/python && echo *.t")
has "the archive has the tests" " $tests " ' campaign.t .* layouts.t '
for test in $tests; do
    as_user "PT_SRC=\$HOME/partune-$version PT_BUILD=\$HOME/build OMP_NUM_THREADS=1 sh partune-$version/tests/python/$test" >said 2>&1
    is "$test" "$?" 0
    grep -E '^(not ok|1\.\.0|.*# SKIP|#  )' said | sed 's/^/# /'
    case $test in campaign.t | layouts.t) has "it is not skipped" "$(cat said)" '^ok [^#]*tp[^#]*$' ;; esac
done
finish
