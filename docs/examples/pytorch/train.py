"""A small language model in plain PyTorch, tuned by partune: torchrun --nproc_per_node 2 train.py

Of a layout it knows micro_batch, recompute (none, full), overlap_grad_reduce (1: DDP reduces buckets
of 25 MB during the backward pass; 0: one large bucket at its end) and zero (0: DDP, 3: FSDP2).
Without a daemon it trains with the values below.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import partune

LAYOUT = {"micro_batch": 2, "recompute": "none", "overlap_grad_reduce": 1, "zero": 0}
MODEL = {"layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocab": 512}


class GPT(torch.nn.Module):
    def __init__(self, model, seq, recompute):
        super().__init__()
        self.recompute, hidden = recompute, model.hidden
        self.embed = torch.nn.Embedding(model.vocab, hidden)
        self.positions = torch.nn.Parameter(torch.zeros(seq, hidden))
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(hidden, model.heads, model.ffn, 0.0, F.gelu,
                                             batch_first=True, norm_first=True)
            for _ in range(model.layers)
        )
        self.head = torch.nn.Linear(hidden, model.vocab)
        self.register_buffer("mask", torch.full((seq, seq), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.embed(ids) + self.positions
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, self.mask, use_reentrant=False)
            else:
                x = block(x, self.mask)
        return self.head(x)


def spread(model, layout):
    """MODEL over all ranks, as the layout says."""
    if layout.zero == 0:
        bucket = 25 if layout.overlap_grad_reduce else 1 << 20
        return DistributedDataParallel(model, bucket_cap_mb=bucket)
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise partune.IllegalLayout(f"zero {layout.zero}: torch {torch.__version__} has no FSDP2")
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def accumulate(model, trial, device):
    """Gradients of this rank's share of a step, with its mean loss."""
    layout, seq, mean = trial.layout, trial.workload.seq, 0.0
    for i in range(trial.micro_batches):
        ids = torch.randint(trial.model.vocab, (layout.micro_batch, seq + 1), device=device)
        if layout.zero == 0:
            model.require_backward_grad_sync = i == trial.micro_batches - 1
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        (loss / trial.micro_batches).backward()
        mean = mean + loss.detach() / trial.micro_batches
    return mean


def main():
    with partune.trial(LAYOUT, {"global_batch": 16, "seq": 64}, MODEL) as trial:
        gpu, work = torch.cuda.is_available(), trial.workload
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
        if gpu:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if gpu else "gloo")
        torch.manual_seed(1)
        model = GPT(trial.model, work.seq, trial.layout.recompute == "full").to(device)
        model = spread(model, trial.layout)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        torch.manual_seed(1 + dist.get_rank())
        for n in range(100):
            with trial.step(tokens=work.global_batch * work.seq) as step:
                step.loss = accumulate(model, trial, device)
                optimizer.step()
                optimizer.zero_grad()
            if not trial.active and n % 10 == 0 and dist.get_rank() == 0:
                print(f"step {n}: loss {float(step.loss):.3f}")
            if trial.done:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
