"""Ops that torch computes on each shard, and differentiates there.

What `torch_function`, a function of torch as an op, and `recurrent_networks` have in common. An op
tells its batch dims as groups. Gradients of any order come from torch's autograd on the shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import torch

from ...errors import OnefoldTypeError
from ..dispatcher import general, several
from ..generated import function as generated
from ..meta import Meta, Shape
from ..names import Function
from ..op import Arg, Gradients, Kernel, Local, Needs, Op, required
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor

Outputs = tuple[torch.Tensor, ...]
Given = Sequence[torch.Tensor | None]
Shapes = tuple[Shape | None, ...]
Dtypes = tuple[torch.dtype | None, ...]


class Slot:
    """The position of a tensor among the arguments of a call; there is one object for each."""

    __slots__ = ("index",)
    index: int

    def __new__(cls, index: int) -> Slot:
        found = _slots.get(index)
        if found is None:
            made = super().__new__(cls)
            made.index = index
            found = _slots.setdefault(index, made)
        return found

    def __reduce__(self) -> tuple[object, ...]:
        return Slot, (self.index,)

    def __repr__(self) -> str:
        return f"argument {self.index}"


_slots: dict[int, Slot] = {}


@dataclass(frozen=True)
class Constant:
    """An argument that is not a tensor.

    Plans distinguish 1 from 1.0 and True by the type, and 0.0 from -0.0, alone or as a part of a
    complex number, by the text.
    """

    type: type
    value: object
    text: str = ""

    @cached_property
    def _hash(self) -> int:
        return hash((self.type, self.value, self.text))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return repr(self.value)


_COMPLEX = (complex, np.complexfloating)
_INEXACT = (float, np.floating, *_COMPLEX)

# The same object for the same argument, which a plan is then found by at once.
_constant = lru_cache(maxsize=4096)(Constant)


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
    text = ""
    if isinstance(value, _INEXACT) and (not value or isinstance(value, _COMPLEX)):
        text = repr(value)
    kind: Any = type(value)
    try:
        return _constant(kind, value, text)
    except TypeError:  # a value without a hash
        return Constant(type(value), value, text)


def filled(form: object, tensors: Sequence[object]) -> object:
    """The argument of a hashable form, with these tensors in its slots."""
    if isinstance(form, Slot):
        return tensors[form.index]
    if isinstance(form, tuple):
        return tuple([filled(part, tensors) for part in form])
    assert isinstance(form, Constant)
    return form.value


@lru_cache(maxsize=4096)
def call_of(function: Function, arguments: Arguments) -> Function:
    """The call of a function with these arguments, as a function of the tensors in their slots."""
    scope: dict[str, object] = {"function": function}

    def text_of(form: object) -> str:
        if isinstance(form, Slot):
            return f"tensors[{form.index}]"
        if isinstance(form, tuple):
            return f"({''.join([text_of(part) + ', ' for part in form])})"
        assert isinstance(form, Constant)
        name = f"constant{len(scope)}"
        scope[name] = form.value
        return name

    given = [text_of(form) for form in arguments.positional]
    given += [f"{name}={text_of(form)}" for name, form in arguments.named]
    text = f"def call(tensors):\n    return function({', '.join(given)})\n"
    return generated(text, "call", "function of torch", scope)


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
            made = apart(made, tensors)
        return made[0] if self.num_outputs == 1 else made

    def bind(self, local: Local, attrs: Arguments) -> Kernel:
        if is_empty(local, self.num_outputs):
            return empty_outputs(local)
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


def is_empty(local: Local, count: int) -> bool:
    """Whether so many outputs are empty on a rank; some functions refuse to make such."""
    return all(0 in local.output_shape(index) for index in range(count))


def empty_outputs(local: Local) -> Kernel:
    """The kernel that makes outputs without elements."""
    shapes = [local.output_shape(index) for index in range(len(local.outputs))]
    empty = list(zip(shapes, [meta.dtype for meta in local.outputs], strict=True))
    return lambda *tensors: _empty(empty, tensors)


def _empty(outputs: Sequence[tuple[Shape, torch.dtype]], tensors: Given) -> torch.Tensor | Outputs:
    device = next(x.device for x in tensors if x is not None)
    made = tuple([torch.empty(shape, dtype=dtype, device=device) for shape, dtype in outputs])
    return made if len(made) > 1 else made[0]


def apart(outputs: Outputs, tensors: Given) -> Outputs:
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
    # What `torch.autograd.grad` calls, after checks that take as long as a small gradient.
    found: tuple[torch.Tensor | None, ...] = _run_backward(
        tuple([y for y, _ in pairs]),
        tuple([dy for _, dy in pairs]),
        again,  # whether the graph is kept
        again,
        tuple(leaves),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    made = zip(found, leaves, strict=True)
    return tuple([torch.zeros_like(leaf) if dx is None else dx for dx, leaf in made])


_run_backward: Function = torch.autograd.Variable._execution_engine.run_backward


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
