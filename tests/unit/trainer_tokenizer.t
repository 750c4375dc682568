#!/usr/bin/env python3
"""partune-data with a tokenizer against encoders of its own: BPE as a plain loop over Python's re, and spm_encode. The tokenizers
are small and made here; texts are random, of characters that have been in Unicode since version 9."""
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unicodedata
import zlib
from collections import Counter

BUILD, SRC = os.environ["PT_BUILD"], os.environ["PT_SRC"]
DIR = f"{BUILD}/tests/run/tokenizer.{os.getpid()}"
TOOL = f"{BUILD}/partune-data"
PRINT = f"{BUILD}/tests/unit/print_samples"
WIDTH = {"u16": 2, "u32": 4}
done = 0


def ok(good, name, why=""):
    global done
    done += 1
    print(f"{'ok' if good else 'not ok'} {done} - {name}")
    if not good and why:
        print("# " + str(why).replace("\n", "\n# ")[:2000])


# ---- texts -----------------------------------------------------------------------------------------------------------

LETTERS = "abcdefgABCDEFGstdmverlSTDVERL" + "äöüßéñøçÅſ" + "жыёЩ" + "αβγΩ" + "אבג" + "ابت" + "कखग" + "กขค" + "漢字日本語" + "ひらカナ" + "한국어" + "ǅʰª"
DIGITS = "0123456789" + "٣४๕" + "²½Ⅷ①"
MARKS = "\u0301\u0323\u0308\u094d\u0e34\u05b4"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" + "«»–—…“”。、！€©×"
OTHER = "\u200b\u200d\ufe0f" + "😀👩👧🇩🏽" + "\u0000\u0007" + "𝒳🂡"
WHITE = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"


def random_text(rng, size):
    parts = []
    while sum(map(len, parts)) < size:
        pool = rng.choice([LETTERS, LETTERS, LETTERS[:29], DIGITS, MARKS, PUNCTUATION, OTHER, WHITE, " ", " \n"])
        parts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 9))))
        if rng.random() < 0.1:
            parts.append(rng.choice(["don't", "I'LL", "they'RE", "'ſ", "\r\n\r\n", "<s>", "<|end|>", " <|end|>", "<|en", "   x", "\u180e"]))
    return "".join(parts)


def real_text():
    text = ""
    for path in ("README.md", "docs/ARCHITECTURE.md", "trainer/dataset.c"):
        with open(f"{SRC}/{path}", encoding="utf-8") as f:
            text += f.read()
    return text


# ---- BPE by the book -------------------------------------------------------------------------------------------------

def spelling():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in printable}
    for b in range(256):
        names.setdefault(b, chr(256 + len(names) - len(printable)))
    return names


NAMES = spelling()


def members(*categories):
    """A class of Python's re, of the characters in the pools above of these categories."""
    pool = set(LETTERS + DIGITS + MARKS + PUNCTUATION + OTHER + WHITE + "\u180e") | {chr(c) for c in range(0x250)}
    pool |= set(unicodedata.normalize("NFC", "".join(a + b for a in LETTERS for b in MARKS)))
    return "".join(re.escape(c) for c in sorted(pool) if unicodedata.category(c).startswith(categories))


L, N, P, S, M = members("L"), members("N"), members("P"), members("S"), members("M")
W = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# As in the file, and the same with the classes spelt out for Python.
GPT2 = (None, f"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^{W}{L}{N}]+|[{W}]+(?![^{W}])|[{W}]+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
          f"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n{L}{N}]?[{L}]+|[{N}]{{1,3}}| ?[^{W}{L}{N}]+[\r\n]*|[{W}]*[\r\n]+|[{W}]+(?![^{W}])|[{W}]+")
