"""The training step of train_gpt.py: optimizer, schedule, accumulation and precision."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TypeAlias

from gpt import GPT, loss_of
from gpt_stages import Stage

import onefold as flow
from onefold import nn
from onefold.optim.lr_scheduler import CosineDecayLR, WarmupLR
from onefold.utils.data import GlobalLoader

# Tokens, and those that follow them (batch, length), to the loss of each micro-batch.
TrainStep: TypeAlias = Callable[[flow.Tensor, flow.Tensor], flow.Tensor]
Batch: TypeAlias = tuple[flow.Tensor, flow.Tensor]


def initialize(model: GPT) -> None:
    """Draw the weights as GPT-2 does: layers that end a shortcut's branch begin smaller."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            ends = name.endswith(("out.weight", "down.weight"))
            deep = (2 * len(model.blocks)) ** -0.5 if ends else 1.0
            nn.init.normal_(parameter, std=0.02 * deep)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def make_optimizer(args: argparse.Namespace, model: GPT) -> flow.optim.AdamW:
    """AdamW, in which matrices decay, and biases and norms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": args.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return flow.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))


def make_schedule(args: argparse.Namespace, optimizer: flow.optim.AdamW) -> WarmupLR:
    """A line up to the learning rate, then half a cosine down to the least."""
    falling = max(args.steps - args.warmup, 1)
    cosine = CosineDecayLR(optimizer, falling, args.min_lr / args.lr)
    return WarmupLR(cosine, 1 / max(args.warmup, 1), args.warmup, warmup_prefix=True)


def autocast(args: argparse.Namespace) -> AbstractContextManager[object]:
    """What matrix products run in."""
    if args.precision == "float32":
        return nullcontext()
    return flow.amp.autocast(args.device, dtype=flow.bfloat16)


class TrainingGraph(nn.Graph):
    """The step as a program, which runs the micro-batches, clips and updates."""

    def __init__(
        self,
        args: argparse.Namespace,
        model: GPT,
        optimizer: flow.optim.Optimizer,
        schedule: WarmupLR,
    ) -> None:
        super().__init__()
        self.model = model
        self.clip = args.clip
        self.add_optimizer(optimizer, lr_sch=schedule)
        self.config.set_gradient_accumulation_steps(args.micro_batches)
        if args.precision == "bfloat16":
            self.config.enable_amp(dtype=flow.bfloat16)
        if len(model.layout) > 1 and args.micro_batches > 1:
            model.set_stages()  # so that they work at the same time
        for block in model.blocks:
            block.to(nn.graph.GraphModule).activation_checkpointing = args.checkpoint

    def build(self, tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        loss = loss_of(self.model, tokens, following)
        loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        return loss


def eager_step(
    args: argparse.Namespace, model: GPT, optimizer: flow.optim.Optimizer, schedule: WarmupLR
) -> TrainStep:
    """The same step, run at once."""

    def step(tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        losses = []
        parts = (micro_batches(x, args.micro_batches) for x in (tokens, following))
        for part in zip(*parts, strict=True):
            with autocast(args):
                loss = loss_of(model, *part)
            (loss / args.micro_batches).backward()
            losses.append(loss.detach())
        if args.clip:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        return flow.stack(losses)

    return step


def micro_batches(x: flow.Tensor, count: int) -> list[flow.Tensor]:
    """Parts of a batch, laid out as it is."""
    return [x] if count == 1 else [part.to_global(sbp=x.sbp) for part in x.chunk(count)]


def batches(loader: GlobalLoader, last: Stage) -> Iterator[Batch]:
    """The rest of an epoch: windows without their last token, and without their first one."""
    for window in loader:
        tokens, following = window[:, :-1], window[:, 1:]
        yield tokens, following.to_global(last.placement, last.data)


def without_end(loader: GlobalLoader, last: Stage) -> Iterator[Batch]:
    """Epoch after epoch."""
    while True:
        yield from batches(loader, last)


def evaluate(args: argparse.Namespace, model: GPT, loader: GlobalLoader) -> float:
    """The mean loss of the first batches of the validation text."""
    losses = []
    model.eval()
    with flow.no_grad(), autocast(args):
        for tokens, following in islice(batches(loader, model.layout[-1]), args.eval_batches):
            losses.append(loss_of(model, tokens, following).item())
    model.train()
    return sum(losses) / len(losses)
