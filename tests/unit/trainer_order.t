#!/usr/bin/env python3
"""The order of samples as docs/reference/trainer.md has it, by a reader of its own: the same tokens for one data set and for several by weight."""
import fractions
import json
import math
import os
import random
import shutil
import struct
import subprocess

BUILD = os.environ["PT_BUILD"]
DIR = f"{BUILD}/tests/run/order.{os.getpid()}"
PRINT = f"{BUILD}/tests/unit/print_samples"
WORD = (1 << 64) - 1
done = 0


def ok(good, name):
    global done
    done += 1
    print(f"{'ok' if good else 'not ok'} {done} - {name}")


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def permuted(index, count, key):
    half = 1
    while 4 ** half < count:
        half += 1
    while True:
        left, right = index >> half, index % (1 << half)
        for turn in range(6):
            left, right = right, left ^ mix(mix((key + turn) & WORD) ^ right) % (1 << half)
        index = left << half | right
        if index < count:
            return index


class Set:
    """A data set of partune-data, or the prefix of Megatron-LM's pair of files."""

    def __init__(self, path, seq):
        self.seq = seq
        if os.path.exists(f"{path}/meta.json"):
            meta = json.load(open(f"{path}/meta.json"))
            code = {"u8": "B", "u16": "H", "u32": "I"}[meta["id"]]
            self.splits = [self.ids(f"{path}/{name}.bin", code) for name in ("train", "validation")]
        else:
            ids = self.ids(f"{path}.bin", "H")
            index = open(f"{path}.idx", "rb").read()
            count = struct.unpack_from("<Q", index, 18)[0]
            sizes = struct.unpack_from(f"<{count}i", index, 34)
            cut, total = 0, 0
            for size in sizes:  # the last boundary that leaves a twentieth
                total += size
                if len(ids) - total < 0.05 * len(ids):
                    break
                cut = total
            self.splits = [ids[:cut], ids[cut:]]

    @staticmethod
    def ids(path, code):
        data = open(path, "rb").read()
        return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)

    def samples(self, split):
        return max(0, len(self.splits[split]) - 1) // self.seq

    def sample(self, split, index, seed):
        count = self.samples(split)
        at = index % count
        if split == 0:
            at = permuted(at, count, (mix(seed) + mix(index // count)) & WORD)
        return self.splits[split][at * self.seq:at * self.seq + self.seq + 1]


def shares(weights):
    whole = [math.floor(fractions.Fraction(w) * 1000000 + fractions.Fraction(1, 2)) for w in weights]
    whole = [w // math.gcd(*whole) for w in whole]
    by = -(-sum(whole) // 1000000)
    return [(w + by // 2) // by for w in whole]


def order(weights, count):
    """The source of each sample and its number there: Megatron-LM's rule in fractions, sample after sample."""
    share = shares(weights)
    taken = [0] * len(share)
    for i in range(count):
        errors = [fractions.Fraction(w, sum(share)) * max(i, 1) - n for w, n in zip(share, taken)]
        k = errors.index(max(errors))
        yield k, taken[k]
        taken[k] += 1


def read(sets, weights, seed, split, first, count):
    if split == 1:
        most = 0
        for k, n in order(weights, sum(s.samples(1) for s in sets) + 1):
            if n >= sets[k].samples(1):
                break
            most += 1
        rows = [sets[k].sample(1, n, seed) for k, n in order(weights, most)]
        return most, [rows[i % most] for i in range(first, first + count)]
    chosen = list(order(weights, first + count))[first:]
    return None, [sets[k].sample(0, n, seed) for k, n in chosen]


def printed(names, weights, vocab, seq, seed, split, first, count):
    text = names[0] if len(names) == 1 else " ".join(f"{w} {n}" for w, n in zip(weights, names))
    lines = subprocess.run([PRINT, DIR, text, str(vocab), str(seq), str(seed), str(split), str(first), str(count)], check=True,
                           cwd=DIR, capture_output=True, text=True).stdout.split("\n")[:-1]
    return int(lines[0].split()[1]), [tuple(map(int, line.split())) for line in lines[1:]]


def prepare(name, count, rng, vocab=500):
    path = f"{DIR}/{name}.ids"
    with open(path, "wb") as f:
        f.write(struct.pack(f"<{count}H", *(rng.randrange(vocab) for _ in range(count))))
    subprocess.run([f"{BUILD}/partune-data", "prepare", "--data", DIR, "--name", name, "--ids", "u16", "--vocab", str(vocab),
                    "--validation", "0.3", path], check=True, capture_output=True)
    return f"{DIR}/datasets/{name}"


def megatron(name, rng):
    sizes = [rng.randrange(1, 200) for _ in range(100)]
    at, offsets = 0, []
    for size in sizes:
        offsets.append(2 * at)
        at += size
    with open(f"{DIR}/{name}.bin", "wb") as f:
        f.write(struct.pack(f"<{at}H", *(rng.randrange(500) for _ in range(at))))
    with open(f"{DIR}/{name}.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1) + struct.pack(f"<{len(sizes)}i", *sizes) +
                struct.pack(f"<{len(sizes)}q", *offsets) + struct.pack(f"<{len(sizes) + 1}q", *range(len(sizes) + 1)))
    return f"{DIR}/{name}"


def main():
    rng = random.Random(11)
    os.makedirs(DIR)
    paths = [prepare("web", 90000, rng), prepare("code", 30000, rng), megatron("papers", rng), prepare("tiny", 20000, rng)]
    cases = [("one data set", [0], [1], 16), ("Megatron-LM's files", [2], [1], 7), ("0.7 and 0.3", [0, 1], ["0.7", "0.3"], 16),
             ("weights that do not add up to 1", [1, 0], ["1", "2"], 33),
             ("four sources, one of Megatron-LM's", [0, 1, 2, 3], ["0.5", "0.125", "0.3", "0.075"], 20),
             ("shares that are rounded", [3, 2, 0], ["1.234567", "77.7", "0.9"], 11)]
    for name, which, weights, seq in cases:
        sets = [Set(paths[i], seq) for i in which]
        names = [("./" if i == 2 else "") + os.path.basename(paths[i]) for i in which]  # a text has no paths with blanks
        good = True
        for seed in (1, 12345):
            for first, count in ((0, 200), (7000, 100)):  # more than an epoch of the small ones
                _, lines = printed(names, weights, 500, seq, seed, 0, first, count)
                good = good and lines == read(sets, weights, seed, 0, first, count)[1] and len(lines) == count
        ok(good, f"training: {name}")
        most, lines = printed(names, weights, 500, seq, 1, 1, 0, 300)
        wanted = read(sets, weights, 1, 1, 0, 300)
        ok((most, lines) == wanted and most > 3, f"validation: {name}")
    far = printed(["web", "code"], ["0.7", "0.3"], 500, 16, 1, 0, 10 ** 9, 10)[1]
    near = [Set(paths[k], 16) for k in (0, 1)]
    picks = list(order(["0.7", "0.3"], 30))[20:]  # 10^9 is whole periods of ten after 20
    ok(far == [near[k].sample(0, n + (10 ** 9 - 20) // 10 * (7, 3)[k], 1) for k, n in picks], "sample 10^9")
    print(f"1..{done}")


try:
    main()
finally:
    shutil.rmtree(DIR, ignore_errors=True)
