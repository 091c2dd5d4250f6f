"""Collectives on local tensors, between all ranks of the job or some (`flow.comm`).

Global tensors communicate by themselves; these are for programs that keep a part of their own on
each rank. All ranks, or those of the list `ranks`, call them in one order. Ranks first compare what
they were called with, so a wrong call raises the same error on every rank, and changes no tensor.
Results are written into the given tensors and are not recorded for gradients. In a virtual world a
local tensor stands for the same value on every rank; what would differ from rank to rank is an
error there.
"""

from .local_collectives import (
    all_gather as all_gather,
    all_gather_into_tensor as all_gather_into_tensor,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    barrier as barrier,
    broadcast as broadcast,
    gather as gather,
    recv as recv,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter,
    send as send,
)

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
]
