#!/bin/sh
# What is written about a campaign: results as CSV and JSON lines, a report, a pinned layout that is run again.
. "${PT_SRC:?}/tests/api/tap.sh"
. "$PT_SRC/tests/api/start.sh"
cd "$run" || exit 99
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP python3 is not installed"; exit 0; }
partune=$PT_BUILD/partune
start
client

exits() { # code, command...: does it leave with that code?
    want=$1
    shift
    "$@" >out 2>err.text </dev/null
    got=$?
    [ "$got" = "$want" ] || { echo "exit $got, wanted $want"; cat out err.text; return 1; }
}
cat >c.json <<'JSON'
{"name": "=<b>\"sim\" & co", "model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 16},
 "trainer": "megatron", "launcher": {"kind": "simulated", "speed": 100000}, "budget": {"trials": 12},
 "search": {"method": "random", "seed": 3}, "space": {"micro_batch": [1, 2, 4, 8], "pp": [1, 2], "recompute": ["none", "full"]}}
JSON
ok "a campaign" exits 0 "$partune" submit --watch c.json
id=$(sed -n 's/^campaign \([^ ]*\) (.*/\1/p' out)

# ---- results ----------------------------------------------------------------
"$partune" results "$id" --format jsonl >rows.jsonl
"$partune" results "$id" >rows.csv
call "/v1/campaigns/$id/trials?page_size=1000&sort=n" >trials.json
cat >compare.py <<'PY'
import csv, json, sys
trials = json.load(open("trials.json"))["items"]
lines = [json.loads(line) for line in open("rows.jsonl")]
assert lines == trials, "JSON lines are not the trials"
text = open("rows.csv", newline="").read()
assert text.endswith("\r\n") and text.count("\r\n") == len(trials) + 1, repr(text[-40:])
rows = list(csv.DictReader(open("rows.csv", newline="")))
assert len(rows) == len(trials)
number = lambda cell: float(cell) if cell else None
near = lambda cell, value: number(cell) == value or abs(float(cell) / value - 1) < 1e-14
for row, trial in zip(rows, trials):
    assert None not in row and None not in row.values(), row
    assert int(row["n"]) == trial["n"] and row["state"] == trial["state"] and row["text"] == trial["text"]
    assert row["simulated"] == "true" and row["created"] == trial["created"]
    assert near(row["tokens_per_s"], trial["tokens_per_s"]) and near(row["mfu"], trial["mfu"]), row
    assert near(row["step_ms_p90"], trial["step_ms"]["p90"]) and near(row["predicted_tokens_per_s"], trial["predicted"]["tokens_per_s"])
    planned = (trial["memory"]["planned"] or {}).get("total")
    assert near(row["memory_planned_bytes"], planned) and row["memory_measured_bytes"] == ""
    for key, value in trial["layout"].items():
        assert row[key] == str(value), (key, row[key], value)
PY
ok "CSV and JSON lines have what the API has" python3 compare.py
is "CSV says what it is" "$($C -o /dev/null -w '%{content_type}' -H "$A" "$url/v1/campaigns/$id/results.csv")" "text/csv; charset=utf-8; header=present"
has "and what to call it" "$($C -D - -o /dev/null -H "$A" "$url/v1/campaigns/$id/results.jsonl")" "filename=\"$id.jsonl\""
is "an unknown campaign has no results" "$(code /v1/campaigns/zzzzzzzz/results.csv)" 404
is "nobody reads them without a token" "$(status "$url/v1/campaigns/$id/results.csv")" 401
ok "another format is wrong usage" exits 2 "$partune" results "$id" --format xml
ok "--json wraps the text" sh -c '"$0" --json results last | python3 -c "import json,sys; assert json.load(sys.stdin)[\"text\"] == open(\"rows.csv\", newline=\"\").read()"' "$partune"
ok "it goes into a file" exits 0 "$partune" results "$id" -o file.csv
is "which is the same" "$(cksum <file.csv)" "$(cksum <rows.csv)"
# A detail that a spreadsheet would run, with a quote, a comma and a line, in one of 2,500 trials.
sql "UPDATE trial SET failure = json_object('class', 'crash', 'detail', '=cmd|\"x\", y' || char(10) || 'z') WHERE campaign = '$id' AND n = 2"
sql "WITH RECURSIVE c(i) AS (SELECT 13 UNION ALL SELECT i + 1 FROM c WHERE i < 2500)
     INSERT INTO trial (campaign, n, kind, state, attempts, layout, layout_text, created, rev)
     SELECT '$id', i, 'search', 'queued', 0, '{}', 'x', 0, 1 FROM c" 2>sql.err || cat sql.err
"$partune" results "$id" >rows.csv
is "a cell that begins a formula is defused, the rest is quoted" "$(python3 -c 'import csv
rows = list(csv.DictReader(open("rows.csv", newline="")))
print(len(rows), [int(r["n"]) for r in rows] == list(range(1, 2501)), rows[1]["failure_detail"].encode())')" \
    "2500 True b'\\'=cmd|\"x\", y\\nz'"
sql "DELETE FROM trial WHERE campaign = '$id' AND n > 12"
sql "UPDATE trial SET failure = NULL WHERE campaign = '$id' AND n = 2"

# ---- a report ---------------------------------------------------------------
"$partune" report "$id" -o report.html >said
has "a report is written" "$(cat said)" "wrote report.html"
cat >look.py <<'PY'
import html.parser, json, sys
class Look(html.parser.HTMLParser):
    open, tags, text, titles = [], [], "", 0
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("src", "href"), (tag, name)
        if tag not in ("meta", "circle", "line", "path", "rect", "br"): self.open.append(tag)
    def handle_startendtag(self, tag, attrs): self.tags.append(tag)
    def handle_endtag(self, tag):
        if tag in self.open:
            last = self.open.pop()
            assert last == tag, (last, tag)
    def handle_data(self, data): self.text += data
