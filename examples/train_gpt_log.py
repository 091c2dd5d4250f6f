"""What train_gpt.py writes about a run: a CSV file, TensorBoard's files and a picture."""

from __future__ import annotations

import csv
from pathlib import Path
from types import TracebackType

import gpt_curve

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    SummaryWriter = None  # it needs the package tensorboard


COLUMNS = ("step", "loss", "validation_loss", "lr", "tokens_per_s")


class RunLog:
    """A row for every step, as CSV and for TensorBoard; what came after step `start` is dropped.

    So a run that goes on from a checkpoint writes each step once.
    """

    def __init__(self, folder: Path, start: int) -> None:
        self.path = folder / "log.csv"
        kept = [row for row in read(self.path) if int(row["step"]) <= start] if start else []
        folder.mkdir(parents=True, exist_ok=True)
        self.file = self.path.open("w", newline="", buffering=1)
        self.table = csv.DictWriter(self.file, COLUMNS)
        self.table.writeheader()
        self.table.writerows(kept)
        self.board = None
        if SummaryWriter is None:
            print("no TensorBoard files are written: pip install tensorboard, if you want them")
        else:
            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)

    def write(
        self, step: int, loss: float, validation: float | None, lr: float, tokens_per_s: int
    ) -> None:
        values = dict(zip(COLUMNS, (step, loss, validation, lr, tokens_per_s), strict=True))
        self.table.writerow(values)
        if self.board is not None:
            for name in COLUMNS[1:]:
                if values[name] is not None:
                    self.board.add_scalar(name, values[name], step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the files, and draw the losses."""
        self.file.close()
        if self.board is not None:
            self.board.close()
        draw(self.path, self.path.with_name("loss.png"))


def read(path: Path) -> list[dict[str, str]]:
    """The whole rows of a log; the last one may have been cut off."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


def draw(log: Path, picture: Path) -> None:
    """Draw the losses of a log into a PNG file."""
    rows = read(log)
    if rows:
        losses = [float(row["loss"]) for row in rows]
        measured = [(int(row["step"]), row["validation_loss"]) for row in rows]
        gpt_curve.save(
            losses,
            str(picture),
            "GPT",
            "loss (nats per token)",
            {step: float(loss) for step, loss in measured if loss},
            first=measured[0][0],
        )
