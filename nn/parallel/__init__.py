"""DistributedDataParallel and DataParallel, with torch's arguments."""

import sys as _sys

from ..data_parallel import DataParallel as DataParallel
from .distributed_data_parallel import DistributedDataParallel as DistributedDataParallel

distributed = _sys.modules[__name__]  # torch's module of DistributedDataParallel
