"""DistributedDataParallel and DataParallel, with torch's arguments."""

from ..data_parallel import DataParallel as DataParallel
from .distributed_data_parallel import DistributedDataParallel as DistributedDataParallel
