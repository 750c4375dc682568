#!/bin/sh
# A backend in a library: it is opened and computes; what is missing or of another version is named.
cd "${PT_BUILD:?}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
standin=$PWD/tests/kncheck/standin
shim=$PWD/tests/kncheck/cuda-shim.so
n=0

ok() { # name, status
    n=$((n + 1))
    if [ "$2" = 0 ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/#   /' "$work/out"
    fi
}

check() { # library, [VAR=VALUE...]: run a few checks of it
    file=$1
    shift
    env LD_LIBRARY_PATH="${driver-$standin}" ASAN_OPTIONS=detect_leaks=0 "$@" \
        tests/kncheck/kncheck --op='rmsnorm_*' --plugin="$file" >"$work/out" 2>&1
}

fails() { # name, text, library, [VAR=VALUE...]
    name=$1 text=$2
    shift 2
    check "$@"
    [ $? = 1 ] && grep -qF "kncheck: $text" "$work/out"
    ok "$name" $?
}

library() { # name, version, abi: one that can be opened and no more
    printf '#include "kernels/plugin.h"\nconst struct kn_plugin *kn_plugin(void);\nconst struct kn_plugin *kn_plugin(void)\n{\n    static const struct kn_plugin p = {%s, "%s", 13000, 80, 0};\n\n    return &p;\n}\n' \
        "$3" "$2" >"$work/$1.c"
    ${CC:-cc} -I"$PT_SRC" -fPIC -shared -o "$work/$1.so" "$work/$1.c"
}

check "$shim" && grep -q '^ok 2 - rmsnorm_bwd cuda' "$work/out"
ok "a library's backend computes" $?
driver=/nonexistent fails "no driver" "no NVIDIA driver: libcuda.so.1: " "$shim"
fails "no library" "no CUDA backend: $work/none.so: " "$work/none.so"
fails "a driver that is too old, with both versions" \
    "the NVIDIA driver supports CUDA 12.4; this backend needs 13.0 or later" "$shim" STANDIN_DRIVER=12040
fails "a driver that does not start" \
    "the CUDA driver: initialization: no CUDA-capable device is detected (100)" "$shim" STANDIN_INIT=100
fails "an error that the driver has no text for" "the CUDA driver: initialization: unknown error (999)" "$shim" STANDIN_INIT=999
fails "no GPU" "GPU 0 was requested; the driver reports 0" "$shim" STANDIN_GPUS=0
fails "a GPU that is too old" \
    "GPU 0 (Stand-in 0) has compute capability 7.5; this backend needs 8.0 or later" "$shim" STANDIN_CAPABILITY=75

fails "a GPU that other processes fill" \
    "GPU 0: 1000000 bytes of its memory are free, 33554432 are needed: other processes fill it" "$shim" STANDIN_FREE=1000000

printf 'int nothing;\n' >"$work/empty.c" && ${CC:-cc} -fPIC -shared -o "$work/empty.so" "$work/empty.c"
fails "a library of something else" "$work/empty.so is not a backend of partune: it has no kn_plugin" "$work/empty.so"
library older 0.0.9 KN_PLUGIN_ABI
fails "a library of another version" "$work/older.so is of partune 0.0.9, this program of " "$work/older.so"
version=$(sed -n 's/^AC_INIT(\[partune\], \[\([^]]*\)\].*/\1/p' "$PT_SRC/configure.ac")
library other "$version" 'KN_PLUGIN_ABI + 8'
fails "a library of another interface" "$work/other.so has the interface 0x" "$work/other.so"
library refusing "$version" KN_PLUGIN_ABI
sed -i 's/80, 0}/80, refuse}/; s/^const struct kn_plugin \*kn_plugin(void)$/static const struct kn_backend *refuse(struct kn_plugin_refusal *ret_why, const struct kn_plugin_host *host, int index)\n{\n    (void)ret_why, (void)host, (void)index;\n    return 0;\n}\n\n&/' "$work/refusing.c"
${CC:-cc} -I"$PT_SRC" -fPIC -shared -o "$work/refusing.so" "$work/refusing.c"
fails "a backend that refuses the GPU" "GPU 0: the backend rejects it" "$work/refusing.so"
mkdir "$work/old" && ${CC:-cc} -DWITHOUT_ERROR_TEXT -fPIC -shared -o "$work/old/libcuda.so.1" "$PT_SRC/tests/kncheck/standin-driver.c"
driver=$work/old fails "a driver without a function" "the CUDA driver lacks cuGetErrorString: it is too old" "$shim"
echo "1..$n"
