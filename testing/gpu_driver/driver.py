"""GpuDriver: stands in for CUDA in this process; binds, compiles and checks, and runs nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NoReturn, Self
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime import _allocation, driver

from ...engine.dispatch_plan import clear_plans
from ...env import KERNELS
from ...errors import OnefoldRuntimeError
from ...graph.cuda_graphs import stream_capture
from ...kernels import cross_entropy_ref, gather_scatter_ref, indexing_ref, select
from ...kernels.aot.compile_kernel import GPUS, compile_source
from ...kernels.aot.facts import SHARED
from ...kernels.gpu.launch import configs, host_replay, jit_kernel, registry, trace_cache
from ...kernels.gpu.launch.stable_key import reachable
from ...optim import clip
from .graph_capture import CapturedGraph, DriverCapturer, launch_of
from .launch_checks import RANGES, Form, form_faults, launch_faults
from .lowering import lower
from .offset_ranges import wrapped_offsets
from .torch_work import TorchWork
from .triton_ir import Operation, read

ARCHITECTURE = "sm_90"
PROCESSORS = 132
_TARGET = GPUS[ARCHITECTURE]
_DEVICE = torch.empty(0).get_device()  # of tensors on the CPU; no GPU has this number
_PREFIX = __name__.partition(".testing")[0]

Depth = Literal["binary", "ir", "none"]


@dataclass(frozen=True)
class Problem:
    """What is wrong with a form, or a launch of it."""

    form: str
    text: str

    def __str__(self) -> str:
        return f"{self.text}\n    in {self.form}"


class GpuDriver:
    """Makes this process believe that it has a GPU, while the context is open.

    `depth` is how far forms are compiled: to a "binary", whose shared memory, registers and spills
    are checked; to Triton's "ir", which takes a tenth of the time; or not at all ("none").
    `problems` lists each problem once, `launches` counts launches by kernel, `forms` are the
    compiled ones, and `torch_work` counts what torch's operators computed, by module and operator.
    `captures` are the CUDA graphs that were captured, and `replays` counts their replays.
    Raises OnefoldRuntimeError where kernels are interpreted, or in another such context.

    >>> import onefold as flow
    >>> from onefold.testing.gpu_driver import GpuDriver
    >>> with GpuDriver("ir") as gpu:
    ...     y = flow.relu(flow.ones(8, 8))
    >>> gpu.problems, gpu.launches
    ([], Counter({'pointwise_relu': 1}))
    """

    _current: ClassVar[GpuDriver | None] = None

    def __init__(self, depth: Depth = "binary") -> None:
        self.depth = depth
        self.problems: list[Problem] = []
        self.launches: Counter[str] = Counter()
        self.captures: list[CapturedGraph] = []
        self.replays = 0
        self._capture: CapturedGraph | None = None
        self._forms: dict[_Loaded, Form] = {}
        self._seen: set[tuple[object, ...]] = set()  # forms, grids and numbers of launches
        self._work = TorchWork(_PREFIX)
        self._stack = ExitStack()

    @property
    def forms(self) -> list[Form]:
        """The forms that were launched."""
        return [*self._forms.values()]

    @property
    def sources(self) -> list[tuple[ASTSource, dict[str, object]]]:
        """The launched forms before they are compiled, each with its options."""
        return [(loaded.source, loaded.options) for loaded in self._forms]

    @property
    def torch_work(self) -> Counter[tuple[str, str]]:
        """How often torch's operators computed or moved values, by module and operator."""
        return self._work.seen

    def __enter__(self) -> Self:
        if jit_kernel.INTERPRETED or GpuDriver._current is not None:
            raise OnefoldRuntimeError(
                "a driver without a GPU was asked for, and "
                + ("TRITON_INTERPRET=1 is set" if jit_kernel.INTERPRETED else "one is in use")
                + "; use one at a time, in a process whose kernels are compiled"
            )
        with ExitStack() as stack:
            stack.enter_context(self._as_driver())
            stack.enter_context(mock.patch.dict("os.environ", {KERNELS.name: "triton"}))
            stack.enter_context(mock.patch("triton.compiler.compile", _compile))
            for module, name, value in self._replaced():
                stack.enter_context(mock.patch.object(module, name, value))
            stack.enter_context(self._work)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __str__(self) -> str:
        return "\n".join(
            [
                *map(str, self.problems),
                f"{self.launches.total()} launches of {len(self.launches)} kernels, "
                f"{len(self._forms)} forms, {len(self.problems)} problems",
            ]
        )

    def launched(self, loaded: _Loaded, grid: Sequence[object], args: Sequence[object]) -> None:
        """Check a launch, and its form if it is new."""
        form = self._forms.get(loaded)
        if form is None:
            form, texts = loaded.checked(self.depth)
            self._forms[loaded] = form
            self.note(str(form), texts)
            if self._capture is not None:
                self.note(str(form), ["is compiled and loaded in a capture"])
        self.launches[form.name] += 1
        allocates = _allocation._allocator.get() is not _allocation._NULL_ALLOCATOR
        faults = [*launch_faults(form, grid, args, allocates)]
        self.note(str(form), faults)
        self._note_wrapped(loaded, form, grid, args)
        if self._capture is not None and not faults:
            self._capture.launches.append(launch_of(form, grid, args))

    @contextmanager
    def capturing(self, graph: CapturedGraph) -> Iterator[None]:
        """The block whose launches belong to a CUDA graph."""
        self.captures.append(graph)
        self._capture = graph
        try:
            yield
        finally:
            self._capture = None

    def note(self, form: str, texts: Iterable[str]) -> None:
        """Add problems of a form, each once."""
        for text in texts:
            found = Problem(form, text)
            if found not in self.problems:
                self.problems.append(found)

    def _note_wrapped(
        self, loaded: _Loaded, form: Form, grid: Sequence[object], args: Sequence[object]
    ) -> None:
        """Add what a launch addresses with integers that overflow; equal launches are read once."""
        numbers = {
            name: arg
            for (name, kind), arg in zip(form.types.items(), args, strict=False)
            if isinstance(arg, int) and str(kind) in RANGES
        }
        key = (loaded, *grid, *numbers.values())
        if key not in self._seen:
            self._seen.add(key)
            self.note(str(form), wrapped_offsets(loaded.operations, numbers, grid))

    @contextmanager
    def _as_driver(self) -> Iterator[None]:
        """Triton's driver is this one, and plans that were made before are not used."""
        before = driver._active
        GpuDriver._current = self
        driver.set_active(_Driver())
        _forget_plans()
        try:
            yield
        finally:
            _forget_plans()
            driver._active = before
            GpuDriver._current = None

    def _replaced(self) -> Iterator[tuple[object, str, object]]:
        """What asks for a GPU, and what stands in its place."""
        capability = divmod(int(ARCHITECTURE.removeprefix("sm_")), 10)
        properties = SimpleNamespace(multi_processor_count=PROCESSORS)
        yield torch.cuda, "get_device_capability", lambda device=None: capability
        yield torch.cuda, "get_device_properties", lambda device=None: properties
        yield jit_kernel.Kernel, "_compile", _compile_here
        yield stream_capture, "capturer", self._capturer
        # The third call of a function is a replay, so that programs of few steps have replays.
        yield trace_cache, "TRACED_AFTER", min(trace_cache.TRACED_AFTER, 1)
        yield clip, "free_to_read", lambda number: False
        yield host_replay, "_EMPTY", {**host_replay._EMPTY, "cpu": _empty_strided}
        stand_ins: dict[int, Callable[..., object]] = {
            id(configs.architecture): lambda: ARCHITECTURE,
            id(jit_kernel.driver_functions): lambda: (lambda: _DEVICE, lambda device: 0),
            # Values are not checked on a GPU, as it would have to be waited for.
            id(indexing_ref.check_range): _nothing,
            id(gather_scatter_ref.check_rows): _nothing,
            id(cross_entropy_ref.check_targets): _nothing,
        }
        for _ in registry.modules():  # so that all of them are imported
            pass
        for module in [*sys.modules.values()]:
            if getattr(module, "__name__", "").startswith(f"{_PREFIX}.kernels"):
                for name, value in [*vars(module).items()]:
                    if id(value) in stand_ins:
                        yield module, name, stand_ins[id(value)]

    def _capturer(self, device_type: str) -> DriverCapturer | None:
        return DriverCapturer(self) if device_type == DriverCapturer.device_type else None


