"""Trials of transformers_test.py: Hugging Face's Trainer, or Accelerate's loop, over a small GPT-2."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import partune


class Data(torch.utils.data.Dataset):
    def __init__(self, seq):
        self.ids = torch.randint(64, (4096, seq), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Fails(GPT2LMHeadModel):
    """Rank 1 asks for more memory than there is, or its loss is not a number, in the third step."""

    calls = 0

    def forward(self, input_ids=None, labels=None, **more):  # the Trainer passes what it finds here
        out = super().forward(input_ids=input_ids, labels=labels, **more)
        self.calls += 1
        if self.calls == 3 and torch.distributed.get_rank() == 1:
            if sys.argv[2] == "oom":
                torch.empty(1 << 60)
            out.loss = out.loss * float("nan")
        return out


def by_trainer(trial, model, data, tokens):
    args = TrainingArguments(
        output_dir=sys.argv[3],
        per_device_train_batch_size=trial.layout.micro_batch,
        gradient_accumulation_steps=trial.micro_batches,
        gradient_checkpointing=trial.layout.recompute == "full",
        max_steps=100,
        logging_steps=1,
        logging_nan_inf_filter=False,
        use_cpu=True,
        ddp_backend="gloo",  # a PyTorch with MPI would start each rank of torchrun alone
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    callback = partune.callbacks.transformers(trial, tokens)
    Trainer(model, args, train_dataset=data, callbacks=[callback]).train()


def by_accelerate(trial, model, data, tokens):
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=trial.micro_batches,
        kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")],
    )
    loader = torch.utils.data.DataLoader(data, trial.layout.micro_batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    batches = iter(loader)
    while not trial.done:
        with trial.step(tokens=tokens) as step:
            for _ in range(trial.micro_batches):
                with accelerator.accumulate(model):
                    step.loss = model(**next(batches)).loss
                    accelerator.backward(step.loss)
                    optimizer.step()
                    optimizer.zero_grad()


with partune.trial() as trial:
    shape, work = trial.model, trial.workload
    config = GPT2Config(
        vocab_size=64,
        n_positions=work.seq,
        n_embd=shape.hidden,
        n_layer=shape.layers,
        n_head=shape.heads,
    )
    model = (GPT2LMHeadModel if sys.argv[2] == "runs" else Fails)(config)
    by = {"trainer": by_trainer, "accelerate": by_accelerate}[sys.argv[1]]
    by(trial, model, Data(work.seq), work.global_batch * work.seq)
