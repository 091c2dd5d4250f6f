"""The command line of the GPT example."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpt_stages import STAGED, STRATEGIES
from layouts import set_ranks

from onefold.graph.schedules.named_schedules import SCHEDULES


def parser(description: str | None) -> argparse.ArgumentParser:
    strategies = "\n".join(f"  {name:<8}{text}" for name, text in STRATEGIES.items())
    found = argparse.ArgumentParser(
        description=description,
        epilog=f"strategies:\n{strategies}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--strategy", choices=tuple(STRATEGIES), default="mixed", help="see below")
    add("--list", action="store_true", help="print which ranks would hold what, and end")
    add("--ranks", type=int, help="default: the launched world's, else 4")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--graph", action="store_true", help="capture the step as a graph")
    add("--micro-batches", type=int, help="per step, of a graph; default 1, with a schedule 4")
    add("--schedule", choices=tuple(SCHEDULES), help="let the stages of a graph overlap")
    add("--chunks", type=int, help="stages per rank of pp or mixed; default 1, of interleaved 2")
    add("--schedule-picture", metavar="PNG", help="draw the schedule into this file")
    add("--checkpoint", action="store_true", help="make activations again in backward: less memory")
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=16)
    add("--length", type=int, default=64, help="bytes seen at once")
    add("--layers", type=int, default=4)
    add("--heads", type=int, default=4)
    add("--width", type=int, default=64)
    add("--dropout", type=float, default=0.1)
    add("--lr", type=float, default=2e-3)
    add("--seed", type=int, default=0)
    add("--data", help="folder of .py files (default: the standard library)")
    add("--sample", type=int, default=200, help="bytes to draw at the end")
    add("--curve", default="gpt_loss.png", help="where to draw it ('': nowhere)")
    add("--losses", help="write the loss of every step to this JSON file")
    return found


def parse(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """The options; ends the program with exit code 2 and a message when they make no sense."""
    given = parser(description)
    args = given.parse_args(arguments)
    set_ranks(given, args, 4)
    if args.micro_batches is None:
        args.micro_batches = 4 if args.schedule and args.graph else 1
    if args.chunks is None:
        args.chunks = (SCHEDULES[args.schedule].stages_per_rank or 2) if args.schedule else 1
    for name in "micro_batches chunks steps batch length layers heads width".split():
        if getattr(args, name) < 1:
            given.error(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}")
    wrong = None if args.list else fault(args) or stage_fault(args)
    if wrong is not None:
        given.error(wrong)
    return args


def fault(args: argparse.Namespace) -> str | None:
    """Options that do not go together."""
    for option, value in (
        ("--schedule", args.schedule),
        ("--micro-batches", args.micro_batches != 1),
    ):
        if value and not args.graph:
            return f"{option} needs --graph"
    if args.schedule_picture and not args.schedule:
        return "--schedule-picture needs --schedule"
    folder = Path(args.schedule_picture or ".").parent
    if not folder.is_dir():
        return f"--schedule-picture: there is no folder {str(folder)!r}"
    if args.batch % args.micro_batches:
        return f"--batch {args.batch} cannot be cut into {args.micro_batches} --micro-batches"
    if args.width % args.heads:
        return f"--width {args.width} must be divisible by --heads {args.heads}"
    return None


def stage_fault(args: argparse.Namespace) -> str | None:
    """Stages that the strategy does not have, or that the schedule cannot run."""
    name, chunks = args.schedule, args.chunks
    for option, value in (("--schedule", name), ("--chunks", chunks != 1)):
        if value and args.strategy not in STAGED:
            return f"{option} needs --strategy {' or '.join(STAGED)}; {args.strategy} has one stage"
    if name is None:
        return None
    if args.ranks < 2:
        return f"--schedule needs at least 2 ranks, but --ranks is {args.ranks}"
    wanted = SCHEDULES[name].stages_per_rank
    if wanted == 1 != chunks:
        return f"--chunks {chunks} needs --schedule interleaved; {name} has one stage per rank"
    if wanted not in (None, chunks):
        return f"--schedule {name} has {wanted} stages per rank, so --chunks cannot be {chunks}"
    count = chunks * (args.ranks if args.strategy == "pp" else 2)
    if args.layers < count:
        return f"--layers {args.layers} are too few for {count} stages; each stage needs a layer"
    return None