DEEPSEEK = [(r"\p{N}{1,3}", f"[{N}]{{1,3}}"), (r"[一-龥぀-ゟ゠-ヿ]+", "[一-龥぀-ゟ゠-ヿ]+"),
            ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
             f"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{{|}}~][A-Za-z]+|[^\r\n{L}{P}{S}]?[{L}{M}]+"
             f"| ?[{P}{S}]+[\r\n]*|[{W}]*[\r\n]+|[{W}]+(?![^{W}])|[{W}]+")]


def isolated(pattern, pieces):
    for piece in pieces:
        at = 0
        for match in re.finditer(pattern, piece):
            if match.start() > at:
                yield piece[at:match.start()]
            yield match.group()
            at = match.end()
        if at < len(piece):
            yield piece[at:]


def merge_loop(symbols, ranks):
    while len(symbols) > 1:
        best = min(range(len(symbols) - 1), key=lambda i: ranks.get((symbols[i], symbols[i + 1]), 1 << 40))
        if (symbols[best], symbols[best + 1]) not in ranks:
            break
        symbols[best:best + 2] = [symbols[best] + symbols[best + 1]]
    return symbols


class Reference:
    """A tokenizer as its JSON says, as far as this test makes them; patterns for Python come apart."""

    def __init__(self, file, patterns):
        self.model, self.patterns = file["model"], patterns
        self.vocab = self.model["vocab"]
        pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in self.model["merges"]]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self.added = {t["content"]: t for t in file["added_tokens"]}
        self.special = "|".join((r"\s*" if t["lstrip"] else "") + "(?P<t%d>%s)" % (t["id"], re.escape(c)) + (r"\s*" if t["rstrip"] else "")
                                for c, t in sorted(self.added.items(), key=lambda x: -len(x[0])))
        self.normalizer = file["normalizer"]
        self.bytes = file["pre_tokenizer"] is not None

    def word(self, word):
        if self.bytes:
            word = "".join(NAMES[b] for b in word.encode())
        if self.model.get("ignore_merges") and word in self.vocab:
            return [self.vocab[word]]
        symbols = []
        for c in word:
            symbols += [c] if c in self.vocab or self.bytes else ["<0x%02X>" % b for b in c.encode()]
        return [self.vocab[s] for s in merge_loop(symbols, self.ranks)]

    def piece(self, text):
        if self.normalizer and self.normalizer["type"] == "NFC":
            text = unicodedata.normalize("NFC", text)
        elif self.normalizer:
            text = "▁" + text.replace(" ", "▁")
        pieces = [text]
        for pattern in self.patterns:
            pieces = isolated(pattern, pieces)
        return [i for piece in pieces for i in self.word(piece)]

    def encode(self, text):
        ids, at = [], 0
        for match in re.finditer(self.special, text) if self.added else []:
            if match.start() > at:
                ids += self.piece(text[at:match.start()])
            ids.append(int(match.lastgroup[1:]))
            at = match.end()
        return ids + (self.piece(text[at:]) if at < len(text) else [])


def train(words, merges):
    """MERGES pairs, the most frequent first, from a Counter of tuples of symbols."""
    pairs = []
    words = {w: n for w, n in words.items()}
    for _ in range(merges):
        count = Counter()
        for w, n in words.items():
            for pair in zip(w, w[1:]):
                count[pair] += n
        if not count:
            break
        best = max(count, key=lambda p: (count[p], p))
        pairs.append(best)
        fresh = {}
        for w, n in words.items():
            out = []
            for s in w:
                if out and (out[-1], s) == best:
                    out[-1] += s
                else:
                    out.append(s)
            fresh[tuple(out)] = n
        words = fresh
    return pairs


def token(number, content, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True, **flags}


