#!/usr/bin/env python3
"""What a function hands back by pointer comes first, named ret_*. (a) In every prototype, definition and
pointer to a function no ret_* parameter follows another one. (b) In the headers a parameter of a type that is mostly that
of a result is ret_*, or one of the exceptions."""
import fnmatch
import os
import re
import sys

FOLDERS = ("base", "db", "plan", "search", "kernels", "trainer", "tuner", "web")
LEAST = 1000  # prototypes: fewer, and the headers were not read
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\.\.\.|.")
SCALARS = {"int", "double", "float", "int64_t", "uint64_t", "size_t", "bool"}
# (function, parameter): what is read as well as written, or an array that is worked on in place
EXCEPTIONS = (
    ("*", "argv", "a list of words, read"),
    ("*", "env", "a list of words, read"),
    ("*_auto_*", "*", "cleanup: releases what the variable holds"),
    ("se_chol*", "[abl]", "a matrix or right-hand side, solved in place"),
    ("se_lower_solve", "b", "right-hand sides, solved in place"),
    ("se_eigen", "a", "the matrix, destroyed"),
    ("se_kernel_grad", "grad", "a sum that is added to"),
    ("tr_*", "buf", "a buffer that all ranks exchange in place"),
    ("tr_*_double", "values", "values that all ranks reduce in place"),
    ("tr_grads_reduce", "sums", "sums that all ranks reduce in place"),
    ("tr_norm_fwd", "stats", "next to y, by the name in its formula, as in kernels/"),
    ("tr_ring_fwd", "lse", "next to out, by the name in its formula, as in kernels/"),
    ("pl_pipe_of", "store", "room that one call keeps for the next"),
    ("tn_engine_new", "spec", "taken: NULL after success"),
    ("tn_slurm_line", "text", "a cursor, advanced"),
    ("web_request_step", "upload_size", "libmicrohttpd's: read, and set to what is left"),
)
FORMULAS = "kernels/"  # arrays by the names of their formulas, y = f(x), behind the pool and the type


def prototypes(text):
    """(name, [parameters as lists of tokens]) of every prototype, definition and function type."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", " ", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    tok = TOKEN.findall(re.sub(r"\s+", "\n", text))
    i, body = 0, 0
    while i + 1 < len(tok):
        if tok[i] == "{" and i and tok[i - 1] == ")":
            i = closing(tok, i)  # the body of a function
        elif tok[i] == "=":
            while tok[i] not in ";,":
                i = closing(tok, i) if tok[i] in "({[" else i
                i += 1
        elif tok[i] == "(" and tok[i + 1] == "*" and tok[closing(tok, i) + 1] == "(":
            end = closing(tok, i) + 1  # a pointer to a function
            yield tok[i + 2], list(split(tok, end))
            i = closing(tok, end)
        elif tok[i] == "(" and i > 1 and is_word(tok[i - 1]) and (tok[i - 2] == "*" or is_word(tok[i - 2])):
            yield tok[i - 1], list(split(tok, i))
            i = closing(tok, i)
        elif tok[i] == "(":
            i = closing(tok, i)
        i += 1


def is_word(token):
    return re.match(r"[A-Za-z_]", token) is not None


def closing(tok, i):
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth, left, right = 0, tok[i], pairs[tok[i]]
    while i < len(tok):
        depth += (tok[i] == left) - (tok[i] == right)
        if depth == 0:
            return i
        i += 1
    return len(tok) - 1


def split(tok, i):
    """The parameters in the bracket at I."""
    part, depth, end = [], 0, closing(tok, i)
    for j in range(i + 1, end + 1):
        if j == end or (tok[j] == "," and depth == 0):
            if part:
                yield part
            part = []
            continue
        depth += (tok[j] in "([") - (tok[j] in ")]")
        part.append(tok[j])


def name_of(param):
    if "(" in param:
        return None  # a pointer to a function is no result
    while param and param[-1] == "]":
        param = param[:len(param) - 1 - param[::-1].index("[")]
    return param[-1] if len(param) > 1 and is_word(param[-1]) else None


def is_result(name):
    return name is not None and (name == "ret" or name.startswith("ret_"))


def looks_like_result(param):
    """T **, const T **, a pointer to a number or bool; not const int *, not T *const *."""
    stars = param.count("*")
    words = [t for t in param if is_word(t)][:-1]
    if "[" in param or "(" in param or stars == 0:
        return False
    if stars == 1:
        return "const" not in words and words[0] in SCALARS
    last = len(param) - 1 - param[::-1].index("*")
    return param[last - 1] == "*"


def main():
    os.chdir(os.environ["PT_SRC"])
    files = []
    for folder in FOLDERS:
        for at, below, found in os.walk(folder):
            below[:] = [d for d in below if d not in ("vendor", "node_modules")]
            files += [os.path.join(at, f) for f in found if f.endswith((".c", ".h", ".inc"))]
    total = handing = excepted = 0
    behind, unnamed, used = [], [], set()
    for f in sorted(files):
        with open(f, encoding="utf-8") as c:
            text = c.read()
        for function, params in prototypes(text):
            names = [name_of(p) for p in params]
            results = [is_result(n) for n in names]
            if results != sorted(results, reverse=True):
                behind.append("%s: %s(%s)" % (f, function, ", ".join(n or "?" for n in names)))
            if not f.endswith(".h"):
                continue
            total += 1
            handing += any(results)
            for param, name in zip(params, names):
                if name is None or is_result(name) or not looks_like_result(param):
                    continue
                rule = next((e for e in EXCEPTIONS if fnmatch.fnmatch(function, e[0]) and
                             fnmatch.fnmatch(name, e[1])), None)
                if rule or f.startswith(FORMULAS):
                    used.add(rule)
                    excepted += 1
                else:
                    unnamed.append("%s: %s(… %s …)" % (f, function, " ".join(param)))
    idle = [e for e in EXCEPTIONS if e not in used]
    print("1..4")
    print("%s 1 - prototypes are found" % ("ok" if total >= LEAST else "not ok"))
    print("%s 2 - no parameter ret_* follows another one" % ("not ok" if behind else "ok"))
    print("%s 3 - what looks like a result is ret_*" % ("not ok" if unnamed else "ok"))
    print("%s 4 - every exception is needed" % ("not ok" if idle else "ok"))
    print("# headers: %d prototypes and function types, %d hand back results by pointer; %d parameters are exceptions"
          % (total, handing, excepted))
    for line in behind + unnamed + [" ".join(e) for e in idle]:
        print("# " + line)
    return 0


sys.exit(main())
