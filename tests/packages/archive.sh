# Sourced after tap.sh by tests of packages: the archive of make dist in $run/archive, made in a build folder of its own.
version=$(sed -n 's/^PACKAGE_VERSION = //p' "$PT_BUILD/Makefile")
charts=web/ui/vendor/vega.min.js
for made in "$PT_BUILD/$charts" "$PT_SRC/$charts"; do [ ! -f "$made" ] || break; done
if grep -q '^// no chart library' "$made"; then
    echo "1..0 # SKIP this build has no chart library; an archive needs it"
    exit 0
fi
if [ -f "$PT_SRC/config.status" ]; then
    echo "1..0 # SKIP the source tree was configured in place"
    exit 0
fi
make_archive() {
    mkdir -p "$run/archive/${charts%/*}" && cp -p "$made" "$run/archive/$charts" || return 1
    (cd "$run/archive" && "$(realpath --relative-to=. "$PT_SRC")/configure" --without-mpi && XZ_OPT=-0 make dist) >"$run/archive.log" 2>&1 || {
        tail -n 5 "$run/archive.log"
        return 1
    }
}
