#!/bin/sh
# The packages for Debian: made by dpkg-buildpackage from the archive of make dist, judged by lintian, installed in a Debian
# without anything, where debian/tests runs campaigns with them. For make check-long alone: it takes a quarter of an hour.
# Needs root, dpkg-buildpackage with the build's packages, lintian and mmdebstrap.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS PT_LONG
for tool in dpkg-buildpackage dh lintian mmdebstrap unshare; do
    command -v "$tool" >/dev/null 2>&1 || { echo "1..0 # SKIP $tool is not installed (dpkg-dev, debhelper, lintian, mmdebstrap)"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP making a root file system needs root"; exit 0; }
. "$PT_SRC/tests/packages/archive.sh"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/partune-deb.XXXXXX") || exit 99
trap 'rm -rf --one-file-system "$work"; cleanup' EXIT
root_home=/root
. "$PT_SRC/tests/bare/debian.sh"
cd "$work" || exit 99

ok "an archive" make_archive
archive="partune_$version.orig.tar.xz"
cp "$run/archive/partune-$version.tar.xz" "$archive" && tar xf "$archive"
(cd "partune-$version" && dpkg-checkbuilddeps) >missing 2>&1 || { echo "1..0 # SKIP packages of the build are missing: $(tail -n 1 missing)"; exit 0; }
package() { (cd "partune-$version" && dpkg-buildpackage -us -uc) >log 2>&1 || { tail -n 20 log; return 1; }; }
ok "dpkg-buildpackage" package
is "makes four packages, without those of debug information" \
    "$(for deb in *.deb; do echo "${deb%%_*}"; done | grep -v dbgsym | sort | tr '\n' ' ')" "partune partune-daemon partune-trainer python3-partune "
lintian --allow-root --tag-display-limit 0 ./*.changes >said 2>&1
is "lintian finds no error" "$(grep '^E:' said)" ""
sed 's/^/# /' said
content() { for deb in *.deb; do dpkg-deb -c "$deb" | awk '!/^d/ { print $6 }'; done; }
is "no file is in two packages" "$(content | sort | uniq -d)" ""
is "every program is in one" "$(content | sed -n 's|^\./usr/bin/||p' | sort | tr '\n' ' ')" \
    "partune partune-data partune-run partune-search partune-train partuned "

ok "a Debian without anything" bare "$work/root"
mkdir -p "$work/archives" "$work/root/srv/debs"
cp ./*.deb "$work/root/srv/debs/" && cp -R "partune-$version/debian/tests" "$work/root/srv/tests"
rm -f "$work/root/srv/debs/"*dbgsym*
ok "apt's lists" inside "$work/root" root apt-get update
# shellcheck disable=SC2016
ok "the packages install" inside "$work/root" root sh -c 'DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends curl libcurl4 /srv/debs/*.deb'
has "the user partune is there, without a shell" "$(chroot "$work/root" getent passwd partune)" '^partune:.*:/var/lib/partune:/usr/sbin/nologin$'
has "the unit is enabled" "$(ls "$work/root/etc/systemd/system/multi-user.target.wants")" '^partuned.service$'
ok "and its program takes its configuration" inside "$work/root" root partuned --config /etc/partune/partuned.conf check-config
for test in simulated-campaign real-campaign python; do
    ok "debian/tests/$test" inside "$work/root" root sh "/srv/tests/$test"
done
ok "they are removed again" inside "$work/root" root apt-get purge -y partune partune-daemon partune-trainer python3-partune
is "with everything but the data" "$(cd "$work/root" && find etc usr -name '*partune*' ! -path '*/systemd/*' | sort)" ""
finish
