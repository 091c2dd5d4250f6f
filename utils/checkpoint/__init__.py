"""checkpoint and checkpoint_sequential, with torch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...engine.checkpoint import checkpoint as _checkpoint
from ...engine.names import Function
from ...errors import OnefoldValueError

R = TypeVar("R")


def checkpoint(
    function: Callable[..., R],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> R:
    """`function(*args, **kwargs)`, whose activations are recomputed in backward instead of kept.

    See `onefold.checkpoint.checkpoint`. Random numbers always repeat, and there is one
    implementation, so `use_reentrant` and `preserve_rng_state` change nothing.
    """
    return _checkpoint(function, *args, **kwargs)


def checkpoint_sequential(
    functions: Iterable[Function],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: bool,
) -> Any:
    """Functions (or the modules of a Sequential), one after the other, checkpointed in segments.

    The last segment keeps its activations, as in torch. Raises OnefoldValueError unless
    1 <= segments <= number of functions.
    """
    steps = list(functions)
    if not 1 <= segments <= len(steps):
        raise OnefoldValueError(
            f"checkpoint_sequential: {len(steps)} functions cannot be divided into {segments} "
            f"segments; allowed are 1 to {len(steps)}"
        )

    def run(part: list[Function], value: Any) -> Any:
        for step in part:
            value = step(value)
        return value

    size = len(steps) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(run, steps[start : start + size], input)
    return run(steps[last:], input)
