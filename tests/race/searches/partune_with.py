"""partune-search with other settings: partune_with.py PROGRAM '{"prior": "none"}' ...

The object is put over the campaign's "search"."""
import json
import os
import subprocess
import sys

program, settings, *_, path = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    campaign = json.load(file)
campaign["search"].update(json.loads(settings))
other = path + "." + str(os.getpid())
with open(other, "w", encoding="utf-8") as file:
    json.dump(campaign, file)
try:
    sys.exit(subprocess.run([program, *sys.argv[3:-1], other], check=False).returncode)
finally:
    os.remove(other)
