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

links() { # a line for each link and picture of the pages outside of code: page, tab, target, tab, the file that it names
    # shellcheck disable=SC2086
    awk '
        function plain(path) { # without . and ..
            while (sub(/(^|\/)[^\/.][^\/]*\/\.\.(\/|$)/, "/", path) || sub(/\/\.(\/|$)/, "/", path) || sub(/^\.?\//, "", path)) {}
            return path
        }
        FNR == 1 { code = 0; folder = FILENAME; if (!sub(/[^\/]*$/, "", folder)) folder = "" }
        /^ *```/ { code = !code; next }
        !code {
            gsub(/`[^`]*`/, "")
            while (match($0, /\]\([^) ]+\)/)) {
                target = substr($0, RSTART + 2, RLENGTH - 3)
                $0 = substr($0, RSTART + RLENGTH)
                path = target; sub(/#.*/, "", path)
                print FILENAME "\t" target "\t" (path == "" ? FILENAME : plain(folder path))
            }
        }' $pages
}

without() { # page, tab, target, tab, file: those whose target has an anchor that the file lacks
    awk -F '\t' '
        function read_anchors(file,    line, code, slug) { # every name that a link into it may have
            seen[file] = 1
            while ((getline line <file) > 0) {
                if (line ~ /^ *```/) { code = !code; continue }
                if (code) continue
                if (line ~ /^#+ /) {
                    slug = tolower(line); sub(/^#+ +/, "", slug); gsub(/\]\([^)]*\)/, "", slug)
                    gsub(/[^a-z0-9 _-]/, "", slug); gsub(/ /, "-", slug); anchors[file, slug] = 1
                }
                while (match(line, /<a id="[^"]*"/)) {
                    anchors[file, substr(line, RSTART + 7, RLENGTH - 8)] = 1
                    line = substr(line, RSTART + RLENGTH)
                }
            }
            close(file)
        }
        $2 ~ /#./ {
            if (!($3 in seen)) read_anchors($3)
            anchor = $2; sub(/^[^#]*#/, "", anchor)
            if (!(($3, anchor) in anchors)) print $1 ": " $2 ": no such heading"
        }'
}

broken() {
    while IFS='	' read -r page target file; do
        case $target in
        *://* | mailto:*) ;;
        *) if [ -e "$file" ]; then printf '%s\t%s\t%s\n' "$page" "$target" "$file"; else echo "$page: $target: no such file" >&3; fi ;;
        esac
    done <"$linked" 3>&1 >"$linked.there"
    without <"$linked.there"
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
    # shellcheck disable=SC2086
    printf '%s\n' $pages docs/screenshots/* | awk -F '\t' '
        NR == FNR { if ($2 !~ /:\/\/|^#/) known[$3] = 1; next }
        $0 != "README.md" && !($0 in known)' "$linked" -
}

left_out() { # pages and pictures that no makefile lists
    listed=$(cat docs/Makemodule.am)
    find docs -name '*.md' -o -name '*.svg' | sort | while read -r file; do
        case $listed in *"%D%/${file#docs/}"*) ;; *) echo "$file" ;; esac
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
    python3 -c '
import sys, xml.dom.minidom as dom
for name in sys.argv[1:]:
    try:
        dom.parse(name)
    except Exception:
        print(f"{name}: no XML")' docs/pictures/*.svg
    for part in '<title' 'prefers-color-scheme: dark'; do
        grep -LF "$part" docs/pictures/*.svg | sed "s/\$/: no $part/"
    done
}

linked=$(mktemp) || exit 99
trap 'rm -f "$linked" "$linked.there"' EXIT
links >"$linked"
echo "1..7"
say "every relative link and anchor of the documents exists" "$(broken)"
say "every document named in the sources exists" "$(named)"
say "every path in backticks exists" "$(quoted)"
say "every page is linked from another, every screenshot from a page" "$(apart)"
say "every page is installed" "$(left_out)"
say "every table row has as many cells as its header" "$(ragged)"
say "every picture is SVG with a title, for light and dark" "$(drawn)"
