#!/usr/bin/env python3
"""A parameter is named by its role. Counts the parameters of one letter in all prototypes, definitions and function
pointers of the product: loop indices (i j k n) and a formula's own symbols, which may stay, are counted with the rest."""
import os
import re
import sys

BAR = 8.0  # percent of all named parameters
FOLDERS = ("base", "db", "plan", "search", "kernels", "trainer", "tuner", "web")
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\.\.\.|->|.")
QUALIFIERS = {"const", "volatile", "restrict", "struct", "union", "enum", "static", "register"}
NO_TYPE = {"return", "else", "do", "sizeof", "typeof", "__typeof__", "__attribute__", "_Static_assert"}


def tokens(text):
    """Tokens without comments, literals and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
                  lambda m: " " if m.group(0)[0] == "/" else "0", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    return TOKEN.findall(re.sub(r"\s+", " ", text).replace(" ", "\n"))


def closing(tok, i):
    """Index of the bracket that closes the one at I."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth, left, right = 0, tok[i], pairs[tok[i]]
    while i < len(tok):
        depth += (tok[i] == left) - (tok[i] == right)
        if depth == 0:
            return i
        i += 1
    return len(tok) - 1


def is_word(token):
    return re.match(r"[A-Za-z_]", token) is not None


def name_of(param):
    """The name in one parameter's tokens; None: it has none."""
    for i in range(len(param) - 2):
        if param[i] == "(" and param[i + 1] == "*" and is_word(param[i + 2]):
            return param[i + 2]
    while param and param[-1] == "]":
        param = param[:len(param) - 1 - param[::-1].index("[")]
    if len(param) < 2 or not is_word(param[-1]) or param[-1] in QUALIFIERS:
        return None
    return param[-1] if any(t not in QUALIFIERS for t in param[:-1]) else None


def parameters(tok, start, end):
    """Names of the list between brackets, those of function pointers in it included."""
    part, i, depth = [], start, 0
    for i in range(start, end + 1):
        if i == end or (tok[i] == "," and depth == 0):
            name = name_of(part)
            if name:
                yield name
            part = []
            continue
        depth += (tok[i] in "([") - (tok[i] in ")]")
        part.append(tok[i])
    yield from pointers(tok, start, end)


def pointers(tok, start, end):
    """Parameters of the function pointers that are declared between START and END."""
    i = start
    while i < end:
        if tok[i] == "(" and tok[i + 1] == "*":
            shut = closing(tok, i)
            if shut + 1 < len(tok) and tok[shut + 1] == "(":
                yield from parameters(tok, shut + 2, closing(tok, shut + 1))
                i = closing(tok, shut + 1)
        i += 1


def names(tok):
    i, start = 0, 0
    while i < len(tok):
        if tok[i] == "(" and i > start:
            shut = closing(tok, i)
            if tok[i + 1] == "*" and shut + 1 < len(tok) and tok[shut + 1] == "(":  # a variable or member
                end = closing(tok, shut + 1)
                yield from parameters(tok, shut + 2, end)
                i = end
            elif is_word(tok[i - 1]) and tok[i - 1] not in NO_TYPE and i - 1 > start and \
                    (tok[i - 2] == "*" or is_word(tok[i - 2])) and tok[i - 2] not in NO_TYPE:
                yield from parameters(tok, i + 1, shut)
                i = shut
            else:
                i = shut
        elif tok[i] == "{" and i > 0 and tok[i - 1] == ")":
            i = closing(tok, i)  # the body of a function
            start = i + 1
        elif tok[i] == "=":
            while i < len(tok) and tok[i] not in ";,":
                i = closing(tok, i) if tok[i] in "({[" else i
                i += 1
            continue
        elif tok[i] in "{};":
            start = i + 1
        i += 1


def main():
    os.chdir(os.environ["PT_SRC"])
    files = []
    for folder in FOLDERS:
        for at, below, found in os.walk(folder):
            below[:] = [d for d in below if d not in ("vendor", "node_modules")]
            files += [os.path.join(at, f) for f in found if f.endswith((".c", ".h", ".inc"))]
    total, short, formula, worst = 0, 0, 0, {}
    for f in sorted(files):
        with open(f, encoding="utf-8") as c:
            found = list(names(tokens(c.read())))
        one = [n for n in found if len(n) == 1]
        total += len(found)
        short += len(one)
        if one:
            worst[f] = one
        if f.startswith(("kernels/", "search/", "plan/cost")):
            formula += len(one)
        else:
            formula += sum(n in "ijkn" for n in one)
    share = 100.0 * short / max(total, 1)
    print("1..2")
    print("%s 1 - parameters are found" % ("ok" if total > 5000 else "not ok"))
    print("%s 2 - at most %g %% of the parameters have one letter" % ("ok" if share <= BAR else "not ok", BAR))
    print("# %d of %d parameters have one letter: %.1f %%; %d of them are i j k n or in kernels/, search/, plan/cost*"
          % (short, total, share, formula))
    for f, one in sorted(worst.items(), key=lambda x: (-len(x[1]), x[0]))[:12]:
        print("# %4d %s: %s" % (len(one), f, " ".join(sorted(set(one)))))
    return 0


sys.exit(main())
