#!/bin/sh
# The unit of systemd is well-formed, and a restart as it does one (TERM to the daemon alone, then a new daemon) leaves the
# trials running: the new daemon adopts them.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--train "$run/train"'
cd "$run" || exit 99
unit="$PT_BUILD/tuner/programs/partuned.service"
ok "the unit file is made" test -s "$unit"
is "no placeholder is left in it" "$(grep -c '@' "$unit")" 0
has "a restart ends the daemon alone" "$(cat "$unit")" '^KillMode=process$'
if command -v systemd-analyze >/dev/null; then
    # The programs and pages need not be installed here: a unit whose program is one that is there is checked for all the rest.
    sed -e 's|^ExecStart=.*|ExecStart=/bin/true|' -e 's|^User=.*|User=root|' "$unit" >partuned.service
    mkdir -p man/man8 && cp "$PT_BUILD/docs/partuned.8" man/man8/
    pages=yes
    command -v man >/dev/null || pages=no
    ok "systemd finds nothing wrong with it" env MANPATH="$run/man" pages=$pages sh -c 'out=$(systemd-analyze verify --man=$pages ./partuned.service 2>&1 | grep partuned.service); [ -z "$out" ] || { echo "$out"; false; }'
else
    echo "# no systemd-analyze: its verdict is missing"
fi
command -v mpiexec >/dev/null || { finish; exit; }

printf '#!/bin/sh\nexec "%s/tests/fault/fake_train" --step-ms 200 "$@"\n' "$PT_BUILD" >train
chmod +x train
runs() { call "/v1/campaigns/$id/trials/1" | grep -q '"state":"running"'; }
start
id=$($C -H "$A" -H 'Content-Type: application/json' -d '{"name":"u","model":"nano-moe","workload":{"global_batch":8},"budget":{"trials":1},
    "space":{"world":[1]},"trial":{"warmup_steps":1,"min_steps":20,"max_steps":20,"ci":0.000001}}' "$url/v1/campaigns" |
    id_of)
ok "a trial runs" wait_for 60 runs
kill -TERM "$pid"
wait "$pid"
is "the daemon exits cleanly" $? 0
start
has "the next one adopts the trial" "$(call /metrics)" 'attempts_adopted_total 1$'
ok "and it completes" wait_for 90 is_in "$id" done
has "in its first attempt" "$(call "/v1/campaigns/$id/trials/1")" '"attempts":1'
finish
