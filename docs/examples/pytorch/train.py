"""A small language model in plain PyTorch, tuned by partune: torchrun --nproc_per_node 2 train.py

Of a layout it knows micro_batch, recompute (none, full), overlap_grad_reduce (1: DDP reduces buckets
of 25 MB during the backward pass; 0: one large bucket at its end), zero (0: DDP, 3: FSDP2) and tp.
Every layout trains on the same batches. Without a daemon it trains with the values below.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import partune

LAYOUT = {"tp": 1, "micro_batch": 2, "recompute": "none", "overlap_grad_reduce": 1, "zero": 0}
MODEL = {"layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocab": 512}


class Block(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, self.head = model.hidden, model.hidden // model.heads
        self.before_attention = torch.nn.LayerNorm(hidden)
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)  # by heads, for tp
        self.out = torch.nn.Linear(hidden, hidden)
        self.before_mlp = torch.nn.LayerNorm(hidden)
        self.up = torch.nn.Linear(hidden, model.ffn)
        self.down = torch.nn.Linear(model.ffn, hidden)

    def forward(self, x, mask):
        heads = self.qkv(self.before_attention(x)).unflatten(-1, (-1, 3, self.head))
        q, k, v = heads.transpose(1, 3).unbind(1)  # each (batch, head, position, head size)
        scores = q @ k.mT * self.head**-0.5 + mask
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class GPT(torch.nn.Module):
    def __init__(self, model, seq, recompute):
        super().__init__()
        self.recompute = recompute
        self.embed = torch.nn.Embedding(model.vocab, model.hidden)
        self.positions = torch.nn.Parameter(torch.zeros(seq, model.hidden))
        self.blocks = torch.nn.ModuleList(Block(model) for _ in range(model.layers))
        self.head = torch.nn.Linear(model.hidden, model.vocab)
        self.register_buffer("mask", torch.full((seq, seq), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.embed(ids[:, :-1]) + self.positions
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, self.mask, use_reentrant=False)
            else:
                x = block(x, self.mask)
        return F.cross_entropy(self.head(x).flatten(0, 1), ids[:, 1:].flatten())


def check(layout, gpu):
    """Refuse a layout that this PyTorch does not have, before any rank waits for another."""
    if layout.zero == 0 and layout.tp == 1:
        return
    try:
        from torch.distributed.device_mesh import init_device_mesh  # noqa: F401
        from torch.distributed.fsdp import fully_shard  # noqa: F401
        from torch.distributed.tensor import parallel  # noqa: F401
    except ImportError:
        text = f"tp {layout.tp}, zero {layout.zero}: torch {torch.__version__} is older than 2.6"
        raise partune.IllegalLayout(text) from None
    if layout.zero and not gpu and not hasattr(torch.cpu.Stream, "record_event"):
        raise partune.IllegalLayout(f"zero: FSDP2 of torch {torch.__version__} needs GPUs")


def spread(model, layout, device):
    """MODEL over all ranks, as the layout says: rank = its share of the batch x tp + its shard."""
    bucket = 25 if layout.overlap_grad_reduce else 1 << 20
    if layout.zero == 0 and layout.tp == 1:
        return DistributedDataParallel(model, bucket_cap_mb=bucket)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import parallel

    sizes = dist.get_world_size() // layout.tp, layout.tp
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("dp", "tp"))
    for block in model.blocks if layout.tp > 1 else ():
        column, row = parallel.ColwiseParallel, parallel.RowwiseParallel
        plan = {"qkv": column(), "out": row(), "up": column(), "down": row()}
        parallel.parallelize_module(block, mesh["tp"], plan)
    if layout.zero == 0:
        return DistributedDataParallel(model, device_mesh=mesh["dp"], bucket_cap_mb=bucket)
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def accumulate(model, trial, batch):
    """Gradients of this rank's share of the BATCH, with its mean loss."""
    shares = batch.split(trial.micro_batches * trial.layout.micro_batch)
    micro_batches = shares[dist.get_rank() // trial.layout.tp].split(trial.layout.micro_batch)
    mean = 0.0
    for i, ids in enumerate(micro_batches):
        if trial.layout.zero == 0:
            model.require_backward_grad_sync = i == len(micro_batches) - 1
        loss = model(ids)
        (loss / len(micro_batches)).backward()
        mean = mean + loss.detach() / len(micro_batches)
    return mean


def main():
    with partune.trial(LAYOUT, {"global_batch": 16, "seq": 64}, MODEL) as trial:
        gpu, work = torch.cuda.is_available(), trial.workload
        check(trial.layout, gpu)
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
        if gpu:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if gpu else "gloo")
        torch.manual_seed(1)
        model = GPT(trial.model, work.seq, trial.layout.recompute == "full").to(device)
        model = spread(model, trial.layout, device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        data, shape = torch.Generator().manual_seed(2), (work.global_batch, work.seq + 1)
        for n in range(100):
            batch = torch.randint(trial.model.vocab, shape, generator=data).to(device)
            with trial.step(tokens=work.global_batch * work.seq) as step:
                step.loss = accumulate(model, trial, batch)
                optimizer.step()
                optimizer.zero_grad()
            if not trial.active and n % 10 == 0 and dist.get_rank() == 0:
                print(f"step {n}: loss {float(step.loss):.3f}")
            if trial.done:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
