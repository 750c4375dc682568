#!/bin/sh
# The reference pages name what the tables of the code hold: layout keys and rules, keys of a campaign, a model and a cluster,
# keys of the daemon's configuration. A name counts where it is in a code span of the page, whole or after a dot.
cd "${PT_SRC:?}" || exit 99
export LC_ALL=C
n=0
spans=$(mktemp) || exit 99
trap 'rm -f "$spans"' EXIT

named() { # what, page, names
    n=$((n + 1))
    absent=$(
        grep -o '`[^`]*`' "docs/reference/$2" | tr -c 'a-z0-9_\n-' '\n' >"$spans"
        printf '%s\n' $3 | grep -vxF -f "$spans"
    )
    if [ -n "$3" ] && [ -z "$absent" ]; then
        echo "ok $n - reference/$2 names every $1"
    else
        echo "not ok $n - reference/$2 names every $1"
        echo "${absent:-nothing was read from the code}" | sed 's/^/#   /'
    fi
}

words() { # file, what a declaration holds: the strings of the arrays that are declared so
    want=$2 awk '
        $0 ~ ENVIRON["want"] { on = 1 }
        on {
            line = $0
            while (match(line, /"[a-z0-9_-]+"/)) {
                print substr(line, RSTART + 1, RLENGTH - 2)
                line = substr(line, RSTART + RLENGTH)
            }
        }
        on && /};/ { on = 0 }' "$1" | sort -u
}

echo "1..8"
named "layout key" layout.md "$(sed -n 's/^KEY([A-Z0-9_]*, \([a-z0-9_]*\),.*/\1/p' plan/keys.def)"
named "rule" layout.md "$(sed -n 's/^RULE("\([a-z-]*\)", .*/\1/p' plan/rules.def)"
named "key of a campaign" campaign.md "$(words search/spec.c '(campaign|constraint|budget|search)_keys[[][]] = ')"
named "limit of a trial" campaign.md "$(words plan/limits.c 'const keys[[][]] = ')"
named "key of a model" campaign.md "$(words plan/model.c 'const plain[[][]] = '
                                    sed -n 's/^ *{PL_OF_[A-Z]*, "\([a-z_]*\)",.*/\1/p' plan/model_words.c)"
named "key of a cluster" campaign.md "$(words plan/cluster.c 'const (object_keys|keys|peaks|kinds)[[][]] = ' | grep -vx stamp)"
named "key of a section" configuration.md \
    "$(words "$(grep -rl 'struct conf_key slurm' tuner)" 'struct conf_key (http|dataset|trainer|slurm|webhook)[[][]] = ')"
named "load-balancing loss" trainer.md "$(words plan/model.c 'pl_aux_loss_names[[][]] = ')"
