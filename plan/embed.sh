#!/bin/sh
# embed.sh SRCDIR: write the C tables of plan/preset.h from presets/{models,clusters,stacks}/*.json and examples/*.json, in the order
# of their names. A file's name without .json is the preset's name.
set -e
cd "$1/plan"
export LC_ALL=C # order

table() # kind FILE...
{
    kind=$1; shift
    echo "const struct pl_preset pl_${kind}_preset_table[] = {"
    for f; do
        name=${f##*/}
        printf '    {"%s",\n' "${name%.json}"
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/     "&\\n"/' "$f"
        echo '    },'
    done
    echo '    {0, 0}};'
    echo "const char *const pl_${kind}_preset_names[] = {"
    for f; do
        name=${f##*/}
        printf '    "%s",\n' "${name%.json}"
    done
    echo '    0};'
}

echo '/* Made by embed.sh from presets/: do not edit. */'
echo '#include "plan/preset.h"'
table model presets/models/*.json
table cluster presets/clusters/*.json
table stack presets/stacks/*.json
table example examples/*.json
