"""DistributedDataParallel and DataParallel, with torch's arguments."""

import sys as _sys

from ..data_parallel import DataParallel as DataParallel
from .device_parts import gather as gather, scatter as scatter
from .distributed_data_parallel import DistributedDataParallel as DistributedDataParallel
from .parallel_apply import parallel_apply as parallel_apply
from .replicate import replicate as replicate

distributed = _sys.modules[__name__]  # torch's module of DistributedDataParallel
