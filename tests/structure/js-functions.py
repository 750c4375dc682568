"""js-functions.py MAX FILE...: print each function of JavaScript sources that has more than MAX lines, "FILE:LINE: N lines".

A function is counted from the line of its name or of its parameters to the line where its body ends, as ESLint counts it. Knows what
it needs of the grammar: strings, templates, comments, regular expressions and brackets.
"""

import re
import sys

TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[\w$#]+)
    |(?P<arrow>=>)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
TEMPLATE_TEXT = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*", re.DOTALL)
BLOCK_WORDS = {"if", "for", "while", "switch", "catch", "with"}
BEFORE_REGEX = {"return", "typeof", "case", "in", "of", "void", "delete", "throw", "new", "else", "do", "yield", "await"}
CLOSES = {")": "(", "]": "[", "}": "{"}


def tokens(source):
    """Yield (text, line); a template is the tokens inside its ${}, between "`" and "`"."""
    at, line, last = 0, 1, ""
    templates = []  # depth of braces inside each ${} that is open
    while at < len(source):
        inside = templates and templates[-1] == 0
        char = source[at]
        if char == "`" or (inside and char == "}"):
            # Text of a template: to its end, or to the next ${.
            if char == "}":
                templates.pop()
                yield "}", line
            else:
                yield "`", line
            text = TEMPLATE_TEXT.match(source, at + 1).group()
            at += 1 + len(text)
            line += text.count("\n")
            if source.startswith("${", at):
                templates.append(0)
                yield "{", line
                at, last = at + 2, "{"
            else:
                at, last = at + 1, "`"
            continue
        if char == "/" and source[at + 1] not in "/*" and not ends_operand(last):
            text = REGEX.match(source, at).group()
            at, last = at + len(text), "x"
            yield "x", line
            continue
        match = TOKEN.match(source, at)
        text = match.group()
        if match.lastgroup not in ("space", "comment"):
            if templates and text in "{}":
                templates[-1] += 1 if text == "{" else -1
            last = "x" if match.lastgroup == "string" else text
            yield last, line
        line += text.count("\n")
        at = match.end()


def ends_operand(text):
    """Does TEXT end an operand, so that a slash after it divides?"""
    return text in (")", "]", "}", "`") or (re.fullmatch(r"[\w$#]+", text) is not None and text not in BEFORE_REGEX)


def functions(source):
    """Yield (first line, last line) of each function."""
    open_ones = []  # (bracket, index of the token before it, line of a function's head or None)
    arrows = []  # (depth, line of the head) of functions whose body is an expression
    parens = {}  # index of ")": index of its "("
    found = list(tokens(source))
    text = lambda i: found[i][0] if i >= 0 else ""

    def head(i):
        """Index of the first token of the function whose parameters end at I: ")" or a name."""
        i = parens.get(i, i)
        while i > 0 and (re.fullmatch(r"[\w$#]+", text(i - 1)) or text(i - 1) == "*") and text(i - 1) not in ("return", "default"):
            i -= 1
        return i

    for i, (token, line) in enumerate(found):
        while arrows and (token in ",;" or token in CLOSES) and arrows[-1][0] == len(open_ones):
            yield arrows.pop()[1], found[i - 1][1]
        if token in ("(", "[", "{"):
            start = None
            if token == "{" and text(i - 1) == "=>":
                start = found[head(i - 2)][1]
            elif token == "{" and text(i - 1) == ")" and text(parens[i - 1] - 1) not in BLOCK_WORDS:
                start = found[head(i - 1)][1]
            open_ones.append((token, i, start))
        elif token in CLOSES:
            bracket, opened, start = open_ones.pop()
            if bracket != CLOSES[token]:
                raise SyntaxError(f"line {line}: {token} closes the {bracket} of line {found[opened][1]}")
            if token == ")":
                parens[i] = opened
            if start is not None:
                yield start, line
        elif token == "=>" and text(i + 1) != "{":
            arrows.append((len(open_ones), found[head(i - 1)][1]))
    if open_ones:
        raise SyntaxError(f"line {found[open_ones[-1][1]][1]}: {open_ones[-1][0]} is never closed")


def main():
    most = int(sys.argv[1])
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        try:
            for first, last in functions(source):
                if last - first + 1 > most:
                    print(f"{path}:{first}: {last - first + 1} lines")
        except SyntaxError as error:
            print(f"{path}: not understood: {error}")


main()
