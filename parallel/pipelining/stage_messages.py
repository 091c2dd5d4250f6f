"""What stages of a pipeline tell each other: activations, their gradients, and the forms of these.

A stage that receives must know shapes and dtypes first. So messages begin with an announcement when
the step is of a new kind, and all ranks remember what came. In later steps of that kind one
announcement reaches each rank, which tells it so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields as fields_of
from typing import Any

import torch

from ...distributed.point_to_point import Posted, post, transfer
from ...distributed.rank_check import form
from ...distributed.wait import current_op
from ...engine.tensor import Tensor
from ...engine.values import from_torch
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError

_OP = "pipeline stage"  # what errors name
_ROOM = 4096  # bytes of an announcement
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Form:
    """Shape and dtype of a tensor between stages, and whether a gradient comes back for it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    has_gradient: bool = False

    def __str__(self) -> str:
        return form(self.shape, self.dtype)

    def alone(self) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and dtype."""
        return self.shape, self.dtype

    def data(self) -> list[Any]:
        """The inverse of `form_of_data`."""
        return [list(self.shape), str(self.dtype).removeprefix("torch."), self.has_gradient]


def form_of_data(data: Sequence[Any]) -> Form:
    """The inverse of `Form.data`."""
    shape, dtype, has_gradient = data
    return Form(tuple(shape), getattr(torch, dtype), has_gradient)


def listed(forms: Sequence[Form]) -> str:
    """Forms as errors show them."""
    return ", ".join(map(str, forms)) or "no tensors"


def forms_of(tensors: Sequence[object], has_backward: bool) -> tuple[Form, ...]:
    """The forms of the tensors among some values."""
    return tuple(
        Form(tuple(x.shape), x.dtype, has_backward and x.requires_grad)
        for x in tensors
        if isinstance(x, Tensor)
    )


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a rank tells the next one: the kind of the step, and the forms of a micro-batch."""

    schedule: str
    n_microbatches: int
    has_backward: bool
    kind: int  # the number of the step's kind; below 0: of one that is not remembered
    known: bool  # whether there was a step of this kind before
    forms: tuple[Form, ...]

    def tensor(self) -> torch.Tensor:
        """The inverse of `read`. Raises OnefoldValueError for too many tensors."""
        fields = {each.name: getattr(self, each.name) for each in fields_of(self)}
        fields["forms"] = [each.data() for each in self.forms]
        text = json.dumps(fields).encode()
        if len(text) > _ROOM:
            raise OnefoldValueError(
                f"a stage returned {len(self.forms)} tensors, which are too many to be sent to the "
                "next one: join them, as in flow.cat"
            )
        return torch.frombuffer(bytearray(text.ljust(_ROOM)), dtype=torch.uint8)

    @staticmethod
    def read(data: torch.Tensor) -> Announcement:
        """The inverse of `tensor`."""
        fields = json.loads(data.numpy().tobytes())
        return Announcement(
            **{**fields, "forms": tuple([form_of_data(each) for each in fields["forms"]])}
        )

    def check(self, own: Announcement, source: int) -> None:
        """Raise OnefoldRuntimeError where rank `source` runs another schedule than this rank."""
        for what in ("schedule", "n_microbatches", "has_backward"):
            theirs, mine = getattr(self, what), getattr(own, what)
            if theirs != mine:
                raise OnefoldRuntimeError(
                    f"{own.schedule}: rank {source} has {what}={theirs}, but this rank {mine}. "
                    "Make the same schedule on all ranks, with a loss_fn on all of them if any "
                    "has one, and call step() or eval() on all"
                )


def announce(to: int, what: Announcement) -> Posted:
    """Start to send an announcement."""
    with current_op.named(_OP):
        return post([(to, what.tensor())], [])


def hear(source: int) -> Announcement:
    """Wait for the announcement of a rank."""
    with current_op.named(_OP):
        (data,) = transfer([], [(source, (_ROOM,), torch.uint8, _CPU)])
    return Announcement.read(data)


def send(to: int, tensors: Sequence[Tensor]) -> Posted:
    """Start to send local tensors, which must not change before they have left."""
    with current_op.named(_OP):
        return post([(to, x.shards[0].detach()) for x in tensors], [])


def expect(source: int, forms: Sequence[Form], device: torch.device) -> Posted:
    """Start to receive tensors of these forms."""
    with current_op.named(_OP):
        return post([], [(source, each.shape, each.dtype, device) for each in forms])


def arrive(posted: Posted) -> list[Tensor]:
    """Wait for the tensors."""
    return [from_torch(data) for data in posted.wait()]


def check_outputs(stage: int, outputs: Sequence[object]) -> None:
    """Raise OnefoldTypeError unless a stage returned local tensors, which can be sent."""
    for x in outputs:
        if not isinstance(x, Tensor):
            raise OnefoldTypeError(
                f"stage {stage} returned {type(x).__name__}, but what a stage returns is sent to "
                "the next one: return a tensor, or a tuple of tensors. Other values can be given "
                "to each stage with step(name=value)"
            )
        if x.is_global:
            raise OnefoldTypeError(
                f"stage {stage} returned a global tensor, {x.meta!r}, but stages send local ones: "
                "return its to_local(), and make it global again in the next stage"
            )
