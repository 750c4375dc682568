#!/bin/sh
# make race: our search with and without the cost model, random, grid, and Optuna's samplers where Python has Optuna, on random
# landscapes, computed tables and tables measured on real machines. Arguments go to the program `race`: options, NAME=COMMAND, tables.
set -eu
searches=$PT_SRC/tests/race/searches
export PYTHONDONTWRITEBYTECODE=1
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
python="/usr/bin/python3"
partune=$(quoted "$PT_BUILD/partune-search")
set -- "$@" \
    "partune=$partune" \
    "partune-no-prior=$python $(quoted "$searches/partune_with.py") $partune '{\"prior\": \"none\", \"memory_prior\": \"none\"}'" \
    "random=$python $(quoted "$searches/random_order.py")" \
    "grid=$python $(quoted "$searches/grid.py")"
if $python -c 'import optuna' 2>/dev/null; then
    set -- "$@" "optuna-tpe=$python $(quoted "$searches/optuna_sampler.py") tpe" "optuna-nsga2=$python $(quoted "$searches/optuna_sampler.py") nsga2"
else
    echo "race: Python has no Optuna: its samplers do not take part (Debian: python3-optuna)" >&2
fi
for table in "$PT_SRC"/tests/data/landscapes/*.json "$PT_SRC"/tests/data/landscapes/measured/*.json "$PT_SRC"/tests/data/sweeps/*-2.json; do
    [ ! -f "$table" ] || set -- "$@" "$table"
done
exec "$PT_BUILD/tests/race/race" "$@"
