#!/bin/sh
# Completion in the shells themselves: bash's functions, zsh at a pseudo-terminal, fish's `complete -C`.
. "${PT_SRC:?}/tests/api/tap.sh"
cd "$run" || exit 99
export XDG_CONFIG_HOME="$run/none" PARTUNE_SERVER=http://127.0.0.1:9 PARTUNE_DATA="$run/data" HOME="$run" PATH="$PT_BUILD:$PATH"
partune=$PT_BUILD/partune
touch campaign.json

for shell in bash zsh fish; do
    "$partune" completion $shell >script.$shell
    is "--json wraps the script for $shell" \
        "$("$partune" --json completion $shell | python3 -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["text"])' | cksum)" "$(cksum <script.$shell)"
done
"$partune" completion tcsh 2>said
is "another shell is wrong usage" "$?" 2
has "and the known ones are named" "$(cat said)" "bash, zsh or fish"

# Every command and every option that takes words, in each script.
"$partune" --json manual >manual.json
python3 - <<'PY' >words
import json
manual = json.load(open("manual.json"))
for command in manual["commands"]:
    print(command["name"])
for option in manual["options"]:
    print(option["name"])
PY
for shell in bash zsh fish; do
    is "$shell: every command and option is in it" "$(script=$(cat script.$shell); while read -r word; do case $script in *"$word"*) ;; *) echo "$word" ;; esac; done <words)" ""
done

bash_words() { # words of a line, the last to be completed
    bash -c '. ./script.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _partune; printf "%s\n" "${COMPREPLY[@]}"' - "$@" | sort | xargs
}
is "bash: a command" "$(bash_words partune pare)" pareto
is "bash: values of an option" "$(bash_words partune results x --format "")" "csv jsonl"
is "bash: a file" "$(bash_words partune check camp)" campaign.json
is "bash: an option of the command" "$(bash_words partune wait --tim)" "--timeout"

if command -v fish >/dev/null; then
    fish_words() { fish --no-config -c 'source script.fish; complete -C "$argv[1]"' "$1" | cut -f1 | sort | xargs; }
    is "fish: a command" "$(fish_words 'partune pare')" pareto
    is "fish: values of an option" "$(fish_words 'partune results x --format ')" "csv jsonl"
    is "fish: an operand with few values" "$(fish_words 'partune presets c')" clusters
    is "fish: a file" "$(fish_words 'partune check camp')" campaign.json
    is "fish: no file where an id is due" "$(fish_words 'partune show camp')" ""
    is "fish: an option of the command" "$(fish_words 'partune wait --tim')" "--timeout"
    is "fish: none of another command" "$(fish_words 'partune ls --timeo')" ""
else
    ok "fish # SKIP fish is not installed" true
fi

if command -v zsh >/dev/null; then
    ok "zsh: the script is one" zsh -n script.zsh
    zsh_line() { python3 "$PT_SRC/tests/client/zsh_line.py" "$run/script.zsh" "$1"; }
    is "zsh: a command" "$(zsh_line 'partune pare')" "partune pareto"
    is "zsh: a value of an option" "$(zsh_line 'partune results x --format c')" "partune results x --format csv"
    is "zsh: an operand with few values" "$(zsh_line 'partune presets c')" "partune presets clusters"
    is "zsh: a file" "$(zsh_line 'partune check camp')" "partune check campaign.json"
    is "zsh: an option of the command" "$(zsh_line 'partune wait --tim')" "partune wait --timeout"
else
    ok "zsh # SKIP zsh is not installed" true
fi
finish
