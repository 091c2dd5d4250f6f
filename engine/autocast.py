"""autocast: matrix products in half precision for the ops of a block, by the rules of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import torch

from ..env import DEVICE
from ..errors import OnefoldTypeError, OnefoldValueError, warn
from . import interpreter
from .amp_rules import DTYPES, FLOAT32, PROMOTING, in_mixed_precision
from .autograd_tape import Leaf
from .cached_cast import keep_low_copy, low_copy, used
from .dispatcher import PACKED, arity
from .interpreter import Interpreter, Through, using
from .meta import Meta
from .names import names
from .op import Op
from .parameter_casts import ParameterCasts
from .tensor import Tensor

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_DEFAULTS = {"cpu": torch.bfloat16, "cuda": torch.float16}
# Devices of torch that are not here, of which programs ask whether they are in use.
_OTHERS = frozenset("hpu ipu maia mps mtia xla xpu".split())


class _LastCast(NamedTuple):
    """The cast of the last tensor that is not a parameter, and the state of that tensor."""

    tensor: ref[Tensor]
    version: int
    cast: Tensor

    def is_of(self, x: Tensor, dtype: torch.dtype) -> bool:
        return self.tensor() is x and self.version == x.version and self.cast.dtype is dtype


class Autocast(Through):
    """Casts the inputs of each op by the rules, then runs it with `inner`.

    An op that runs others runs them as it calls them, as in a graph.
    """

    def __init__(
        self, inner: Interpreter | None, dtypes: Mapping[str, torch.dtype], caches: bool
    ) -> None:
        super().__init__(inner)
        self.dtypes = dtypes  # of matrix products, by the type of device
        self.caches = caches
        self.casts = ParameterCasts()
        self._last: _LastCast | None = None

    def run(self, call: Callable[..., R], op: object, args: tuple[Any, ...]) -> R:
        with using(self.inner):
            if not isinstance(op, Op):
                return call(*args)
            args = self._cast(call, op, args)
            if op.with_low_copy and op.name in FLOAT32 and (dtype := self._low_dtype(args[0].meta)):
                made: R = _with_low_copy(op.with_low_copy, op.num_outputs, args, dtype)
                return made
            return call(*args)

    def _low_dtype(self, x: Meta) -> torch.dtype | None:
        """The dtype in which products read a result computed from `x`, if a kernel can write it."""
        if not self.caches or self.inner is not None or x.dtype is not torch.float32:
            return None
        return self.dtypes.get(x.device_type) if self.casts.uses_triton(x) else None

    def dtype_of_products(self, device_type: str) -> torch.dtype | None:
        return self.dtypes.get(device_type)

    def for_gradients(self) -> Interpreter | None:
        return self.inner and self.inner.for_gradients()

    def repeated_under(self, interpreter: Interpreter | None) -> Interpreter | None:
        if isinstance(interpreter, Autocast):
            interpreter = interpreter.inner
        return Autocast(interpreter, self.dtypes, self.caches)

    def _cast(self, call: Callable[..., object], op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if op.name in PROMOTING and not self.captures:
            return args
        number = arity[call]
        slots = args[0] if number == PACKED else args[:number]
        attrs = args[1:] if number == PACKED else args[number:]
        first = next((slot for slot in slots if isinstance(slot, Tensor)), None)
        low = None if first is None else self.dtypes.get(first.meta.device_type)
        if low is None:
            return args
        slots, attrs = in_mixed_precision(op.name, slots, attrs, low, self._as)
        return (slots, *attrs) if number == PACKED else (*slots, *attrs)

    def _as(self, dtype: torch.dtype, x: object) -> object:
        if not isinstance(x, Tensor) or not x.meta.is_floating or x.dtype is dtype:
            return x
        if not self.caches or self.captures or self.batches:
            return names.cast(x, dtype)
        if isinstance(x.node, Leaf):
            return used(self.casts.of(x, x.node, dtype, self.inner is not None), x)
        return self._cast_of_result(x, dtype)

    def _cast_of_result(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The cast of a tensor that is not a parameter, which several ops in a row may need."""
        if (kept := low_copy(x, dtype)) is not None:
            return kept
        last = self._last
        if last is None or not last.is_of(x, dtype):
            with interpreter.grad_mode(False):
                last = self._last = _LastCast(ref(x), x.version, names.cast(x, dtype))
        return used(last.cast, x)


def _with_low_copy(
    call: Callable[..., tuple[Tensor, ...]], count: int, args: tuple[Any, ...], dtype: torch.dtype
) -> Any:
    """The outputs of an op, together with the cast of the first that a product would make."""
    y, low, *others = call(*args, dtype)
    keep_low_copy(y, low)
    return y if count == 1 else (y, *others)