def byte_tokenizer(text, patterns, form, ignore_merges=False, normalizer=None):
    pieces = [text]
    for _, pattern in patterns:
        pieces = isolated(pattern, pieces)
    words = Counter(tuple(NAMES[b] for b in piece.encode()) for piece in pieces)
    pairs = train(words, 150)
    vocab = {NAMES[b]: b for b in range(256)}
    for a, b in pairs:
        vocab.setdefault(a + b, len(vocab))
    if ignore_merges:  # a token that no merge makes
        vocab["ab" + NAMES[0xC3] + NAMES[0xB6] + "A"] = len(vocab)
    splits = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex, _ in patterns if regex]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": not splits}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [token(len(vocab), "<|end|>"), token(len(vocab) + 1, "<s>", lstrip=True, rstrip=True)],
            "normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits + [last]} if splits else last,
            "post_processor": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges, "vocab": vocab,
                      "merges": [f"{a} {b}" if form is str else [a, b] for a, b in pairs]}}


def llama2_tokenizer(text):
    words = Counter(tuple(w) for w in re.findall("▁*[^▁]*", "▁" + text.replace(" ", "▁")) if len(w) > 1)
    pairs = train(words, 150)
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, **{"<0x%02X>" % b: b + 3 for b in range(256)}}
    for c in sorted(set("".join(a + b for a, b in pairs)) | {"▁"}):
        vocab.setdefault(c, len(vocab))
    for a, b in pairs:
        vocab.setdefault(a + b, len(vocab))
    return {"version": "1.0", "added_tokens": [token(0, "<unk>"), token(1, "<s>"), token(2, "</s>")],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                               {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
                      "merges": [f"{a} {b}" for a, b in pairs]}}


# ---- partune-data ----------------------------------------------------------------------------------------------------

def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def write_lines(path, texts):
    with open(path, "w", encoding="utf-8") as f:
        for text in texts:
            f.write(json.dumps({"text": text}) + "\n")


def prepare(tokenizer, source, *options, name="x"):
    command = [TOOL, "prepare", "--name", name, "--data", DIR, "--validation", "0", "--force", "--tokenizer", tokenizer, *options, source]
    return subprocess.run(command, capture_output=True, text=True)


def documents(name="x"):
    """What partune-data wrote, by document, and its meta.json."""
    with open(f"{DIR}/datasets/{name}/meta.json", encoding="utf-8") as f:
        meta = json.load(f)
    with open(f"{DIR}/datasets/{name}/train.bin", "rb") as f:
        raw = f.read()
    width = WIDTH[meta["id"]]
    return [int.from_bytes(raw[i:i + width], "little") for i in range(0, len(raw), width)], meta


def same(what, file, patterns, eod, texts):
    folder = f"{DIR}/tok-{done}"
    write_json(f"{folder}/tokenizer.json", file)
    write_lines(f"{DIR}/in.jsonl", texts)
    run = prepare(folder, f"{DIR}/in.jsonl", "--eod", eod)
    if run.returncode:
        ok(False, what, run.stderr)
        return folder
    reference = Reference(file, patterns)
    got, meta = documents()
    want, at = [], 0
    for text in texts:
        ids = reference.encode(text) + [meta["tokenizer"]["eod"]]
        if got[at:at + len(ids)] != ids:
            first = next(i for i, number in enumerate(ids) if got[at + i:at + i + 1] != [number])
            ok(False, what, f"from id {first}: {got[at + first:at + first + 20]} is not {ids[first:first + 20]}; {text!r}")
            return folder
        at += len(ids)
    ok(at == len(got), what, f"{len(got)} ids, not {at}")
    return folder


