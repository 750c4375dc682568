"""zsh_line.py SCRIPT LINE: what an interactive zsh makes of LINE and a tab, with the completion of SCRIPT."""
import os
import pty
import re
import select
import shlex
import sys
import time

script, line = sys.argv[1:]
# The line goes to a file by a widget, so that nothing is read off the screen.
setup = f"""PROMPT=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; source {shlex.quote(script)}
setopt no_auto_menu no_list_beep; keep() {{ print -r -- $BUFFER >line.zsh }}; zle -N keep; bindkey '^X^K' keep; print READY$((1+1))
"""
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "dumb"
    os.execvp("zsh", ["zsh", "-f", "-i"])


def read_until(done, seconds=20):
    seen, end = b"", time.time() + seconds
    while not done(seen) and time.time() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 4096)
            except OSError:
                break
    return seen


if os.path.exists("line.zsh"):
    os.remove("line.zsh")
os.write(fd, setup.encode())
read_until(lambda seen: b"READY2" in seen)
os.write(fd, line.encode() + b"\t")
read_until(lambda seen: False, 2)
os.write(fd, b"\x18\x0b")
read_until(lambda seen: os.path.exists("line.zsh") and os.path.getsize("line.zsh") > 0)
os.close(fd)
with open("line.zsh") as file:
    print(re.sub(r"[ =]*$", "", file.read().strip()))
