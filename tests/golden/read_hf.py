#!/usr/bin/env python3
"""Reads Hugging Face folders that the trainer saved, with a reader of its own, and compares PyTorch's logits in fp64 with the trainer's
(logits.safetensors in the same folder), and where there are modules of multi-token prediction their loss. Prints TAP.

The trainer's logits are fp32: each is a sum of `hidden` products behind a chain of operations, so they may differ by 8 times what
a change of every weight by one unit in its last place does to them, as in tests/mpi/golden.c."""
import json
import sys

import torch

from model import forward, losses
from safetensors_plain import read, read_folder


def logits_of(c, w, ids):
    return torch.stack([forward(c, w, s[:-1])[0] for s in ids])


def numbers(c, w, ids):
    """Logits, and the loss of multi-token prediction."""
    return logits_of(c, w, ids), torch.as_tensor(losses(c, w, ids)[3]).double() if c.get("num_nextn_predict_layers") else torch.zeros(())


def repeated(c, w):
    """Modules of multi-token prediction repeat embedding and output projection."""
    last = range(c.get("num_hidden_layers", 0), c.get("num_hidden_layers", 0) + c.get("num_nextn_predict_layers", 0))
    return all(torch.equal(w["model.layers.%d.embed_tokens.weight" % i], w["model.embed_tokens.weight"])
               and torch.equal(w["model.layers.%d.shared_head.head.weight" % i], w["lm_head.weight"]) for i in last)


def judge(folder):
    with open(folder + "/config.json") as f:
        c = json.load(f)
    w = {k: torch.from_numpy(v.copy()).double() for k, v in read_folder(folder).items()}
    saved = read(folder + "/logits.safetensors")
    ids = torch.from_numpy(saved["input_ids"].copy()).long()
    ours = [torch.from_numpy(saved[name].copy()).double() for name in ("logits", "mtp_loss")]
    with torch.no_grad():
        want = numbers(c, w, ids)
        g = torch.Generator().manual_seed(1)
        noise = [0.0, 0.0]
        for _ in range(4):
            moved = {k: v * (1 + (2 * torch.rand(v.shape, generator=g, dtype=torch.float64) - 1) * 2.0 ** -23)
                     for k, v in w.items()}
            noise = [max(n, float((x - y).abs().max())) for n, x, y in zip(noise, numbers(c, moved, ids), want)]
    error = [float((x - y).abs().max()) for x, y in zip(ours, want)]
    largest = [float(y.abs().max()) for y in want]
    good = all(e <= 8 * n + top * 2.0 ** -23 and 8 * n <= 1e-4 * top for e, n, top in zip(error, noise, largest))
    return good and repeated(c, w), error[0], noise[0]


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
