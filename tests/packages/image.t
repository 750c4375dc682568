#!/bin/sh
# The image of packaging/containers/Containerfile, built by buildah from the archive of make dist, and its programs run in it.
# No registry is asked: the base image is a bare Debian of this machine's apt sources, under the base image's name. For make
# check-long alone: it takes minutes and 10 GB. Needs root, buildah and mmdebstrap.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS PT_LONG
for tool in buildah mmdebstrap; do
    command -v $tool >/dev/null 2>&1 || { echo "1..0 # SKIP $tool is not installed"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP making a root file system needs root"; exit 0; }
. "$PT_SRC/tests/packages/archive.sh"
. "$PT_SRC/tests/packages/campaign.sh"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/partune-image.XXXXXX") || exit 99
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot CONTAINERS_STORAGE_CONF="$work/storage.conf"
printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/store"\n' "$work" "$work" >"$work/storage.conf"
trap 'buildah rm --all >/dev/null 2>&1; rm -rf --one-file-system "$work"; cleanup' EXIT
root_home=/root
. "$PT_SRC/tests/bare/debian.sh"
cd "$work" || exit 99

base=docker.io/library/$(sed -n 's/^ARG BASE=//p' "$PT_SRC/packaging/containers/Containerfile")
base_image() {
    container=$(buildah from scratch) && mount=$(buildah mount "$container") && cp -a "$work/root/." "$mount/" &&
        buildah umount "$container" && buildah commit --rm "$container" "$base" && rm -rf --one-file-system "$work/root"
}
ok "an archive" make_archive
ok "a Debian without anything" bare "$work/root"
ok "is the base image" base_image
mkdir context
cp "$PT_SRC"/packaging/containers/* "$run/archive/partune-$version.tar.xz" context/
build() { buildah bud --pull-never --tag partune context >log 2>&1 || { tail -n 30 log; return 1; }; }
ok "the image builds" build

container=$(buildah from --pull-never partune)
inside_image() { buildah run "$container" -- "$@"; }
for program in partuned partune partune-run partune-search partune-data partune-train; do
    has "$program runs in it" "$(inside_image $program --version 2>&1)" "^$program $version"
done
is "as the user partune" "$(inside_image id -un)" partune
is "the image starts the daemon" "$(buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' partune)" \
    "[/usr/local/bin/partuned --data /var/lib/partune] [--listen 0.0.0.0:8417]"
is "no compiler is in it" "$(inside_image sh -c 'command -v gcc cc make' 2>/dev/null)" ""
inside_image mpiexec -n 2 partune-train --model nano-llama --tp 2 --steps 2 --quiet --events /tmp/events >out 2>&1
is "two ranks train" "$? $(inside_image grep -c '"event":"step"' /tmp/events)" "0 2"
inside_image sh -c "$campaign" campaign /var/lib/partune >out 2>&1
has "a simulated campaign is done" "$? $(tr '\n' ' ' <out | tail -c 800)" '^0 .*done'
finish
