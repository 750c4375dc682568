#!/bin/sh
# A release: archive, signature and signed tag, made in a clone with a key of its own and checked as whoever downloads them does;
# with PT_LONG the archive is made from the tag again.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS SOURCE_DATE_EPOCH
export XZ_OPT=-0 # fast: how well it is compressed does not matter
skip() { echo "1..0 # SKIP $1"; exit 0; }
[ -e "$PT_SRC/.git" ] || skip "the sources are no clone"
command -v git >/dev/null && git -C "$PT_SRC" rev-parse HEAD >/dev/null 2>&1 || skip "git cannot read the clone"
command -v gpg >/dev/null || skip "GnuPG is not installed"
command -v esbuild >/dev/null || skip "an archive needs the chart library, which esbuild makes"
. "$PT_SRC/tests/build/answers.sh"
cd "$run" || exit 99

# GnuPG's sockets need a short path.
GNUPGHOME=$(mktemp -d /tmp/gpg.XXXXXX) || exit 99
export GNUPGHOME
trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"; cleanup' EXIT
ok "a key" gpg --batch --passphrase '' --quick-generate-key 'A. Releaser <releaser@example.org>' default sign never

git clone -q --no-local "$PT_SRC" clone || exit 99
git -C clone config user.name 'A. Releaser' && git -C clone config user.email releaser@example.org || exit 99
version=$(sed -n 's/^AC_INIT(\[partune\], \[\([^]]*\)\].*/\1/p' clone/configure.ac)
git -C clone tag | xargs -r git -C clone tag -d >/dev/null
release() { # option...: exit status and last line of release
    clone/packaging/release "$@" out >said 2>&1
    echo "$? $(tail -n 1 said)"
}
commit() { git -C clone commit -qam "$1"; }

# ---- what is refused, and leaves nothing
sed -i "/^## $version/,/^### /s/^\(Not released yet\|Released .*\)\.\$/Not released yet./" clone/CHANGELOG.md
commit "Take back a release" >/dev/null || true # nothing to take back
has "a version without a date is refused" "$(release)" "^1 release: the section $version of CHANGELOG.md needs the line 'Released"
sed -i 's/^Not released yet\.$/Released 2026-13-01./' clone/CHANGELOG.md && commit "Release on no day"
has "so is one of a day that is none" "$(release)" "^1 release: the section $version of CHANGELOG.md needs the line 'Released"
sed -i 's/^Released 2026-13-01\.$/Released 2026-12-01./' clone/CHANGELOG.md
has "a change that is not committed is refused" "$(release)" '^1 release: the work tree has changes'
commit "Release"
has "a key that is not there is refused" "$(release --key nobody@example.org)" '^1 release: GnuPG has no secret key nobody@'
is "nothing was made" "$(git -C clone tag; ls out)" ""

# ---- a release
is "a release is made" "$(release --key releaser@example.org)" "0 tag v$version of $(git -C clone rev-parse --short HEAD)"
cd out || exit 99
archive=partune-$version.tar.xz
ok "its tag is signed" git -C ../clone verify-tag "v$version"
has "and says what changed" "$(git -C ../clone cat-file tag "v$version")" '^### Added$'
ok "its archive is signed" gpg --verify "$archive.asc" "$archive"
is "its archive is of the tag" "$(tar xOf "$archive" "partune-$version/CHANGELOG.md" | cksum)" \
    "$(git -C ../clone show "v$version:CHANGELOG.md" | cksum)"
cp "$archive" other && printf x >>other
ok "another archive is not signed" sh -c "! gpg --verify $archive.asc other"
cd ..
has "the same version is not released again" "$(release)" "^1 release: tag v$version exists"
git -C clone tag -d "v$version" >/dev/null
has "nor is an archive overwritten" "$(release)" "^1 release: .*$archive exists"

# ---- anybody makes the same bytes from the tag; of any two trees same.t says so
[ -n "${PT_LONG:-}" ] || { finish; exit; }
mkdir again && cd again || exit 99
src=$(realpath --relative-to=. ../clone)
ok "the tag's tree makes an archive" sh -c "$src/bootstrap && $src/configure --without-mpi && make dist"
ok "which is the same, byte for byte" cmp "$archive" "../out/$archive"
finish
