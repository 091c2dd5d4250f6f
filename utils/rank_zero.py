"""What only rank 0 does: functions that others skip, and loggers that others keep quiet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..distributed.topology import get_rank

P = ParamSpec("P")
R = TypeVar("R")

_FORMAT = "%(asctime)s rank %(rank)d %(levelname)s: %(message)s"


def rank_zero_only(function: Callable[P, R]) -> Callable[P, R | None]:
    """A function that runs on rank 0 and returns None on the others.

    In one process without a launcher it always runs. It must not read the values of global tensors
    (`loss.item()`, `print(x)`), since the other ranks take part in that: read them before.

    Example:
        >>> @flow.utils.rank_zero_only
        ... def report(step, loss):
        ...     print(f"step {step}: {loss:.2f}")
        >>> report(3, flow.ones(2).mean().item())
        step 3: 1.00
    """

    @wraps(function)
    def on_rank_zero(*args: P.args, **kwargs: P.kwargs) -> R | None:
        return function(*args, **kwargs) if get_rank() == 0 else None

    return on_rank_zero


class _RankFilter(logging.Filter):
    """Lets records of rank 0 pass, or those of all, and gives each its `rank`."""

    all_ranks = False

    def filter(self, record: logging.LogRecord) -> bool:
        rank = get_rank()
        record.__dict__["rank"] = rank
        return self.all_ranks or rank == 0


def get_logger(
    name: str, level: int | str = logging.INFO, *, all_ranks: bool = False
) -> logging.Logger:
    """The logger of Python's `logging` with this name, which writes on rank 0 only.

    level: the lowest level that is written.
    all_ranks: whether every rank writes. A later call for the same name may change it.

    A logger without handlers gets one, which writes to stderr with the time and the rank; custom
    formats may use `%(rank)d`. Loggers below it ("training.data" below "training") are not filtered
    unless this function makes them too. Writing sends nothing, so any rank may log at any time.

    Example:
        >>> log = flow.utils.get_logger("training")
        >>> log.info("step %d, loss %.3f", 3, 0.5)
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    filters = [each for each in logger.filters if isinstance(each, _RankFilter)]
    if not filters:
        filters = [_RankFilter()]
        logger.addFilter(filters[0])
    filters[0].all_ranks = all_ranks
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    return logger
