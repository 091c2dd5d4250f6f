"""Functions of torch as ops: torch computes them and their gradients on each shard.

This is for the long tail of functions, for which a kernel of our own is not worthwhile. A row names
torch's function and says which dims of its inputs must be whole. Along the others (batch dims) the
computation of one index does not depend on that of another, so they may be split. The rest is
derived: shapes and dtypes from torch's data-free functions, the batch dims of the outputs from how
shapes change with those of the inputs, gradients of any order from torch's autograd on the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

import torch

from ...errors import OnefoldTypeError
from ..dispatcher import general, several
from ..meta import Meta, Shape
from ..op import Arg, Gradients, Kernel, Local, Needs, Op, required
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature, partials
from ..tensor import Tensor

# Of the tensor inputs of a call, in order: the dims that must be whole.
WholeDims = Callable[[Sequence[Shape], "Arguments"], Sequence[set[int]]]
Outputs = tuple[torch.Tensor, ...]
# Sizes by which a batch dim is known: prime, so that no flattened dim has one of them.
_UNUSUAL = (1009, 1013, 1019, 1021, 1031, 1033)
Given = Sequence[torch.Tensor | None]
Shapes = tuple[Shape | None, ...]
Dtypes = tuple[torch.dtype | None, ...]


@dataclass(frozen=True)
class Slot:
    """The position of a tensor among the arguments of a call."""

    index: int

    def __repr__(self) -> str:
        return f"argument {self.index}"


@dataclass(frozen=True)
class Constant:
    """An argument that is not a tensor.

    Plans distinguish 1 from 1.0 and True by the type, and 0.0 from -0.0 by the text of a zero.
    """

    type: type
    value: object
    zero: str = ""

    def __repr__(self) -> str:
        return repr(self.value)


class Arguments(NamedTuple):
    """The arguments of a call, positional and by name, with slots for tensors."""

    positional: tuple[object, ...] = ()
    named: tuple[tuple[str, object], ...] = ()

    def of(self, name: str, default: object = None) -> object:
        """The constant argument of this name."""
        given = dict(self.named).get(name)
        return default if given is None else filled(given, ())


def slots_for(value: object, tensors: list[Tensor]) -> object:
    """A hashable form of an argument; its tensors are appended to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return Slot(len(tensors) - 1)
    if isinstance(value, (list, tuple)):
        return tuple([slots_for(part, tensors) for part in value])
    if isinstance(value, torch.Tensor):
        raise OnefoldTypeError(
            "got a torch.Tensor among the arguments; convert it with onefold.from_torch(x)"
        )
    is_zero = isinstance(value, float) and not value
    return Constant(type(value), value, repr(value) if is_zero else "")


def filled(form: object, tensors: Sequence[object]) -> object:
    """The argument of a hashable form, with these tensors in its slots."""
    if isinstance(form, Slot):
        return tensors[form.index]
    if isinstance(form, tuple):
        return tuple([filled(part, tensors) for part in form])
    assert isinstance(form, Constant)
    return form.value


class Group(NamedTuple):
    """A batch dim: its position in each input and each output.

    None in an input means that it is broadcast along the dim, and in an output that it is the sum
    over the dim (of gradients only).
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]

    def signature(self, present: Sequence[bool]) -> Signature:
        """The layouts of the inputs that are present, and of the outputs, when the dim is split."""
        inputs = compress(self.inputs, present)
        return Signature(
            tuple(broadcast if dim is None else split(dim) for dim in inputs),
            tuple(partial_sum if dim is None else split(dim) for dim in self.outputs),
        )


class TorchOp(Op):
    """An op that is a function of torch tensors and of `Arguments`, run on each shard."""

    attributes = Arguments

    def __init__(self, name: str, num_outputs: int, aliases: bool = False) -> None:
        self.name = name
        self.num_outputs = num_outputs
        self.aliases = aliases
        self.entry = general(self) if num_outputs == 1 else several(self)

    def compute(self, tensors: Given, arguments: Arguments) -> Outputs:
        """The outputs for local tensors."""
        raise NotImplementedError

    def compute_again(self, tensors: Given, arguments: Arguments) -> Outputs:
        """The same in a form that torch can differentiate twice."""
        return self.compute(tensors, arguments)

    def groups(self, shapes: Shapes, dtypes: Dtypes, arguments: Arguments) -> Sequence[Group]:
        """The batch dims of a call with inputs of these shapes."""
        raise NotImplementedError

    def kernel(self, *args: Arg) -> torch.Tensor | Outputs:
        *tensors, positional, named = args
        made = self.compute(tensors, Arguments(positional, named))
        if not self.aliases:
            made = _apart(made, tensors)
        return made[0] if self.num_outputs == 1 else made

    def bind(self, local: Local, attrs: Arguments) -> Kernel:
        shapes = [local.output_shape(index) for index in range(self.num_outputs)]
        if all(0 in shape for shape in shapes):  # some functions refuse what is empty
            dtypes = [meta.dtype for meta in local.outputs]
            empty = list(zip(shapes, dtypes, strict=True))
            return lambda *tensors: _empty(empty, tensors)
        return local.bind(self.kernel, *attrs)

    def call(self, tensors: Sequence[Tensor | None], arguments: Arguments) -> tuple[Tensor, ...]:
        """The outputs for tensors of any layout."""
        made = self.entry(tuple(tensors), *arguments)
        return (made,) if isinstance(made, Tensor) else made

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        *metas, arguments = args
        shapes = tuple([None if meta is None else tuple(meta.shape) for meta in metas])
        dtypes = tuple([None if meta is None else meta.dtype for meta in metas])
        present = [meta is not None for meta in metas]
        return [
            group.signature(present)
            for group in self.groups(shapes, dtypes, arguments)
            if any(_shares(meta, dim) for meta, dim in zip(metas, group.inputs, strict=True))
        ]

    def vjp(self, needs: Needs, dy: object, y: object, *args: Arg) -> Gradients:
        *tensors, arguments = args
        dys = dy if isinstance(dy, tuple) else (dy,)
        wanted = tuple([i for i, need in enumerate(needs) if need])
        found = gradient_of(self, wanted).call((*dys, *tensors), arguments)
        made = dict(zip(wanted, found, strict=True))
        return [made.get(i) for i in range(len(needs))]


def _shares(x: Meta | None, dim: int | None) -> bool:
    """Whether ranks can share the dim; one of size 1 stays split where it is."""
    return x is not None and dim is not None and (x.shape[dim] != 1 or split(dim) in x.nd_sbp)


def _empty(outputs: Sequence[tuple[Shape, torch.dtype]], tensors: Given) -> torch.Tensor | Outputs:
    device = next(x.device for x in tensors if x is not None)
    made = tuple([torch.empty(shape, dtype=dtype, device=device) for shape, dtype in outputs])
    return made if len(made) > 1 else made[0]


def _apart(outputs: Outputs, tensors: Given) -> Outputs:
    """The outputs in new memory, also if torch returns a view of an input, or the input itself."""
    held = {x.untyped_storage()._cdata for x in tensors if x is not None}
    return tuple([y.clone() if y.untyped_storage()._cdata in held else y for y in outputs])


def gradients(
    outputs: Outputs, dys: Given, leaves: Sequence[torch.Tensor], again: bool = False
) -> Outputs:
    """The gradients of torch's autograd for `leaves`; None stands for a gradient of zeros."""
    pairs = [
        (y, dy) for y, dy in zip(outputs, dys, strict=True) if dy is not None and y.requires_grad
    ]
    found: Outputs = torch.autograd.grad(
        [y for y, _ in pairs],
        leaves,
        [dy for _, dy in pairs],
        create_graph=again,
        allow_unused=True,
        materialize_grads=True,
    )
    return found


