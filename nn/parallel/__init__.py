"""DistributedDataParallel, with torch's arguments."""

from .distributed_data_parallel import DistributedDataParallel as DistributedDataParallel