def kinds(rng, text):
    texts = [random_text(rng, rng.choice([1, 5, 40, 400])) for _ in range(150)] + ["", " ", "<s>", "  <s>\n <|end|><|end|>", "a" * 3000]
    nfc = {"type": "NFC"}
    first = same("GPT-2's pattern, merges as texts", byte_tokenizer(text, [GPT2], str), [GPT2[1]], "<|end|>", texts)
    same("Llama 3's pattern, merges as pairs, whole words first", byte_tokenizer(text, [LLAMA3], list, ignore_merges=True), [LLAMA3[1]],
         "<|end|>", texts)
    same("Qwen's: NFC before Llama 3's pattern", byte_tokenizer(text, [LLAMA3], str, normalizer=nfc), [LLAMA3[1]], "<|end|>", texts)
    same("DeepSeek's three patterns, one after the other", byte_tokenizer(text, DEEPSEEK, str), [p for _, p in DEEPSEEK], "<|end|>", texts)
    same("Llama 2's: bytes for characters that are not in the vocabulary", llama2_tokenizer(text), [], "</s>", texts)
    crossing = llama2_tokenizer(text)
    for pair in (("e", "▁"), ("e▁", "t")):
        crossing["model"]["vocab"].setdefault("".join(pair), len(crossing["model"]["vocab"]))
        crossing["model"]["merges"].insert(0, " ".join(pair))
    same("and merges that reach over blanks", crossing, [], "</s>", texts)
    return first


def inputs(folder):
    with open(f"{folder}/tokenizer.json", encoding="utf-8") as f:
        file = json.load(f)
    reference = Reference(file, [GPT2[1]])
    rng = random.Random(5)
    # Bytes that are not UTF-8, with all ways in which a character can be broken.
    broken = b"".join(rng.choice([b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80",
                                  b"a", b"\xc3\xa9", "漢".encode(), b" "]) for _ in range(400))
    with open(f"{DIR}/broken.txt", "wb") as f:
        f.write(broken)
    run = prepare(folder, f"{DIR}/broken.txt", "--eod", "<|end|>")
    got, meta = documents()
    ok(run.returncode == 0 and got == reference.encode(broken.decode(errors="replace")) + [meta["tokenizer"]["eod"]],
       "bytes that are not UTF-8 are what Python's errors=\"replace\" makes of them", run.stderr)
    text = "one\ntwo 3\n" * 20000  # more than a piece of the file
    with gzip.open(f"{DIR}/text.txt.gz", "wt") as f:
        f.write(text)
    run = prepare(folder, f"{DIR}/text.txt.gz", "--eod", "<|end|>")
    got, meta = documents()
    ok(run.returncode == 0 and got == reference.encode(text) + [meta["tokenizer"]["eod"]], "a packed text is one document", run.stderr)
    with open(f"{folder}/tokenizer.json", "rb") as f:
        crc = zlib.crc32(f.read())
    ok(meta["id"] == "u16" and meta["vocab"] == len(file["model"]["vocab"]) + 2 and
       meta["tokenizer"] == {"name": os.path.basename(folder), "crc32": crc, "eod": meta["vocab"] - 2},
       "meta.json has the tokenizer", meta)
    write_json(f"{folder}/tokenizer_config.json", {"eos_token": {"content": "<s>"}, "model_max_length": 10 ** 30})
    run = prepare(f"{folder}/tokenizer.json", f"{DIR}/text.txt.gz", name="eos")
    ok(run.returncode == 0 and documents("eos")[0][-1] == meta["vocab"] - 1, "the eod is the tokenizer's eos_token without --eod", run.stderr)
    listed = subprocess.run([TOOL, "ls", "--data", DIR], capture_output=True, text=True).stdout
    ok(re.search(rf"^eos .* {meta['vocab'] - 1} {os.path.basename(folder)}$", listed, re.M), "partune-data ls shows tokenizer and eod", listed)
    return meta["vocab"]


def mixed(folder, vocab):
    with open(f"{folder}/tokenizer.json", encoding="utf-8") as f:
        file = json.load(f)
    file["model"]["merges"].reverse()
    write_json(f"{DIR}/other/tokenizer.json", file)
    prepare(f"{DIR}/other", f"{DIR}/text.txt.gz", "--eod", "<s>", name="other")
    prepare(folder, f"{DIR}/text.txt.gz", "--eod", "<s>", name="again")

    def read(sources):
        return subprocess.run([PRINT, DIR, sources, str(vocab), "16", "1", "0", "0", "1"], capture_output=True, text=True)

    ok(read("0.5 eos 0.5 again").returncode == 0, "data sets of one tokenizer are mixed")
    refused = read("0.5 eos 0.5 other")
    ok(refused.returncode != 0 and f"data set other is of the tokenizer other (crc32 " in refused.stderr,
       "those of two tokenizers are refused", refused.stderr)
    refused = read("0.5 eos 0.5 x")
    ok(refused.returncode != 0 and "eod" in refused.stderr, "and those of two eods", refused.stderr)


