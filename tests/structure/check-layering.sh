#!/bin/sh
# The arrows between folders: who may include whom, and only the public header and tables of rows (.def) from outside.
# The table is that of docs/ARCHITECTURE.md.
cd "${PT_SRC:?}" || exit 99

allowed() {
    case $1 in
    base)    echo "" ;;
    plan)    echo "base" ;;
    kernels) echo "base" ;;
    search)  echo "base plan" ;;
    db)      echo "base" ;;
    web)     echo "base" ;;
    trainer) echo "base plan kernels" ;;
    tuner)   echo "base plan search db web" ;;
    esac
}

folders="base plan kernels search db web trainer tuner"
echo "1..$(echo $folders | wc -w)"
n=0
for folder in $folders; do
    n=$((n + 1))
    bad="" may=$(allowed "$folder")
    for line in $(grep -rnHoE --include='*.c' --include='*.h' '^#[[:space:]]*include[[:space:]]*"[^"]+"' "$folder" |
                  sed -E 's/^([^:]+):([0-9]+):.*"([^"]+)"/\1:\2:\3/'); do
        target=${line##*:}
        from=${line%:*}
        case $target in
        */*) owner=${target%%/*} ;;
        *)   continue ;; # config.h and generated files next to the source
        esac
        [ "$owner" = "$folder" ] && continue
        case " $may " in
        *" $owner "*)
            [ "$target" = "$owner/$owner.h" ] || [ "$owner" = base ] || [ "${target%.def}" != "$target" ] || bad="$bad
#   $from includes $target: from outside, include $owner/$owner.h"
            ;;
        *)
            bad="$bad
#   $from includes $target: $folder/ may use only: $may"
            ;;
        esac
    done
    if [ -z "$bad" ]; then
        echo "ok $n - $folder/ includes only what it may"
    else
        echo "not ok $n - $folder/ includes only what it may$bad"
    fi
done
