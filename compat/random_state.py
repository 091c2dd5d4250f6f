"""The state of random numbers under torch's path (`flow.random`): that of the default generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from ..engine.argument_types import DeviceLike
from ..engine.commit import restored
from ..engine.generator import (
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


@contextmanager
def fork_rng(
    devices: Iterable[DeviceLike] | None = None,
    enabled: bool = True,
    *,
    device_type: str | None = None,
) -> Iterator[None]:
    """Give the default generator back the state that it had before the block.

    One generator serves all devices, so `devices` and `device_type` change nothing. With
    `enabled=False` the state stays as the block leaves it.

    >>> import onefold as flow
    >>> with flow.random.fork_rng():
    ...     drawn = flow.rand(3).tolist()
    >>> flow.rand(3).tolist() == drawn
    True
    """
    if not enabled:
        yield
        return
    with restored(partial(default_generator.set_state, default_generator.get_state())):
        yield
