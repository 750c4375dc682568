#!/bin/sh
# What is kept and for how long: deletion, campaigns of a certain age, the quota for files, and logs of a bounded size.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--train "$run/train" --stop requeue'
cd "$run" || exit 99
fake="$PT_BUILD/tests/fault/fake_train"
command -v mpiexec >/dev/null || { echo "1..0 # SKIP no MPI"; exit 0; }
printf '#!/bin/sh\n[ ! -e "%s/loud" ] || { head -c 3000000 /dev/zero | tr "\\0" a; echo; echo THE END; }\nexec "%s" --step-ms 300 "$@"\n' "$run" "$fake" >train
chmod +x train
submit() { # name, trials
    call /v1/campaigns -d '{"name": "'"$1"'", "model": "nano-moe", "workload": {"global_batch": 8}, "space": {"world": [1]},
        "budget": {"trials": '"$2"'}, "search": {"method": "random"}, "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3, "ci": 0.000001}}' | id_of
}
gone() { [ "$(code "/v1/campaigns/$1")" = 404 ]; }
empty() { [ -z "$(ls -A data/trash 2>/dev/null)" ]; }

# ---- deletion
start
id=$(submit deleted 2)
ok "a campaign ends" wait_for 60 is_in "$id" done
ok "it has files" test -d "data/campaigns/$id"
is "delete it" "$(code "/v1/campaigns/$id" -X DELETE)" 204
ok "its directory is gone with the answer" test ! -e "data/campaigns/$id"
ok "its files soon after" wait_for 20 empty
stop
mkdir -p data/trash/7.0/deep/er
echo left >data/trash/7.0/deep/er/file
ln -s "$run/err" data/trash/7.0/link
start
ok "the next start empties a killed daemon's trash" wait_for 20 empty
ok "links in it are not followed" test -s err

# ---- age
old=$(submit old 1)
ok "an old one ends" wait_for 60 is_in "$old" done
stop
start --retain 0.00003 # 2.6 s
running=$(submit running 100)
ok "it is removed after --retain" wait_for 60 gone "$old"
ok "with its files" test ! -e "data/campaigns/$old"
is "an unfinished one is kept" "$(code "/v1/campaigns/$running")" 200
has "and it is counted" "$(call /metrics)" '^partune_campaigns_removed_total [1-9]'
call "/v1/campaigns/$running:cancel" -d '{}' >/dev/null
stop
is "without --retain everything is kept" "$("$PT_BUILD/partuned" --retain x --data data 2>&1 | grep -c retain)" 1

# ---- quota: each trial writes 3 MB
touch loud
start --quota 8m --log-limit 4m
first=$(submit first 1)
ok "the first campaign ends" wait_for 60 is_in "$first" done
second=$(submit second 1)
ok "the second ends" wait_for 60 is_in "$second" done
third=$(submit third 1)
ok "the third ends" wait_for 60 is_in "$third" done
files() { [ ! -e "data/campaigns/$first" ]; }
ok "files of the one that ended first are deleted" wait_for 30 files
ok "those of the last one stay" test -s "data/campaigns/$third/trials/1/1/stdout"
is "its results are kept" "$(call "/v1/campaigns/$first/trials/1" | grep -o '"state":"ok"')" '"state":"ok"'
is "its log is answered by 404" "$(code "/v1/campaigns/$first/trials/1/log")" 404
has "with the reason" "$(cat body)" 'has been deleted'
has "/readyz reports the quota" "$(call /readyz)" '"name":"quota","ok":true'
large=$(submit large 40)
ok "a running campaign over the quota pauses" wait_for 60 is_in "$large" paused
has "with the reason" "$(call "/v1/campaigns/$large")" 'disk quota for attempt files is used up'
is "it cannot be resumed yet" "$(code "/v1/campaigns/$large:resume" -X POST -d '{}')" 409
is "the daemon is not ready" "$(code /readyz)" 503
stop
start --quota 1g --log-limit 1m
is "with a higher quota it can" "$(code "/v1/campaigns/$large:resume" -X POST -d '{}')" 200
ok "and continues" wait_for 60 is_in "$large" running

# ---- logs: the first megabyte, and the end
cut() { file=$(grep -ls 'omitted here' "data/campaigns/$large/trials"/*/*/stdout | head -n 1); [ -n "$file" ]; }
ok "a log over its limit is cut in the middle" wait_for 60 cut
is "its end is there" "$(grep -c '^THE END$' "$file")" 1
size=$(stat -c %s "$file")
ok "and its size is bounded: $size" test "$size" -lt $((1048576 + 65536 + 200))
is "the log says how much is missing" "$(sed -n 's/^.partune-run: \([0-9]*\) bytes over the limit are omitted here.$/\1/p' "$file")" $((3000000 + 9 - 1048576 - 65536))
stop
is "the daemon exits cleanly" $? 0
finish