class _Loaded:
    """A form, as Triton keeps it. It is compiled and checked once by each driver."""

    function, packed_metadata = 1, ()

    def __init__(self, source: ASTSource, target: GPUTarget, options: dict[str, Any]) -> None:
        self.source, self.target, self.options = source, target, options
        self.operations: list[Operation] = []

    def run(
        self, x: int, y: int, z: int, stream: int, function: object, metadata: object,
        launch_metadata: object, enter: object, exit_: object, *args: object,
    ) -> None:  # fmt: skip
        """In place of CUDA's launcher."""
        if GpuDriver._current is None:
            raise OnefoldRuntimeError(
                f"{self.source.name} was bound by a driver without a GPU, whose context is closed"
            )
        GpuDriver._current.launched(self, (x, y, z), args)

    def launch_metadata(self, grid: object, stream: object, *args: object) -> None:
        """The metadata for Triton's profiler."""

    def checked(self, depth: Depth) -> tuple[Form, list[str]]:
        """The form, and what is wrong with it; compiled so far."""
        facts, scratch, faults = None, 0, [*_name_clashes(self.source)]
        self.operations = []
        try:
            if depth == "binary":
                compiled, facts = compile_source(self.source, ARCHITECTURE, self.options)
                scratch = compiled.metadata.global_scratch_size
                self.operations = _operations(compiled.asm["ttir"])
            elif depth == "ir":
                self.operations = _operations(lower(self.source, self.target, self.options))
        except Exception as error:  # noqa: BLE001 - a compiler may raise anything
            faults.append(f"does not compile: {type(error).__name__}: {error}")
        form = Form(
            self.source.fn.fn.__qualname__,
            dict(self.source.signature),
            {path[0]: value for path, value in self.source.constants.items()},
            frozenset(
                path[0]
                for path, found in self.source.attrs.items()
                if ["tt.divisibility", 16] in [list(attribute) for attribute in found]
            ),
            int(self.options["num_warps"]),
            scratch,
            facts,
        )
        return form, [*faults, *form_faults(form, ARCHITECTURE)]


