#!/bin/sh
# The documents point at what is there: relative links with their anchors, pages and sources named in code, comments and help,
# paths in backticks; every page is installed, and every page is linked from another one; rows of tables fit
# their heads; pictures are SVG.
# An anchor is a heading as GitHub spells it (lower case, punctuation out, blanks to hyphens) or an <a id="...">.
src=${PT_SRC:?}
cd "$src" || exit 99
export LC_ALL=C
. "$PT_SRC/tests/structure/say.sh"

pages="README.md CHANGELOG.md $(find docs -name '*.md' | sort)"
folders='base|plan|kernels|search|db|web|trainer|tuner|tests|docs'
sources=$(find base plan kernels search db web trainer tuner tests docs \( -name node_modules -o -name vendor \) -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.inc' -o -name '*.sh' -o -name '*.t' -o -name '*.js' -o -name '*.mjs' -o -name '*.html' \
    -o -name '*.json' -o -name '*.in' -o -name '*.conf' -o -name '*.am' -o -name '*.bars' \) -print | sort)

links() { # page: targets of its links and pictures, outside of code
    awk '/^ *```/ { code = !code; next }
        !code {
            gsub(/`[^`]*`/, "")
            while (match($0, /\]\([^) ]+\)/)) {
                print substr($0, RSTART + 2, RLENGTH - 3)
                $0 = substr($0, RSTART + RLENGTH)
            }
        }' "$1"
}

anchors() { # page: every name that a link into it may have
    awk '/^ *```/ { code = !code; next }
        code { next }
        /^#+ / {
            slug = tolower($0); sub(/^#+ +/, "", slug); gsub(/\]\([^)]*\)/, "", slug)
            gsub(/[^a-z0-9 _-]/, "", slug); gsub(/ /, "-", slug); print slug
        }
        {
            while (match($0, /<a id="[^"]*"/)) {
                print substr($0, RSTART + 7, RLENGTH - 8)
                $0 = substr($0, RSTART + RLENGTH)
            }
        }' "$1"
}

broken() {
    for page in $pages; do
        links "$page" | while read -r target; do
            case $target in *://* | mailto:*) continue ;; esac
            path=${target%%#*} anchor=
            case $target in *#*) anchor=${target#*#} ;; esac
            file=$page
            [ -z "$path" ] || file=$(dirname "$page")/$path
            if [ ! -e "$file" ]; then
                echo "$page: $target: no such file"
            elif [ -n "$anchor" ] && ! anchors "$file" | grep -qxF -- "$anchor"; then
                echo "$page: $target: no such heading"
            fi
        done
    done
}

named() { # what code, comments and help say of the documents
    # shellcheck disable=SC2086
    grep -onE '\bdocs/[A-Za-z0-9_/-]+\.(md|svg|json|conf)' $sources quickstart | while IFS=: read -r file line path; do
        [ -e "$path" ] || echo "$file:$line: $path"
    done
}

quoted() { # paths of the tree in backticks, up to a wildcard
    # shellcheck disable=SC2086
    grep -onE "\`($folders)/[A-Za-z0-9_./-]+\`" $pages | tr -d '`' | while IFS=: read -r page line path; do
        case $path in web/ui/vendor* | web/ui/npm*) continue ;; esac
        [ -e "$path" ] || [ -e "$path.c" ] || echo "$page:$line: $path"
    done
}

apart() { # pages and screenshots that nothing links to
    for page in $pages; do
        for target in $(links "$page"); do
            case $target in *://* | '#'*) continue ;; esac
            realpath -m --relative-to=. "$(dirname "$page")/${target%%#*}"
        done
    done | sort -u >"$linked"
    for page in $pages docs/screenshots/*; do
        [ "$page" = README.md ] || grep -qxF "$page" "$linked" || echo "$page"
    done
}

left_out() { # pages and pictures that no makefile lists
    find docs -name '*.md' -o -name '*.svg' | sort | while read -r file; do
        grep -qF "%D%/${file#docs/}" docs/Makemodule.am || echo "$file"
    done
}

ragged() { # rows of a table with more or fewer cells than its head; outer bars are optional
    # shellcheck disable=SC2086
    awk '
        function cells(row) {
            gsub(/\\\|/, "", row); sub(/^ *\|/, "", row); sub(/\| *$/, "", row)
            return gsub(/\|/, "", row) + 1
        }
        FNR == 1 { code = 0; inside = 0 }
        /^ *```/ { code = !code }
        code { inside = 0; next }
        /^[-:| ]*-[-:| ]*\|[-:| ]*$/ { inside = cells($0); if (cells(before) != inside) print FILENAME ":" FNR - 1 ": " before }
        inside && /^ *$/ { inside = 0 }
        inside && cells($0) != inside { print FILENAME ":" FNR ": " $0 }
        !inside {
            row = $0; gsub(/`[^`]*`/, "", row)
            if (row ~ / \| |^\| / && row !~ /^    /) { at = FILENAME ":" FNR; alone[at] = $0 }
        }
        inside && (FILENAME ":" FNR - 1) in alone { delete alone[FILENAME ":" FNR - 1] }
        { before = $0 }
        END { for (at in alone) print at ": no head: " alone[at] }' $pages
}

drawn() { # pictures: XML, with a title for who cannot see them and colors for a dark page
    for file in docs/pictures/*.svg; do
        python3 -c 'import sys, xml.dom.minidom as dom; dom.parse(sys.argv[1])' "$file" 2>/dev/null || echo "$file: no XML"
        for part in '<title' 'prefers-color-scheme: dark'; do
            grep -qF "$part" "$file" || echo "$file: no $part"
        done
    done
}

linked=$(mktemp) || exit 99
trap 'rm -f "$linked"' EXIT
echo "1..7"
say "every relative link and anchor of the documents exists" "$(broken)"
say "every document named in the sources exists" "$(named)"
say "every path in backticks exists" "$(quoted)"
say "every page is linked from another, every screenshot from a page" "$(apart)"
say "every page is installed" "$(left_out)"
say "every table row has as many cells as its header" "$(ragged)"
say "every picture is SVG with a title, for light and dark" "$(drawn)"
