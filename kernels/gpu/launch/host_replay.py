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
        run0(i0, j0, k0, s, form0, data0, None, None, None, a0, a1, a2, v0_3, v0_4)
        return x2

Its numbers are global names, not text, so that the text is the same for other shapes: Python takes
longer to compile it than all the rest of a trace takes.
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
    TraceStep,
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
        self.allocated, self.freed = self._lifetimes()

    def _lifetimes(self) -> tuple[list[list[int]], list[list[int]]]:
        """The memory allocated before each step, and at the end, and that freed after each step.

        Memory is freed only where more is allocated later, which can then reuse it.
        """
        kept = {place.source for place in self.results if place is not None}
        allocated: list[list[int]] = [[] for _ in range(len(self.steps) + 1)]
        freed: list[list[int]] = [[] for _ in self.steps]
        last: dict[int, int] = {}
        for index, step in enumerate(self.steps):
            for number in sorted(_sources(step)):
                if number >= self.given and number not in last:
                    allocated[index].append(number)
                last[number] = index
        allocated[-1] = [n for n in range(self.given, len(self.places)) if n not in last]
        latest = max((index for index, numbers in enumerate(allocated) if numbers), default=0)
        for number, index in last.items():
            if number >= self.given and number not in kept and index < latest:
                freed[index].append(number)
        return allocated, freed

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
        sources: list[Tensor | None] = [*tensors, *[None] * (len(self.places) - self.given)]
        forms: list[Compiled] = []
        for index, step in enumerate(self.steps):
            self._allocate(index, sources)
            form = self._do(step, sources, args)
            if form is not None:  # as in the interpreter
                forms.append(form)
            for number in self.freed[index]:
                sources[number] = None
        self._allocate(-1, sources)
        found = [None if place is None else self._at(place, sources) for place in self.results]
        return tuple(found) if self.several else found[0], forms

    def _allocate(self, index: int, sources: list[Tensor | None]) -> None:
        for number in self.allocated[index]:
            _, _, shape, strides, dtype = self.places[number]
            sources[number] = torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    def _do(
        self, step: TraceStep, sources: Sequence[Tensor | None], args: Sequence[object]
    ) -> Compiled | None:
        if isinstance(step, Copy):
            self._at(step.target, sources).copy_(self._at(step.source, sources))
            return None
        if not isinstance(step, Launch):
            step()
            return None
        given = [self._given(x, sources, args) for x in step.args]
        return step.kernel.launch(step.grid, given, step.constants, *step.options)

    def _given(
        self, x: Traced, sources: Sequence[Tensor | None], args: Sequence[object]
    ) -> Argument:
        if isinstance(x, MemoryRef):
            return self._at(x, sources)
        return x.of(args) if isinstance(x, Number) else x

    def _at(self, place: MemoryRef, sources: Sequence[Tensor | None]) -> Tensor:
        source = sources[place.source]
        assert source is not None, "memory is used after it was freed"
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
        for number in range(self.given):
            yield f"a{number} = x{number}.data_ptr()"
        if self.given:
            bits = " | ".join(f"a{number}" for number in range(self.given))
            yield f"if ({bits}) & {ALIGNMENT - 1}" + otherwise
        yield from self._runs(values, forms)
        found = ", ".join(
            "None" if place is None else self._found(place, f"result{i}", values)
            for i, place in enumerate(self.results)
        )
        yield f"return ({found},)" if self.several else f"return {found}"

    def _found(self, place: MemoryRef, name: str, values: dict[str, Any]) -> str:
        """The tensor at a place as text; the names of its layout begin with `name`."""
        x = f"x{place.source}"
        if place == self.places[place.source]:
            return x
        values[f"{name}_shape"], values[f"{name}_strides"] = place.shape, place.strides
        values[f"{name}_start"] = place.offset // place.dtype.itemsize
        at = f"{x}.storage_offset() + " if place.source < self.given else ""
        return f"{x}.as_strided({name}_shape, {name}_strides, {at}{name}_start)"

    def _runs(self, values: dict[str, Any], forms: Sequence[Compiled]) -> Iterator[str]:
        left = iter(forms)
        launches = [step for step in self.steps if isinstance(step, Launch)]
        read = {number for step in launches for number in _sources(step)}
        if forms:
            yield "s = stream(device)"
        for i, step in enumerate(self.steps):
            yield from self._allocations(i, read, values)
            if isinstance(step, Copy):
                source = self._found(step.source, f"from{i}", values)
                yield f"{self._found(step.target, f'to{i}', values)}.copy_({source})"
            elif isinstance(step, Launch):
                yield self._launch(i, step, next(left), values)
            else:
                values[f"call{i}"] = step
                yield f"call{i}()"
            if self.freed[i]:
                yield "del " + ", ".join(f"x{number}" for number in self.freed[i])
        yield from self._allocations(-1, read, values)

    def _allocations(self, index: int, read: set[int], values: dict[str, Any]) -> Iterator[str]:
        for number in self.allocated[index]:
            place = self.places[number]
            values[f"layout{number}"] = place.shape, place.strides, place.dtype
            yield f"x{number} = empty(*layout{number})"
            if number in read:
                yield f"a{number} = x{number}.data_ptr()"

    def _launch(self, i: int, step: Launch, form: Compiled, values: dict[str, Any]) -> str:
        values[f"run{i}"] = form.run
        values[f"form{i}"], values[f"data{i}"] = form.function, form.packed_metadata
        args = [_argument(arg, f"v{i}_{j}", values) for j, arg in enumerate(step.all_args)]
        values[f"i{i}"], values[f"j{i}"], values[f"k{i}"] = jit_kernel.three(step.grid)
        given = f"i{i}, j{i}, k{i}, s, form{i}, data{i}, None, None, None, {', '.join(args)}"
        return f"run{i}({given})"


def _sources(step: TraceStep) -> set[int]:
    """The numbers of the memory that a step uses."""
    if isinstance(step, Copy):
        return {step.source.source, step.target.source}
    args = step.args if isinstance(step, Launch) else ()
    return {x.source for x in args if isinstance(x, MemoryRef)}


def _argument(arg: object, name: str, values: dict[str, Any]) -> str:
    """An argument of a launch as text."""
    if isinstance(arg, MemoryRef):
        if not arg.offset:
            return f"a{arg.source}"
        values[name] = arg.offset
        return f"a{arg.source} + {name}"
    if isinstance(arg, Number):
        text = f"n{arg.place}"
        for i, step in enumerate(arg.steps):
            values[f"{name}_{i}"] = step
            text = f"{name}_{i}({text})"
        return text
    values[name] = arg
    return name


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1]


def compiled(text: str) -> CodeType:
    """The code of the function that a text defines, for one function alone.

    Python keeps in the code where it found the global names, which for another function is wrong.
    """
    return _compiled(text).replace()


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CodeType:
    whole = compile(text, REPLAY, "exec")
    [code] = [part for part in whole.co_consts if isinstance(part, CodeType)]
    return code