# ---- refusals --------------------------------------------------------------------------------------------------------

def change(file, path, value):
    at = file
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value


def refusals(folder):
    with open(f"{folder}/tokenizer.json", encoding="utf-8") as f:
        good = f.read()
    split = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated"}
    cases = [
        (["model", "type"], "Unigram", '/model/type: "type" is Unigram'),
        (["model", "dropout"], 0.1, '/model/dropout: "dropout" is not supported'),
        (["model", "end_of_word_suffix"], "</w>", "/model/end_of_word_suffix"),
        (["model", "vowels"], 1, '"vowels"'),
        (["model", "vocab", "!!!!"], 7, 'both have the id 7'),
        (["model", "vocab", "!!!!"], -1, "/model/vocab"),
        (["model", "vocab", "!!!!"], 1 << 40, "/model/vocab"),
        (["model", "merges", 5], "a", "/model/merges/5"),
        (["model", "merges", 5], ["a", ""], "/model/merges/5"),
        (["model", "merges", 5], ["a", "漢"], 'right half "漢" of a merge is not in "vocab"'),
        (["model", "merges", 5], ["~", "~"], 'token "~~" of a merge is not in "vocab"'),
        (["model", "unk_token"], "nothing", "/model/unk_token"),
        (["model", "byte_fallback"], True, "/model/byte_fallback"),
        (["normalizer"], {"type": "Lowercase"}, '/normalizer/type: "type" is Lowercase'),
        (["normalizer"], {"type": "Sequence", "normalizers": [{"type": "Strip"}]}, "/normalizer/normalizers/0/type"),
        (["pre_tokenizer"], {"type": "Whitespace"}, '/pre_tokenizer/type: "type" is Whitespace'),
        (["pre_tokenizer"], {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, split]}, "/pre_tokenizer/pretokenizers/1"),
        (["pre_tokenizer"], dict(split, behavior="Sideways"), "/pre_tokenizer/behavior"),
        (["pre_tokenizer"], dict(split, pattern={"Regex": "("}), "/pre_tokenizer/pattern"),
        (["added_tokens", 0, "single_word"], True, "/added_tokens/0/single_word"),
        (["added_tokens", 0, "id"], 9, '/added_tokens/0/id: "id" of "<|end|>" is 9'),
        (["added_tokens", 1, "content"], "", "/added_tokens/1/content"),
        (["added_tokens", 1, "content"], "<|end|>", "/added_tokens"),
        (["surprise"], 1, '"surprise"'),
    ]
    with open(f"{DIR}/small.txt", "w", encoding="utf-8") as f:
        f.write("small")
    missed = []
    for path, value, text in cases:
        file = json.loads(good)
        change(file, path, value)
        write_json(f"{DIR}/bad/tokenizer.json", file)
        run = prepare(f"{DIR}/bad", f"{DIR}/small.txt", "--eod", "<|end|>")
        if run.returncode != 2 or text not in run.stderr or "bad/tokenizer.json: " not in run.stderr:
            missed.append((path, value, run.returncode, run.stderr))
    ok(not missed, f"{len(cases)} tokenizers that cannot be used are refused by key", missed)
    for what, options, text in (("an unknown eod", ["--eod", "<|none|>"], '"<|none|>" is neither in added_tokens nor in vocab'),
                                ("--ids next to a tokenizer", ["--ids", "u16", "--vocab", "5"], "exclude each other")):
        run = prepare(folder, f"{DIR}/small.txt", *options)
        ok(run.returncode == 2 and text in run.stderr, f"{what} is refused", run.stderr)
    os.remove(f"{folder}/tokenizer_config.json")
    run = prepare(folder, f"{DIR}/small.txt")
    ok(run.returncode == 2 and "--eod TOKEN" in run.stderr, "a tokenizer without eos_token needs --eod", run.stderr)
    os.makedirs(f"{DIR}/empty", exist_ok=True)
    run = prepare(f"{DIR}/empty", f"{DIR}/small.txt")
    ok(run.returncode == 70 and "neither tokenizer.json nor tokenizer.model" in run.stderr, "a folder without a tokenizer is named", run.stderr)
    damaged(good)


