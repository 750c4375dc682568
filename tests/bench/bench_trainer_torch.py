"""The model of train_step_1 in plain PyTorch on one thread: prints seconds a step, median."""
import os
import statistics
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Debian's PyTorch multiplies by OpenBLAS, which has threads of its own

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, FFN, VOCAB, SEQ, BATCH = 8, 512, 8, 1536, 4096, 256, 4


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.n1, self.n2 = (torch.nn.Parameter(torch.ones(HIDDEN)) for _ in range(2))
        self.qkv, self.o = linear(HIDDEN, 3 * HIDDEN), linear(HIDDEN, HIDDEN)
        self.gate_up, self.down = linear(HIDDEN, 2 * FFN), linear(FFN, HIDDEN)

    def norm(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    def forward(self, x, cos, sin, mask):
        q, k, v = self.qkv(self.norm(x, self.n1)).view(BATCH, SEQ, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        turn = lambda t: t * cos + torch.cat((-t[..., t.shape[-1] // 2:], t[..., :t.shape[-1] // 2]), -1) * sin
        scores = turn(q) @ turn(k).transpose(-1, -2) * (HIDDEN // HEADS) ** -0.5 + mask
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, SEQ, HIDDEN))
        gate, up = self.gate_up(self.norm(x, self.n2)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    embed = torch.nn.Embedding(VOCAB, HIDDEN)
    blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
    final, head = torch.nn.Parameter(torch.ones(HIDDEN)), torch.nn.Linear(HIDDEN, VOCAB, bias=False)
    weights = [final, *embed.parameters(), *blocks.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    half = HIDDEN // HEADS // 2
    angle = torch.outer(torch.arange(SEQ), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
    mask = torch.full((SEQ, SEQ), float("-inf")).triu(1)
    seconds = []
    for _ in range(5):
        ids = torch.randint(VOCAB, (BATCH, SEQ + 1))
        begin = time.monotonic()
        x = embed(ids[:, :-1])
        for block in blocks:
            x = block(x, angle.cos(), angle.sin(), mask)
        loss = F.cross_entropy(head(blocks[0].norm(x, final)).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        seconds.append(time.monotonic() - begin)
    print(statistics.median(seconds[1:]))


if __name__ == "__main__":
    main()
