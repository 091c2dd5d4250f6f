"""Kills ranks at random moments: the run must end with the bits of one that nobody disturbed.

    python benchmarks/kill_training.py               # 20 kills on 2 and on 4 ranks, some minutes
    python benchmarks/kill_training.py --kills 3 --ranks 2

A small model is trained with AdamW, dropout and a checkpoint after every step. Half of the kills
come while a checkpoint is saved. After each the launcher starts the ranks again, which verify the
last complete checkpoint and load it. Writes results/kill_training.json; ends with status 1 if any
loss differs, or if a checkpoint that is called complete cannot be read.
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
    if newest := flow.checkpoint.latest(folder):
        flow.checkpoint.verify(newest)
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
        self._losses_to_go = 0  # until the next kill, if it is to come while a checkpoint is saved
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            self._go(Path(folder), steps)

    def _go(self, folder: Path, steps: int) -> None:
        launch = [sys.executable, "-m", "onefold.distributed.launch"]
        options = ["--nproc_per_node", str(self._ranks), "--max_restarts", str(self._kills)]
        program = [__file__, "--train", str(folder / "run"), "--steps", str(steps)]
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
                Timer(self._random.uniform(0.0, 0.02), self._kill).start()

    def _started(self, step: int) -> None:
        """Plan the next kill: at any time, or while a checkpoint is saved, which follows a loss."""
        self.starts.append(step)
        if len(self.starts) > self._kills:
            return
        if len(self.starts) % 2:
            self._losses_to_go = self._random.randint(1, 40)
        else:
            Timer(self._random.uniform(0.0, 1.5), self._kill).start()

    def _kill(self) -> None:
        pids, self._pids = self._pids, {}
        with suppress(ProcessLookupError):
            os.kill(pids[self._random.randrange(self._ranks)], signal.SIGKILL)


def main() -> None:
    """Compare disturbed runs with undisturbed ones; or be one rank of a run."""
    options = timing.options(__doc__)
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="of each run")
    options.add_argument("--kills", type=int, default=20, help="on each number of ranks")
    options.add_argument("--steps", type=int, default=800, help="of a run (default 800)")
    options.add_argument("--train", metavar="FOLDER", help="be a rank that saves there")
    chosen = options.parse_args()
    if chosen.train:
        train(chosen.train, chosen.steps)
        return
    rows, problems = [], []
    for ranks in chosen.ranks:
        calm, killed = (Run(ranks, chosen.steps, kills) for kills in (0, chosen.kills))
        different = [step for step, loss in calm.losses.items() if killed.losses.get(step) != loss]
        rows.append(
            {
                "ranks": ranks,
                "steps": chosen.steps,
                "kills": len(killed.starts) - 1,
                "resumed at": killed.starts[1:],
                "losses that differ": len(different),
                "problems": len(killed.problems),
            }
        )
        problems += calm.problems + killed.problems
        print(rows[-1], flush=True)
    print(*problems, sep="\n")
    timing.save("kill_training", {"rows": rows})
    sys.exit(bool(problems) or any(row["losses that differ"] for row in rows))


if __name__ == "__main__":
    main()
