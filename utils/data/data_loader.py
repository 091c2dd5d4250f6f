"""DataLoader: torch's loader with batches of local tensors, seeded by onefold's generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from torch.utils import data as torch_data
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from ...engine.generator import manual_seed
from ...engine.global_mode import global_mode
from .collate import default_collate, default_convert
from .loader_position import Position, RestOfSampler, generators_of
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
    come from `flow.manual_seed`; every epoch draws a new order.

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
        self.position = Position()
        self._rest: RestOfSampler | None = None
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
        self.generator: Any = generator

    # Where it is.

    def state_dict(self) -> dict[str, Any]:
        """How many batches the running iteration has given, and from what its order was drawn.

        Between two iterations it says that the next begins at its start.
        """
        epoch = getattr(self._epoch_sampler(), "epoch", None)
        return {**self.position.state(generators_of(self)), "epoch": epoch}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iteration be the rest of the one that was saved.

        Its batches are the same, when the generators have their saved states too; samples of
        batches that were given are not read again, unless the data set is iterable. Random numbers
        that worker processes draw for themselves start over. Raises OnefoldValueError for the
        state of a loader with other generators.
        """
        self.position.load(state_dict, generators_of(self))
        if state_dict["epoch"] is not None:
            self._epoch_sampler().set_epoch(state_dict["epoch"])

    def _epoch_sampler(self) -> Any:
        """The sampler that may count epochs."""
        return getattr(self.batch_sampler, "sampler", self.sampler)

    @property
    def _index_sampler(self) -> Any:
        return super()._index_sampler if self._rest is None else self._rest

    def _get_iterator(self) -> Any:
        return super()._get_iterator() if self.num_workers else _LocalBatches(self)

    @global_mode(False)
    def __iter__(self) -> Any:
        sources = generators_of(self)
        now = [source.get_state() for source in sources]
        skipped = self.position.begin(sources)
        try:
            self.generator = torch_generator(self.source)  # of the workers' seeds
            iterator = self._resumed(skipped) if skipped else super().__iter__()
        finally:
            self.generator = self.source
            if skipped:  # what was drawn when the iteration began was drawn before the save
                for source, state in zip(sources, now, strict=True):
                    source.set_state(state)
        self.position.runs(iterator)
        return iterator

    def _resumed(self, skipped: int) -> Any:
        """An iterator behind the first batches."""
        if isinstance(self.dataset, IterableDataset):
            iterator = super().__iter__()
            for _ in range(skipped):
                next(iterator, None)
            iterator._num_yielded = 0  # the position counts the others
            return iterator
        rest = self._rest = RestOfSampler(self._index_sampler, skipped)
        try:
            iterator = super().__iter__()
        finally:
            self._rest = None
        rest.start()
        return iterator
