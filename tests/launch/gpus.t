#!/bin/sh
# GPUs of a machine are handed out to trials one by one, never one to two, also over a restart. NVML is a stand-in that counts
# two; the trainer is a program that writes down which of them it sees, and keeps them until a file of its name says stop.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
mkdir lib && ${CC:-cc} -fPIC -shared -o lib/libnvidia-ml.so.1 "$PT_SRC/tests/client/standin-nvml.c" || exit 99
export LD_LIBRARY_PATH="$run/lib" STANDIN_COUNT=2
unset CUDA_VISIBLE_DEVICES
[ -z "${ASAN_OPTIONS:-}" ] && export ASAN_OPTIONS=detect_leaks=0
cat >program <<'END'
#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER" >"${0%/*}/$1.sees"
while [ ! -e "${0%/*}/$1.stop" ]; do sleep 0.05; done
exit 65 # settles the trial: no second attempt
END
chmod +x program
for word in a b c; do
    printf '[trainer "%s"]\nparser = jsonl\ncommand = \"%s/program\" %s\n' $word "$run" $word
done >partuned.conf
printf '[trainer "own"]\nparser = jsonl\nenv = CUDA_VISIBLE_DEVICES=0\ncommand = \"%s/program\" own\n' "$run" >>partuned.conf
options="--config partuned.conf"

