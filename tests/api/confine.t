#!/bin/sh
# What a trial is held to: resource limits, another user, an environment without the daemon's secrets, and no way from the
# folder that it owns to what it does not.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v mpiexec >/dev/null || { echo "1..0 # SKIP no MPI"; exit 0; }

refused() { "$PT_BUILD/partuned" --data none --listen 127.0.0.1:0 "$@" 2>&1; }
has "an unknown limit is refused at the start" "$(refused --trial-limits data=1g,memory=1g)" 'trial-limits: unknown limit "memory" \(core, data'
has "a limit without a size" "$(refused --trial-limits data)" 'limit data must be a size'
has "a limit that is not a number" "$(refused --trial-limits nofile=many)" 'limit nofile must be a number'
has "an unknown user" "$(refused --trial-user nobody-of-that-name)" 'trial-user: unknown user "nobody-of-that-name"'
has "root is refused as the trials' user" "$(refused --trial-user root)" 'would be root'

# Programs and data where another user gets at them.
public=$(mktemp -d "${TMPDIR:-/tmp}/pt.XXXXXX") || exit 99
trap 'cleanup; rm -rf "$public"' EXIT
chmod 711 "$public"
cp "$PT_BUILD/partuned" "$PT_BUILD/partune-run" "$PT_BUILD/tests/fault/fake_train" "$public/"
cat >"$public/train" <<TRAIN
#!/bin/sh
{
    id -u; id -G
    ulimit -c; ulimit -n; ulimit -f
    grep -E 'NoNewPrivs' /proc/self/status
    echo "HOME=\$HOME"
    env | grep -c SECRET
    cat "$public/data/token" "$public/data/partune.db" >/dev/null && echo readable
    ls "$public/data" >/dev/null && echo listed
    kill -9 "\$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' run.json)" && echo killed
    ln -sf "$public/precious" exit.json.tmp
    ln -sf "$public/precious" timeline.json
    mkfifo exit.json
} >seen 2>/dev/null
exec "$public/fake_train" "\$@"
TRAIN
chmod 755 "$public/train"
echo precious >"$public/precious"
chmod 600 "$public/precious"
partuned=$public/partuned data=$public/data
options='--train "$public/train" --stop requeue'
export THE_SECRET=x # of the daemon, for no trial
submit() {
    call /v1/campaigns -d '{"name": "c", "model": "nano-moe", "workload": {"global_batch": 8}, "space": {"world": [1]},
        "budget": {"trials": 1}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3}}' | id_of
}
seen() { sed -n "$1p" "$public/data/campaigns/$id/trials/1/1/seen"; }

start --trial-limits nofile=200,fsize=1g,core=0
id=$(submit)
ok "a campaign under limits ends" wait_for 60 is_in "$id" done
is "no core is dumped" "$(seen 3)" 0
is "open files are limited" "$(seen 4)" 200
is "so is the size of a file" "$(seen 5)" 2097152
has "the environment is scrubbed" "$(cat "$public/data/campaigns/$id/trials/1/1/seen")" '^0$'
stop

if [ "$(id -u)" != 0 ]; then
    echo "# not root: trials as another user were not tried"
    has "another user is refused" "$(refused --trial-user nobody)" 'only root can run trials as another user|would be root|unknown user'
    finish
    exit
fi
rm -rf "$public/data"
start --trial-user nobody --trial-limits nproc=4000
id=$(submit)
ok "a campaign as another user ends" wait_for 60 is_in "$id" done
has "its trial succeeds" "$(call "/v1/campaigns/$id/trials/1")" '"state":"ok"'
is "it ran as that user" "$(seen 1)" "$(id -u nobody)"
is "with that user's groups" "$(seen 2)" "$(id -G nobody)"
has "and cannot gain privileges" "$(seen 6)" '1$'
is "with its own home" "$(seen 7)" "HOME=$(getent passwd nobody | cut -d: -f6)"
is "it could not read the token or the database" "$(grep -c readable "$public/data/campaigns/$id/trials/1/1/seen")" 0
is "nor look into the data directory" "$(grep -c listed "$public/data/campaigns/$id/trials/1/1/seen")" 0
is "nor kill its supervisor" "$(grep -c killed "$public/data/campaigns/$id/trials/1/1/seen")" 0
is "a link for the exit file led nowhere" "$(cat "$public/precious")" precious
ok "and exit.json is a regular file" grep -q '"code":0' "$public/data/campaigns/$id/trials/1/1/exit.json"
is "a link for a timeline is not followed" "$($C -o body -w '%{http_code}' -H "$A" "$url/v1/campaigns/$id/trials/1/timeline" && grep -c precious body)" "5030"
is "delete it" "$($C -o body -w '%{http_code}' -X DELETE -H "$A" "$url/v1/campaigns/$id")" 204
removed() { [ -z "$(ls -A "$public/data/trash" "$public/data/campaigns" | grep -v :)" ]; }
ok "with all its files" wait_for 20 removed
ok "but not the targets of its links" test -s "$public/precious"
stop
is "the daemon exits cleanly" $? 0
finish
