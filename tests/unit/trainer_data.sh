#!/bin/sh
# partune-data as people run it: names, exit codes, one clear line for each refusal.
data="${PT_BUILD:?}/tests/run/data dir.$$"
tool="$PT_BUILD/partune-data"
mkdir -p "$data/in" || exit 99
trap 'rm -rf "$data"' EXIT
n=0

check() { # name, expected exit, expected text, command...
    name=$1 code=$2 text=$3
    shift 3
    n=$((n + 1))
    out=$("$@" 2>&1)
    got=$?
    if [ $got = "$code" ] && echo "$out" | grep -qF -e "$text"; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        echo "#   exit $got, not $code: $out"
    fi
}

printf 'some text that is long enough to be a sample of sixteen' > "$data/in/a b.txt"
printf '\001\000\002\000\003\000' > "$data/ids"

echo 1..44
check "text becomes a data set" 0 "56 tokens to train on" \
    "$tool" prepare --name books --data "$data" --validation 0 "$data/in"
check "an existing name is refused" 2 "--force" \
    "$tool" prepare --name books --data "$data" --validation 0 "$data/in"
check "and replaced with --force" 0 "56 tokens" \
    "$tool" prepare --name books --data "$data" --validation 0 --force "$data/in"
check "a data set is verified" 0 "books: whole" "$tool" verify --data "$data" books
check "it is listed" 0 "books" "$tool" ls --data "$data"
check "synthetic is listed" 0 "synthetic" "$tool" ls --data "$data"
check "the name synthetic is reserved" 2 "synthetic" "$tool" prepare --name synthetic --data "$data" "$data/in"
check "a name is not a path" 2 "--name" "$tool" prepare --name ../x --data "$data" "$data/in"
check "ids are taken as they are" 0 "3 tokens" \
    "$tool" prepare --name ids --data "$data" --validation 0 --ids u16 --vocab 4 "$data/ids"
check "an id over the vocabulary has its offset" 68 "id 3 at byte 4" \
    "$tool" prepare --name ids2 --data "$data" --ids u16 --vocab 3 "$data/ids"
check "ids need a vocabulary" 2 "--vocab" "$tool" prepare --name ids3 --data "$data" --ids u16 "$data/ids"
check "a missing file is named" 70 "nowhere.txt" "$tool" prepare --name x --data "$data" "$data/nowhere.txt"
check "no files is an error" 2 "no files" "$tool" prepare --name x --data "$data"
check "an unknown option offers the nearest" 2 "did you mean" "$tool" prepare --nmae x
check "an unknown command is refused" 2 "prepaer" "$tool" prepaer
# JSON lines: the text alone, a document a line, and an error by file and line.
ids() { od -An -v -tu1 "$data/datasets/$1/train.bin" | tr -s ' \n' ' '; }
spelt() { printf '%b' "$1" | od -An -v -tu1 | tr -s ' \n' ' '; }
lines() { # name, expected exit, expected text, what the file holds, options...
    name=$1 code=$2 text=$3
    printf '%b' "$4" >"$data/c.jsonl"
    shift 4
    check "$name" "$code" "$text" "$tool" prepare --name lines --data "$data" --validation 0 --force "$@" "$data/c.jsonl"
}
same() { [ "$(ids lines)" = "$(spelt "$1")" ] || { ids lines; spelt "$1"; return 1; }; }
lines "JSON lines are read for their text" 0 "10 tokens to train on, 0 to validate, from 1 files (0 skipped as not text), 2 documents" \
    '{"id": 7, "text": "ab\\u00e9\\n", "meta": {"text": "no"}}\n\n{"text":"xyz"}'
