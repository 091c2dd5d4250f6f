"""GlobalLoader: batches as global tensors, of which each process reads its own rows only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast
from zlib import crc32

import torch
from torch.utils import data as torch_data
from torch.utils._pytree import tree_is_leaf, tree_leaves, tree_map, tree_map_only
from torch.utils.data import BatchSampler, Dataset, IterableDataset

from ...distributed import collectives
from ...distributed.world import world
from ...engine.convert import read_layout
from ...engine.global_mode import global_mode
from ...engine.meta import Meta
from ...engine.placement import Placement
from ...engine.sbp import NdSbp, SbpLike, broadcast, short, split
from ...engine.tensor import Tensor, from_shards, tensor_ops
from ...engine.values import from_torch
from ...errors import (
    OnefoldTypeError,
    OnefoldValueError,
    RankMismatch,
    SbpError,
    ShapeError,
)
from .collate import default_collate
from .data_loader import DataLoader
from .distributed import DistributedSampler


class _Part(NamedTuple):
    """What a process reads of a batch."""

    places: Sequence[Any]  # in the data set
    rows: int  # how many of them it keeps: the batch's shapes need a sample, its rows may need none
    batch: int  # the size of the whole batch
    digest: int  # of the places of the whole batch, to compare


class _Loaded(NamedTuple):
    part: _Part
    data: Any


class _Parts(Dataset[Any]):
    """A data set that is asked for the parts of batches."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitems__(self, part: _Part) -> _Loaded:
        many = getattr(self.dataset, "__getitems__", None)
        samples = [self.dataset[i] for i in part.places] if many is None else many(part.places)
        return _Loaded(part, samples)


