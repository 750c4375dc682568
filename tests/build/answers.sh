# Sourced after tap.sh: every configure that the test runs gets what another has found out about compiler and system, which
# takes it half its time. What it finds of libraries is its own.
CONFIG_SITE=$PT_BUILD/tests/build/answers
CONFIG_SHELL=/bin/sh
export CONFIG_SITE CONFIG_SHELL
if [ ! "$CONFIG_SITE" -nt "$PT_SRC/configure" ]; then
    mkdir -p "$run/answers" "$PT_BUILD/tests/build"
    # configure takes a source folder with a blank in its path by a relative name only
    (cd "$run/answers" && CONFIG_SITE='' "$(realpath --relative-to=. "$PT_SRC")/configure" --without-mpi --cache-file=cache --no-create >log 2>&1)
    # where configure refuses a folder of its own, the test tells
    [ ! -f "$run/answers/cache" ] || sed '/^pkg_cv_/d; /^ac_cv_header_dnnl/d; /^ac_cv_env_/d' "$run/answers/cache" >"$CONFIG_SITE.$$" && mv "$CONFIG_SITE.$$" "$CONFIG_SITE"
fi
[ -f "$CONFIG_SITE" ] || unset CONFIG_SITE
