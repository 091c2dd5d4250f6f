"""Replay: generated Python code that does what a trace recorded, for other tensors.

The first replay starts every launch through its `Kernel`, which returns the compiled form. After
that the code is a function such as

    def replay(x0, x1):
        if current() != device: return otherwise(x0, x1)
        a0 = x0.data_ptr()
        a1 = x1.data_ptr()
        if (a0 | a1) & 15: return otherwise(x0, x1)
        x2 = empty(*layout2)
        a2 = x2.data_ptr()
        s = stream(device)
        run0(4, 1, 1, s, form0, data0, None, None, None, a0, a1, a2, 4096, 1024)
        return x2
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from . import jit_kernel
from .launch_trace import (
    REPLAY,
    Argument,
    Compiled,
    Copy,
    Launch,
    LaunchTrace,
    MemoryRef,
    NotTraceable,
    Traced,
)
from .symbolic_numbers import Number

ALIGNMENT = 16  # bytes

# torch.empty_strided without its checks of arguments, which take a microsecond.
_guards: Any = torch._C._dynamo.guards
_EMPTY: dict[str, Callable[..., Tensor]] = {
    "cpu": _guards._empty_strided_cpu,
    "cuda": _guards._empty_strided_cuda,
}


class Replay:
    """A recorded trace of one function for one combination of layouts.

    `names` tells as text how the arguments unpack into tensors: "x0", "_" or "(x1, _, (x2,),)". A
    name such as "n3" is a number, argument 3, which may have any value.
    """

    def __init__(
        self, function: Callable[..., object], trace: LaunchTrace, result: object,
        names: Sequence[str],
    ) -> None:  # fmt: skip
        self.function = function
        self.device, self.index = trace.device, trace.index
        self.given = trace.given
        self.places = trace.places
        self.steps = trace.steps
        self.guarded = trace.guarded
        self.names = names
        self.several = type(result) is tuple
        self.results: list[MemoryRef | None] = []
        members: Sequence[object] = result if type(result) is tuple else (result,)
        for x in members:
            self.results.append(None if x is None else self._result(trace.memory_ref(x)))

    def _result(self, place: MemoryRef) -> MemoryRef:
        """The place of a result. A result that is a whole allocation is allocated in its layout."""
        number = place.source
        whole = self.places[number]
        if place.dtype is not whole.dtype:
            raise NotTraceable
        first = number >= self.given and all(x is None or x.source != number for x in self.results)
        if first and place.offset == 0 and prod(place.shape) == prod(whole.shape):
            self.places[number] = place
        return place

    def once(
        self, tensors: Sequence[Tensor], args: Sequence[object]
    ) -> tuple[object, list[Compiled]]:
        """The function's result for these arguments, and the compiled forms."""
        sources = list(tensors)
        for place in self.places[self.given :]:
            sources.append(
                torch.empty_strided(
                    place.shape, place.strides, dtype=place.dtype, device=self.device
                )
            )
        forms: list[Compiled] = []
        for step in self.steps:
            if isinstance(step, Copy):
                self._at(step.target, sources).copy_(self._at(step.source, sources))
                continue
            if not isinstance(step, Launch):
                step()
                continue
            given = [self._given(x, sources, args) for x in step.args]
            form = step.kernel.launch(step.grid, given, step.constants, *step.options)
            if form is not None:  # as in the interpreter
                forms.append(form)
        found = [None if place is None else self._at(place, sources) for place in self.results]
        return tuple(found) if self.several else found[0], forms

    def _given(self, x: Traced, sources: Sequence[Tensor], args: Sequence[object]) -> Argument:
        if isinstance(x, MemoryRef):
            return self._at(x, sources)
        return x.of(args) if isinstance(x, Number) else x

    def _at(self, place: MemoryRef, sources: Sequence[Tensor]) -> Tensor:
        source = sources[place.source]
        if place == self.places[place.source]:
            return source
        offset = source.storage_offset() * source.itemsize + place.offset
        made = torch.empty(0, dtype=place.dtype, device=self.device)
        storage = source.untyped_storage()
        return made.set_(storage, offset // place.dtype.itemsize, place.shape, place.strides)

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the addresses and torch's state fulfil the guards."""
        return all(x.data_ptr() % ALIGNMENT == 0 for x in tensors) and all(
            state() == value for state, value in self.guarded
        )

    def written(self, forms: Sequence[Compiled]) -> Callable[..., object]:
        """Generate the function that replays the trace with these compiled forms."""
        names = [name if name[0] in "xn" else f"g{i}" for i, name in enumerate(self.names)]
        values: dict[str, Any] = {"otherwise": self.function, "__builtins__": builtins}
        code = self._code(names, [], values, forms)
        return FunctionType(code, values)

    def inlined(
        self, forms: Sequence[Compiled], args: Sequence[object], rest: Sequence[object],
        values: dict[str, Any],
    ) -> CodeType | None:  # fmt: skip
        """The code of a function of the arguments before `rest`, which are always the same.

        What does not fit the trace it gives to `otherwise`, one of the global names `values`, to
        which the others are added. It relies on the shapes, dtypes and device of tensors and on the
        types of runtime scalars; there are no tensors in `rest`. None if an argument is a group of
        tensors.
        """
        names, checks = [], []
        for i, (name, arg) in enumerate(zip(self.names, (*args, *rest), strict=True)):
            if i >= len(args):
                values[name] = arg  # of a runtime scalar
                continue
            if name[0] == "(":
                return None
            names.append(name if name[0] in "xn" else f"g{i}")
            if name[0] == "x":
                checks.append(self._other_layout(int(name[1:]), values))
            elif name[0] == "_":
                values[f"is{i}"] = arg
                checks.append(f"g{i} is not is{i}")
        return self._code(names, checks, values, forms)

    def _other_layout(self, number: int, values: dict[str, Any]) -> str:
        """The test whether a tensor, of the same shape as in the trace, has other strides."""
        _, _, shape, strides, _ = self.places[number]
        if min(shape, default=0) > 1 and strides == row_major(shape):
            return f"not x{number}.is_contiguous()"
        values[f"strides{number}"] = strides
        return f"x{number}.stride() != strides{number}"

    def _code(
        self, parameters: Sequence[str], checks: Sequence[str], values: dict[str, Any],
        forms: Sequence[Compiled],
    ) -> CodeType:  # fmt: skip
        current, stream = jit_kernel.driver_functions()
        values.update(
            current=current, stream=stream, device=self.index, empty=_EMPTY[self.device.type],
            __builtins__=vars(builtins),  # for imports by functions written in C
        )  # fmt: skip
        return compiled("\n    ".join(self._lines(parameters, checks, values, forms)))

    def _lines(
        self, parameters: Sequence[str], checks: Sequence[str], values: dict[str, Any],
        forms: Sequence[Compiled],
    ) -> Iterator[str]:  # fmt: skip
        """The lines of the function; adds the values of its names."""
        otherwise = f": return otherwise({', '.join(parameters)})"
        yield f"def replay({', '.join(parameters)}):"
        yield f"if {' or '.join(['current() != device', *checks])}" + otherwise
        for i, (state, value) in enumerate(self.guarded):
            values[f"state{i}"], values[f"value{i}"] = state, value
            yield f"if state{i}() != value{i}" + otherwise
        for parameter, name in zip(parameters, self.names, strict=False):
            if name[0] == "(":
                yield f"{name} = {parameter}"
        launches = [step for step in self.steps if isinstance(step, Launch)]
        read = {x.source for step in launches for x in step.args if isinstance(x, MemoryRef)}
        for number in range(self.given):
            yield f"a{number} = x{number}.data_ptr()"
        if self.given:
            bits = " | ".join(f"a{number}" for number in range(self.given))
            yield f"if ({bits}) & {ALIGNMENT - 1}" + otherwise
        for number, place in enumerate(self.places[self.given :], self.given):
            values[f"layout{number}"] = place.shape, place.strides, place.dtype
            yield f"x{number} = empty(*layout{number})"
            if number in read:
                yield f"a{number} = x{number}.data_ptr()"
        yield from self._runs(values, forms)
        found = ", ".join(map(self._found, self.results))
        yield f"return ({found},)" if self.several else f"return {found}"

    def _found(self, place: MemoryRef | None) -> str:
        """The tensor at a place as text."""
        if place is None:
            return "None"
        name = f"x{place.source}"
        if place == self.places[place.source]:
            return name
        start = place.offset // place.dtype.itemsize
        at = f"{name}.storage_offset() + {start}" if place.source < self.given else start
        return f"{name}.as_strided({tuple(place.shape)}, {tuple(place.strides)}, {at})"

    def _runs(self, values: dict[str, Any], forms: Sequence[Compiled]) -> Iterator[str]:
        left = iter(forms)
        if forms:
            yield "s = stream(device)"
        for i, step in enumerate(self.steps):
            if isinstance(step, Copy):
                yield f"{self._found(step.target)}.copy_({self._found(step.source)})"
                continue
            if not isinstance(step, Launch):
                values[f"call{i}"] = step
                yield f"call{i}()"
                continue
            form = next(left)
            values[f"run{i}"] = form.run
            values[f"form{i}"], values[f"data{i}"] = form.function, form.packed_metadata
            args = [_argument(arg, f"v{i}_{j}", values) for j, arg in enumerate(step.all_args)]
            grid = ", ".join(map(str, jit_kernel.three(step.grid)))
            yield f"run{i}({grid}, s, form{i}, data{i}, None, None, None, {', '.join(args)})"


def _argument(arg: object, name: str, values: dict[str, Any]) -> str:
    """An argument of a launch as text."""
    if isinstance(arg, MemoryRef):
        return f"a{arg.source}" + (f" + {arg.offset}" if arg.offset else "")
    if isinstance(arg, Number):
        text = f"n{arg.place}"
        for i, step in enumerate(arg.steps):
            values[f"{name}_{i}"] = step
            text = f"{name}_{i}({text})"
        return text
    if arg is None or type(arg) in (int, bool):
        return repr(arg)
    values[name] = arg
    return name


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1]


@lru_cache(maxsize=4096)
def compiled(text: str) -> CodeType:
    """The code of the function that a text defines; equal layers of a model have equal texts."""
    whole = compile(text, REPLAY, "exec")
    [code] = [part for part in whole.co_consts if isinstance(part, CodeType)]
    return code