class _Collate:
    """The collation of a part's samples, with what is known of the part."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, loaded: _Loaded) -> _Loaded:
        return loaded._replace(data=self.collate(loaded.data))


class _OwnParts:
    """The batches of places, as far as this process reads them."""

    def __init__(self, batches: Iterable[Sequence[Any]], rows: Callable[[int], _Rows]) -> None:
        self.batches = batches
        self.rows = rows

    def __iter__(self) -> Iterator[_Part]:
        for batch in self.batches:
            places = list(batch)
            start, size = self.rows(len(places))
            own = places[start : start + size] or places[:1]
            yield _Part(own, size, len(places), crc32(repr(places).encode()))


_Rows = tuple[int, int]  # the first, and how many


class GlobalLoader:
    """Batches of a data set as global tensors: rows split over some mesh axes, whole over others.

    `data` is a data set (read in batches of `batch_size` samples, the sizes of the global tensors)
    or a DataLoader, whose batches, workers and collation are used. `sbp` has split(0) and broadcast
    only; by default the first axis of `placement` splits the batch and others hold all of it. A
    launched process reads no rows but its own, so each sample is read once in each group of ranks
    that share a batch. Sizes that do not divide, and a last batch that is smaller, are split as
    usual: the first ranks hold one row more. Torch's tensors in a batch become global too; other
    values stay local: of lists and tuples with an entry for each row a process keeps its own rows.

    The order of epoch e is the same for every layout and number of processes: it depends on `seed`
    and e alone. Each iteration is the next epoch; `set_epoch` continues from another. All processes
    of the job iterate together, those outside the placement too. With `check_meta` they compare
    what they read, and RankMismatch is raised on each of them where orders, shapes or dtypes
    differ. `options` are those of `DataLoader` (num_workers, collate_fn, ...). Iterable data sets
    cannot be read in part: each process reads them whole and keeps its rows.

    Raises SbpError for other layouts, and OnefoldValueError for a loader that is already a part of
    another.

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> data = flow.utils.data.TensorDataset(flow.arange(5))
    >>> for [x] in GlobalLoader(data, p, flow.sbp.split(0), batch_size=3):
    ...     print(x.tolist(), [tuple(part.shape) for part in x.shards])
    [0, 1, 2] [(2,), (1,)]
    [3, 4] [(1,), (1,)]
    """

    def __init__(
        self,
        data: Dataset[Any] | torch_data.DataLoader[Any],
        placement: Placement,
        sbp: SbpLike | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        *,
        seed: int = 0,
        check_meta: bool = True,
        **options: Any,
    ) -> None:
        self.placement, self.nd_sbp = _read(placement, sbp)
        self.check_meta = check_meta
        self.epoch = 0
        if isinstance(data, torch_data.DataLoader):
            changed = {"batch_size": batch_size != 1, "shuffle": shuffle, "drop_last": drop_last}
            changed |= options
            if any(changed.values()):
                raise OnefoldTypeError(
                    f"GlobalLoader: {', '.join(name for name in changed if changed[name])} cannot "
                    "be given together with a loader, which has its own; pass the data set, or "
                    "change the loader"
                )
            loader = data
        elif samplers := {"sampler", "batch_sampler"} & options.keys():
            raise OnefoldTypeError(
                f"GlobalLoader: {samplers.pop()} cannot be given with a data set; pass a "
                "DataLoader with that sampler"
            )
        elif isinstance(data, IterableDataset):
            loader = DataLoader(data, batch_size, shuffle, drop_last=drop_last, **options)
        else:
            order = DistributedSampler[Any](data, 1, 0, shuffle, seed)
            batches = BatchSampler(order, batch_size, drop_last)
            loader = DataLoader(data, batch_sampler=batches, **options)
        self._given = loader
        self._sampler: Any = getattr(loader.batch_sampler, "sampler", loader.sampler)
        if getattr(self._sampler, "num_replicas", 1) != 1:
            raise OnefoldValueError(
                "GlobalLoader: the loader's sampler gives this process a part of the data set "
                f"({type(self._sampler).__name__} with num_replicas="
                f"{self._sampler.num_replicas}), but here the placement says which part; leave the "
                "sampler out, or use num_replicas=1, rank=0"
            )
        self._by_part = not isinstance(loader.dataset, IterableDataset)
        self._loader = self._of_parts(loader) if self._by_part else loader

    def _of_parts(self, loader: torch_data.DataLoader[Any]) -> DataLoader[Any]:
        """A loader of this process's parts that works as `loader` does."""
        if loader.batch_sampler is None:
            raise OnefoldValueError(
                "GlobalLoader: the loader has batch_size=None and no batch_sampler, so it makes no "
                "batches that could be split; give it a batch_size"
            )
        collate: Any = loader.collate_fn
        if not isinstance(loader, DataLoader) and collate is torch_data.default_collate:
            collate = default_collate
        return DataLoader(
            _Parts(loader.dataset),
            batch_sampler=cast("Any", _OwnParts(loader.batch_sampler, self._rows)),
            num_workers=loader.num_workers,
            collate_fn=cast("Any", _Collate(collate)),
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=getattr(loader, "source", None) or loader.generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
        )

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._given)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be that of epoch `epoch`."""
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """The epoch that runs, or comes next, and how many of its batches were given."""
        loader = self._positioned()
        running = loader.position.batch > 0
        return {**loader.state_dict(), "epoch": self.epoch - running}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iteration be the rest of the epoch that was saved; as `DataLoader` does."""
        self._positioned().load_state_dict({**state_dict, "epoch": None})
        self.epoch = state_dict["epoch"]

    def _positioned(self) -> DataLoader[Any]:
        if not isinstance(self._loader, DataLoader):
            raise OnefoldTypeError(
                "GlobalLoader: a loader of torch does not know its position; give "
                "onefold.utils.data.DataLoader, or the data set"
            )
        return self._loader

    def __iter__(self) -> Iterator[Any]:
        set_epoch = getattr(self._sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(self.epoch)
        self.epoch += 1
        for loaded in _read_locally(self._loader):
            loaded = tree_map_only(torch.Tensor, from_torch, loaded)
            loaded = self._own(loaded) if self._by_part else self._cut(loaded)
            self._check(loaded)
            yield tree_map_only(Tensor, partial(self._joined, loaded.part), loaded.data)

    def _meta(self, shape: Sequence[int], dtype: torch.dtype) -> Meta:
        return Meta.of(shape, dtype, self.placement, self.nd_sbp)

    def _rows(self, batch: int) -> _Rows:
        """The rows of a batch that this process holds: all of them in a virtual world."""
        if not world().launched:
            return 0, batch
        if not self.placement.owned:
            return 0, 0
        (start,), (size,) = self._meta((batch,), torch.int64).box(self.placement.owned[0])
        return start, size

    def _own(self, loaded: _Loaded) -> _Loaded:
        """A part without the entries of a sample that was read for its shapes only."""
        part = loaded.part
        if part.rows == len(part.places):
            return loaded
        return loaded._replace(data=_entries(loaded.data, len(part.places), slice(part.rows)))

    def _cut(self, data: Any) -> _Loaded:
        """A whole batch as this process's part of it."""
        sizes = {x.shape[0] for x in tree_leaves(data) if isinstance(x, Tensor) and x.ndim}
        if len(sizes) != 1:
            raise ShapeError(
                "GlobalLoader: the tensors of a batch must have one size in their first dim, but "
                f"they have {sorted(sizes)}"
            )
        (batch,) = sizes
        start, size = self._rows(batch)
        own = max(size, min(batch, 1))
        if size != batch:
            data = _entries(data, batch, slice(start, start + size))
        first = min(start, batch - own)
        return _Loaded(
            _Part(range(own), size, batch, 0),
            tree_map_only(Tensor, lambda x: tensor_ops.narrow(x, 0, first, own), data),
        )

    def _check(self, loaded: _Loaded) -> None:
        """Compare what the processes read. Raises on each of them where it does not fit."""
        read = len(loaded.part.places)
        found = [x for x in tree_leaves(loaded.data) if isinstance(x, Tensor)]
        problem = ""
        for x in found:
            if x.is_global or x.shape[:1] != (read,):
                problem = f"collate_fn made {x.meta!r} of {read} samples, which are to be its rows"
        here = world()
        if here.launched and self.check_meta:
            kinds = [(tuple(x.shape[1:]), x.dtype) for x in found]
            mine = (problem, loaded.part.batch, loaded.part.digest, kinds)
            gathered = collectives.gather_objects(mine, tuple(range(here.size)))
            for rank, theirs in enumerate(gathered):
                if theirs[0]:
                    raise ShapeError(f"GlobalLoader: on rank {rank}, {theirs[0]}")
                if theirs[1:3] != gathered[0][1:3]:
                    raise RankMismatch(
                        f"GlobalLoader: ranks 0 and {rank} are at different batches, of "
                        f"{gathered[0][1]} and {theirs[1]} samples. Samplers must give one order "
                        "on every process: use shuffle=True here, or seed the sampler's generator"
                    )
                if theirs[3] != gathered[0][3]:
                    raise RankMismatch(
                        "GlobalLoader: the samples of a batch must have one shape and dtype on "
                        f"every process, but rank 0 read {gathered[0][3]} and rank {rank} "
                        f"{theirs[3]}"
                    )
        if problem:
            raise ShapeError(f"GlobalLoader: {problem}")

    def _joined(self, part: _Part, x: Tensor) -> Tensor:
        """The global tensor of which this process holds these rows."""
        meta = self._meta((part.batch, *x.shape[1:]), x.dtype)
        rows = x.to_torch()
        shards = []
        for position in self.placement.owned:
            (start, *_), (size, *_) = meta.box(position)
            first = 0 if world().launched else start
            device = self.placement.device(self.placement.flat_ranks[position])
            shards.append(rows[first : first + size].to(device, non_blocking=True))
        y = from_shards(tuple(shards), meta)
        y.shared = True
        return y


def _read_locally(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, made of local tensors in a `global_mode` too."""
    with global_mode(False):
        rest = iter(batches)
    while True:
        with global_mode(False):
            batch = next(rest, _END)
        if batch is _END:
            return
        yield batch


_END = object()


def _entries(data: Any, rows: int, own: slice) -> Any:
    """A batch whose lists and tuples with an entry for each row have those of its own rows only.

    Tensors stay, and so do the lists and dicts that say how the batch is nested.
    """

    def is_column(x: Any) -> bool:
        return (
            type(x) in (list, tuple)
            and len(x) == rows
            and all(tree_is_leaf(entry) and not isinstance(entry, Tensor) for entry in x)
        )

    return tree_map(lambda x: x[own] if is_column(x) else x, data, is_leaf=is_column)


_MAX_DIMS = 64


def _read(placement: Placement, sbp: SbpLike | None) -> tuple[Placement, NdSbp]:
    if sbp is None and isinstance(placement, Placement):
        sbp = (split(0), *[broadcast] * (placement.ndim - 1))
    # Of any number of dims, so that another split is refused below.
    placement, nd_sbp = read_layout(placement, sbp, (0,) * _MAX_DIMS, "GlobalLoader")
    if any(s not in (split(0), broadcast) for s in nd_sbp):
        raise SbpError(
            f"GlobalLoader: sbp must be split(0) or broadcast on every axis, but is "
            f"{short(nd_sbp)}; convert the batches with to_global"
        )
    return placement, nd_sbp
