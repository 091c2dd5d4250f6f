"""DataLoader: torch's loader with batches of local tensors, seeded by onefold's generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from torch.utils import data as torch_data
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from ...engine.generator import manual_seed
from ...engine.global_mode import global_mode
from .collate import default_collate, default_convert
from .samplers import AnyGenerator, RandomSampler, torch_generator

T_co = TypeVar("T_co", covariant=True)


class _Seeded:
    """What a worker does first: it takes random numbers of its own, then the user's function."""

    def __init__(self, function: Callable[[int], object] | None) -> None:
        self.function = function

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        manual_seed(info.seed)
        global_mode(False).__enter__()  # for as long as the worker lives: samples are local
        if self.function is not None:
            self.function(worker)


class _LocalBatches(_SingleProcessDataLoaderIter):
    """Batches that are made in this process, of local tensors in a `global_mode` too."""

    @global_mode(False)
    def _next_data(self) -> Any:
        batches: Any = super()
        return batches._next_data()


class DataLoader(torch_data.DataLoader[T_co]):
    """Batches of a data set, with torch's arguments; `generator` is a `flow.Generator` or torch's.

    Batches hold local tensors (`default_collate`), also where worker processes make them and in a
    `global_mode`, which is off while samples are read. The order and the workers' random numbers
    come from `flow.manual_seed`; every epoch draws anew.

    >>> import onefold as flow
    >>> from onefold.utils.data import TensorDataset
    >>> [x] = next(iter(DataLoader(TensorDataset(flow.ones(3, 2)), batch_size=2)))
    >>> x.shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[T_co]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: AnyGenerator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.source = generator
        by_place = not isinstance(dataset, IterableDataset) and batch_sampler is None
        if shuffle and sampler is None and by_place:
            sampler, shuffle = RandomSampler(cast("Any", dataset), generator=generator), None
        if collate_fn is None:
            whole = batch_size is not None or batch_sampler is not None
            collate_fn = default_collate if whole else default_convert
        super().__init__(
            dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn,
            pin_memory, drop_last, timeout, _Seeded(worker_init_fn), multiprocessing_context,
            prefetch_factor=prefetch_factor, persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device, in_order=in_order,
        )  # fmt: skip

    def _get_iterator(self) -> Any:
        return super()._get_iterator() if self.num_workers else _LocalBatches(self)

    @global_mode(False)
    def __iter__(self) -> Any:
        self.generator = torch_generator(self.source)  # of the workers' seeds
        return super().__iter__()