def _compile(
    src: ASTSource, target: GPUTarget, options: dict[str, Any], **more: object
) -> _Loaded | CompiledKernel:
    """In place of Triton's compiler, for forms that the driver without a GPU binds."""
    if isinstance(driver.active, _Driver):
        return _Loaded(src, target, options)
    return triton.compile(src, target=target, options=options, **more)


class _Driver:
    """What Triton asks of a driver."""

    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": SHARED[ARCHITECTURE]}
    )

    def get_current_target(self) -> GPUTarget:
        return _TARGET

    def get_current_device(self) -> int:
        return _DEVICE

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> NoReturn:
        raise OnefoldRuntimeError("the driver without a GPU has no torch.cuda")


def _compile_here(
    kernel: jit_kernel.Kernel, grid: Any, device: int, args: tuple[object, ...], options: Any
) -> Any:
    """In place of `Kernel._compile`, which first makes a GPU the current device."""
    assert device == _DEVICE, f"{kernel.name}: the first argument is no tensor on the CPU"
    return kernel.bound(grid, args, options)


def _empty_strided(*layout: Any) -> torch.Tensor:
    """As `torch._C._dynamo.guards._empty_strided_cpu`, but seen by `TorchWork`."""
    shape, strides, dtype = layout
    return torch.empty_strided(shape, strides, dtype=dtype)


def _name_clashes(source: ASTSource) -> Iterator[str]:
    """Functions of one name that a form calls: Triton compiles the first of them for all."""
    found: dict[str, str] = {}
    for function in reachable([source.fn, *source.constants.values()]):
        if found.setdefault(function._fn_name, function.cache_key) != function.cache_key:
            yield f"calls several functions of the name {function._fn_name}"


@lru_cache(maxsize=1024)  # the next driver of this process reads the same forms
def _operations(text: str) -> list[Operation]:
    return read(text)


def _nothing(*args: object) -> None:
    pass


def _forget_plans() -> None:
    clear_plans()
    select._replayed_kernel.cache_clear()
    trace_cache.replayed.cache_clear()
