#!/bin/sh
# The image of packaging/containers/partune.def, built by apptainer from the archive of make dist: its programs run in it, a
# daemon's campaign ends in it, and exported job scripts train in it, on ranks that this machine's mpiexec and srun start by the
# scripts' own "apptainer exec". No registry is asked: in place of the base image there is a bare Debian of this
# machine's apt sources. For make check-long alone: it takes minutes and 10 GB. Needs root, user namespaces, apptainer and
# mmdebstrap.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
. "$PT_SRC/tests/launch/cluster.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS PT_LONG
for tool in apptainer mmdebstrap; do
    command -v $tool >/dev/null 2>&1 || { echo "1..0 # SKIP $tool is not installed"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP making a root file system needs root"; exit 0; }
hydra=$(command -v mpiexec.mpich || command -v mpiexec.hydra) || { echo "1..0 # SKIP mpiexec of MPICH, the image's MPI, is not installed"; exit 0; }
unshare --user true 2>/dev/null || { echo "1..0 # SKIP user namespaces are not allowed here"; exit 0; }
. "$PT_SRC/tests/packages/archive.sh"
. "$PT_SRC/tests/packages/campaign.sh"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/partune-apptainer.XXXXXX") || exit 99
trap 'slurm_stop; cleanup; rm -rf --one-file-system "$work"' EXIT
root_home=/root
. "$PT_SRC/tests/bare/debian.sh"
cd "$work" || exit 99
def=$PT_SRC/packaging/containers/partune.def
suite=$(sed -n 's/^From: debian:\([a-z]*\)-slim$/\1/p' "$def" | sort -u)

# apptainer takes all capabilities that there are, of which machines withhold some from root: a user namespace has them, one
# for each call, as when an ordinary user runs it.
real=$(command -v apptainer)
mkdir bin
cat >bin/apptainer <<SH
#!/bin/sh
exec unshare --user --map-users=0,0,65536 --map-groups=0,0,65536 "$real" "\$@"
SH
printf '#!/bin/sh\nexec "%s" "$@"\n' "$hydra" >bin/mpiexec # which looks for its proxy next to itself: not a link
chmod +x bin/apptainer bin/mpiexec
export PATH="$work/bin:$PATH"

# ---- the image
mkdir -p cache tmp home context
export APPTAINER_CACHEDIR="$work/cache" APPTAINER_TMPDIR="$work/tmp" HOME="$work/home"
ok "an archive" make_archive
ok "a Debian without anything" bare "$work/root"
rm -rf "$work/root/dev/"* # devices cannot be copied there
cp "$PT_SRC/packaging/containers/install" "$run/archive/partune-$version.tar.xz" context/
sed "s|^Bootstrap: docker\$|Bootstrap: localimage|; s|^From: .*|From: $work/root|" "$def" >context/partune.def
build() { (cd context && apptainer build "$work/partune.sif" partune.def) >log 2>&1 || { tail -n 30 log; return 1; }; }
ok "the image builds, and passes its own test" build
for program in partuned partune partune-run partune-search partune-data partune-train; do
    has "$program runs in it" "$(apptainer exec partune.sif $program --version 2>&1)" "^$program $version"
done
has "the image starts the daemon" "$(apptainer run partune.sif --version 2>&1)" "^partuned $version"
has "and tells what is in it" "$(apptainer run-help partune.sif)" '^ *Programs of partune: partuned '
is "no compiler is in it" "$(apptainer exec partune.sif sh -c 'command -v gcc cc make' 2>/dev/null)" ""
has "its files are read-only" "$(apptainer exec partune.sif touch /usr/local/bin/new 2>&1)" 'Read-only file system'

# ---- its own MPI, and a daemon in it, whose data are on this machine
apptainer exec --bind "$work" partune.sif mpiexec -n 2 \
    partune-train --model nano-llama --tp 2 --steps 2 --quiet --events "$work/events" >out 2>&1
is "two ranks train" "$? $(grep -c '"event":"step"' events)" "0 2"
rm -f events
mpiexec -n 2 apptainer exec --bind "$work" partune.sif \
    partune-train --model tiny-llama --tp 2 --steps 1 --quiet --events "$work/events" >out 2>&1
is "so do two of one user namespace each, by large messages" "$? $(grep -c '"event":"step"' events)" "0 1"
apptainer exec --bind "$work" partune.sif sh -c "$campaign" campaign "$work/inside" >out 2>&1
has "a simulated campaign is done" "$? $(tr '\n' ' ' <out | tail -c 800)" '^0 .*done'

# ---- job scripts: this machine's mpiexec and srun, and the trainer in the image
[ -x "$PT_BUILD/partune-train" ] || { echo "# this build has no trainer: no job scripts"; finish; exit; }
export PATH="$work/bin:$PT_BUILD:$PATH"
start
client
export PARTUNE_DATA="$work/$data"
cat >campaign.json <<'JSON'
{"name": "exported", "model": "nano-moe", "workload": {"global_batch": 8}, "space": {"world": [2]}, "budget": {"trials": 1},
 "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3},
 "cluster": {"name": "cores", "nodes": 1, "devices_per_node": 2,
             "device": {"name": "core", "kind": "cpu", "memory_gib": 2, "memory_gbs": 10, "peak_tflops": {"fp32": 1}},
             "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}]}}
JSON
partune submit --watch campaign.json >submit.out
ok "a campaign of this machine ends" grep -q ': done' submit.out
# How long to train is for the user to say; all else is as it was exported.
job() { # target
    mkdir -p "$1" && partune export last --to "$1" --output "$1/job" && sed -i 's/partune-train --config/partune-train --steps 3 --config/' "$1/job"
}
trains() { # target, what the job said
    has "it trains" "$2" '^step +3 .* loss '
    has "with both ranks" "$(cat "$1"/*.events)" '"event":"hello".*"ranks":2'
    has "and leaves a checkpoint" "$2" 'checkpoint .*/step-00000003'
}
# The trainer of this machine fails in jobs.
printf '#!/bin/sh\nexit 99\n' >bin/partune-train && chmod +x bin/partune-train
export SIF_IMAGE="$work/partune.sif"
ok "a job of PBS" job pbs+partune
said=$(PBS_O_WORKDIR="$work/pbs+partune" bash pbs+partune/job 2>&1)
trains pbs+partune "$said"
if missing=$(slurm_missing) && [ -n "$missing" ]; then
    ok "a job of Slurm # SKIP $missing is missing" true
else
    slurm_start
    ok "a job of Slurm" job slurm+partune
    (cd slurm+partune && sbatch -p low --wait -o out job) >/dev/null
    trains slurm+partune "$(cat slurm+partune/out)"
fi
finish