def damaged(good):
    rng, wrong = random.Random(11), []
    raw = good.encode()
    for _ in range(40):
        bad = bytearray(raw)
        at = rng.choice([rng.randrange(len(bad)), rng.randrange(900)])
        bad[at:at + rng.choice([0, 1, 1, 50])] = bytes(rng.choice(b'{}[]",:0a\xff\\') for _ in range(rng.randint(0, 3)))
        with open(f"{DIR}/bad/tokenizer.json", "wb") as f:
            f.write(bad)
        run = prepare(f"{DIR}/bad", f"{DIR}/small.txt", "--eod", "<|end|>")
        if run.returncode not in (0, 2):
            wrong.append((at, run.returncode, run.stderr))
    ok(not wrong, "40 damaged files are read or refused", wrong)


# ---- SentencePiece ---------------------------------------------------------------------------------------------------

def sentencepiece(text):
    names = [f"SentencePiece, {kind}: ids are those of spm_encode" for kind in ("unigram", "bpe")]
    if not shutil.which("spm_train"):
        for name in names:
            ok(True, name + " # SKIP spm_train is not installed")
        return
    with open(f"{DIR}/spm.txt", "w", encoding="utf-8") as f:
        f.write(text)
    lines = [line for line in text.split("\n") if line][:300] + ["ünïcödé 漢字 😀", "a  b   c", "</s> <s>", "x" * 500]
    write_lines(f"{DIR}/spm.jsonl", lines)
    for name, kind in zip(names, ("unigram", "bpe")):
        made = subprocess.run(["spm_train", f"--input={DIR}/spm.txt", f"--model_prefix={DIR}/{kind}", f"--model_type={kind}", "--vocab_size=500",
                               "--byte_fallback", "--character_coverage=0.99", "--num_threads=1"], capture_output=True, text=True)
        run = prepare(f"{DIR}/{kind}.model", f"{DIR}/spm.jsonl")
        if run.returncode == 2 and "no SentencePiece" in run.stderr:
            ok(True, name + " # SKIP this build has no SentencePiece")
            continue
        ids = subprocess.run(["spm_encode", f"--model={DIR}/{kind}.model", "--output_format=id"], input="\n".join(lines) + "\n",
                             capture_output=True, text=True).stdout
        want = [int(i) for line in ids.split("\n")[:-1] for i in line.split() + ["2"]]
        got, meta = documents() if run.returncode == 0 else ([], {})
        ok(want and got == want and meta["tokenizer"]["name"] == f"{kind}.model", name, made.stderr[-300:] + run.stderr)


def main():
    os.makedirs(DIR)
    text = real_text()
    rng = random.Random(int(os.environ.get("PT_SEED", "3")))
    with open(f"{DIR}/p.txt", "w", encoding="utf-8") as f:
        f.write("x")
    print("1..%d" % 22)
    try:
        folder = kinds(rng, text)
        vocab = inputs(folder)
        mixed(folder, vocab)
        refusals(folder)
        sentencepiece(text)
    finally:
        shutil.rmtree(DIR)


sys.exit(main())
