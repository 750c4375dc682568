#!/usr/bin/env python3
"""Reads Hugging Face folders that the trainer saved, with a reader of its own, and compares PyTorch's logits in fp64 with the trainer's
(logits.safetensors in the same folder). Prints TAP.

The trainer's logits are fp32: each is a sum of `hidden` products behind a chain of operations, so they may differ by 8 times what
a change of every weight by one unit in its last place does to them, as in tests/mpi/golden.c."""
import json
import sys

import torch

from model import forward
from safetensors_plain import read, read_folder


def logits_of(c, w, ids):
    return torch.stack([forward(c, w, s[:-1])[0] for s in ids])


def judge(folder):
    with open(folder + "/config.json") as f:
        c = json.load(f)
    w = {k: torch.from_numpy(v.copy()).double() for k, v in read_folder(folder).items()}
    saved = read(folder + "/logits.safetensors")
    ids = torch.from_numpy(saved["input_ids"].copy()).long()
    ours = torch.from_numpy(saved["logits"].copy()).double()
    with torch.no_grad():
        want = logits_of(c, w, ids)
        g = torch.Generator().manual_seed(1)
        noise = 0.0
        for _ in range(4):
            moved = {k: v * (1 + (2 * torch.rand(v.shape, generator=g, dtype=torch.float64) - 1) * 2.0 ** -23)
                     for k, v in w.items()}
            noise = max(noise, float((logits_of(c, moved, ids) - want).abs().max()))
    error, largest = float((ours - want).abs().max()), float(want.abs().max())
    return error <= 8 * noise + largest * 2.0 ** -23 and 8 * noise < 1e-4 * largest, error, noise


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("1..%d" % (len(sys.argv) - 1))
    failed = 0
    for i, path in enumerate(sys.argv[1:]):
        good, error, noise = judge(path)
        failed += not good
        print("%sok %d - %s # error %.2e, one unit of the weights makes %.2e"
              % ("" if good else "not ", i + 1, path.split("/")[-1], error, noise))
    sys.exit(failed != 0)
