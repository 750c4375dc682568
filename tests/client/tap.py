"""TAP lines of a test program in Python: ok() for each, finish() at the end."""
import sys

count = failed = 0


def ok(name, good, seen=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}")
    if not good:
        print(f"#   {str(seen)[:900]}")


def finish():
    print(f"1..{count}")
    sys.exit(failed > 0)