text = open("report.html", encoding="utf-8").read()
look = Look()
look.feed(text)
trials = json.load(open("trials.json"))["items"]
assert not look.open, look.open
assert "script" not in look.tags and "link" not in look.tags and "b\"sim" not in text
assert '=<b>"sim" & co' in look.text, "the name, escaped"
assert look.tags.count("svg") >= 3 and look.tags.count("circle") >= 2 * len(trials), look.tags.count("circle")
assert "Simulated: no training job ran." in look.text and "(simulated)" in look.text
for trial in trials: assert trial["text"] in look.text, trial["text"]
assert "http" not in text.replace("http-equiv", ""), "nothing is fetched"
PY
ok "it is one well-formed file with charts, without scripts and links" python3 look.py
"$partune" submit c.json >out 2>&1
"$partune" cancel last >out 2>&1
ok "a campaign without a result has one, too" sh -c '"$0" report last | grep -q "</html>"' "$partune"

# ---- exports with reasons -----------------------------------------------------
"$partune" --json exporters | python3 -c 'import json,sys
for x in json.load(sys.stdin)["items"]: print(x["name"])' >targets
written=0
while read -r target; do
    for wrap in "" slurm+; do
        "$partune" export "$id" --to "$wrap$target" --allow-simulated --allow-loss >plain.txt 2>err.text || continue
        "$partune" export "$id" --to "$wrap$target" --allow-simulated --allow-loss --explain >why.txt
        written=$((written + 1))
        sed '/[0-9]T[0-9][0-9]:[0-9]/d; s/ *$//' plain.txt >a
        sed 's/ * <- .*//; /[0-9]T[0-9][0-9]:[0-9]/d; s/ *$//' why.txt >b
        is "$wrap$target: the lines are those of the file" "$(cksum <b)" "$(cksum <a)"
        is "and each has a reason" "$(grep -v '^ *$' why.txt | grep -cv ' <- .')" 0
    done
done <targets
[ "$written" -ge 4 ]
is "several targets write this layout" "$?" 0
"$partune" export "$id" --to megatron --allow-simulated --allow-loss --explain >why.txt
for pair in tensor-model-parallel-size:tp pipeline-model-parallel-size:pp micro-batch-size:micro_batch \
    global-batch-size:'workload: global_batch' num-layers:'model: layers' seq-length:'workload: seq' bf16:precision; do
    has "--${pair%%:*} is there for ${pair#*:}" "$(grep -- "^--${pair%%:*} " why.txt)" "<- ${pair#*:} "
done
if ! "$partune" --json best "$id" | grep -q '"ratio": 1.0,'; then
    has "the baseline's value is named where it differs" "$(cat why.txt)" "\(baseline [^)]*\): "
fi
"$partune" export "$id" --to slurm+megatron --allow-simulated --allow-loss --explain --output job.sh >why.txt
ok "a file that is written has no reasons in it" sh -c 'grep -q torchrun job.sh && ! grep -q " <- " job.sh'
has "they are printed" "$(cat why.txt)" "^--tensor-model-parallel-size .* <- tp "
is "a directive of Slurm is no comment" "$(grep '^#SBATCH --nodes' why.txt | grep -c 'provenance')" 0

# ---- a pinned layout --------------------------------------------------------
ok "verify --pin writes the winner" exits 0 "$partune" verify "$id" --pin pin.json --pairs 4 --steps 10
cp out pinned
has "with its interval" "$(cat pin.json)" '"lo": [0-9.]+'
has "and says what it found" "$(cat pinned)" "^verify +simulated ([a-z ]+: winner / baseline = [0-9.]+, 95 % interval .* over 4 pairs|the winner is the baseline: nothing to compare)"
has "and says where" "$(cat pinned)" "wrote pin.json"
ok "the same job holds" exits 0 "$partune" verify --against pin.json --pairs 3 --steps 10
has "which is said" "$(cat out)" "^verdict +(holds|faster): [01]\\.[0-9]+ x the pinned rate"
is "a campaign with one layout did it" "$("$partune" --json show last | python3 -c 'import json,sys; c = json.load(sys.stdin); print(c["space"]["legal"], c["progress"]["trials"] >= 1)')" "1 True"
has "whose winner is its baseline" "$("$partune" show last)" "^verify +simulated the winner is the baseline"
# The same, pinned as if the machine had been half as fast again.
python3 - <<'PY'
import json
pin = json.load(open("pin.json"))
for key in ("lo", "tokens_per_s", "hi"): pin[key] *= 1.5
json.dump(pin, open("fast.json", "w"))
del pin["layout"]["micro_batch"], pin["lo"]
json.dump(pin, open("odd.json", "w"))
PY
ok "a rate below the interval is exit 10" exits 10 "$partune" verify --against fast.json --pairs 2 --steps 10
has "which is said, too" "$(cat out)" "^verdict +slower"
ok "--json has the runs" sh -c '"$0" --json verify --against pin.json --pairs 2 --steps 10 >v.json; python3 -c "import json; v = json.load(open(\"v.json\")); assert len(v[\"runs\"]) == 2 and v[\"simulated\"] and v[\"pinned\"][\"lo\"] > 0, v"' "$partune"
ok "a file that is no pin is refused" exits 1 "$partune" verify --against odd.json
has "by its key" "$(cat err.text)" "/lo"
ok "so is a campaign" exits 1 "$partune" verify --against c.json
ok "a missing file is named" exits 6 "$partune" verify --against none.json
ok "an id and a pin are wrong usage" exits 2 "$partune" verify "$id" --against pin.json
ok "so is neither" exits 2 "$partune" verify
finish
