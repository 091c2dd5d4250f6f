"""Lazy layers, which read the number of their inputs' features from the first input."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Self

from ..engine import interpreter
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from .convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from .linear import Linear
from .module import Module
from .running_norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)


class LazyModule(Module):
    """A layer that becomes one of the class `cls_to_become` when it is called first.

    Until then it has no parameters, so make optimizers after a first call. Its parameters are
    where the first input is, unless a device or a placement was given.
    """

    cls_to_become: ClassVar[type[Module]]
    feature_dim: ClassVar[int]
    defaults: ClassVar[dict[str, object]]  # that are not those of the class to become

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            inspect.signature(type(self)).bind(*args, **kwargs)
        except TypeError as error:
            raise OnefoldTypeError(f"{type(self).__name__}: {error}") from None
        self._given = args, kwargs

    def has_uninitialized_params(self) -> bool:
        """Whether it has not been called yet."""
        return True

    def initialize_parameters(self, input: Tensor) -> None:
        """Become a layer for inputs such as this one."""
        if interpreter.capturing():
            raise OnefoldRuntimeError(
                f"{type(self).__name__} has no parameters yet, and a capture cannot make them: "
                "call it once before the graph"
            )
        args, kwargs = self._given
        given = inspect.signature(type(self)).bind(*args, **kwargs).arguments
        kwargs = {name: each for name, each in self.defaults.items() if name not in given} | kwargs
        where: dict[str, object] = {}
        if input.is_local:
            where["device"] = input.device
        else:
            where |= {"placement": input.placement, "sbp": (broadcast,) * input.placement.ndim}
        if not given.keys() & {"device", "placement"}:
            kwargs = {**where, **kwargs}
        if input.is_floating_point() and "dtype" not in given:
            kwargs = {**kwargs, "dtype": input.dtype}
        become: Callable[..., Module] = self.cls_to_become
        made = become(input.shape[self.feature_dim], *args, **kwargs)
        del self._given
        object.__setattr__(self, "__class__", self.cls_to_become)
        for name, value in vars(made).items():
            if name in ("_parameters", "_buffers") or (name[0] != "_" and name != "training"):
                self.__dict__[name] = value

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        raise self._not_yet("convert")

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        raise self._not_yet("set requires_grad of")

    def _not_yet(self, what: str) -> OnefoldRuntimeError:
        return OnefoldRuntimeError(
            f"cannot {what} {type(self).__name__}, which has no parameters before its first call"
        )

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        return self.forward(input, *args, **kwargs)


def _lazy(become: type[Module], dim: int, **defaults: object) -> type[LazyModule]:
    name = f"Lazy{become.__name__}"
    whole = inspect.signature(become, eval_str=True)
    parameters = [
        each.replace(default=defaults.get(each.name, each.default))
        for each in whole.parameters.values()
    ]
    members = {
        "__doc__": f"`{become.__name__}` that reads its first argument from its first input.",
        "__module__": __name__,
        "__signature__": whole.replace(parameters=parameters[1:]),
        "cls_to_become": become,
        "defaults": defaults,
        "feature_dim": dim,
    }
    return type(name, (LazyModule,), members)


LazyLinear = _lazy(Linear, -1)
LazyConv1d = _lazy(Conv1d, -2)
LazyConv2d = _lazy(Conv2d, -3)
LazyConv3d = _lazy(Conv3d, -4)
LazyConvTranspose1d = _lazy(ConvTranspose1d, -2)
LazyConvTranspose2d = _lazy(ConvTranspose2d, -3)
LazyConvTranspose3d = _lazy(ConvTranspose3d, -4)
LazyBatchNorm1d = _lazy(BatchNorm1d, 1)
LazyBatchNorm2d = _lazy(BatchNorm2d, 1)
LazyBatchNorm3d = _lazy(BatchNorm3d, 1)
LazyInstanceNorm1d = _lazy(InstanceNorm1d, -2, affine=True, track_running_stats=True)
LazyInstanceNorm2d = _lazy(InstanceNorm2d, -3, affine=True, track_running_stats=True)
LazyInstanceNorm3d = _lazy(InstanceNorm3d, -4, affine=True, track_running_stats=True)
