#!/usr/bin/env python3
"""A function that a header offers has a use: the product uses it, and not its own file alone. Exceptions have a reason below."""
import os
import re
import sys

FOLDERS = ("base", "db", "plan", "search", "kernels", "trainer", "tuner", "web", "tests")
SEAMS = {  # used by tests only, because:
    "mem_fail_at tr_events_clock kn_isa_set se_passes_use": "tests choose faults, time, instruction set",
    "db_check pl_model_params pl_model_active_params pl_plan_json tn_exporters "
    "tr_ckpt_latest tr_ckpt_peek tr_step_logits tr_tokens_count "
    "se_legal se_settled se_surrogate_below": "what tests compare the product's results with",
}
TOKEN = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[#](?:[^\n\\]|\\.)*|[A-Za-z_]\w*|[^\s\w]""", re.S)
PASTED = ("kn_host_", "kn_ref_")  # kn_host_##op: macros paste these names


def scan(text):
    """The external functions that TEXT defines, and for each name that it uses the functions that use it ("#": a macro)."""
    defined, uses = set(), {}
    depth, parens, name, static, within, last = 0, 0, None, False, None, ""
    for token in TOKEN.findall(text):
        if len(token) > 1 and token[0] in "/\"'":
            continue
        if len(token) > 1 and token[0] == "#":
            for word in re.findall(r"[A-Za-z_]\w*", token) if token.startswith("#define") else []:
                uses.setdefault(word, set()).add("#")
            continue
        if depth == 0:
            if token == "{" and last == ")" and name:
                within = name
                if not static:
                    defined.add(name)
            elif token == "(" and parens == 0 and not name:
                name = last
            elif token in ";=":
                name, static = None, False
            static = static or token in ("static", "INLINE", "VEC_INLINE")
            parens += (token == "(") - (token == ")")
        else:
            uses.setdefault(token, set()).add(within)
        depth += (token == "{") - (token == "}")
        if token == "}" and depth == 0:
            name, static, within = None, False, None
        last = token
    for owner in re.findall(r"\bAUTO\((\w+)\)", text):
        uses.setdefault(owner + "_free", set()).add("AUTO")
    return defined, uses


def rows(text):
    """A table of rows: each word may be a function that its includer puts into an array."""
    words = [token for token in TOKEN.findall(text) if re.fullmatch(r"[A-Za-z_]\w*", token)]
    return set(), {word: {"#"} for word in words}


def main():
    os.chdir(os.environ["PT_SRC"])
    sources = {}
    for folder in FOLDERS:
        for at, below, found in os.walk(folder):
            below[:] = [d for d in below if d not in ("vendor", "node_modules", "npm")]
            for f in found:
                if f.endswith((".c", ".h", ".inc", ".def")):
                    with open(os.path.join(at, f), encoding="utf-8") as c:
                        sources[os.path.join(at, f)] = rows(c.read()) if f.endswith(".def") else scan(c.read())
    seams = set(" ".join(SEAMS).split())
    count, tested, alone = 0, {}, []
    for path, (defined, _) in sorted(sources.items()):
        for name in sorted(defined) if not path.startswith("tests") else []:
            users = [f for f, (_, uses) in sources.items() if uses.get(name, set()) - {name}]
            if name == "main" or name.startswith(PASTED):
                continue
            count += 1
            if all(f.startswith("tests") for f in users):
                tested[name] = f"{path}: {name} is used by {'tests only' if users else 'nobody'}"
            elif users == [path]:
                alone.append(f"{path}: {name} is used here only; it can be static")
    checks = (
        ("functions are found", [] if count > 1000 else [f"{count} only"]),
        ("the product uses every function that it offers", [t for n, t in tested.items() if n not in seams]),
        ("a function that one file uses is static", alone),
        ("every exception is needed", sorted(seams - set(tested))),
    )
    print(f"1..{len(checks)}")
    for i, (what, bad) in enumerate(checks, 1):
        print(f"{'not ok' if bad else 'ok'} {i} - {what}")
        for line in bad:
            print(f"# {line}")
    print(f"# {count} functions")


sys.exit(main())