@lru_cache(maxsize=4096)
def gradient_of(op: TorchOp, wanted: tuple[int, ...]) -> TorchGradient:
    """The op that computes the gradients for some of an op's inputs."""
    return TorchGradient(op, wanted)


class TorchGradient(TorchOp):
    """The gradients for the inputs `wanted`, from those of the outputs and from the inputs."""

    def __init__(self, forward: TorchOp, wanted: tuple[int, ...]) -> None:
        super().__init__(f"{forward.name}_backward", len(wanted), forward.aliases)
        self.forward = forward
        self.wanted = wanted

    def compute(self, tensors: Given, arguments: Arguments) -> Outputs:
        # When this is differentiated in its turn, its inputs require gradients already.
        again = any(x is not None and x.requires_grad for x in tensors)
        dys, inputs = tensors[: self.forward.num_outputs], [*tensors[self.forward.num_outputs :]]
        if all(dy is None or not dy.numel() for dy in dys):
            wanted = [inputs[index] for index in self.wanted]
            return tuple([torch.zeros_like(x) for x in wanted if x is not None])
        with torch.enable_grad():
            leaves = []
            for index in self.wanted:
                x = required(inputs[index])
                inputs[index] = leaf = x if x.requires_grad else x.detach().requires_grad_()
                leaves.append(leaf)
            compute = self.forward.compute_again if again else self.forward.compute
            return gradients(compute(inputs, arguments), dys, leaves, again)

    def infer(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        found = tuple([args[self.forward.num_outputs + index] for index in self.wanted])
        return found[0] if len(found) == 1 else found

    def groups(self, shapes: Shapes, dtypes: Dtypes, arguments: Arguments) -> Sequence[Group]:
        count = self.forward.num_outputs
        absent = [shape is None for shape in shapes[:count]]
        found = []
        for group in self.forward.groups(shapes[count:], dtypes[count:], arguments):
            dys = [None if no else dim for no, dim in zip(absent, group.outputs, strict=True)]
            # The gradient of an input that is broadcast along the dim is a sum over the dim.
            made = [group.inputs[index] for index in self.wanted]
            found.append(Group((*dys, *group.inputs), tuple(made)))
        return found

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        # Linear in the gradients of the outputs.
        count = self.forward.num_outputs
        layouts = [partial_sum] * count + [broadcast] * (len(args) - 1 - count)
        present = [meta is not None for meta in args[:-1]]
        passes = Signature(tuple(compress(layouts, present)), (partial_sum,) * self.num_outputs)
        return [*super().rule(axis, *args), passes]


class TorchFunction(TorchOp):
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
    positional = [filled(form, tensors) for form in arguments.positional]
    named = {name: filled(form, tensors) for name, form in arguments.named}
    made = function(*positional, **named)
    return (made,) if isinstance(made, torch.Tensor) else tuple(made)


def _some_values(meta: Meta) -> torch.Tensor:
    """Values that increase from 1 to 2, for functions that reject zeros or unsorted values."""
    values = torch.linspace(1, 2, meta.numel).reshape(meta.shape)
    return values.to(meta.dtype)
