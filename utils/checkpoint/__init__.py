"""checkpoint and checkpoint_sequential, with torch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import chain, repeat
from typing import Any, TypeAlias, TypeVar

from torch.utils._pytree import tree_leaves

from ...engine.argument_types import DeviceLike
from ...engine.checkpoint import checkpoint as _checkpoint
from ...engine.generator import get_rng_state, set_rng_state
from ...engine.names import Function
from ...engine.tensor import Tensor
from ...errors import OnefoldValueError

R = TypeVar("R")
Contexts: TypeAlias = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def checkpoint(
    function: Callable[..., R],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> R:
    """`function(*args, **kwargs)`, whose activations are recomputed in backward instead of kept.

    See `onefold.checkpoint.checkpoint`. `context_fn` gives two context managers: one for the call,
    and one for when it is computed again. Random numbers always repeat, and there is one
    implementation, so the other arguments of torch change nothing.
    """
    if context_fn is not None:
        function = _within(function, *context_fn())
    return _checkpoint(function, *args, **kwargs)


def _within(
    function: Callable[..., R],
    first: AbstractContextManager[Any],
    again: AbstractContextManager[Any],
) -> Callable[..., R]:
    """The function in a context: the first time it is called, and later."""
    contexts = chain([first], repeat(again))

    def call(*args: Any, **kwargs: Any) -> R:
        with next(contexts):
            return function(*args, **kwargs)

    return call


def get_device_states(*args: Any) -> tuple[list[int], list[tuple[int, int]]]:
    """The devices, but for CPUs, of the tensors in the arguments, and the random state for each.

    One generator serves all devices, so each state is that of the default generator, which
    `set_device_states` or `set_rng_state` restores.
    """
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
    away = [x.get_device() for x in tensors if x.device.type not in ("cpu", "meta")]
    return away, [get_rng_state()] * len(away)


def set_device_states(
    devices: Iterable[DeviceLike],
    states: Iterable[tuple[int, int]],
    *,
    device_type: str | None = None,
) -> None:
    """Continue from random states that `get_device_states` gave."""
    for _, state in zip(devices, states, strict=False):
        set_rng_state(state)


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
