"""A stand-in for CUDA's stream capture on the CPU: records torch's ops, and replays just these.

As with CUDA graphs, a replay computes with the numbers that the host had in the capture, tensors
lie at fixed addresses, and nothing is left of an earlier replay. Kernels of Triton are no ops of
torch; `recorded_graphs.Recorder` captures them.
"""

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from onefold.graph.cuda_graphs import stream_capture
from onefold.kernels import random_ref, staging
from onefold.optim import clip

# What would wait for the device, to tell the host a value or a size.
_WAITING = {"_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero"}
# What computes no element: memory, and other shapes for a tensor.
_NOTHING = set(
    """empty empty_like empty_strided new_empty new_empty_strided as_strided_ squeeze_ t_ transpose_
    unsqueeze_""".split()
)


class Recorded(NamedTuple):
    """A call of an op, and which of its results have memory that it made."""

    function: object
    args: tuple[object, ...]
    kwargs: dict[str, object]
    results: list[torch.Tensor]
    made: list[bool]


class Tape(TorchDispatchMode):
    """Records each op; `faults` are those that a stream capture does not allow."""

    def __init__(self, static):
        super().__init__()
        self.static = {memory_of(x) for x in static}
        self.host = set()  # the memory of what the host has
        self.made = {}  # by memory: a tensor that has all of it
        self.before = {}  # by memory: what is written in place, and what was there
        self.calls = []
        self.faults = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        given = tensors_in((args, kwargs))
        if name == "lift_fresh":  # a number of the host in a tensor, which stays there
            self.host.update(map(memory_of, given))
        device = {*self.static, *self.made}
        known = device | self.host
        if name in _WAITING and any(memory_of(x) in device for x in given):
            self.faults.append(f"{name} waits for the device")
        self.faults += [
            f"{name} reads {x.dtype} {tuple(x.shape)}, which is not kept for the graph"
            for x in given
            if memory_of(x) not in known
        ]
        for x in self.written(func, args, kwargs):
            self.keep(x)
        result = func(*args, **kwargs)
        self.record(func, args, kwargs, result, writes=func._schema.is_mutable)
        return result

    def written(self, func, args, kwargs):
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                at = args[index] if index < len(args) else kwargs.get(argument.name)
                yield from tensors_in(at)

    def keep(self, x):
        """Note what is in memory that a capture would not change."""
        memory = memory_of(x)
        if memory not in self.made and memory not in self.before:
            whole = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
            self.before[memory] = whole, whole.clone()

    def record(self, function, args, kwargs, result, writes=False):
        args, kwargs, result = tree_map_only(torch.Tensor, alias, (args, kwargs, result))
        taken = {*self.made, *map(memory_of, tensors_in((args, kwargs)))}
        results = tensors_in(result)
        made = [memory_of(x) not in taken for x in results]
        self.made |= {memory_of(x): x for x, new in zip(results, made, strict=True) if new}
        name = getattr(function, "__name__", "").partition(".")[0]
        if (writes or any(made)) and name not in _NOTHING:
            self.calls.append(Recorded(function, args, kwargs, results, made))

    def end(self):
        """Leave everything as a capture does, which computes nothing."""
        for x, value in self.before.values():
            x.copy_(value)
        self.spoil()

    def spoil(self):
        for x in self.made.values():
            spoil(x)

    @torch.no_grad()
    def replay(self):
        self.spoil()
        for function, args, kwargs, results, made in self.calls:
            found = tensors_in(function(*args, **kwargs))
            for x, value, new in zip(results, found, made, strict=True):
                if new:
                    distinct(x).copy_(distinct(value, x.stride()))


class OpRecorder:
    """In place of `CudaCapturer`; `captures` and `replays` count."""

    device_type = "cpu"

    def __init__(self):
        self.captures = self.replays = 0
        self.faults = []
        self.tape = None  # while ops are recorded

    def renew(self):
        pass

    def capture(self, function, static):
        self.captures += 1
        tape = Tape(static)
        token = staging._copies.set(None)  # kernels run here, and read what the host has
        try:
            with tape:
                self.tape = tape
                result = function()
        finally:
            self.tape = None
            staging._copies.reset(token)
        self.faults += tape.faults
        tape.end()

        def replay():
            self.replays += 1
            tape.replay()

        return replay, result

    def outside(self, device):
        return nullcontext

    def finished(self, device):
        return lambda: True

    def drawing(self, fill):
        """`random_ref.fill`, recorded as one op where its numbers are in memory."""

        def recorded(*args, seed, **kwargs):
            if self.tape is None or not isinstance(seed, torch.Tensor):
                return fill(*args, seed=seed, **kwargs)
            with _disable_current_modes():
                drawn = fill(*args, seed=seed, **kwargs)
                self.tape.record(fill, args, {"seed": seed, **kwargs}, drawn)
            return drawn

        return recorded


def tensors_in(tree):
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def alias(x):
    """The same elements in a tensor that keeps its shape when `x` gets another one."""
    return x.view(x.shape)


def memory_of(x):
    return x.untyped_storage()._cdata


def distinct(x, strides=None):
    """The elements of a tensor that lie at different places, with these strides or its own."""
    for dim, step in enumerate(strides or x.stride()):
        x = x.narrow(dim, 0, 1) if step == 0 and x.shape[dim] else x
    return x


def spoil(x):
    """Fill a tensor with values that nothing computes."""
    distinct(x).fill_(float("nan") if x.is_floating_point() or x.is_complex() else True)


def recording(monkeypatch):
    """The recorder that captures on the CPU during a test."""
    recorder = OpRecorder()
    monkeypatch.setattr(
        stream_capture, "capturer", lambda kind: recorder if kind == "cpu" else None
    )
    monkeypatch.setattr(random_ref, "fill", recorder.drawing(random_ref.fill))
    monkeypatch.setattr(clip, "free_to_read", lambda number: False)  # as on a device
    return recorder