class autocast:
    """Run matrix products in `dtype` in the block, or in the decorated function.

    float32 parameters stay as they are; what needs it (sums, losses, exponentials) runs in float32.
    `engine/amp_rules.py` has the rules, which are those of a graph's `config.enable_amp`.
    `device_type` is "cpu" (default dtype bfloat16) or "cuda" (float16); tensors elsewhere are left
    alone. Parameters are cast once in the outermost block, unless `cache_enabled` is False. With
    `enabled=False` a block inside another runs without casts. Gradients have the dtype of what they
    are the gradients of. Other dtypes than bfloat16 and float16 switch it off with a warning.

    >>> import onefold as flow
    >>> with flow.autocast("cpu"):
    ...     (flow.ones(2, 2) @ flow.ones(2, 2)).dtype
    torch.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = _device_type(device_type)
        self.dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.caches = cache_enabled is not False
        self.enabled = enabled
        if not isinstance(self.dtype, torch.dtype):
            raise OnefoldTypeError(
                f"autocast: dtype must be a dtype such as flow.bfloat16, but got {self.dtype!r}"
            )
        if enabled and self.dtype not in DTYPES:
            warn(
                f"autocast: dtype is {self.dtype}, but float16 and bfloat16 are supported; "
                "autocast is disabled",
                UserWarning,
            )
            self.enabled = False
        self._before: list[Autocast | None] = []

    def __enter__(self) -> autocast:
        current = interpreter.get_current()
        outer = current if isinstance(current, Autocast) else None
        self._before.append(outer)
        dtypes = {} if outer is None else dict(outer.dtypes)
        dtypes.pop(self.device, None)
        if self.enabled:
            dtypes[self.device] = self.dtype
        inner = current if outer is None else outer.inner
        made = Autocast(inner, dtypes, self.caches) if dtypes else inner
        if outer is not None and isinstance(made, Autocast):
            made.casts = outer.casts
        interpreter.set_current(made)
        return self

    def __exit__(self, *exc: object) -> None:
        outer, below = self._before.pop(), _below()
        current = interpreter.get_current()
        if outer is None and isinstance(current, Autocast):
            current.casts.end()
        if outer is not None:
            outer.hand_on_to(below)  # a profile may have begun or ended in the block
        interpreter.set_current(outer or below)

    def __call__(self, function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]


def _below() -> Interpreter | None:
    """The interpreter that runs ops after their inputs are cast."""
    current = interpreter.get_current()
    return current.inner if isinstance(current, Autocast) else current


def is_observing(observer: Through) -> bool:
    """Whether an observer is the first to see ops, after their inputs are cast."""
    return _below() is observer


@contextmanager
def observing(observer: Through) -> Iterator[None]:
    """Let an observer see the ops of the block, below autocast blocks, which may end inside."""
    observer.hand_on_to(_below())
    _observe_with(observer)
    try:
        yield
    finally:
        _observe_with(observer.inner)


def _observe_with(observer: Interpreter | None) -> None:
    current = interpreter.get_current()
    if isinstance(current, Autocast):
        current.hand_on_to(observer)
    else:
        interpreter.set_current(observer)


def _device_type(device_type: str) -> str:
    if not isinstance(device_type, str):
        raise OnefoldValueError(
            f"Expected `device_type` of type `str`, got: `{type(device_type)}`; allowed are "
            f"{sorted(_DEFAULTS)}"
        )
    if device_type not in _DEFAULTS:
        raise OnefoldValueError(
            f"autocast: device_type must be one of {sorted(_DEFAULTS)}, but got {device_type!r}"
        )
    return "cpu" if DEVICE.read() == "cpu" else device_type


def _dtypes() -> Mapping[str, torch.dtype]:
    current = interpreter.get_current()
    return current.dtypes if isinstance(current, Autocast) else {}


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether ops on devices of this type are cast now."""
    if device_type in _OTHERS:
        return False
    return _device_type(device_type) in _dtypes()


def get_autocast_dtype(device_type: str) -> torch.dtype:
    """The dtype of matrix products under autocast: that of the block, else the default."""
    return _dtypes().get(_device_type(device_type), _DEFAULTS[device_type])


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> torch.dtype:
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> torch.dtype:
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` takes this type of device.

    >>> import onefold as flow
    >>> flow.amp.is_autocast_available("cpu")
    True
    """
    return device_type in _DEFAULTS


def clear_autocast_cache() -> None:
    """Drop the cached casts of parameters in the running block; those in use are cast again."""
    current = interpreter.get_current()
    if isinstance(current, Autocast):
        current.casts = ParameterCasts()
        current._last = None


def custom_fwd(
    fwd: F | None = None, *, device_type: str, cast_inputs: torch.dtype | None = None
) -> Any:
    """Decorates the `forward` of an `autograd.Function`, for use under autocast.

    With `cast_inputs`, its floating point tensors are cast to that dtype under autocast, and its
    ops run without casts; otherwise under the autocast of the call. `custom_bwd` lets `backward`
    run in the same state.
    """
    if fwd is None:
        return partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx.autocast = get_autocast_dtype(device_type) if is_autocast_enabled(device_type) else None
        if cast_inputs is None or ctx.autocast is None:
            return fwd(ctx, *args, **kwargs)
        ctx.autocast = None
        with autocast(device_type, enabled=False):
            given = [_cast_to(cast_inputs, device_type, arg) for arg in args]
            named = {k: _cast_to(cast_inputs, device_type, arg) for k, arg in kwargs.items()}
            return fwd(ctx, *given, **named)

    return forward


def custom_bwd(bwd: F | None = None, *, device_type: str) -> Any:
    """Decorates the `backward` of a Function whose `forward` has `custom_fwd`."""
    if bwd is None:
        return partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def backward(ctx: Any, *grads: Any) -> Any:
        with autocast(device_type, dtype=ctx.autocast, enabled=ctx.autocast is not None):
            return bwd(ctx, *grads)

    return backward


def _cast_to(dtype: torch.dtype, device_type: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        halves = value.meta.is_floating and value.dtype is not torch.float64
        on = value.meta.device_type == _device_type(device_type)
        return names.cast(value, dtype) if halves and on else value
    if isinstance(value, dict):
        return {key: _cast_to(dtype, device_type, part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_cast_to(dtype, device_type, part) for part in value])
    return value
