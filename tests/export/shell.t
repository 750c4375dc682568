#!/bin/sh
# Job scripts as the importer reads them, and as bash runs them: programs that only write down what they are given stand in
# for the launchers, and the arguments that reach pretrain_gpt.py are imported, too. Both must be one layout.
dir=${PT_BUILD:?}/tests/run/shell.$$
command -v bash >/dev/null || { echo "1..0 # SKIP there is no bash"; exit 0; }
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin"
# What it starts begins at the first word that is a program itself.
cat >"$dir/bin/stand-in" <<'END'
#!/bin/bash
case ${0##*/} in
    python | python3 | torchrun) ;;
    *) while [ $# -gt 0 ]; do
           case $1 in bash | sh | python | python3 | torchrun | numactl) exec "$@" ;; esac
           shift
       done
       exit 0 ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
        -c) exit 0 ;;
        */pretrain_gpt.py | pretrain_gpt.py)
            shift
            printf '%q\n' "$@" >>"$STARTED"
            exit 0 ;;
    esac
    shift
done
END
chmod +x "$dir/bin/stand-in"
for name in python python3 torchrun srun numactl; do ln -s stand-in "$dir/bin/$name"; done
import() { "$PT_BUILD/tests/export/import" megatron llama-8b 32 "$@" 2>&1; }
n=0
failed=0
for script in "${PT_SRC:?}"/tests/data/import/*.sh; do
    n=$((n + 1))
    rm -f "$dir/started"
    mkdir -p "$dir/run"
    cp "$script" "$dir/run"
    call=$(sed -n 's/^# Called as: //p' "$script")
    (cd "$dir/run" && env -i PATH="$dir/bin:/usr/bin:/bin" HOME="$dir/run" STARTED="$dir/started" \
        sh -c "${call:-bash ${script##*/}}" >"$dir/log" 2>&1 </dev/null)
    want=$(import "$dir/started")
    got=$(import "$script" ${call:+"$call"})
    if [ -s "$dir/started" ] && [ "$got" = "$want" ] && [ "${got#tp}" != "$got" ]; then
        echo "ok $n - ${script##*/}: $got"
    else
        echo "not ok $n - ${script##*/}"
        printf 'the script %s\nbash       %s\n' "$got" "$want" | sed 's/^/# /'
        failed=1
    fi
done
n=$((n + 1))
drawn=$(PATH="$dir/bin:$PATH" PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$PT_SRC/tests/export/conditions.py" "$PT_BUILD/tests/export/import" "$dir" 1 300)
# shellcheck disable=SC2046
set -- $(echo "$drawn" | tail -n 1) # read, refused, wrong, decided
if [ "$#" = 4 ] && [ "$3" = 0 ] && [ "$4" -gt 100 ] && [ "$1" -ge "$4" ]; then
    echo "ok $n - of 300 drawn scripts $1 are read as bash runs them, and $2 refused; all $4 that decide each of their conditions are read"
else
    echo "not ok $n - drawn scripts"
    echo "$drawn" | sed 's/^/# /' | head -n 40
    failed=1
fi
echo "1..$n"
exit $failed