check "and each line is a document" 0 "" same 'ab\0303\0251\n\000xyz\000'
lines "a NUL in a text does not end a document" 0 "4 tokens" '{"text": "a\\u0000bc"}\r\n'
lines "another key is reported" 0 "3 tokens" '{"content": "ab"}' --json-key content
lines "a missing key is named by line" 68 'c.jsonl: line 2 has no key "text"' '{"text": "a"}\n{"content": "b"}\n'
lines "a line that is not JSON is named" 68 "c.jsonl: line 3 is not JSON" '{"text": "a"}\n\n{"text": "b"\n'
lines "a line that is not an object is named" 68 "c.jsonl: line 1 is not a JSON object" '["text"]\n'
lines "a text that is not a string is named" 68 'line 1: "text" is not a string' '{"text": 5}\n'
lines "a broken character is named" 68 "line 1 is not JSON" '{"text": "\0377"}\n'
check "the previous data set stays" 0 "lines: whole" "$tool" verify --data "$data" lines
printf '{"text": "ab"}\n{"text": "cd"}\n' | gzip >"$data/d.jsonl.gz"
check "packed lines are read, and an end is kept" 0 "3 tokens" \
    "$tool" prepare --name lines --data "$data" --validation 0 --force --max-bytes 10 "$data/d.jsonl.gz"
printf '{"text": "ab"}\n' >"$data/e.json"
check "a .json file is text, and that is reported" 0 "1 .json files were taken as text with their syntax" \
    "$tool" prepare --name lines --data "$data" --validation 0 --force "$data/e.json"
check "unless --json-key is given" 0 "3 tokens" \
    "$tool" prepare --name lines --data "$data" --validation 0 --force --json-key text "$data/e.json"
cp "$data/e.json" "$data/F.JSONL"
check "the case of a name does not matter" 0 "3 tokens" \
    "$tool" prepare --name lines --data "$data" --validation 0 --force "$data/F.JSONL"
check "--ids excludes --json-key" 2 "--json-key" "$tool" prepare --name x --data "$data" --ids u16 --vocab 4 --json-key text "$data/ids"

printf 'X' | dd of="$data/datasets/books/train.bin" bs=1 seek=5 conv=notrunc 2>/dev/null
check "damage is found" 68 "train.bin is damaged" "$tool" verify --data "$data" books

remade() { "$tool" prepare --name books --data "$data" --validation 0 --force "$data/in" >/dev/null 2>&1; }
for file in train.bin train.sum validation.sum; do
    remade
    printf 'X' >>"$data/datasets/books/$file"
    check "extra bytes are found: $file" 68 "$file is" "$tool" verify --data "$data" books
done
remade
truncate -s -1 "$data/datasets/books/train.bin"
check "a truncated file is found" 68 "train.bin is truncated" "$tool" verify --data "$data" books
remade
rm "$data/datasets/books/train.sum"
check "a missing file is found" 70 "train.sum" "$tool" verify --data "$data" books
remade
check "a bad one before a good one is an error" 70 "books: whole" "$tool" verify --data "$data" nowhere books
check "a whole one is reported as whole" 0 "books: whole" "$tool" verify --data "$data" books

# Killed in the middle: under the name is what was there, or nothing; the next one clears up, but not behind one that still works.
truncate -s 200M "$data/zeros" # takes a while to read, and no room
begin() { # NAME: $pid has begun to make it, and stands still
    "$tool" prepare --name "$1" --data "$data" --force --ids u16 --vocab 4 "$data/zeros" >/dev/null 2>&1 &
    pid=$!
    tries=2000
    until [ -s "$data/datasets/.$1.unfinished.$pid/train.bin" ] || [ $tries = 0 ]; do
        sleep 0.005
        tries=$((tries - 1))
    done
    kill -STOP $pid
}
left() { find "$data/datasets" -name '.*.unfinished.*' | wc -l; }
begin books
kill -9 $pid
wait $pid 2>/dev/null
check "a killed run left files" 0 "1" left
check "the previous data set is whole" 0 "books: whole" "$tool" verify --data "$data" books
killed=$pid
begin other
check "the next run removes them" 1 "" test -e "$data/datasets/.books.unfinished.$killed"
remade
check "but not those of a running one" 0 "" test -e "$data/datasets/.other.unfinished.$pid/meta.json" -o \
    -e "$data/datasets/.other.unfinished.$pid/train.bin"
check "which is not listed" 70 "other" "$tool" verify --data "$data" other
kill -9 $pid
wait $pid 2>/dev/null
remade
check "until it is killed" 0 "0" left
