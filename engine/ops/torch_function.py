"""Functions of torch as ops: torch computes them and their gradients on each shard.

This is for the long tail of functions, for which a kernel of our own is not worthwhile. A row names
torch's function and says which dims of its inputs must be whole. Along the others (batch dims) the
computation of one index does not depend on that of another, so they may be split. The rest is
derived: shapes and dtypes from torch's data-free functions, the batch dims of the outputs from how
shapes change with those of the inputs, gradients of any order from torch's autograd on the shards,
which keeps what it needs of forward (`recorded_graph`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch

from ..meta import Meta, Shape
from ..op import Arg, Kernel, Local, required
from ..signature import Axis, Rule, partials
from ..tensor import Tensor
from .recorded_graph import RecordingOp
from .torch_op import Arguments, Dtypes, Given, Group, Outputs, Shapes, call_of

# Of the tensor inputs of a call, in order: the dims that must be whole.
WholeDims = Callable[[Sequence[Shape], Arguments], Sequence[set[int]]]
# Sizes by which a batch dim is known: prime, so that no flattened dim has one of them.
_UNUSUAL = (1009, 1013, 1019, 1021, 1031, 1033)


class TorchFunction(RecordingOp):
    """A function of torch.

    `whole` gives the dims of each input that must be whole. `linear` says whether partial sums of
    the first input pass through, and `view` that the output is a view of that input.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., torch.Tensor | Sequence[torch.Tensor]],
        whole: WholeDims,
        num_outputs: int = 1,
        linear: bool = False,
        differentiable: bool = True,
        view: bool = False,
    ) -> None:
        super().__init__(name, num_outputs, view)
        self.function = function
        self.whole = whole
        self.linear = "0" if linear else ""
        self.differentiable = differentiable
        self._known = lru_cache(maxsize=4096)(self.find_groups)

    def recorded_for(self, tensors: Sequence[Tensor | None]) -> tuple[int, ...]:
        if self.aliases or not self.differentiable:
            return ()
        if self.linear and any(x is not None and x.meta.partial for x in tensors):
            return ()  # a record is of values, not of addends
        return super().recorded_for(tensors)

    def groups(self, shapes: Shapes, dtypes: Dtypes, arguments: Arguments) -> Sequence[Group]:
        return self._known(tuple(map(required, shapes)), dtypes, arguments)

    def bind(self, local: Local, attrs: Arguments) -> Kernel:
        picked = local.pick(self.function)
        if picked is self.function:
            return super().bind(local, attrs)

        def run(*tensors: torch.Tensor) -> torch.Tensor | Outputs:
            made = _called(picked, tensors, attrs)
            return made[0] if self.num_outputs == 1 else made

        return run

    def compute(self, tensors: Given, arguments: Arguments) -> Outputs:
        return _called(self.function, tensors, arguments)

    def infer(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        try:
            return super().infer(*args)
        except NotImplementedError:  # torch has no form of it without data
            *metas, arguments = args
            made = self.compute([_some_values(meta) for meta in metas], arguments)
            found = tuple([Meta.of(y.shape, y.dtype, device=y.device) for y in made])
            return found if self.num_outputs > 1 else found[0]

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        return [
            *super().rule(axis, *args),
            *partials(len(args) - 1, self.linear, self.num_outputs),
        ]

    def find_groups(
        self, shapes: tuple[Shape, ...], dtypes: Dtypes, arguments: Arguments
    ) -> list[Group]:
        """The batch dims, found by how the outputs' shapes follow those of the inputs.

        Batch dims of several inputs are aligned from the right, as torch broadcasts them. One after
        the other gets a size that no other dim has, by which it is found again in the outputs.
        """
        places: list[dict[int, int]] = []
        for shape, whole in zip(shapes, self.whole(shapes, arguments), strict=True):
            core = 0
            while core < len(shape) and len(shape) - 1 - core in whole:
                core += 1
            batch = [dim for dim in range(len(shape)) if dim not in whole]
            places.append({len(shape) - core - dim: dim for dim in batch})
        mark = next(size for size in _UNUSUAL if all(size not in shape for shape in shapes))
        found = []
        for aligned in sorted(set().union(*places)):
            dims = _not_stretched(shapes, [place.get(aligned) for place in places])
            blank = [
                torch.empty(
                    [mark if i == dim else size for i, size in enumerate(shape)],
                    dtype=dtype, device="meta",
                )
                for shape, dtype, dim in zip(shapes, dtypes, dims, strict=True)
            ]  # fmt: skip
            try:
                outputs = [list(y.shape) for y in self.compute(blank, arguments)]
            except RuntimeError:  # no form without data, or dims that do not fit: they stay whole
                continue
            if all(shape.count(mark) == 1 for shape in outputs):
                found.append(Group(dims, tuple([shape.index(mark) for shape in outputs])))
        return found


def _not_stretched(shapes: Sequence[Shape], dims: Sequence[int | None]) -> tuple[int | None, ...]:
    """The aligned dims without those of size 1, unless all are of size 1."""
    sizes = [1 if dim is None else shape[dim] for shape, dim in zip(shapes, dims, strict=True)]
    if all(size == 1 for size in sizes):
        return tuple(dims)
    return tuple([None if size == 1 else dim for size, dim in zip(sizes, dims, strict=True)])


def _called(function: Kernel, tensors: Given, arguments: Arguments) -> Outputs:
    """The result of a function with these tensors in the slots of its arguments."""
    made = call_of(function, arguments)(tensors)
    return (made,) if isinstance(made, torch.Tensor) else tuple(made)


def _some_values(meta: Meta) -> torch.Tensor:
    """Values that increase from 1 to 2, for functions that reject zeros or unsorted values."""
    values = torch.linspace(1, 2, meta.numel).reshape(meta.shape)
    return values.to(meta.dtype)
