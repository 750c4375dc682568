"""bench_trainer_torch.py dense|experts THREADS BATCH: the models of bench_trainer.c in plain PyTorch, BATCH sequences in
micro-batches of 4. Prints seconds a step, median."""
import os
import statistics
import sys
import time

KIND, THREADS, BATCH = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.environ["OPENBLAS_NUM_THREADS"] = str(THREADS)  # Debian's PyTorch multiplies by OpenBLAS, which has threads of its own

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, FFN, VOCAB, SEQ, MICRO = 8, 512, 8, 1536, 4096, 256, 4
EXPERTS, TOP_K, EXPERT_FFN = 8, 2, 768


def linear(inputs, outputs):
    return torch.nn.Linear(inputs, outputs, bias=False)


class Mlp(torch.nn.Module):
    def __init__(self, ffn):
        super().__init__()
        self.gate_up, self.down = linear(HIDDEN, 2 * ffn), linear(ffn, HIDDEN)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Experts(torch.nn.Module):
    """As transformers' Mixtral has it: one expert after the other, each with the rows that chose it."""

    def __init__(self):
        super().__init__()
        self.router = linear(HIDDEN, EXPERTS)
        self.expert = torch.nn.ModuleList(Mlp(EXPERT_FFN) for _ in range(EXPERTS))

    def forward(self, x):
        rows = x.reshape(-1, HIDDEN)
        weight, chosen = self.router(rows).softmax(-1).topk(TOP_K, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.expert):
            row, place = torch.where(chosen == number)
            out.index_add_(0, row, expert(rows[row]) * weight[row, place, None])
        return out.view_as(x)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = (torch.nn.Parameter(torch.ones(HIDDEN)) for _ in range(2))
        self.qkv, self.o = linear(HIDDEN, 3 * HIDDEN), linear(HIDDEN, HIDDEN)
        self.mlp = Experts() if KIND == "experts" else Mlp(FFN)

    def norm(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    def forward(self, x, cos, sin, mask):
        q, k, v = self.qkv(self.norm(x, self.n1)).view(MICRO, SEQ, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        turn = lambda t: t * cos + torch.cat((-t[..., t.shape[-1] // 2:], t[..., :t.shape[-1] // 2]), -1) * sin
        scores = turn(q) @ turn(k).transpose(-1, -2) * (HIDDEN // HEADS) ** -0.5 + mask
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(MICRO, SEQ, HIDDEN))
        return x + self.mlp(self.norm(x, self.n2))


def main():
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    embed = torch.nn.Embedding(VOCAB, HIDDEN)
    blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
    final, head = torch.nn.Parameter(torch.ones(HIDDEN)), linear(HIDDEN, VOCAB)
    weights = [final, *embed.parameters(), *blocks.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    half = HIDDEN // HEADS // 2
    angle = torch.outer(torch.arange(SEQ), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
    mask = torch.full((SEQ, SEQ), float("-inf")).triu(1)
    seconds = []
    for _ in range(5):
        ids = torch.randint(VOCAB, (BATCH, SEQ + 1))
        begin = time.monotonic()
        optimizer.zero_grad()
        for part in ids.split(MICRO):
            x = embed(part[:, :-1])
            for block in blocks:
                x = block(x, angle.cos(), angle.sin(), mask)
            loss = F.cross_entropy(head(blocks[0].norm(x, final)).flatten(0, 1), part[:, 1:].flatten())
            (loss * MICRO / BATCH).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        seconds.append(time.monotonic() - begin)
    print(statistics.median(seconds[1:]))


if __name__ == "__main__":
    main()
