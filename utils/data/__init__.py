"""Data sets and loaders: torch's, with batches of onefold tensors and onefold's random numbers."""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from torch.utils.data import (
    BatchSampler as BatchSampler,
    ChainDataset as ChainDataset,
    ConcatDataset as ConcatDataset,
    Dataset as Dataset,
    IterableDataset as IterableDataset,
    Sampler as Sampler,
    SequentialSampler as SequentialSampler,
    StackDataset as StackDataset,
    Subset as Subset,
    get_worker_info as get_worker_info,
)
from torch.utils.data.dataloader import (  # what packages import from there
    _collate_fn_t as _collate_fn_t,
    _DatasetKind as _DatasetKind,
)

from . import distributed as distributed
from .collate import default_collate as default_collate, default_convert as default_convert
from .data_loader import DataLoader as DataLoader
from .distributed import DistributedSampler as DistributedSampler
from .global_loader import GlobalLoader as GlobalLoader
from .samplers import (
    RandomSampler as RandomSampler,
    SubsetRandomSampler as SubsetRandomSampler,
    WeightedRandomSampler as WeightedRandomSampler,
)
from .tensor_dataset import TensorDataset as TensorDataset, random_split as random_split

# Modules of torch whose names are all here (compat/import_paths.py).
ON_DEMAND = ("_utils", "dataloader", "dataset", "sampler")


def __getattr__(name: str) -> _ModuleType:
    if name in ON_DEMAND:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
