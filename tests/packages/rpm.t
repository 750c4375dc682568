#!/bin/sh
# The RPMs: rpmbuild takes the archive of make dist as it is, and makes four packages with every program once. For make
# check-long. Where rpmbuild runs on a system without RPMs of the libraries, their names (BuildRequires) are not checked.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS PT_LONG
command -v rpmbuild >/dev/null 2>&1 || { echo "1..0 # SKIP rpmbuild is not installed (Debian: rpm)"; exit 0; }
. "$PT_SRC/tests/packages/archive.sh"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/partune-rpm.XXXXXX") || exit 99
trap 'rm -rf "$work"; cleanup' EXIT
ok "an archive" make_archive
packages() {
    rpmbuild -tb --nodeps --without check --define "_topdir $work" --define 'debug_package %{nil}' \
        "$run/archive/partune-$version.tar.xz" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; return 1; }
}
ok "rpmbuild -tb" packages
cd "$work/RPMS" || exit 99
is "makes four packages of the version" "$(for rpm in */*.rpm; do rpm -qp --qf '%{NAME}-%{VERSION} ' "$rpm"; done)" \
    "python3-partune-$version partune-$version partune-daemon-$version partune-trainer-$version "
rpms() { rpm -qp "$@" ./*/*.rpm; }
is "no file is in two" "$(rpms -l | grep -v '/.build-id' | sort | uniq -d)" ""
is "every program is in one" "$(rpms -l | sed -n 's|^/usr/bin/||p' | sort | tr '\n' ' ')" \
    "partune partune-data partune-run partune-search partune-train partuned "
has "the configuration stays at an update" "$(rpm -qp --configfiles ./*/partune-daemon-*.rpm)" '^/etc/partune/partuned.conf$'
has "the daemon makes its user" "$(rpm -qp --scripts ./*/partune-daemon-*.rpm)" 'systemd-sysusers partune.conf'
has "and needs the client of its version" "$(rpm -qpR ./*/partune-daemon-*.rpm)" "^partune.* = $version-1"
has "Python finds the version" "$(rpm -qpl ./*/python3-partune-*.rpm)" "/partune-$version.dist-info/METADATA\$"
finish
