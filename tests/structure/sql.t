#!/usr/bin/env python3
"""The database works with SQLite 3.26 and later (configure.ac). This machine's is newer, so the text of db/ is read: none of
its SQL, and none of the functions of SQLite that programs call, is in the list below of what came later (SQLite's release
notes). Reading is not running: with the library of another version, LD_LIBRARY_PATH=DIR runs tests/unit/db_* with it."""
import os
import re
import sys

top = os.environ.get("PT_SRC", ".")
# What came after 3.26, the version that brought it, a pattern of it, and an example that must be noticed.
LATER = [
    ("VACUUM INTO", "3.27", r"\bVACUUM\s+INTO\b", "VACUUM INTO ?"),
    ("frames by GROUPS, EXCLUDE", "3.28", r"\bGROUPS\s+(?:BETWEEN|UNBOUNDED|CURRENT|\?|\d)|\bEXCLUDE\s+(?:NO|CURRENT|GROUP|TIES)\b",
     "OVER (ORDER BY a GROUPS 2 PRECEDING)"),
    ("a window that extends another", "3.28", r"\bOVER\s*\(\s*(?!PARTITION|ORDER|ROWS|RANGE|\))[a-z_]\w*",
     "sum(x) OVER (newest ROWS 2 PRECEDING)"),
    ("NULLS FIRST, LAST", "3.30", r"\bNULLS\s+(?:FIRST|LAST)\b", "ORDER BY a NULLS LAST"),
    ("FILTER", "3.30 for aggregates that are no window", r"\)\s*FILTER\s*\(", "count(*) FILTER (WHERE a)"),
    ("generated columns", "3.31", r"\bGENERATED\s+ALWAYS\b|\bAS\s*\([^()]*\)\s*(?:STORED|VIRTUAL)\b", "b AS (a + 1) STORED"),
    ("iif()", "3.32", r"\bIIF\s*\(", "SELECT iif(a, b, c)"),
    ("UPDATE FROM", "3.33", r"\bUPDATE\b(?:(?!\bSELECT\b|\bWHERE\b|;).)*\bSET\b(?:[^();]|\([^()]*\))*?\bFROM\b",
     "UPDATE a SET x = b.y FROM b"),
    ("sqlite_schema", "3.33", r"\bsqlite_(?:temp_)?schema\b", "SELECT sql FROM sqlite_schema"),
    ("integrity_check of one table", "3.33", r"\b(?:integrity|quick)_check\s*\(\s*[a-z]", "PRAGMA quick_check(trial)"),
    ("substring()", "3.34", r"\bSUBSTRING\s*\(", "substring(a, 1, 2)"),
    ("RETURNING", "3.35", r"\bRETURNING\b", "DELETE FROM a RETURNING b"),
    ("DROP COLUMN", "3.35", r"\bDROP\s+COLUMN\b", "ALTER TABLE a DROP COLUMN b"),
    ("ON CONFLICT DO UPDATE without columns", "3.35", r"\bON\s+CONFLICT\s+DO\s+UPDATE\b", "ON CONFLICT DO UPDATE SET n = 1"),
    ("several ON CONFLICT", "3.35", r"\bON\s+CONFLICT\b[^;]*\bON\s+CONFLICT\b",
     "ON CONFLICT (a) DO NOTHING ON CONFLICT (b) DO NOTHING"),
    ("MATERIALIZED", "3.35", r"\bMATERIALIZED\b", "WITH a AS MATERIALIZED (SELECT 1)"),
    ("functions of mathematics", "3.35",
     r"\b(?:ceil|ceiling|floor|trunc|exp|ln|log|log2|log10|pow|power|sqrt|mod|pi|sin|cos|tan|sign)\s*\(", "ORDER BY sqrt(a)"),
    ("STRICT", "3.37", r"\)\s*(?:WITHOUT\s+ROWID\s*,\s*)?STRICT\b", "CREATE TABLE a (b) STRICT"),
    ("-> and ->>", "3.38", r"->", "SELECT a ->> '$.b'"),
    ("unixepoch(), format()", "3.38", r"\b(?:unixepoch|format)\s*\(", "unixepoch('now')"),
    ("RIGHT and FULL JOIN", "3.39", r"\b(?:RIGHT|FULL)\s+(?:OUTER\s+)?JOIN\b", "a FULL JOIN b"),
    ("IS DISTINCT FROM", "3.39", r"\bDISTINCT\s+FROM\b", "a IS NOT DISTINCT FROM b"),
    ("unhex(), timediff(), octet_length()", "3.41 to 3.43", r"\b(?:unhex|timediff|octet_length)\s*\(", "unhex(a)"),
    ("string_agg(), concat()", "3.44", r"\b(?:string_agg|concat|concat_ws)\s*\(", "string_agg(a, ',')"),
    ("jsonb", "3.45", r"\bjsonb\w*\s*\(", "jsonb(a)"),
    ("JSON functions", "3.42 to 3.47", r"\bjson_(?:error_position|pretty)\s*\(", "json_pretty(a)"),
]
# Functions of the library, by the version that brought them.
CALLS = {
    "3.28": "value_frombind stmt_isexplain", "3.30": "drop_modules",
    "3.31": "uri_key filename_database filename_journal filename_wal hard_heap_limit64", "3.32": "database_file_object create_filename free_filename",
    "3.34": "txn_state", "3.36": "total_changes64 changes64", "3.37": "autovacuum_pages changes64", "3.38": "error_offset vtab_in vtab_rhs_value",
    "3.39": "db_name", "3.41": "is_interrupted stmt_explain", "3.44": "get_clientdata set_clientdata", "3.50": "setlk_timeout",
}
PATTERNS = [(what, version, re.compile(pattern, re.I | re.S), example) for what, version, pattern, example in LATER]
number, failed = 0, False