job() { # trainer, devices, more of the cluster: a campaign of one trial
    echo '{"name": "'"$1"'", "trainer": "'"$1"'", "model": {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "box", "nodes": 1, "devices_per_node": '"$2"', "device": {"name": "gpu", "memory_gib": 80, "peak_tflops": {"bf16": 900},
        "memory_gbs": 3000}, "links": [{"span": 8, "gbs": 400, "latency_us": 5}]'"$3"'},
        "workload": {"global_batch": 8}, "space": {"world": ['"$2"']}, "budget": {"trials": 1}}'
}
submit() { # trainer, devices, more
    rm -f "$1.sees" "$1.stop"
    id=$(call /v1/campaigns -d "$(job "$@")" | tee answer | id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
}
sees() { wait_for 30 test -s "$1.sees" && cut -d ' ' -f 1 "$1.sees"; } # trainer
end() { # trainer, campaign: its trial ends, and with it the campaign
    touch "$1.stop"
    wait_for 30 ended "$2"
}
ended() { call "/v1/campaigns/$1" | grep -qE '"state":"(done|paused|failed)","reason"'; }
free() { call /metrics | sed -n 's/^partune_free_gpus //p'; }

start --cores 2
is "all GPUs are free" "$(free)" 2
has "and the daemon says which it counts" "$(call /readyz)" '"name":"GPUs","ok":true,"detail":"2, 2 free"'
submit a 1
first=$id
is "a trial on one sees one" "$(sees a)" 0
has "in the order in which NVML counts" "$(cat a.sees)" ' PCI_BUS_ID$'
submit b 1
second=$id
is "another campaign's gets the other" "$(sees b) $(free)" "1 0"
submit c 1
third=$id
sleep 1
is "a third waits" "$(test -e c.sees || echo waits)" waits
kill -9 "$pid" && wait "$pid" 2>/dev/null
start --cores 2
sleep 1
is "a new daemon knows what its trials hold" "$(free) $(test -e c.sees || echo waits)" "0 waits"
end b "$second"
is "what is free again is given to whoever waits" "$(sees c)" 1
end a "$first"
end c "$third"
is "all are free in the end" "$(free)" 2
submit a 2
is "a trial on all GPUs sees all" "$(sees a)" 0,1
end a "$id"

# ---- what cannot be
is "more devices than GPUs are refused" "$(post /v1/campaigns "$(job a 8)")" 422
has "with both numbers" "$(cat body)" 'has 8 devices, but this machine has only 2 GPUs for trials .*"pointer":"/cluster"'
submit a 8 ', "oversubscribe": true'
is "unless ranks share them" "$(sees a)" 0,1
end a "$id"
is "a trainer whose section names GPUs itself is refused" "$(post /v1/campaigns "$(job own 1)")" 422
has "by the variable" "$(cat body)" 'env of trainer .*own.* sets CUDA_VISIBLE_DEVICES.*--gpus'
stop

# ---- the bundled trainer computes on what its trial holds, here simulated, and counts its energy
library=$LD_LIBRARY_PATH shim=$PT_BUILD/tests/kncheck/cuda-shim.so
export LD_LIBRARY_PATH="$run/lib:$PT_BUILD/tests/kncheck/standin" PARTUNE_CUDA="$shim" PARTUNE_NCCL=off
bundled() { # devices, more of the cluster, more of the campaign: a campaign of one trial that has ended; its events in `events`
    id=$(call /v1/campaigns -d "$(job partune "$1" "$2" | sed 's/"seq": 64/"seq": 16/; s/"hidden": 64/"hidden": 32/; s/"vocab": 256/"vocab": 64/;
        s/"budget"/"trial": {"warmup_steps": 1, "min_steps": 2, "max_steps": 2}, "budget"/; s/"space": {/"baseline": "naive", "objective": "tokens_per_joule", "space": {"threads": [1], /')" | tee answer | id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
    wait_for 60 ended "$id"
    call "/v1/campaigns/$id/trials/1" >trial
    cat "$run"/data/campaigns/"$id"/trials/1/*/events >events
}
if [ -e "$shim" ] && [ -x "$PT_BUILD/partune-train" ]; then # a C++ compiler and an MPI
    start --cores 2
    bundled 1
    has "the bundled trainer takes its trial's GPU" "$(cat events)" '"device":"Stand-in 0"'
    has "and its energy is the objective" "$(cat trial)" '"state":"ok".*"tokens_per_joule":[0-9]'
    bundled 4 ', "oversubscribe": true'
    has "ranks that outnumber the GPUs take them in turn" "$(cat events)" '"ranks":4.*"device":"Stand-in 0"'
    has "each of which counts once" "$(cat events)" '"joules":6,'
    stop

    # and on this machine as a calibration has measured it
    STANDIN_GPUS=2 STANDIN_NAME="NVIDIA H200" mpiexec -n 2 "$PT_BUILD/partune-train" --calibrate data/profiles/local.json --device cuda --quiet 2>&1
    start --cores 2
    here='"model": {"name": "tiny", "layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 64, "seq": 16}, "workload": {"global_batch": 8}'
    has "the plan is of the calibrated GPUs" "$(call /v1/plan -d "{$here}")" '"fitting":[1-9].*"layout":{"world":2,'
    id=$(call /v1/campaigns -d "{\"name\": \"here\", $here, \"space\": {\"world\": [2], \"threads\": [1]}, \"baseline\": \"naive\",
        \"budget\": {\"trials\": 1}, \"trial\": {\"warmup_steps\": 1, \"min_steps\": 2, \"max_steps\": 2}}" | tee answer | id_of)
    [ -n "$id" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
    wait_for 60 ended "$id"
    has "a campaign on the local cluster then gets GPUs" "$(cat data/campaigns/"$id"/trials/1/*/events)" '"ranks":2.*"device":"Stand-in 0"'
    has "each rank its own, with the memory that was measured" "$(cat data/campaigns/"$id"/trials/1/*/events)" '"budget":85899345920'
    has "and counts" "$(call "/v1/campaigns/$id/trials/1")" '"state":"ok"'
    stop
    rm data/profiles/local.json
fi
export LD_LIBRARY_PATH="$library"
unset PARTUNE_CUDA PARTUNE_NCCL

# ---- which ones
start --gpus 1 --cores 2
submit a 1
is "the administrator names them" "$(sees a) $(free)" "1 0"
end a "$id"
stop
export CUDA_VISIBLE_DEVICES=1
start --cores 2
submit a 1
is "or the daemon's own environment" "$(sees a) $(free)" "1 0"
end a "$id"
stop
export CUDA_VISIBLE_DEVICES=-1
start --cores 2
is "which may hide them all" "$(free)" ""
submit a 2
is "as on a machine without any" "$(sees a)" -1
end a "$id"
stop
unset CUDA_VISIBLE_DEVICES
export STANDIN_MIG=1
start --cores 2
submit a 1
is "a GPU that MIG divides is left out" "$(sees a) $(free)" "1 0"
has "with a warning" "$(cat err)" 'GPU 0 gets no trials: it is divided by MIG'
end a "$id"
stop
export STANDIN_MIG=2 STANDIN_INSTANCES=2
zero=MIG-00000000-0000-0000-0000-00000000000 one=MIG-00000001-0000-0000-0000-00000000000
start --cores 2
submit a 1
is "where MIG divides all GPUs, their instances are handed out by UUID" "$(sees a) $(free)" "${zero}0 3"
first=$id
submit b 1
is "each once" "$(sees b) $(free)" "${zero}1 2"
second=$id
kill -9 "$pid" && wait "$pid" 2>/dev/null
start --cores 2
is "a new daemon knows which of them its trials hold" "$(free)" 2
end a "$first"
end b "$second"
is "and gets them back" "$(free)" 4
submit a 2
is "a trial of two has two" "$(sees a)" "${zero}0,${zero}1"
end a "$id"
stop
start --cores 2 --gpus "${one}1,${zero}0"
submit a 1
is "the administrator may name instances" "$(sees a) $(free)" "${one}1 1"
end a "$id"
stop
unset STANDIN_MIG STANDIN_INSTANCES
# A campaign that was admitted with GPUs that the next daemon does not have, one core to each of them.
start --cores 2
submit c 2
wait_for 30 test -s c.sees
kill -9 "$pid" && wait "$pid" 2>/dev/null
start --cores 2 --gpus 1
end c "$id"
paused() { call "/v1/campaigns/$id" | grep -q '"state":"paused"'; }
ok "a campaign that needs more than the machine has by now is paused" wait_for 30 paused
has "and says why" "$(call "/v1/campaigns/$id")" 'has 2 devices, but this machine has only 1 GPUs for trials'
stop
fails() { # name, pattern, options: the daemon does not start
    name=$1 pattern=$2
    shift 2
    has "$name" "$("$partuned" --data other --listen 127.0.0.1:0 "$@" 2>&1; echo "status $?")" "$pattern"
}
fails "a GPU that is not there" '--gpus: there is no GPU 2: NVML counts 2' --gpus 0,2
fails "GPUs next to instances" '--gpus: no list of GPUs, .*: 0,MIG-1' --gpus 0,MIG-1
fails "an instance that is not there" '--gpus: NVML has no MIG instance MIG-1 .partune doctor lists them.' --gpus MIG-1
fails "no list" '--gpus: no list of GPUs, such as 0-3,6, or of MIG instances, MIG-UUID,MIG-UUID: two' --gpus two
echo '127.0.0.1:2' >hosts
fails "GPUs of other hosts" '--gpus is for this machine, --hosts names others' --gpus 0 --hosts hosts

# ---- with an NVML that counts nothing, also where this machine has one
${CC:-cc} -fPIC -shared -DWITHOUT_MIG -o lib/libnvidia-ml.so.1 "$PT_SRC/tests/client/standin-nvml.c" || exit 99
start --gpus 0-1 --cores 2
submit a 2
is "what the administrator names is believed" "$(sees a)" 0,1
end a "$id"
stop
start --cores 2
is "else nothing is counted" "$(free)" ""
submit a 2
is "and a trial sees what its own software finds" "$(wait_for 30 test -s a.sees; cut -d ' ' -f 1 a.sees)" ""
end a "$id"
stop
finish
