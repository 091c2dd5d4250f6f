"""Train a GPT on a folder of text: the whole of a real run, from one rank to many.

    python examples/train_gpt.py
    python examples/train_gpt.py --data FOLDER --out run --graph --micro-batches 4
    python -m onefold.distributed.launch --nproc_per_node 4 examples/train_gpt.py --strategy mixed

The folder --out gets the tokens, checkpoints, a log as CSV and for TensorBoard, and a picture of
the losses. Ctrl-C saves a last checkpoint. The same command goes on from the newest one, under any
strategy and number of ranks: on the same layout bit for bit as if it had not been stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import byte_pairs
import train_gpt_options
from gpt import GPT, generate, readable
from gpt_stages import Stage
from layouts import Layout
from stop_request import StopRequest
from tqdm import tqdm
from train_gpt_data import Source, Text, prepare
from train_gpt_log import RunLog
from train_gpt_options import KEPT, UsageError
from train_gpt_step import (
    TrainingGraph,
    eager_step,
    evaluate,
    initialize,
    make_optimizer,
    make_schedule,
    without_end,
)

import onefold as flow
from onefold.checkpoint import Saving
from onefold.errors import CheckpointError
from onefold.utils.data import GlobalLoader


class Run:
    """A training run: what is trained, and what a checkpoint of it holds."""

    def __init__(self, args: argparse.Namespace, text: Text) -> None:
        self.args = args
        self.checkpoints = args.out / "checkpoints"
        flow.manual_seed(args.seed)
        stages = Stage.of(Layout.of(args.strategy, args.ranks, args.device))
        self.model = GPT(args, stages, text.vocabulary)
        initialize(self.model)
        optimizer = make_optimizer(args, self.model)
        self.schedule = make_schedule(args, optimizer)
        make_step = TrainingGraph if args.graph else eager_step
        self.train_step = make_step(args, self.model, optimizer, self.schedule)
        place = {"placement": stages[0].placement, "sbp": stages[0].data, "batch_size": args.batch}
        windows, held_out = text.windows(args.length, args.batch)
        self.loader = GlobalLoader(windows, **place, shuffle=True, drop_last=True, seed=args.seed)
        self.validation = GlobalLoader(held_out, **place)
        self.kept = {name: getattr(args, name) for name in KEPT} | {"text": text.digest}
        self.state = {
            "model": self.model,
            "optimizer": optimizer,
            "schedule": self.schedule,
            "loader": self.loader,
            "generator": flow.default_generator,
            "kept": self.kept,
        }
        self.step = self.saved = self.resume()
        self.saving: Saving | None = None
        # Kept, since a checkpoint has the position of the iteration that runs.
        self.batches = without_end(self.loader, stages[-1])

    def resume(self) -> int:
        """Load a checkpoint, if there is one to go on from; the number of steps done.

        Raises UsageError where the options are not those of the checkpoint, and where others of
        later steps are in the way.
        """
        given, start = self.args.resume, 0
        found = {"auto": flow.checkpoint.latest(self.checkpoints), "never": None}.get(given, given)
        if found is not None:
            kept = flow.checkpoint.load(found, {"kept": None})["kept"]
            for name, value in self.kept.items():
                if kept[name] != value:
                    raise UsageError(
                        f"{found} is of a run with {name} {kept[name]}, not {value}; go on with "
                        "the options of that run, or begin another one with --out FOLDER"
                    )
            start = int(flow.checkpoint.load(found, self.state)["step"])
        steps = {int(path.name[5:]): path for path in self.checkpoints.glob("step-*")}
        if steps and max(steps) > start:
            raise UsageError(
                f"{steps[max(steps)]} already exists, but this run continues from step {start}; "
                "remove later checkpoints, or name another folder with --out"
            )
        return start

    def save(self) -> None:
        """Save a checkpoint of now in the background, unless there is one of this step."""
        if self.saved < self.step:
            self.saving = flow.checkpoint.save(
                self.checkpoints, self.state, self.step, keep=self.args.keep_last, async_=True
            )
            self.saved = self.step

    def finish(self) -> Path:
        """Save a last checkpoint and return its folder when it is complete."""
        self.save()
        if self.saving is not None:
            self.saving.wait()
        return self.checkpoints / f"step-{self.saved}"

    def train(self, stop: StopRequest, log: RunLog | None) -> None:
        """Train to the last step, or to the one after which some rank was asked to stop."""
        args = self.args
        bar = tqdm(initial=self.step, total=args.steps, unit="step", disable=log is None)
        validation = None
        while self.step < args.steps and not stop.agreed():
            lr = self.schedule.get_last_lr()[0]
            begun = time.perf_counter()
            loss = self.train_step(*next(self.batches)).mean().item()
            speed = args.batch * args.length / (time.perf_counter() - begun)
            self.step += 1
            measured = None
            if self.step % args.eval_every == 0 or self.step == args.steps:
                measured = validation = evaluate(args, self.model, self.validation)
            if self.step % args.save_every == 0:
                self.save()
            if log is not None:
                log.write(self.step, loss, measured, lr, round(speed))
            shown = {} if validation is None else {"validation": f"{validation:.3f}"}
            shown |= {"loss": f"{loss:.3f}", "lr": f"{lr:.1e}", "tokens/s": f"{speed:.0f}"}
            bar.set_postfix(shown, refresh=False)
            bar.update()
        bar.close()


def write(run: Run, text: Text) -> str:
    """Text that the model writes."""
    args = run.args
    start = byte_pairs.encode(args.prompt.encode(), text.pairs).tolist() or [byte_pairs.END]
    tokens = generate(run.model, start, args.sample, args.length, args.temperature)
    return readable(byte_pairs.decode(tokens, text.pairs).strip(b"\0"))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    return train_gpt_options.parse(arguments, __doc__)


def train(args: argparse.Namespace) -> int:
    """The whole run; the exit status."""
    first = flow.env.get_rank() == 0
    text = prepare(
        Source(args.data, args.files, args.max_mb, args.vocabulary, args.validation),
        args.out / "text",
    )
    run = Run(args, text)
    if first and run.step:
        print(f"goes on after step {run.step}")
    with StopRequest() as stop, RunLog(args.out, run.step) if first else nullcontext() as log:
        run.train(stop, log)
        where = run.finish()
    if run.step < args.steps:
        if first:
            after = f"the same command goes on from {where}" if run.step else "nothing was saved"
            print(f"stopped after step {run.step}; {after}")
        return 128 + (stop.received or signal.SIGINT)
    written = write(run, text)
    if first:
        (args.out / "sample.txt").write_text(written)
        print(f"{where}, {args.out / 'log.csv'}, {args.out / 'loss.png'}; the model writes:")
        print(written)
    return 0


def main() -> None:
    args = parse()
    try:
        status = train(args)
    except (UsageError, CheckpointError) as error:
        status = f"train_gpt.py: {error}" if flow.env.get_rank() == 0 else 1
    except KeyboardInterrupt:  # before the first step, or a second time
        status = 128 + signal.SIGINT
    sys.exit(status)


if __name__ == "__main__":
    main()
