#!/bin/sh
# The client without a daemon: usage, wrong input, files, exit codes. What it says to a daemon is tested with the daemon.
partune=${PT_BUILD:?}/partune
dir=$PT_BUILD/tests/run/client.$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
export XDG_CONFIG_HOME="$dir/none" PARTUNE_SERVER=http://127.0.0.1:9 PARTUNE_DATA="$dir/data" NO_COLOR=1
n=0

expect() { # name, exit code, pattern, command...
    n=$((n + 1))
    name=$1 code=$2 pattern=$3
    shift 3
    out=$("$@" 2>&1 </dev/null)
    got=$?
    if [ "$got" = "$code" ] && grep -q -- "$pattern" <<END
$out
END
    then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        printf '%s\n' "exit $got, wanted $code; output:" "$out" | sed 's/^/#   /'
    fi
}

verbs=$("$partune" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')
echo "1..$((72 + $(echo "$verbs" | wc -l)))"
expect "no argument is wrong usage"                2 "usage: partune" "$partune"
expect "--help prints help"                              0 "submit FILE" "$partune" --help
expect "no line of help is wider than 100 columns"       0 "" sh -c '{ "$0" --help | grep -v "^exit status"; "$0" verify --help; } | awk "length > 100 { exit 1 }"' "$partune"
expect "a command's help says what it does"              0 "^Re-run winner and baseline" "$partune" verify --help
expect "an unknown command offers the nearest"        2 "did you mean .submit" "$partune" submti x
expect "an unknown option offers the nearest"         2 "did you mean .state" "$partune" ls --sate=ok
expect "an option of another command is refused"   2 "unknown option" "$partune" ls --pairs 3
expect "a missing operand shows the usage"         2 "usage: partune show" "$partune" show
expect "an extra operand is named"             2 "too many: .extra" "$partune" ls extra
expect "a file that cannot be created is named"       6 "create $dir/none/x.json:" "$partune" new "$dir/none/x.json"
expect "a bound is named"                          2 "2..50" "$partune" verify x --pairs 51
expect "no daemon: exit 3 with a fix"       3 "start one with .partuned" "$partune" ls
expect "a missing file is named"                   6 "no.json" "$partune" submit "$dir/no.json"
printf '{"model": "tiny-moe",' >"$dir/bad.json"
expect "broken JSON says where"                    6 "line 1" "$partune" submit "$dir/bad.json"
expect "new writes a campaign"                     0 "wrote" "$partune" new "$dir/c.json"
expect "new does not overwrite"                    6 "exists" "$partune" new "$dir/c.json"
expect "a commented campaign is read"              3 "no daemon" "$partune" submit "$dir/c.json"
expect "a wrong configuration file names the line" 2 "config:2" env XDG_CONFIG_HOME="$dir" \
    sh -c 'mkdir -p "$0/partune"; printf "[client]\nsevrer = x\n" >"$0/partune/config"; exec "$1" ls' "$dir" "$partune"
expect "options may come before the command"      3 "127.0.0.1:7" "$partune" --server http://127.0.0.1:7 ls

# Completion and manual hold whatever the program knows.
completion=$("$partune" completion bash)
manual=$("$partune" manual | sed 's/\\-/-/g; s/\\f[BIR]//g')
expect "the completion is a script"                0 "" bash -n -c "$completion"
complete() { # words...: what the last one may become
    bash -c 'eval "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _partune; echo "<${COMPREPLY[*]}>"' - "$completion" "$@"
}
expect "commands are completed"                    0 "^<pareto>$" complete "$partune" pare
expect "after options, too"                        0 "^<show>$" complete "$partune" --server http://x:1 --json sho
expect "the value of an option is completed"       0 "^<stdout stderr events>$" complete "$partune" log x 1 --stream ""
expect "an operand with few values is completed"        0 "^<clusters>$" complete "$partune" presets c
expect "a file name is completed"                              0 "c.json>$" complete "$partune" check "$dir/c"
expect "new writes to standard output"             0 "^  // The model" "$partune" new -
expect "with trainer and launcher"  0 '^  "trainer": "partune",$' "$partune" new -
expect "the launcher can be chosen"           0 '"launcher": {"kind": "simulated"}' "$partune" new - --launcher simulated
expect "the model can be chosen"                                 0 '"model": "mixtral-8x7b"' "$partune" new - --model mixtral-8x7b
expect "also by its repository"                     0 '"model": "Qwen/Qwen3-8B"' "$partune" new - --model Qwen/Qwen3-8B
mkdir "$dir/hf"
shape='"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 512'
echo "{$shape, \"use_cache\": true}" >"$dir/hf/config.json"
expect "or by a folder of Hugging Face"             0 '"model": "/.*/hf"' "$partune" new - --model "$dir/hf"
echo '{"name": "x", "model": "hf", "workload": {"global_batch": 8}}' >"$dir/hf.json"
expect "a campaign may name one next to it"        3 "no daemon" "$partune" submit "$dir/hf.json"
expect "a path that is none is named"              6 "none/config.json does not exist" "$partune" check "$dir/hf.json" --model ./none/config.json
echo "{$shape, \"residual_multiplier\": 0.22}" >"$dir/hf/config.json"
expect "a key without a word is refused by name"  6 "residual_multiplier of model_type llama" "$partune" submit "$dir/hf.json"
echo "[]" >"$dir/hf/config.json"
expect "a file that is no model is refused"        6 "config.json: not an object" "$partune" submit "$dir/hf.json"
expect "the cluster and its nodes can be chosen"               0 '"cluster": {"profile": "dgx-h100", "nodes": 12}' "$partune" new - --cluster dgx-h100 --nodes 12
cat >"$dir/a100.json" <<'EOF'
// Of the second hall.
{"profile": "dgx-a100", "nodes": 3}
EOF
expect "or be a file's"  0 '"cluster": {"profile": "dgx-a100", "nodes": 3}' "$partune" new - --cluster "$dir/a100.json"
expect "whose devices the batch is for"                0 '"global_batch": 528' "$partune" new - --model llama-8b --cluster "$dir/a100.json"
expect "which has its own nodes"                       2 'a100.json has its own' "$partune" new - --cluster "$dir/a100.json" --nodes 2
expect "a missing file of a cluster is named"          2 'cluster: .*none.json' "$partune" new - --cluster "$dir/none.json"
mkdir "$dir/gh200"
expect "a directory is no cluster's file"              2 'unknown cluster profile "gh200"' sh -c 'cd "$0" && exec "$1" new - --cluster gh200' "$dir" "$partune"
echo '{"profile": "dgx-a100", "nodes": -3}' >"$dir/bad-cluster"
expect "a wrong field of a cluster's file is named"    2 'bad-cluster: /nodes: ' sh -c 'cd "$0" && exec "$1" new - --cluster bad-cluster' "$dir" "$partune"
echo '{"parts": [{"profile": "dgx-h100", "nodes": 2}, {"profile": "dgx-a100", "nodes": 4}]}' >"$dir/mixed.json"
expect "a campaign has no cluster of parts"            2 'mixed.json: /parts: .*plans only' "$partune" new - --cluster "$dir/mixed.json"
expect "which a plan takes"                            3 'no daemon' "$partune" plan --model llama-8b --cluster "$dir/mixed.json"
echo '{"parts": [{"profile": "dgx-h100", "nodes": 2}, {"profile": "dgx-a100", "node": 4}]}' >"$dir/mixed.json"
expect "but for a wrong field of a part"               2 'mixed.json: /parts/1/node: ' "$partune" plan --model llama-8b --cluster "$dir/mixed.json"
between() { # name, pattern, the link between the parts
    echo '{"parts": [{"profile": "dgx-h100", "nodes": 2}, {"profile": "dgx-a100", "nodes": 4}], "between": '"$3"'}' >"$dir/mixed.json"
    expect "$1" 2 "mixed.json: $2" "$partune" plan --model llama-8b --cluster "$dir/mixed.json"
}
between "a link between parts is explained"            '/between: .*found a number; between is the link .*"gbs": 10^9 bytes' 25
between "also without its rate"                        '/between/gbs: "gbs" is missing; .*each way per device' '{}'
between "out of bounds"                                '/between/gbs: "gbs" is 0, outside .*each way per device' '{"gbs": 0}'
between "or with a key that it does not have"          '/between/span: "span" is unknown (gbs, share, .*latency_us, kind); between is' '{"gbs": 25, "span": 8}'
echo '{"profile": "dgx-h100", "between": {"gbs": 25}}' >"$dir/mixed.json"
expect "which only parts have"                         2 'mixed.json: /between: .*"parts", which is missing' "$partune" plan --model llama-8b --cluster "$dir/mixed.json"
echo '["dgx-h100", "dgx-a100"]' >"$dir/mixed.json"
expect "a list of clusters says what to do instead"    2 'mixed.json: .*name one cluster; .*partune compare' "$partune" plan --model llama-8b --cluster "$dir/mixed.json"
echo '{"profile": "dgx-h100", "nodes": [2, 4]}' >"$dir/mixed.json"
expect "so does a list of nodes"                       2 'mixed.json: /nodes: .*space.world.*partune size' "$partune" plan --model llama-8b --cluster "$dir/mixed.json"
for hint in 'then partune compare ID ID' '{"parts": \[CLUSTER, CLUSTER\]' '"world": \[8, 16\]' '"fidelity": "auto"' 'from a list, such as \[64, 128\]'; do
    expect "a new file tells of $hint" 0 "$hint" "$partune" new -
done
expect "another cluster gets a GPU trainer"             0 '"trainer": "megatron"' "$partune" new - --cluster dgx-h100
expect "the trainer can be chosen, also one of the site"         0 '"trainer": "our-own"' "$partune" new - --trainer our-own
expect "an unknown model offers the nearest"          2 'did you mean "llama-8b"' "$partune" new - --model lama-8b
expect "an unknown device offers no other device"  2 'unknown cluster profile "gh200"; describe the machine' "$partune" new - --cluster gh200
expect "a device name offers its machine"  2 'did you mean "dgx-h100"' "$partune" new - --cluster h100
expect "an unknown launcher lists the known ones"     2 'unknown launcher "k8s" (local, ' "$partune" new - --launcher k8s
expect "--nodes is refused for this machine"                 2 'needs --cluster' "$partune" new - --nodes 4
expect "an invalid address is not reported as an absent daemon" 3 "http://HOST:PORT" "$partune" --server ftp://x ls
expect "a wrong priority names its bounds"         2 "from -100 to 100" "$partune" edit x --priority 1000
cat >"$dir/rows.json" <<'EOF'
{"model": "llama-8b", "cluster": {"profile": "dgx-h100", "nodes": 4}, "workload": {"global_batch": 256}, "trainer": "megatron",
 "rows": [{"layout": {"world": 32, "tp": 2, "micro_batch": 1, "zero": 1}, "seconds": 8.1, "memory_gib": 55},
          {"layout": {"world": 32, "tp": 4, "micro_batch": 2, "zero": 1}, "seconds": 9.3},
          {"layout": {"world": 32, "tp": 1, "micro_batch": 2, "zero": 1}, "oom": true}]}
EOF
expect "a stack is learned from rows"                   0 "learned, leave-one-out" "$partune" calibrate-stack "$dir/rows.json"
expect "a learned stack is a stack"                     0 '"deviation"' sh -c '"$0" calibrate-stack "$1" --output "$2" && cat "$2"' "$partune" "$dir/rows.json" "$dir/stack.json"
sed 's/"seconds": 9.3/"secs": 9.3/' "$dir/rows.json" >"$dir/odd.json"
expect "a bad row is named by pointer"                  1 "/rows/1/secs" "$partune" calibrate-stack "$dir/odd.json"
sed 's/"megatron"/"partune"/' "$dir/rows.json" >"$dir/own.json"
expect "the bundled trainer has no stack to learn"      1 "/trainer" "$partune" calibrate-stack "$dir/own.json"
expect "bundled stacks are listed"                      0 "nanotron" "$partune" presets stacks
expect "there are many commands"                   0 "" test "$(echo "$verbs" | wc -l)" -gt 30
for verb in $verbs; do
    n=$((n + 1))
    missing=
    words=$(printf '%s\n' "$completion" | sed -n "s/^ *$verb) words='\(.*\)' ;;/\1 /p")
    about=$(printf '%s\n' "$manual" | sed -n "/^\.B $verb /,/^\.TP/p")
    [ -n "$words" ] && [ -n "$about" ] || missing=" itself"
    for option in $("$partune" "$verb" --help | sed -n 's/^ *\(-., \)\{0,1\}--\([a-z-]*\).*/\2/p'); do
        case " $words" in *" --$option "*) ;; *) missing="$missing --$option (completion)" ;; esac
        case $manual in *"--$option"*) ;; *) missing="$missing --$option (manual)" ;; esac
    done
    if [ -z "$missing" ]; then
        echo "ok $n - $verb and its options are in the completion and the manual"
    else
        echo "not ok $n - $verb and its options are in the completion and the manual:$missing"
    fi
done
