"""Communication hooks of DistributedDataParallel (torch's ddp_comm_hooks and its modules).

>>> import onefold as flow
>>> from onefold.distributed.algorithms.ddp_comm_hooks import default_hooks
>>> p = flow.placement("cpu", [0, 1])
>>> model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(4, 2), process_group=p)
>>> model.register_comm_hook(None, default_hooks.bf16_compress_hook)
>>> model(flow.ones(8, 4)).sum().backward()
>>> model.module.bias.grad.tolist()
[8.0, 8.0]
"""

from __future__ import annotations

import sys

import torch
from torch.futures import Future

from ..comm.group_collectives import all_reduce
from ..comm.process_groups import ProcessGroup, get_world_size
from ..engine.tensor import Tensor
from ..nn.parallel.grad_bucket import GradBucket, Hook

__all__ = [
    "GradBucket",
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "debugging_hooks",
    "default_hooks",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
    "noop_hook",
]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

default_hooks = debugging_hooks = sys.modules[__name__]


def _done(value: Tensor) -> Future[Tensor]:
    future: Future[Tensor] = Future()
    future.set_result(value)
    return future


def _averaged(buffer: Tensor, group: ProcessGroup | None) -> Tensor:
    """The mean over the ranks; divided first, so that half precision does not overflow."""
    mean = buffer / get_world_size(group)
    all_reduce(mean, group=group)
    return mean


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """The mean over the ranks of a group, None for all: what happens without a hook."""
    return _done(_averaged(bucket.buffer(), process_group))


def _compressed(
    dtype: torch.dtype, process_group: ProcessGroup | None, bucket: GradBucket
) -> Future[Tensor]:
    buffer = bucket.buffer()
    return _done(_averaged(buffer.to(dtype), process_group).to(buffer.dtype))


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """The mean over the ranks of gradients that travel, and are added, as float16."""
    return _compressed(torch.float16, process_group, bucket)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """The mean over the ranks of gradients that travel, and are added, as bfloat16."""
    return _compressed(torch.bfloat16, process_group, bucket)


def _wrapped(dtype: torch.dtype, hook: Hook) -> Hook:
    def run(state: object, bucket: GradBucket) -> object:
        bucket.set_buffer(bucket.buffer().to(dtype))
        return hook(state, bucket)

    return run


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, which gets gradients of float16; what it gives is converted back."""
    return _wrapped(torch.float16, hook)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, which gets gradients of bfloat16; what it gives is converted back."""
    return _wrapped(torch.bfloat16, hook)


def noop_hook(state: object, bucket: GradBucket) -> Future[Tensor]:
    """What each rank has: a measure of the time without communication. Ranks then differ."""
    return _done(bucket.buffer())
