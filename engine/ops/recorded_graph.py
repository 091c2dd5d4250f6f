"""Recorded graphs: ops whose gradient uses the graph that torch's autograd recorded in forward.

The gradient of a `TorchOp` recomputes forward. A `RecordingOp` has torch record forward on each
shard, if a gradient will be needed. The record is an attribute of a handle, one more output, which
the tape saves for the op of the gradient. Without the record (the handle was packed, boxed or used
before, or second gradients are wanted) forward is recomputed: a record saves time, no result
depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import torch

from .. import interpreter
from ..meta import Meta
from ..op import Arg, Gradients, Kernel, Local, Needs, required
from ..tensor import Tensor
from ..views import frozen
from .torch_op import (
    Arguments,
    Dtypes,
    Given,
    Group,
    Outputs,
    Shapes,
    TorchGradient,
    TorchOp,
    apart,
    empty_outputs,
    gradients,
    is_empty,
)

_RECORD = "record"  # the attribute of a shard of the handle


@cache
def _nothing(device: torch.device) -> torch.Tensor:
    """What handles are made of: each is a tensor object of its own, and has no values."""
    return torch.zeros((), dtype=torch.bool, device=device)


class Record(NamedTuple):
    """The inputs and outputs of a computation, with torch's graph between them."""

    inputs: Given
    outputs: Outputs


class RecordingOp(TorchOp):
    """An op whose forward is recorded where one of its inputs needs a gradient."""

    # Whether graphs record, too. Their plans do not count the memory that torch keeps.
    records_in_graphs = False

    def call(self, tensors: Sequence[Tensor | None], arguments: Arguments) -> tuple[Tensor, ...]:
        wanted = self.recorded_for(tensors)
        if not wanted:
            return super().call(tensors, arguments)
        current = interpreter.get_current()
        captured = current is not None and current.captures
        if current is not None and current.batches:  # a record is of all rows
            return super().call(tensors, arguments)
        if captured and not self.records_in_graphs:
            return super().call(tensors, arguments)
        made = _recorded(self, wanted, captured).call(tensors, arguments)[:-1]
        if not captured:
            for y in made:
                y.shared = True  # torch may need its memory for the gradient
        return made

    def recorded_for(self, tensors: Sequence[Tensor | None]) -> tuple[int, ...]:
        """The inputs that need gradients; none where nothing is to be recorded."""
        if not interpreter.is_grad_enabled():
            return ()
        return tuple([i for i, x in enumerate(tensors) if x is not None and x.node is not None])


class Recorded(TorchOp):
    """The outputs of `forward`, and a handle to the record of their computation.

    `wanted` are the inputs that need gradients. The handle has the batch dims of the op, in the
    order of its groups, so that each part of a split batch has a handle. `copies` is whether the
    outputs are copies, since a graph plans to write where they are.
    """

    def __init__(self, forward: TorchOp, wanted: tuple[int, ...], copies: bool) -> None:
        self.saves_output = (forward.num_outputs,)
        super().__init__(forward.name, forward.num_outputs + 1)
        self.forward = forward
        self.wanted = wanted
        self.copies = copies

    def infer(self, *args: Arg) -> tuple[Meta, ...]:
        *metas, arguments = args
        made = self.forward.infer(*args)
        shapes = [None if meta is None else tuple(meta.shape) for meta in metas]
        dtypes = [None if meta is None else meta.dtype for meta in metas]
        sizes = [
            next(
                required(shape)[dim]
                for shape, dim in zip(shapes, group.inputs, strict=True)
                if dim is not None
            )
            for group in self.forward.groups(tuple(shapes), tuple(dtypes), arguments)
        ]
        handle = Meta.of(tuple(sizes), torch.bool, device=torch.device("cpu"))
        return (*((made,) if isinstance(made, Meta) else made), handle)

    def groups(self, shapes: Shapes, dtypes: Dtypes, arguments: Arguments) -> Sequence[Group]:
        found = self.forward.groups(shapes, dtypes, arguments)
        return [Group(group.inputs, (*group.outputs, i)) for i, group in enumerate(found)]

    def bind(self, local: Local, attrs: Arguments) -> Kernel:
        count = self.forward.num_outputs
        if is_empty(local, count):
            return empty_outputs(local)
        shape = local.output_shape(count)
        return lambda *tensors: self.record(tensors, attrs, shape)

    def record(self, tensors: Given, arguments: Arguments, shape: tuple[int, ...]) -> Outputs:
        """The outputs for local tensors, and a handle of this shape."""
        inputs = [*tensors]
        for index in self.wanted:
            inputs[index] = required(inputs[index]).detach().requires_grad_()
        if torch.is_grad_enabled():  # in most programs; to enable it takes time
            made = self.forward.compute(inputs, arguments)
        else:
            with torch.enable_grad():
                made = self.forward.compute(inputs, arguments)
        handle = _nothing(made[0].device).expand(shape)
        vars(handle)[_RECORD] = Record(inputs, made)
        outputs = tuple([y.detach() for y in made])
        if self.copies:
            return (*[y.clone() for y in outputs], handle)
        return (*apart(outputs, tensors), handle)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        return self.forward.flops(inputs, outputs[:-1])

    def vjp(self, needs: Needs, dy: object, y: object, *args: Arg) -> Gradients:
        assert isinstance(dy, tuple)
        assert isinstance(y, tuple)
        *tensors, arguments = args
        wanted = tuple([i for i, need in enumerate(needs) if need])
        handle = frozen(y[-1])  # not on the tape
        given = (*dy[:-1], *tensors, handle)
        found = _gradient_of(self.forward, wanted).call(given, arguments)
        made = dict(zip(wanted, found, strict=True))
        return [made.get(i) for i in range(len(needs))]


class RecordedGradient(TorchGradient):
    """The gradients for the inputs `wanted`, with the handle as a last input."""

    def compute(self, tensors: Given, arguments: Arguments) -> Outputs:
        *given, handle = tensors
        dys = given[: self.forward.num_outputs]
        again = any(x is not None and x.requires_grad for x in given)
        # Removed from the handle, since torch frees the record during backward.
        record = None if again else vars(handle).pop(_RECORD, None)
        if record is None or all(dy is None for dy in dys):
            return super().compute(given, arguments)
        leaves = [record.inputs[index] for index in self.wanted]
        return gradients(record.outputs, dys, leaves)

    def groups(self, shapes: Shapes, dtypes: Dtypes, arguments: Arguments) -> Sequence[Group]:
        found = super().groups(shapes[:-1], dtypes[:-1], arguments)
        return [Group((*group.inputs, i), group.outputs) for i, group in enumerate(found)]

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        """Twice those of forward: for the gradients of the inputs, and of the weights."""
        count = self.forward.num_outputs
        made = [meta for meta in inputs[:count] if meta is not None]
        return 2.0 * self.forward.flops(inputs[count:-1], made)


@lru_cache(maxsize=1024)
def _recorded(op: TorchOp, wanted: tuple[int, ...], copies: bool) -> Recorded:
    return Recorded(op, wanted, copies)


@lru_cache(maxsize=1024)
def _gradient_of(op: TorchOp, wanted: tuple[int, ...]) -> RecordedGradient:
    return RecordedGradient(op, wanted)
