"""DistributedSampler: the part of a data set that this process reads."""

from __future__ import annotations

from typing import Any, TypeVar

from torch.utils import data as torch_data
from torch.utils.data import Dataset

from ...distributed.topology import get_rank
from ...distributed.world import world

T_co = TypeVar("T_co", covariant=True)


class DistributedSampler(torch_data.DistributedSampler[T_co]):
    """torch's DistributedSampler, by default over the processes of the job.

    A process that no launcher started owns every rank and reads everything. Processes that hold
    the same part of a batch (tensor parallelism) must be given the same `rank`;
    `utils.data.GlobalLoader` finds the parts from the placement.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = world().size if world().launched else 1
        if rank is None:
            rank = get_rank()
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
