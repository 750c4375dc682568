#!/bin/sh
# What ./quickstart asks an administrator for on a machine without any of it: Vega for the charts of a clone, not where a
# release archive has brought them; Node for the tests of the dashboard only. And its daemon is its own, where another one has
# the port.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
command -v dpkg-query >/dev/null 2>&1 || { echo "1..0 # SKIP there is no dpkg-query"; exit 0; }
cd "$run" || exit 99
mkdir -p tree/web/ui/vendor bin
cp "$PT_SRC/quickstart" tree/
for tool in sh dirname grep sed cat; do ln -s "$(command -v $tool)" bin/; done
printf '#!/bin/sh\nexit 1\n' >bin/dpkg-query # nothing is installed
printf '#!/bin/sh\necho 1000\n' >bin/id       # and there is no sudo, npm
chmod +x bin/dpkg-query bin/id
asked() { PATH="$run/bin" sh tree/quickstart "$@" | sed -n 's/.*--no-install-recommends//p'; }
has "a clone: the libraries" "$(asked)" ' libjansson-dev .* libopenblas-dev '
has "and Vega" "$(asked)" ' esbuild node-vega$'
is "and no npm" "$(asked | grep -cE 'nodejs|npm')" 0
printf '// no chart library: Vega was missing\n' >tree/web/ui/vendor/vega.min.js
has "where a build without charts was left, too" "$(asked)" ' esbuild node-vega$'
printf '/*! Vega */\n' >tree/web/ui/vendor/vega.min.js
has "an archive: the libraries" "$(asked)" ' libjansson-dev .* libopenblas-dev '
is "and no Vega" "$(asked | grep -cE 'esbuild|vega|nodejs|npm')" 0
has "the tests of the dashboard need it" "$(asked check)" ' nodejs npm$'

# ---- the daemon: the first port is another's, who answers before ours, on a busy machine, finds it taken
start
mkdir -p tree/build/quickstart
printf '#!/bin/sh\nsleep 2\nexec "%s" "$@"\n' "$PT_BUILD/partuned" >tree/build/partuned
chmod +x tree/build/partuned
sed "/^# ---- main/,\$d; s/^\( *for port in\) 8417 [0-9 ]*;/\1 ${url##*:} 0;/" tree/quickstart >tree/functions
cat >>tree/functions <<'SH'
start_daemon
echo "$PARTUNE_SERVER"
"$PT_BUILD/partune" ls --json
kill "$(cat "$work/partuned.pid")"
SH
sh tree/functions >out 2>&1
is "started next to another daemon, the quickstart's is used" "$? $(grep -c 'port .* is busy' out) $(grep -c "^$url\$" out)" "0 1 0"
has "with its own token" "$(tr -d ' \n' <out)" '"items":\[\]'
stop

# ---- what it measures and tunes on: GPUs, at most two, if the build has kernels for them and they work
shim=$PT_BUILD/tests/kncheck/cuda-shim.so
if [ -e "$shim" ] && [ -x "$PT_BUILD/partune-train" ]; then
    mkdir -p gpu && printf '#!/bin/sh\n[ "$1" = -L ] || exit 1\nfor n in $LISTED; do echo "GPU $n: Stand-in (UUID: GPU-$n)"; done\n' >gpu/nvidia-smi
    chmod +x gpu/nvidia-smi
    ln -s "$PT_BUILD/partune-train" tree/build/partune-train
    sed '/^# ---- main/,$d' tree/quickstart >tree/measure
    echo 'measure_machine && echo "$device $ranks $devices"' >>tree/measure
    on() { # GPUs that nvidia-smi lists, GPUs that the driver has
        PATH="$run/gpu:$PATH" LISTED="$1" PARTUNE_NCCL=off STANDIN_NAME=GPU STANDIN_GPUS="$2" LD_LIBRARY_PATH="$PT_BUILD/tests/kncheck/standin" sh tree/measure >out 2>&1
        printf '%s %s' "$(tail -n 1 out)" "$(sed -n 's/.*"kind": "\(.pu\)".*/\1/p' tree/build/quickstart/data/profiles/local.json)"
    }
    is "without kernels for them it takes two cores" "$(on "0 1" 2)" "cpu 2 two cores cpu"
    ln -s "$shim" tree/build/partune-cuda.so
    is "with them one GPU" "$(on 0 1)" "cuda 1 1 GPU gpu"
    is "or two of three" "$(on "0 1 2" 3)" "cuda 2 2 GPUs gpu"
    is "not without one" "$(on "" 0)" "cpu 2 two cores cpu"
    is "nor if it does not work" "$(on 0 0)" "cpu 2 two cores cpu"
    has "and it says why" "$(cat out)" 'note: not on GPUs: partune-train: --device=cuda: .*the driver reports 0'
fi
finish
