"""Kills ranks at random moments: the run must end with the bits of an undisturbed one.

    python benchmarks/kill_training.py               # 20 kills on 2 and on 4 ranks, some minutes
    python benchmarks/kill_training.py --short       # 4 kills on 2 and on 4 ranks, as CI does

A small model is trained with AdamW, dropout and a checkpoint after every step. Kills come in turn
while a checkpoint is saved, at any time of training, and soon after a start. After each the
launcher starts the ranks again, which verify every complete checkpoint and load the last. Writes
results/kill_training.json, unless short; ends with status 1 if any loss differs, or if a checkpoint
that is called complete cannot be read.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Timer

import timing

import onefold as flow

LIMIT = 1200.0  # seconds for a run
SAVE = 0.02  # seconds that a save takes, at most


def train(folder: str, steps: int) -> None:
    """One rank's program."""
    rank = flow.env.get_rank()
    everyone = flow.placement.all("cpu")
    flow.manual_seed(0)
    model = flow.nn.Sequential(
        flow.nn.Linear(16, 64), flow.nn.Dropout(0.1), flow.nn.GELU(), flow.nn.Linear(64, 1)
    ).to_global(everyone, flow.sbp.broadcast)
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    state = {
        "model": model,
        "optimizer": optimizer,
        "schedule": schedule,
        "generator": flow.default_generator,
    }
    step = 0
    if flow.checkpoint.latest(folder):
        for complete in Path(folder).glob("step-*"):
            flow.checkpoint.verify(complete)
        step = flow.checkpoint.load(folder, state)["step"]
    print(f"ready {rank} {os.getpid()} {step}", flush=True)
    while step < steps:
        x = flow.randn(16, 16, placement=everyone, sbp=flow.sbp.split(0))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        step += 1
        value = loss.item()
        if rank == 0:
            print(f"loss {step} {value.hex()}", flush=True)
        flow.checkpoint.save(folder, state, step, keep=2)


class Run:
    """A job on so many ranks: its losses by step, the steps at which it started, its problems."""

    def __init__(self, ranks: int, steps: int, kills: int) -> None:
        self.losses: dict[int, str] = {}
        self.starts: list[int] = []
        self.problems: list[str] = []
        self._ranks = ranks
        self._kills = kills
        self._random = random.Random(ranks)
        self._pids: dict[int, int] = {}  # of the ranks that are ready, by rank
        self._losses_to_go = 0  # until the time of the next kill is counted
        self._within = 0.0  # the seconds after that in which it comes
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            self._go(Path(folder), steps)

    def _go(self, folder: Path, steps: int) -> None:
        launch = [sys.executable, "-m", "onefold.distributed.launch"]
        options = ["--nproc_per_node", str(self._ranks), "--max_restarts", str(self._kills)]
        program = [__file__, "--train", str(folder / "run"), str(steps)]
        errors = folder / "stderr"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                [*launch, *options, *program], stdout=subprocess.PIPE, stderr=stderr, text=True
            ) as job,
        ):
            limit = Timer(LIMIT, job.kill)
            limit.start()
            for line in job.stdout or ():
                self._read(line)
            limit.cancel()
        if job.returncode:
            self.problems.append(f"status {job.returncode}: {errors.read_text()[-2000:]}")
        if len(self.losses) != steps:
            self.problems.append(f"{len(self.losses)} losses of {steps} steps")
        if len(self.starts) != self._kills + 1:
            self.problems.append(f"{len(self.starts) - 1} kills instead of {self._kills}")

    def _read(self, line: str) -> None:
        if found := re.match(r"ready (\d+) (\d+) (\d+)", line):
            self._pids[int(found[1])] = int(found[2])
            if len(self._pids) == self._ranks:
                self._started(int(found[3]))
        elif found := re.match(r"loss (\d+) (\S+)", line):
            step, loss = int(found[1]), found[2]
            before = self.losses.setdefault(step, loss)
            if before != loss:
                self.problems.append(f"step {step}: {before}, but {loss} after a start")
            self._losses_to_go -= 1
            if self._losses_to_go == 0:
                self._kill_within(self._within)

    def _started(self, step: int) -> None:
        """Plan the next kill: while a checkpoint is saved, which follows a loss; later; at once."""
        self.starts.append(step)
        self._losses_to_go = 0
        if len(self.starts) > self._kills:
            return
        kind = len(self.starts) % 3
        if kind:
            self._losses_to_go = self._random.randint(1, 30)
            self._within = (0.0, SAVE, 0.5)[kind]
        else:
            self._kill_within(1.5)

    def _kill_within(self, seconds: float) -> None:
        Timer(self._random.uniform(0.0, seconds), self._kill).start()

    def _kill(self) -> None:
        pids, self._pids = self._pids, {}
        with suppress(ProcessLookupError):
            os.kill(pids[self._random.randrange(self._ranks)], signal.SIGKILL)


def main() -> None:
    """Compare disturbed runs with undisturbed ones; or be one rank of a run."""
    options = timing.options(__doc__)
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="of each run")
    options.add_argument("--short", action="store_true", help="4 kills, and no results written")
    options.add_argument("--train", nargs=2, help="a folder and a number of steps: be a rank")
    chosen = options.parse_args()
    if chosen.train:
        train(chosen.train[0], int(chosen.train[1]))
        return
    kills, steps = (4, 120) if chosen.short else (20, 800)
    rows, problems = [], []
    for ranks in chosen.ranks:
        calm, killed = (Run(ranks, steps, times) for times in (0, kills))
        different = [step for step, loss in calm.losses.items() if killed.losses.get(step) != loss]
        rows.append(
            {
                "ranks": ranks,
                "steps": steps,
                "kills": len(killed.starts) - 1,
                "resumed at": killed.starts[1:],
                "losses that differ": len(different),
                "problems": len(killed.problems),
            }
        )
        problems += calm.problems + killed.problems
        print(rows[-1], flush=True)
    print(*problems, sep="\n")
    if not chosen.short:
        timing.save("kill_training", {"rows": rows})
    sys.exit(bool(problems) or any(row["losses that differ"] for row in rows))


if __name__ == "__main__":
    main()
