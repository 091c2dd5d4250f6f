"""Tracing what a function of tensors allocates and launches, without doing it.

The function is called with fake tensors, which have a shape, strides, a dtype and a device, but no
memory. Views of fake tensors and new tensors are fake, too. A function that needs values or
addresses, or that uses torch for other work than a dense copy, is not traceable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, Protocol, Self, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from .symbolic_numbers import Number, ValueNeeded, is_symbol, kind_of

_ALLOCATIONS = set("empty empty_like empty_strided new_empty new_empty_strided".split())
_VIEWS = {"_unsafe_view", "_reshape_alias"}  # views that their schema does not declare

REPLAY = "<replay>"  # the file name of generated code that replays a trace

Grid: TypeAlias = tuple[int, ...]
Argument: TypeAlias = Tensor | int | float | None  # of a launch; constants come besides
Options: TypeAlias = tuple[int, int, bool, int]  # warps, stages, fused, resident
Found = TypeVar("Found")

_GROUPS = (tuple, list)


class NotTraceable(Exception):
    """The function does something that cannot be recorded."""


class Compiled(Protocol):
    """A compiled form of a kernel, as Triton's launcher takes it."""

    run: Callable[..., None]
    function: object
    packed_metadata: object


class Launchable(Protocol):
    """A `Kernel` of `jit_kernel`. `plain` tells which arguments have any 64-bit value."""

    @property
    def plain(self) -> Sequence[bool]: ...

    def launch(
        self, grid: Grid, args: Sequence[Argument], constants: Sequence[object] = (),
        warps: int = 4, stages: int = 3, fused: bool = True, resident: int = 0,
    ) -> Compiled | None: ...  # fmt: skip


class MemoryRef(NamedTuple):
    """Where a tensor lies: in the memory of the argument or allocation with this number."""

    source: int
    offset: int  # bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


Traced: TypeAlias = MemoryRef | Number | int | float | None  # an argument, as it is recorded


class Launch(NamedTuple):
    """One launch. Its tensors are memory references, its symbolic numbers are `Number`s."""

    kernel: Launchable
    grid: Grid
    args: tuple[Traced, ...]
    constants: tuple[object, ...]
    options: Options

    @property
    def all_args(self) -> tuple[object, ...]:
        return self.args + self.constants


class Copy(NamedTuple):
    """A dense copy, made by torch, of a tensor with other strides."""

    source: MemoryRef
    target: MemoryRef


TraceStep: TypeAlias = Launch | Copy | Callable[[], object]  # the last is called before a launch


class FakeTensor(Tensor):
    """A tensor without memory. `bare`, on torch's meta device, tells whose view it is."""

    bare: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, device: torch.device) -> Self:
        fake: Self = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=device,
        )
        fake.bare = inner
        return fake

    @classmethod
    def __torch_dispatch__(cls, *_: object) -> NoReturn:
        raise NotTraceable

    def data_ptr(self) -> int:
        if sys._getframe(1).f_code.co_filename == REPLAY:
            return 1  # no multiple of 16: it calls the function as it is, which is then traced
        raise NotTraceable


