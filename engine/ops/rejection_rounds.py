"""Rounds of sampling by rejection: a fixed number, less where all is known to be found."""

from __future__ import annotations

from ...distributed.world import world
from .. import interpreter
from ..generator import Generator, default_generator
from ..tensor import Tensor


class RejectionRounds:
    """At most `count` rounds, each with so many random calls, while some elements are missing.

    Later rounds would change nothing then. They are left out where the answer costs no wait: on
    CPUs whose values this process has. Their random calls are counted all the same, so that what is
    drawn next does not depend on it.
    """

    def __init__(self, count: int, calls: int, generator: Generator | None = None) -> None:
        self.left = count
        self.calls = calls
        self._generator = default_generator if generator is None else generator

    def again(self, missing: Tensor) -> bool:
        """Whether there is another round, while elements are True in `missing`."""
        if self.left and _none_of(missing):
            for _ in range(self.left * self.calls):
                self._generator.draw()
            self.left = 0
        self.left -= 1
        return self.left >= 0


def _none_of(x: Tensor) -> bool:
    """Whether all elements are known to be False."""
    if interpreter.capturing() or (x.is_global and world().launched):
        return False
    return all(shard.device.type == "cpu" and not shard.any() for shard in x.shards)
