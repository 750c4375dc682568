#!/bin/sh
# Libraries that are installed, or removed, after configure ran: make notices, says what is missing, and continues once it is
# there. The library is hidden from pkg-config, which is all that configure sees of it.
. "${PT_SRC:?}/tests/api/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS
if [ -f "$PT_SRC/config.status" ]; then
    echo "1..0 # SKIP the source tree was configured in place"
    exit 0
fi
. "$PT_SRC/tests/build/answers.sh"
real=$(command -v "${PKG_CONFIG:-pkg-config}") || { echo "1..0 # SKIP pkg-config is missing"; exit 0; }

cd "$run" || exit 99
# configure takes no path with a space for a tool.
tools=$(mktemp -d /tmp/partune-again.XXXXXX) || exit 99
trap 'rm -rf "$tools"; cleanup' EXIT
cat >"$tools/pkg-config" <<SH
#!/bin/sh
read -r hidden <'$run/hidden'
for word; do
    case " \$hidden " in *" \${word%% *} "*) exit 1 ;; esac
done
exec '$real' "\$@"
SH
chmod +x "$tools/pkg-config"
mkdir "a tree"
cd "a tree" || exit 99
built() { make "$@" >>"$run/make.log" 2>&1; }
inode() { stat -c %i-%Y "$1"; }

echo cmocka >"$run/hidden"
ok "configure without cmocka" "../$(realpath --relative-to="$run" "$PT_SRC")/configure" PKG_CONFIG="$tools/pkg-config" --without-mpi
ok "builds everything that does not need it" built base/libbase.a
make tests/unit/base_text >out 2>&1
is "a unit test is not even compiled" "$(ls tests/unit/*.o 2>/dev/null)" ""
has "and make names the package" "$(cat out)" 'the tests need cmocka: install libcmocka-dev'

echo >"$run/hidden"
ok "cmocka is installed: the same command succeeds" built tests/unit/base_text
ok "and the test runs" ./tests/unit/base_text
eight_at_once() {
    for _ in 1 2 3 4 5 6 7 8; do
        make configure.answers >/dev/null 2>&1 &
        pids="${pids:-} $!"
    done
    for pid in $pids; do wait "$pid" || return 1; done
}
ok "eight of make at once ask the same questions" eight_at_once
before=$(inode config.status)
ok "make without changes" built Makefile base/libbase.a
is "does not configure again" "$(inode config.status)" "$before"

echo cmocka >"$run/hidden"
make tests/unit/base_input >out 2>&1
has "cmocka is removed: make names the package again" "$(cat out)" 'the tests need cmocka: install libcmocka-dev'
finish