def ok(what, good, *remarks):
    global number, failed
    number += 1
    failed = failed or not good
    print("ok" if good else "not ok", number, "-", what)
    if not good:
        for remark in remarks:
            print("#", remark)


def texts(source):
    """The string literals of C; neighbors are one, as the compiler has them."""
    source = re.sub(r"/\*.*?\*/", " ", source, flags=re.S)
    for run in re.findall(r"\"(?:\\.|[^\"\\\n])*\"(?:\s*\"(?:\\.|[^\"\\\n])*\")*", source):
        yield "".join(re.findall(r"\"((?:\\.|[^\"\\\n])*)\"", run))


def later(sql):
    return ["%s is of SQLite %s" % (what, version) for what, version, pattern, _ in PATTERNS if pattern.search(sql)]


missed = [what for what, _, pattern, example in PATTERNS if not pattern.search(example)]
ok("each feature is noticed in its example", not missed, *missed)

found, seen, calls = [], 0, set()
for folder in ("db", "tuner", "web"):
    for path, _, names in os.walk(os.path.join(top, folder)):
        for name in sorted(n for n in names if n.endswith((".c", ".h", ".def"))):
            source = open(os.path.join(path, name), encoding="utf-8").read()
            calls |= set(re.findall(r"\bsqlite3_(\w+)\s*\(", source))
            if folder != "db":
                continue
            for text in texts(source):
                seen += bool(re.search(r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA)\b", text))
                found += ["%s: %s: %.70s" % (name, why, text) for why in later(text)]
ok("db/ has SQL: %d texts" % seen, seen > 60)
ok("none of it is newer than SQLite 3.26", not found, *found)

newer = ["sqlite3_%s is of SQLite %s" % (call, version) for version, names in CALLS.items() for call in names.split() if call in calls]
ok("nor is a function of the library: %d are called" % len(calls), len(calls) > 20 and not newer, *newer)

least = re.search(r"sqlite3 >= ([\d.]+)", open(os.path.join(top, "configure.ac")).read()).group(1)
ok("configure asks for that version", least == "3.26", least)
for path, pattern in (("packaging/rpm/partune.spec.in", r"pkgconfig\(sqlite3\) >= ([\d.]+)"), ("packaging/spack/package.py.in", r"sqlite@([\d.]+):")):
    said = re.search(pattern, open(os.path.join(top, path)).read())
    ok("%s too" % path, said and said.group(1) == least, said and said.group(1))
print("1..%d" % number)
sys.exit(failed)
