"""Samplers whose order is drawn from onefold's generator, a new one in every epoch.

One seed gives one order on every process; `flow.manual_seed` is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized

import torch
from torch.utils import data as torch_data

from ...engine import interpreter
from ...engine.generator import Generator
from ...engine.names import names

AnyGenerator = Generator | torch.Generator


def torch_generator(generator: AnyGenerator | None) -> torch.Generator:
    """A generator of torch, seeded by one draw of onefold's (None: the default one).

    A generator of torch is given back as it is.
    """
    if isinstance(generator, torch.Generator):
        return generator
    with interpreter.using(None):
        seed: int = names.randint(0, 1 << 62, (1,), generator=generator).item()
    return torch.Generator().manual_seed(seed)


class RandomSampler(torch_data.RandomSampler):
    """The places of a data set in a random order, or (`replacement`) drawn independently.

    `generator` is a `flow.Generator` or torch's. Raises ValueError where there is nothing to draw.

    >>> import onefold as flow
    >>> sorted(RandomSampler(range(4), generator=flow.Generator()))
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: AnyGenerator | None = None,
    ) -> None:
        super().__init__(data_source, replacement, num_samples)
        self.source = generator

    def __iter__(self) -> Iterator[int]:
        self.generator = torch_generator(self.source)
        return super().__iter__()


class SubsetRandomSampler(torch_data.SubsetRandomSampler):
    """The given places in a random order."""

    def __init__(self, indices: Sequence[int], generator: AnyGenerator | None = None) -> None:
        super().__init__(indices)
        self.source = generator

    def __iter__(self) -> Iterator[int]:
        self.generator = torch_generator(self.source)
        return super().__iter__()


class WeightedRandomSampler(torch_data.WeightedRandomSampler):
    """`num_samples` places, drawn with these probabilities (which need not sum to 1)."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: AnyGenerator | None = None,
    ) -> None:
        super().__init__(weights, num_samples, replacement)
        self.source = generator

    def __iter__(self) -> Iterator[int]:
        self.generator = torch_generator(self.source)
        return super().__iter__()
