"""The layers of `layer_table`, as classes."""

from __future__ import annotations

import inspect
import re
from typing import ClassVar

import torch

from ..engine.generated import function
from ..engine.inplace import apply_inplace
from ..engine.names import all_names
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from . import layer_table
from .loss_layers import _Loss, _WeightedLoss
from .module import Module
from .torch_parameters import implicit_dim

_ROW = re.compile(r"(\w+)\((.*?)\): (\w+)\((.*)\)")
_NAME = re.compile(r"[a-z_]\w*")

_TENSORS = ("weight", "pos_weight", "_random_samples")


class TableLayer(Module):
    """A layer that has the settings of torch's class of its name and calls one function."""

    of_torch: ClassVar[type[torch.nn.Module]]
    tensors: ClassVar[tuple[str, ...]] = ()  # settings that are tensors, which become buffers

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()
        kind = type(self)
        try:
            given = inspect.signature(kind.of_torch).bind(*args, **kwargs)
            tensors = {name: given.arguments.pop(name, None) for name in self.tensors}
            # Torch's own constructor completes the settings and checks them.
            settings = kind.of_torch(*given.args, **given.kwargs)
        except TypeError as error:
            raise OnefoldTypeError(f"{kind.__name__}: {error}") from None
        except ValueError as error:
            raise OnefoldValueError(f"{kind.__name__}: {error}") from None
        for name, tensor in tensors.items():
            self._buffers.pop(name, None)  # a base that is a loss has one of None
            self.register_buffer(name, tensor)
        for name, value in vars(settings).items():
            if not name.startswith("_") and name != "training":
                setattr(self, name, value)
        for name in settings._modules:  # torch's own layers, as defaults: the function has its own
            setattr(self, name, given.arguments.get(name))

    def _softmax_dim(self, input: Tensor) -> int:
        """`dim`, or the one that torch takes for None."""
        dim: int | None = vars(self)["dim"]
        return implicit_dim(input) if dim is None else dim

    def _channel_dim(self, input: Tensor) -> int:
        """The dim of channels of images (N, C, H, W) or (C, H, W)."""
        if input.ndim not in (3, 4):
            raise OnefoldValueError(
                f"{type(self).__name__}: expected input to be 3D or 4D, got {input.ndim}D instead"
            )
        return -3

    def extra_repr(self) -> str:
        return self.of_torch.extra_repr(self)  # type: ignore[arg-type]


def _layer(row: str) -> type[TableLayer]:
    found = _ROW.fullmatch(row)
    assert found is not None, f"cannot read the row {row!r}"
    name, inputs, called, arguments = found.groups()
    of_torch = getattr(torch.nn, name)
    parameters = [part.partition("=")[0] for part in inputs.split(", ")]
    given = [_argument(part, parameters) for part in arguments.split(", ")]
    result = f"call({', '.join(given)})"
    if "inplace" in inspect.signature(of_torch).parameters:
        result = f"apply_inplace({', '.join(['call', *given])}) if self.inplace else {result}"
    text = f"def forward(self, {inputs}):\n    return {result}\n"
    names = {
        "call": all_names()[called],
        "apply_inplace": apply_inplace,
        "__name__": __name__,
    }
    members = {
        "__doc__": f"`{called}` as a layer; see torch.nn.{name}.",
        "__module__": __name__,
        "__signature__": inspect.signature(of_torch),
        "forward": function(text, "forward", f"layer {name}", names),
        "of_torch": of_torch,
        "tensors": tuple([each for each in _TENSORS if f"self.{each}" in text]),
    }
    return type(name, (_base(of_torch),), members)


def _base(of_torch: type) -> type[TableLayer]:
    """The class that stands for the base of torch's class, as Hardtanh for that of ReLU6."""
    theirs = of_torch.__base__
    assert theirs is not None
    if theirs is torch.nn.Module:
        return TableLayer
    name = theirs.__name__
    if name in LAYERS:
        return LAYERS[name]
    if name not in BASES:
        more = {"_Loss": (_Loss,), "_WeightedLoss": (_WeightedLoss,)}.get(name, ())
        members = {
            "__doc__": f"What layers share that are {name} in torch.",
            "__module__": __name__,
            "of_torch": theirs,
        }
        BASES[name] = type(name, (TableLayer, *more), members)
    return BASES[name]


def _argument(text: str, inputs: list[str]) -> str:
    """An argument of the function, with settings as attributes of the layer."""
    name, equals, value = text.rpartition("=")
    if value not in inputs and _NAME.fullmatch(value):
        value = f"self.{value}"
    return f"{name}{equals}{value}"


ROWS = [
    row
    for block in (
        layer_table.ACTIVATIONS,
        layer_table.POOLING,
        layer_table.SHAPES,
        layer_table.OTHERS,
        layer_table.LOSSES,
    )
    for row in block.strip().replace("\n    ", " ").splitlines()
]
LAYERS: dict[str, type[TableLayer]] = {}
BASES: dict[str, type[TableLayer]] = {}  # what only `isinstance` and subclasses of users name
for _row in ROWS:
    _made = _layer(_row)
    LAYERS[_made.__name__] = _made
globals().update(LAYERS)
