"""Where in an epoch a loader is, so that a run that was stopped goes on with the next batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from weakref import ReferenceType, ref

from ...engine.generator import default_generator
from ...errors import OnefoldValueError


class RestOfSampler:
    """The samples of a sampler after the first ones: once, then all of them.

    torch asks for an iterator more than once before it takes the first sample.
    """

    def __init__(self, sampler: Any, skipped: int) -> None:
        self.sampler = sampler
        self.skipped = skipped
        self._rest: Iterator[Any] | None = None

    def start(self) -> None:
        """Draw the samples, unless they are drawn already, and skip the first ones."""
        if self._rest is None:
            self._rest = iter(self.sampler)
            for _ in islice(self._rest, self.skipped):
                pass

    def __iter__(self) -> Iterator[Any]:
        return self if self._rest is None else iter(self.sampler)

    def __next__(self) -> Any:
        self.start()
        assert self._rest is not None
        return next(self._rest)

    def __len__(self) -> int:
        return len(self.sampler)


class Position:
    """The running iteration of a loader: how far it is, and from what its order was drawn."""

    def __init__(self) -> None:
        self._iterator: ReferenceType[Any] | None = None
        self._skipped = 0  # of the running iteration, before it began
        self._drawn_from: list[Any] = []  # the generators' states when it began
        self._resume: tuple[int, list[Any]] | None = None

    def begin(self, generators: list[Any]) -> int:
        """Note the generators of an iteration, set to where it began; how many batches to skip."""
        self._iterator = None
        self._skipped = 0
        if self._resume is not None:
            self._skipped, states = self._resume
            self._resume = None
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
        self._drawn_from = [generator.get_state() for generator in generators]
        return self._skipped

    def runs(self, iterator: Any) -> None:
        """Note the iterator, which counts what it has given."""
        self._iterator = ref(iterator)

    @property
    def batch(self) -> int:
        """How many batches the running iteration has given; 0 where none runs."""
        iterator = None if self._iterator is None else self._iterator()
        if iterator is None:
            return 0
        given: int = iterator._num_yielded
        return self._skipped + given

    def state(self, generators: list[Any]) -> dict[str, Any]:
        """How far the iteration is, and the generators: when it began, and now.

        Of the default generator the state of now is not the loader's.
        """
        batch, drawn_from = self.batch, self._drawn_from
        if self._resume is not None:
            batch, drawn_from = self._resume
        now = [None if each is default_generator else each.get_state() for each in generators]
        return {"batch": batch, "drawn_from": list(drawn_from) if batch else [], "now": now}

    def load(self, state: Mapping[str, Any], generators: list[Any]) -> None:
        """Let the next iteration go on from a state; OnefoldValueError for that of another."""
        batch, drawn_from, now = state["batch"], state["drawn_from"], state["now"]
        lengths = (len(generators) if batch else 0, len(generators))
        if type(batch) is not int or batch < 0 or (len(drawn_from), len(now)) != lengths:
            raise OnefoldValueError(
                f"this loader has {len(generators)} generators, but the state is at batch "
                f"{batch!r} with those of {len(now)}; make the loader, its samplers and "
                "generators as those that were saved"
            )
        for generator, own in zip(generators, now, strict=True):
            if own is not None:
                generator.set_state(own)
        self._resume = (batch, list(drawn_from)) if batch else None
        self._iterator = None


def generators_of(loader: Any) -> list[Any]:
    """The generators that give a loader its order: its own, and those of its samplers."""
    found: list[Any] = [getattr(loader, "source", None) or default_generator]
    samplers = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    while samplers:
        sampler = samplers.pop()
        if sampler is not None:
            by_torch = getattr(sampler, "generator", None)  # ours create one from their source
            given = getattr(sampler, "source", by_torch)
            if given is not None and all(given is not each for each in found):
                found.append(given)
            samplers += [getattr(sampler, name, None) for name in ("sampler", "batches")]
    return found
