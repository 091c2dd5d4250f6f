"""Results of a job's call, converted according to its annotation, or as a future."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import numpy as np
from numpy.typing import DTypeLike

from ..engine.meta import Meta, slices_of
from ..engine.tensor import Tensor
from ..errors import OnefoldIndexError, OnefoldTypeError
from . import typing as kinds
from .blob import Blob, Key


@dataclass(frozen=True)
class Result:
    """The value of one blob after a call."""

    tensors: Mapping[Key, Tensor]  # the whole value of each part
    layout: Meta | None  # as the job left it; of the one part of the consistent view

    def parallel_num(self) -> int:
        """The number of devices that have a part."""
        return len(self.numpy_list())

    def numpy(self, parallel_id: int | None = None) -> np.ndarray:
        """The whole array, or the part of one device.

        Raises OnefoldTypeError for a whole one in the mirrored view, where there is none.
        """
        if parallel_id is not None:
            if parallel_id not in range(self.parallel_num()):
                raise OnefoldIndexError(
                    f"numpy({parallel_id!r}) asks for the part of one device, but there are "
                    f"{self.parallel_num()}, which are numbered from 0; leave it out for the whole"
                )
            return self.numpy_list()[parallel_id]
        if not self.is_consistent and len(self.numpy_list()) > 1:
            raise OnefoldTypeError(
                f"a blob of the mirrored view has {self.parallel_num()} arrays, one for each "
                "device: take numpy_list(), or annotate the result with tp.ListNumpy"
            )
        return self.ndarray()

    def numpy_list(self) -> list[np.ndarray]:
        """One array for each device."""
        if not self.is_consistent:
            return [_combined(pieces) for pieces in self._by_device().values()]
        whole = self.ndarray()
        assert self.layout is not None
        place = self.layout.placement
        assert place is not None
        return [whole[slices_of(self.layout.box(i))] for i in range(place.num_ranks)]

    def ndarray(self) -> np.ndarray:
        """One array: the whole, or the arrays of all devices one after the other."""
        return _combined([_combined(pieces) for pieces in self._by_device().values()])

    ndarray_list = numpy_list

    def lists(self) -> list[list[np.ndarray]]:
        """For each device the arrays of its pieces."""
        return list(self._by_device().values())

    @property
    def is_consistent(self) -> bool:
        return all(device is None for device, _ in self.tensors)

    def _by_device(self) -> dict[int | None, list[np.ndarray]]:
        found: dict[int | None, list[np.ndarray]] = {}
        for (device, _), tensor in self.tensors.items():
            found.setdefault(device, []).append(tensor.numpy())
        return found

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self.ndarray()
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.ndarray()[index]


def _combined(arrays: list[np.ndarray]) -> np.ndarray:
    if len(arrays) == 1:
        return arrays[0]
    if not arrays[0].ndim:
        return np.stack(arrays)
    return np.concatenate(arrays)


class Future:
    """The result of a call of a job without a return annotation."""

    def __init__(self, value: object) -> None:
        self._value = value

    def get(self) -> Any:
        """The results, in the tree that the function returned."""
        return self._value

    def async_get(self, callback: Callable[[Any], object]) -> None:
        """Hand the results to a function."""
        callback(self.get())


def rebuild(tree: object, change: Callable[[Any], object]) -> object:
    """The tree (nested lists, tuples, dicts) with each of its entries changed; None stays.

    A dict of the parts of one blob is an entry.
    """
    if isinstance(tree, (list, tuple)):
        return type(tree)([rebuild(inner, change) for inner in tree])
    if isinstance(tree, dict) and not all(isinstance(key, tuple) for key in tree):
        return {key: rebuild(inner, change) for key, inner in tree.items()}
    return None if tree is None else change(tree)


def check_returned(blob: object, who: str) -> Blob:
    """An entry of what a job returned. Raises OnefoldTypeError for what is no blob."""
    if not isinstance(blob, Blob):
        raise OnefoldTypeError(
            f"job {who!r} returned a {type(blob).__name__}; it can return blobs, and tuples, lists "
            "and dicts of them"
        )
    return blob


def typed(results: object, annotation: object, who: str) -> Any:
    """The results as an annotation asks for them. Raises OnefoldTypeError where they are others."""
    if annotation is None or annotation is type(None):
        if results is not None:
            raise OnefoldTypeError(
                f"job {who!r} is annotated to return None, but returned a value; annotate it with "
                "-> tp.Numpy, or return nothing"
            )
        return None
    origin = get_origin(annotation)
    if origin is kinds.Callback:
        (inner,) = get_args(annotation)
        value = typed(results, inner, who)
        return lambda function: function(value)
    if origin is kinds.Bundle:
        (inner,) = get_args(annotation)
        return rebuild(results, lambda result: typed(result, inner, who))
    if origin is tuple:
        entries = get_args(annotation)
        if not isinstance(results, (tuple, list)) or len(results) != len(entries):
            raise _unlike(results, annotation, who)
        return tuple(typed(r, a, who) for r, a in zip(results, entries, strict=True))
    if origin is list:
        if not isinstance(results, (tuple, list)):
            raise _unlike(results, annotation, who)
        return [typed(result, get_args(annotation)[0], who) for result in results]
    if origin is dict:
        if not isinstance(results, dict):
            raise _unlike(results, annotation, who)
        return {key: typed(r, get_args(annotation)[1], who) for key, r in results.items()}
    if not isinstance(results, Result):
        raise _unlike(results, annotation, who)
    if annotation is kinds.Numpy:
        return results.numpy()
    if annotation is kinds.ListNumpy:
        return results.numpy_list()
    if annotation is kinds.ListListNumpy:
        return results.lists()
    raise OnefoldTypeError(
        f"job {who!r} has the return annotation {annotation!r}; it can be tp.Numpy, tp.ListNumpy, "
        "tp.ListListNumpy, None, or Tuple, Dict, List, tp.Callback or tp.Bundle of them"
    )


def _unlike(results: object, annotation: object, who: str) -> OnefoldTypeError:
    return OnefoldTypeError(
        f"job {who!r} is annotated to return {annotation}, but returned "
        f"{rebuild(results, lambda _: 'a blob')!r}"
    )
