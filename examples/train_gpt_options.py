"""The command line of train_gpt.py."""

from __future__ import annotations

import argparse
import math
import sysconfig
from pathlib import Path

import torch
from layouts import STRATEGIES, set_ranks

# What must be the same when a run goes on: the model, the order of the text, the optimizer.
KEPT = "layers heads width length batch lr weight_decay seed".split()


class UsageError(Exception):
    """A run that cannot be; the message says why, and what to do."""


def parser(description: str | None) -> argparse.ArgumentParser:
    strategies = "\n".join(f"  {name:<8}{row[0]}" for name, row in STRATEGIES.items())
    found = argparse.ArgumentParser(
        description=description,
        epilog=f"strategies:\n{strategies}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for group, options in OPTIONS.items():
        add = found.add_argument_group(group).add_argument
        for name, settings in options.items():
            add(name, **settings)
    return found


def number(default: float, text: str = "") -> dict[str, object]:
    """An option with a number."""
    return {"type": type(default), "default": default, "help": f"{text} (default: {default})"}


def choice(default: str, *others: str, text: str) -> dict[str, object]:
    """An option with one of some words."""
    values = (default, *others)
    return {"choices": values, "default": default, "help": f"{text} (default: {default})"}


DEVICES = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu", "cuda")

OPTIONS: dict[str, dict[str, dict[str, object]]] = {
    "text": {
        "--data": {"help": "folder of text (default: Python's standard library)"},
        "--files": {"help": "pattern of names (default: '*'; of the standard library '*.py')"},
        "--max-mb": number(10.0, "megabytes of text that are read at most"),
        "--vocabulary": number(512, "tokens: 256 are bytes alone, more are byte pairs"),
        "--validation": number(0.05, "share of the text that is not trained on"),
    },
    "model": {
        "--layers": number(4),
        "--heads": number(4, "of attention in each layer"),
        "--width": number(128, "channels"),
        "--length": number(128, "tokens seen at once"),
        "--dropout": number(0.0),
    },
    "training": {
        "--steps": number(1000, "updates of the whole run"),
        "--batch": number(16, "windows of text in a step, on all ranks together"),
        "--micro-batches": number(1, "parts of a batch, run in turn; in graphs, by stages at once"),
        "--lr": number(2e-3, "greatest learning rate"),
        "--min-lr": number(2e-4, "learning rate at the end of the cosine"),
        "--warmup": number(50, "steps in which the learning rate rises"),
        "--weight-decay": number(0.1, "of matrices"),
        "--clip": number(1.0, "greatest norm of the gradients; 0: any"),
        "--precision": choice("float32", "bfloat16", text="of matrix products"),
        "--recompute": {
            "action": "store_true",
            "dest": "checkpoint",
            "help": "make activations again in backward: less memory",
        },
        "--seed": number(0),
    },
    "ranks": {
        "--strategy": choice(
            "dp", *(name for name in STRATEGIES if name != "dp"), text="see below"
        ),
        "--ranks": {"type": int, "help": "default: the launched world's, else 1"},
        "--device": choice(*DEVICES, text="where tensors are"),
        "--graph": {"action": "store_true", "help": "capture the step as a graph"},
    },
    "run": {
        "--out": {"default": "gpt_run", "help": "folder of the run (default: gpt_run)"},
        "--eval-every": number(100, "steps from one validation to the next"),
        "--eval-batches": number(8, "batches of a validation"),
        "--save-every": number(200, "steps from one checkpoint to the next"),
        "--keep-last": number(2, "checkpoints to keep"),
        "--resume": {
            "default": "auto",
            "metavar": "auto|never|FOLDER",
            "help": "go on from the newest checkpoint of --out (auto), or from this one",
        },
        "--sample": number(200, "tokens to write at the end"),
        "--temperature": number(0.8, "of what it writes: less is more likely"),
        "--prompt": {"default": "", "help": "text that they continue"},
    },
}


def parse(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """The options; ends the program with exit code 2 and a message when they make no sense."""
    given = parser(description)
    args = given.parse_args(arguments)
    set_ranks(given, args, 1)
    if args.files is None:
        args.files = "*" if args.data else "*.py"
    args.data = str(Path(args.data or sysconfig.get_paths()["stdlib"]).absolute())
    args.out = Path(args.out)
    wrong = fault(args)
    if wrong is not None:
        given.error(wrong)
    return args


AT_LEAST_1 = "ranks layers heads width length steps batch micro_batches eval_every eval_batches"


def fault(args: argparse.Namespace) -> str | None:
    """Options that make no sense, alone or together."""
    for name in [*AT_LEAST_1.split(), "save_every", "keep_last"]:
        if getattr(args, name) < 1:
            return f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}"
    for name in "warmup weight_decay clip min_lr sample".split():
        value = getattr(args, name)
        if not 0 <= value < math.inf:
            return f"--{name.replace('_', '-')} must be at least 0, not {value}"
    if args.min_lr > args.lr:
        return f"--lr must be at least --min-lr ({args.min_lr}), not {args.lr}"
    if not 256 <= args.vocabulary <= 4096:
        return f"--vocabulary must be 256 to 4096, not {args.vocabulary}"
    if not 0 < args.validation < 1:
        return f"--validation must be between 0 and 1, not {args.validation}"
    for name in ("lr", "max_mb", "temperature"):
        if not 0 < getattr(args, name) < math.inf:
            return f"--{name.replace('_', '-')} must be above 0, not {getattr(args, name)}"
    if args.width % args.heads:
        return f"--width {args.width} must be divisible by --heads {args.heads}"
    if args.batch % args.micro_batches:
        return (
            f"--batch {args.batch} cannot be cut into {args.micro_batches} --micro-batches; "
            "choose a number of them that divides it"
        )
    staged = args.strategy == "pp" and args.graph and args.micro_batches > 1
    if staged and args.layers < args.ranks:
        return f"--layers {args.layers} are too few for {args.ranks} stages; each needs a layer"
    return None
