"""Typing: annotations of a job's arguments and results (`import onefold.job.typing as tp`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch

from .placeholder import LIST, LIST_LIST, NUMPY, Placeholder as _Placeholder

__all__ = ["Bundle", "Callback", "ListListNumpy", "ListNumpy", "Numpy"]

T = TypeVar("T")


class _Kind:
    """What an argument or a result is in numpy."""

    kind = ""

    @classmethod
    def Placeholder(  # noqa: N802 (the name that programs use)
        cls,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        batch_axis: int | None = 0,
        name: str | None = None,
    ) -> Any:
        """The annotation of an argument of this shape and dtype.

        Example: `def job(images: tp.Numpy.Placeholder((100, 1, 28, 28))) -> tp.Numpy: ...`
        """
        return _Placeholder(cls.kind, tuple(shape), dtype, batch_axis, name)


class Numpy(_Kind):
    """One array: the whole, in the consistent view."""

    kind = NUMPY


class ListNumpy(_Kind):
    """A list with one array for each device, in the mirrored view."""

    kind = LIST


class ListListNumpy(_Kind):
    """For each device a list of arrays, in the mirrored view."""

    kind = LIST_LIST


# In the words of the first generation, whose arguments have them as default values.
FixedTensorDef = Numpy.Placeholder
MirroredTensorDef = ListNumpy.Placeholder
MirroredTensorListDef = ListListNumpy.Placeholder


class Callback(Generic[T]):
    """The result is handed to a function: `job(x)(function)`."""


class Bundle(Generic[T]):
    """Any tree of results of one kind."""
