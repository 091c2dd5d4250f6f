"""The cross entropy of a linear layer's outputs in chunks, by the twins of product and loss."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from .. import matmul
from ..linear_loss import Parts, in_chunks
from ..select import twin
from . import loss, reduce
from .cases import Case

CASES: list[Case] = []  # it has no kernels of its own


@cache
def _parts() -> Parts:
    product_nt, product, product_tn = (
        twin(function) or function for function in (matmul.matmul_nt, torch.matmul, matmul.mm_tn)
    )
    return Parts(
        product_nt, product, product_tn, loss.whole_class_loss, loss.whole_class_loss_grad,
        reduce.total,
    )  # fmt: skip


def linear_class_loss(x: Tensor, weight: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    return in_chunks(x, weight, target, ignore_index, False, _parts())[0]


def linear_class_loss_kept(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    return in_chunks(x, weight, target, ignore_index, True, _parts())