class LaunchTrace(TorchDispatchMode):
    """Records allocations, copies and launches while it is active."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would load torch's compiler for it, which takes a second

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        on_device = tensors[0] if tensors else torch.empty(0, device=device)
        self.device, self.index = on_device.device, on_device.get_device()
        self.places: list[MemoryRef] = []  # of the arguments, then of the allocations
        self.steps: list[TraceStep] = []
        self.guarded: list[tuple[Callable[[], object], object]] = []
        self._sources: dict[int, int] = {}  # by storage
        self._kept: list[Tensor] = []  # keeps storages alive, so that no address is used twice
        self.fake_tensors = [self._source(x) for x in tensors]
        self.given = len(tensors)

    def _source(self, x: Tensor) -> FakeTensor:
        inner = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        return self._allocated(inner)

    def _allocated(self, inner: Tensor) -> FakeTensor:
        number = len(self.places)
        self._kept.append(inner)
        self._sources[inner.untyped_storage()._cdata] = number
        self.places.append(MemoryRef(number, 0, tuple(inner.shape), inner.stride(), inner.dtype))
        return FakeTensor(inner, self.device)

    def __torch_dispatch__(
        self, function: OpOverload, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        name = function._schema.name.removeprefix("aten::")
        kwargs = dict(kwargs or {})
        of_fakes = any(isinstance(x, FakeTensor) for x in leaves((*args, *kwargs.values())))
        allocates = name in _ALLOCATIONS
        device = torch.device(kwargs.get("device") or (self.device if of_fakes else "cpu"))
        if not of_fakes and not (allocates and self._is_here(device)):
            # A tensor that torch creates from no argument matters only if a kernel gets it.
            if torch.Tag.nondeterministic_seeded in function.tags:
                raise NotTraceable
            return function(*args, **kwargs)
        if name == "clone":
            return self._copied(args[0], function(args[0].bare, **kwargs))
        if not allocates and name not in _VIEWS and not _is_view(function._schema):
            raise NotTraceable
        args = with_tensors(args, _bare)
        kwargs = {key: with_tensors(value, _bare) for key, value in kwargs.items()}
        if allocates:
            if not self._is_here(device):
                raise NotTraceable
            return self._allocated(function(*args, **{**kwargs, "device": "meta"}))
        return with_tensors(function(*args, **kwargs), lambda x: FakeTensor(x, self.device))

    def _copied(self, x: FakeTensor, inner: Tensor) -> FakeTensor:
        source = self.memory_ref(x)
        if source.dtype is not self.places[source.source].dtype:
            raise NotTraceable
        made = self._allocated(inner)
        self.steps.append(Copy(source, self.places[-1]))
        return made

    def _is_here(self, device: torch.device) -> bool:
        return device.type == self.device.type and device.index in (None, self.device.index)

    def memory_ref(self, x: object) -> MemoryRef:
        """Raises NotTraceable unless x is a fake tensor with the values of its memory."""
        if not isinstance(x, FakeTensor):
            raise NotTraceable
        inner = x.bare
        if inner.is_conj() or inner.is_neg():
            raise NotTraceable
        source = self._sources[inner.untyped_storage()._cdata]
        offset = int(inner.storage_offset()) * inner.itemsize
        return MemoryRef(source, offset, tuple(inner.shape), inner.stride(), inner.dtype)

    def launched(
        self, kernel: Launchable, grid: Grid, args: Sequence[Argument],
        constants: Sequence[object], options: Options,
    ) -> None:  # fmt: skip
        given: list[Traced] = []
        for x, any_value in zip(args, kernel.plain, strict=False):
            if isinstance(x, Tensor):
                place = self.memory_ref(x)
                # Without elements it has no address, which is aligned.
                given.append(place if x.numel() else place._replace(offset=0))
            elif is_symbol(x):
                if kind_of(x) is int and not any_value:
                    raise ValueNeeded(x.number.place)
                given.append(x.number)
            else:
                given.append(x)
        for value in (*grid, *constants, *options):
            if is_symbol(value):
                raise ValueNeeded(value.number.place)
        self.steps.append(Launch(kernel, tuple(grid), tuple(given), tuple(constants), options))


def leaves(values: Iterable[Any]) -> Iterator[Any]:
    """The values, with tuples and lists flattened.

    >>> list(leaves((1, [2, (3,)])))
    [1, 2, 3]
    """
    for value in values:
        if isinstance(value, _GROUPS):
            yield from leaves(value)
        else:
            yield value


def with_tensors(value: Any, change: Callable[[Any], object]) -> Any:
    """A value with each tensor changed, also in tuples and lists."""
    if isinstance(value, Tensor):
        return change(value)
    if not isinstance(value, _GROUPS) or not any(isinstance(x, Tensor) for x in leaves(value)):
        return value
    parts = [with_tensors(part, change) for part in value]
    make = getattr(type(value), "_make", type(value))  # of a named tuple
    return make(parts)


def _bare(x: Tensor) -> Tensor:
    return x.bare if isinstance(x, FakeTensor) else x


def _is_view(schema: torch._C.FunctionSchema) -> bool:
    aliases = [value.alias_info for value in schema.returns]
    return bool(aliases) and all(info is not None and not info.is_write for info in aliases)


_active: ContextVar[LaunchTrace | None] = ContextVar("tape", default=None)
active = _active.get


def record(function: Callable[..., Found], trace: LaunchTrace, args: Sequence[object]) -> Found:
    """Run the function under the trace, with the trace's fake tensors among the arguments."""
    token = _active.set(trace)
    try:
        with trace:
            return function(*args)
    finally:
        _active.reset(token)


def before_launch(call: Callable[[], object]) -> None:
    """Call `call` now, and at this point of every replay."""
    trace = active()
    if trace is not None:
        trace.steps.append(call)
    call()


def guarded(state: Callable[[], Found]) -> Found:
    """Read a setting of torch. The trace is only valid for the value that it had."""
    value = state()
    trace = active()
    if trace is not None and (state, value) not in trace.guarded:
        trace.guarded.append((state, value))
    return value


def aligned(x: Tensor, alignment: int = 16) -> bool:
    """Whether the address is a multiple of `alignment` bytes. Traced arguments are aligned."""
    trace = active()
    address = x.data_ptr() if trace is None else trace.memory_ref(x).offset
    return address % alignment == 0
