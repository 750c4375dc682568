#!/bin/sh
# embed.sh SRCDIR FILE...: write the C tables of plan/preset.h from presets/{models,clusters}/*.json and examples/*.json.
# A file's name without .json is the preset's name.
set -e
src=$1; shift

table() # kind FILE...
{
    kind=$1; shift
    echo "const struct pl_preset pl_${kind}_preset_table[] = {"
    for f; do
        name=${f##*/}
        printf '    {"%s",\n' "${name%.json}"
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/     "&\\n"/' "$src/$f"
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

models=; clusters=; examples=
for f; do
    case $f in
    *models/*) models="$models $f" ;;
    *examples/*) examples="$examples $f" ;;
    *) clusters="$clusters $f" ;;
    esac
done
echo '/* Made by embed.sh from presets/: do not edit. */'
echo '#include "plan/preset.h"'
table model $models
table cluster $clusters
table example $examples
