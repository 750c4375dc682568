#!/bin/sh
# Campaigns side by side on one machine: trials never on the same cores, the higher priority first, an even share between
# equals whatever their trials take, and a wide trial that narrow ones do not hold off for ever.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
options='--train "$run/train" --stop requeue'
cd "$run" || exit 99
command -v mpiexec >/dev/null || { echo "1..0 # SKIP no MPI"; exit 0; }
[ "$(nproc)" -ge 2 ] || { echo "1..0 # SKIP trials side by side want two cores"; exit 0; }
fake="$PT_BUILD/tests/fault/fake_train"
# How long a step takes is for the campaign's name to say.
cat >train <<TRAIN
#!/bin/sh
for a in "\$@"; do [ "\$before" = --config ] && config=\$a; before=\$a; done
case \$(cat "\$config") in *long-model*) ms=400 ;; *endless-model*) ms=1200 ;; *) ms=100 ;; esac
exec "$fake" --step-ms \$ms "\$@"
TRAIN
chmod +x train
submit() { # name, model, ranks, trials, parallel, more
    call /v1/campaigns -d '{"name": "'"$1"'", "model": {"name": "'"$2"'", "layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "seq": 64},
        "cluster": {"name": "two", "nodes": 1, "devices_per_node": 2, "oversubscribe": true,
                    "device": {"name": "core", "memory_gib": 24, "peak_tflops": {"fp32": 1}, "memory_gbs": 10},
                    "links": [{"span": 2, "gbs": 5, "latency_us": 1, "kind": "shm"}]},
        "workload": {"global_batch": 16}, "space": {"world": ['"$3"']}, "search": {"method": "random", "parallel": '"$5"'}, "budget": {"trials": '"$4"'},
        "trial": {"warmup_steps": 1, "min_steps": 3, "max_steps": 3, "ci": 0.000001}'"$6"'}' | tee answer |
        id_of
}
over() { [ "$(sql "SELECT count(*) FROM campaign WHERE state IN ('running', 'paused')")" = 0 ]; }

# ---- cores
start --cores 0
a=$(submit left long-model 1 3 2 "")
b=$(submit right long-model 1 3 2 "")
[ -n "$a" ] && [ -n "$b" ] || { echo "Bail out! no campaign: $(cat answer)"; exit 99; }
: >bound
until over; do
    for p in $(pgrep -f "^$fake "); do # a rank is bound to its core; which, the kernel knows
        [ "$(readlink "/proc/$p/exe" 2>/dev/null)" = "$fake" ] || continue
        cat "/proc/$p/environ" 2>/dev/null | tr '\0' '\n' | sed -n "s|^PARTUNE_TRIAL=|$p |p" | tr '\n' ' ' >>bound
        sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$p/status" 2>/dev/null >>bound || echo >>bound
    done
    echo -- >>bound
    sleep 0.1
done
grep -E '^[0-9]+ .* [0-9,-]+$' bound | sort -u | awk '{ print "# " $2, "core", $3 }' | sort -u | head -8
ok "ranks were seen on their cores" grep -qE ' [0-9]+$' bound
is "each on a single one" "$(awk 'NF == 3 && $3 !~ /^[0-9]+$/' bound)" ""
ok "two trials ran concurrently" test "$(sql "SELECT count(*) FROM attempt x JOIN attempt y ON (x.campaign, x.n) < (y.campaign, y.n)
    AND x.started < y.ended AND y.started < x.ended")" -gt 0
# Not: two processes of one trial. A sanitizer's search for leaks, when a rank ends, is one more.
is "and never on the same core" "$(awk '/^--/ { split("", seen); next } NF == 3 { n += $3 in seen && seen[$3] != $2; seen[$3] = $2 } END { print n + 0 }' bound)" 0
is "by the database, no core was held twice" "$(sql "SELECT count(*) FROM attempt x JOIN attempt y ON x.cpus = y.cpus
    AND (x.campaign, x.n) < (y.campaign, y.n) AND x.started < y.ended - 50 AND y.started < x.ended - 50")" 0
stop

# ---- priority: of two campaigns on one core, the later but higher one is through first
start --cores 1
low=$(submit low model 1 6 1 "")
high=$(submit high model 1 6 1 ', "priority": 5')
ok "both end" wait_for 120 over
has "the priority is shown" "$(call "/v1/campaigns/$high")" '"priority":5'
is "after the higher one began, the lower one got nothing until its end" "$(sql "SELECT count(*) FROM attempt WHERE campaign = '$low'
    AND started > (SELECT min(started) FROM attempt WHERE campaign = '$high') AND started < (SELECT max(ended) - 50 FROM attempt WHERE campaign = '$high')")" 0
is "a priority out of bounds: refused" "$(submit bad model 1 1 1 ', "priority": 101'; grep -o '"pointer":"[^"]*"' answer)" '"pointer":"/priority"'
is "changed later" "$(call "/v1/campaigns/$low" -X PATCH -d '{"priority": -3}' | grep -o '"priority":-3')" '"priority":-3'

# ---- share: trials four times as long get a quarter of the turns
long=$(submit long long-model 1 8 1 "")
short=$(submit short model 1 24 1 "")
ok "both end" wait_for 180 over
sql "SELECT '# ' || name, trials, round(device_s, 1) FROM campaign WHERE id IN ('$long', '$short')"
# While both had trials to run, their device-seconds differ by about one long trial at most.
is "both got about the same time while both ran" "$(sql "WITH both(t) AS (SELECT min(m) FROM (SELECT max(ended) AS m FROM attempt WHERE campaign IN ('$long', '$short') GROUP BY campaign)),
    used AS (SELECT campaign, sum((min(ended, t) - started) / 1000.0) AS s FROM attempt, both WHERE campaign IN ('$long', '$short') AND started < t GROUP BY campaign)
    SELECT CASE WHEN max(s) - min(s) < 2 * (SELECT max(ended - started) / 1000.0 FROM attempt WHERE campaign = '$long') THEN 'even' ELSE group_concat(s) END FROM used")" even
stop

# ---- room: two cores, narrow trials without end, and one that needs both
start --cores 2
narrow=$(submit narrow endless-model 1 400 2 "")
running() { [ "$(sql "SELECT count(*) FROM attempt WHERE campaign = '$narrow' AND state <> 'ended'")" -ge 2 ]; }
ok "narrow trials run" wait_for 60 running
wide=$(submit wide model 2 1 1 "")
ended() { [ "$(sql "SELECT state FROM campaign WHERE id = '$wide'")" = done ]; }
ok "a wide one gets its turn" wait_for 90 ended
is "before the narrow ones are done" "$(sql "SELECT state FROM campaign WHERE id = '$narrow'")" running
stop
is "the daemon exits cleanly" $? 0
finish
