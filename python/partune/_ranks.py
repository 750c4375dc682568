"""The ranks of a job: who this process is, and what the others measured.

torch is looked for in sys.modules and never imported: a script without it has one rank, or ranks
that know nothing of each other.
"""

import os
import sys

# Slurm's last: within an allocation the ranks of mpiexec have those of the batch script, too.
RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
WORLD = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
KEPT = {}
DEVICE = {"nccl": "cuda", "xccl": "xpu"}  # backends that take no tensors of the CPU


def number(names, standard):
    """The first variable of NAMES that is a number."""
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return standard


def distributed():
    """torch.distributed once the script has initialized it, else None."""
    module = sys.modules.get("torch.distributed")
    ready = module and module.is_available() and module.is_initialized()
    return module if ready else None


def cuda():
    """torch.cuda once the script uses it, else None."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "cuda", None)
    return module if module and module.is_available() and module.is_initialized() else None


def rank():
    dist = distributed()
    return dist.get_rank() if dist else number(RANK, 0)


def world():
    dist = distributed()
    return dist.get_world_size() if dist else number(WORLD, 1)


def device():
    dist = distributed()
    return DEVICE.get(dist.get_backend(), "cpu") if dist else "cpu"


def exchange(row):
    """Every rank's ROW of numbers, in the order of ranks; only ours without torch.distributed."""
    dist = distributed()
    if not dist or dist.get_world_size() == 1:
        return [list(row)]
    mine, rows = buffers(len(row), dist.get_world_size())
    mine.copy_(sys.modules["torch"].tensor(row, dtype=mine.dtype))
    dist.all_gather(rows, mine)
    return [other.tolist() for other in rows]


def buffers(count, ranks):
    """Tensors for COUNT numbers of this rank, and of all; made once and never freed.

    If the last reference to a tensor went in a thread of gloo while the main thread destroys the
    process group, both would wait for each other: the one for the interpreter's lock, the other
    for the thread (seen in torch 1.13).
    """
    key = (count, ranks, device())
    if key not in KEPT:
        torch = sys.modules["torch"]
        KEPT[key] = [
            torch.zeros(count, dtype=torch.float64, device=device()) for _ in range(ranks + 1)
        ]
    return KEPT[key][0], KEPT[key][1:]


def barrier():
    exchange([0.0])


def high_water():
    """Bytes of this process's resident memory at most; 0 where /proc does not say."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def memory(before):
    """Bytes that training took so far: of the accelerator, or of this process above BEFORE."""
    module = cuda()
    return module.max_memory_allocated() if module else max(0, high_water() - before)
