#!/bin/sh
# What is installed with the programs: a manual page for each, with exactly the options that --help knows, documents that
# pages and unit name, and an example configuration that the daemon understands.
. "${PT_SRC:?}/tests/api/tap.sh"
cd "$run" || exit 99

pages="$PT_BUILD/docs"
programs=$(sed -n 's/^bin_PROGRAMS += *//p' "$PT_SRC"/*/Makemodule.am)
[ -x "$PT_BUILD/partune-train" ] || programs=$(echo "$programs" | grep -v '^partune-train$')
has "there are programs" "$(echo "$programs" | wc -l)" '^[5-9]'

listed() { sed -n 's/^  *\(-., \)\{0,1\}--\([a-z0-9-]*\).*/\2/p' | sort -u; } # of a --help
described() { # of a page: what stands behind .TP in OPTIONS
    sed -n '/^\.SH OPTIONS/,/^\.SH [^O]/p' "$1" | sed 's/\\-/-/g; s/\\f[BIR]//g' | sed -n 's/^\.B \(-., \)\{0,1\}--\([a-z0-9-]*\).*/\2/p' | sort -u
}
help_of() {
    if [ "$1" = partune ]; then # its options belong to commands
        for verb in $(./partune --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'); do ./partune "$verb" --help; done
        ./partune --help
    else
        "./$1" --help
    fi
}
cd "$PT_BUILD" || exit 99
for program in $programs; do
    page=$(ls "$pages/$program".[18])
    help_of "$program" >"$run/help" 2>&1
    is "$program: the page has the options of --help, and no others" "$(described "$page")" "$(listed <"$run/help")"
    has "$program: it has options" "$(listed <"$run/help" | wc -l)" '^[3-9]|^[1-9][0-9]'
    has "$program: NAME has a summary" "$(sed -n '/^\.SH NAME/{n;p;}' "$page" | sed 's/\\-/-/g')" "^$program - .{20}"
    for section in SYNOPSIS DESCRIPTION 'EXIT STATUS' 'SEE ALSO'; do
        has "$program: $section" "$(cat "$page")" "^\\.SH $section\$"
    done
    if command -v groff >/dev/null; then
        is "$program: groff has no complaints" "$(groff -man -Tutf8 -ww -z "$page" 2>&1)" ""
    fi
    is "$program: --version" "$("./$program" --version | sed 's/ [0-9].*//')" "$program"
done
for page in "$pages"/*.[18]; do # "partune-run (8)" of one page is another page
    for other in $(sed -n '/^\.SH SEE ALSO/,$p' "$page" | sed -n 's/^\.BR \([a-z\\-]*\) (\([18]\)).*/\1.\2/p' | tr -d '\\'); do
        ok "$(basename "$page") points at $other" test -e "$pages/$other"
    done
    for document in $(grep -o '[A-Za-z/\\-]*\.md' "$page" | tr -d '\\' | sort -u); do
        ok "$(basename "$page") points at $document" test -e "$PT_SRC/docs/$document"
    done
done

cd "$run" || exit 99
example="$PT_SRC/docs/examples/partuned.conf"
understood() { "$PT_BUILD/partuned" --config "$1" check-config; }
ok "the example configuration is accepted" understood "$example"
sed 's/^#\([a-z\[]\)/\1/' "$example" >all
printf 'a secret of more than 16 bytes\n' >secret
sed "s|^secret-file = .*|secret-file = $run/secret|" all >all.conf
ok "also with every line uncommented" understood all.conf
is "with every section of it" "$(grep -c '^\[' all.conf)" "$(($(grep -c '^\[' "$example") + $(grep -c '^#\[' "$example")))"
[ "$(grep -c '^#\[' "$example")" -gt 0 ]
is "of which some are commented out" $? 0
ok "nothing was created" test ! -e "$run/data"
refused() { # pattern: of line 2, in a file of standard input
    cat >wrong.conf
    "$PT_BUILD/partuned" --config wrong.conf check-config >said 2>&1
    echo "$? $(cat said)"
}
has "an unknown section" "$(printf '[partuned]\n[trianer "x"]\ncommand = x\n' | refused)" '^2 .*wrong.conf:3: a configuration has no section trianer; did you mean trainer'
has "a section with a point in its name" "$(printf '[trainer.x]\ncommand = x\n' | refused)" '^2 .*wrong.conf:2: write \[trainer.x\] as \[trainer "x"\]'
has "an unknown key" "$(printf '[http]\nallow-hosts = x\n' | refused)" '^2 .*wrong.conf:2: \[http\] has no key allow-hosts; did you mean allow-host'
has "a prefix that is not a path" "$(printf '[http]\nallow-host = x\nprefix = partune/\n' | refused)" '^2 .*wrong.conf:3: prefix "partune/" must be a path like /partune'
has "an unknown option" "$(printf '[partuned]\nretian = 3\n' | refused)" '^2 .*wrong.conf:2: .*retain'
has "a trainer without a command" "$(printf '[trainer "x"]\nparser = jsonl\n' | refused)" '^2 .*wrong.conf:2: \[trainer "x"\] has no command'
has "an unknown parser" "$(printf '[trainer "x"]\nparser = json\ncommand = x\n' | refused)" '^2 .*wrong.conf:2: parser is megatron or'
has "an invalid env" "$(printf '[trainer "x"]\ncommand = x\nenv = A\n' | refused)" '^2 .*wrong.conf:3: env must be KEY=VALUE'
has "a section without a name" "$(printf '[trainer]\ncommand = x\n' | refused)" '^2 .*needs a name'
has "a section with an unexpected name" "$(printf '[http "x"]\nprefix = /x\n' | refused)" '^2 .*has no name'
has "a key that a cluster's section cannot have" "$(printf '[slurm "x"]\nmode = jobs\n' | refused)" '^2 .*wrong.conf:2: .*has no key mode'
has "a number that it cannot be" "$(printf '[slurm "x"]\nnodes = 0\n' | refused)" '^2 .*wrong.conf:2: nodes must be a number'
has "an invalid number" "$(printf '[slurm]\npoll = soon\n' | refused)" '^2 .*wrong.conf:2: poll must be a number'
has "check-config refuses what a start refuses" "$("$PT_BUILD/partuned" --data data --listen 127.0.0.1:0 --config wrong.conf 2>&1; echo $?)" 'poll must be a number'
has "a missing file" "$(env -u PARTUNE_CONFIG "$PT_BUILD/partuned" check-config 2>&1; echo "$?")" '--config FILE'
finish
