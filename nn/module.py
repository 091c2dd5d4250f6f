"""Module: parameters, buffers and submodules by name, and operations on all of them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from html import escape
from typing import Any, Self, overload

import torch

from ..engine import interpreter
from ..engine.argument_errors import raise_call_error
from ..engine.argument_types import DeviceLike
from ..engine.convert import to_global, to_local
from ..engine.grad_mode import no_grad
from ..engine.inplace import take
from ..engine.layout_view import as_html
from ..engine.meta import Meta
from ..engine.ops.cast import cast
from ..engine.ops.device_transfer import cpu, cuda, to
from ..engine.ops.like import empty_like, zeros_like
from ..engine.placement import Placement
from ..engine.tensor import Tensor
from ..engine.views import leave
from ..errors import OnefoldTypeError, OnefoldValueError, PlacementError
from ..graph.graph_config import GraphModule
from ..graph.setting_checks import integer, switch
from ..graph.zero import split_layout
from .layout_rules import LayoutRule, PlacementRule, layouts, placements
from .module_hooks import Hooked
from .parameter_readers import add_gathers

# Of how many dims tensors are that a memory format turns.
_TURNED = {
    torch.channels_last: (4,),
    torch.channels_last_3d: (5,),
    torch.contiguous_format: (4, 5),
}


class Module(Hooked):
    """The base of every layer and network, with torch's names and semantics.

    >>> import onefold as flow
    >>> class Double(flow.nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Double()(flow.ones(2)).numpy()
    array([2., 2.], dtype=float32)
    """

    training: bool

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["training"] = True

    def __call__(self, *args: object, **kwargs: object) -> Any:
        try:
            if (current := interpreter.get_current()) is not None:
                return current.call_module(self, self._run_forward, args, kwargs)
            return self._run_forward(*args, **kwargs)
        except Exception as error:
            raise_call_error(self, error, args, kwargs)
            raise

    def _run_forward(self, *args: object, **kwargs: object) -> object:
        if self._has_hooks:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` on every submodule, then on this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # Modes.

    def train(self, mode: bool = True) -> Self:
        if not isinstance(mode, bool):
            raise OnefoldValueError(f"training mode is expected to be boolean, but got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for param in self.parameters():
            if param.grad is not None:
                param.grad = None if set_to_none else zeros_like(param.grad)

    # Converting all parameters and buffers, in place.

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        every = [*self.parameters(recurse), *self.buffers(recurse)]
        tensors = {id(t): t for t in every}.values()
        with no_grad():  # all of them first, so that an error changes nothing
            converted = [(t, fn(t), None if t.grad is None else fn(t.grad)) for t in tensors]
        for tensor, new, grad in converted:
            if new is not tensor:
                leave(tensor)  # of another shape, perhaps: views keep what was there
                tensor.meta = new.meta
                take(tensor, new)
            if grad is not None:
                tensor.grad = grad
        return self

    def to_global(
        self,
        placement: Placement | PlacementRule | None = None,
        sbp: LayoutRule | None = None,
    ) -> Self:
        """Make every parameter and buffer global, in place.

        `placement` is one for all, or a function of (name, tensor). `sbp` is one value for all, a
        function of (name, tensor), or a dict from patterns of names to values, of which the first
        that matches counts; None, and no match, leave a tensor's sbp as it is. A local tensor is
        read as the value of the placement's first rank where it is broadcast, and as this rank's
        part where sbp splits: this warns (LocalPartsWarning), since a module that every rank made
        whole should be broadcast first and split then.

        >>> import onefold as flow
        >>> p = flow.placement("cpu", [0, 1])
        >>> layer = flow.nn.Linear(4, 2).to_global(p, flow.sbp.broadcast)
        >>> layer.to_global(sbp={"weight": flow.sbp.split(0)}).weight.sbp
        (onefold.sbp.split(dim=0),)
        """
        tensors: dict[int, tuple[str, Tensor]] = {}
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            tensors.setdefault(id(tensor), (name, tensor))
        named = dict(tensors.values())
        places = placements(named, placement)
        chosen = layouts(named, places, sbp)
        names_of = {number: name for number, (name, _) in tensors.items()}
        for param in self.parameters():
            if param.grad is not None:
                names_of[id(param.grad)] = names_of[id(param)]

        def converted(tensor: Tensor) -> Tensor:
            name = names_of[id(tensor)]
            return to_global(tensor, places[name], chosen[name])

        return self._apply(converted)

    def shard_(
        self,
        placement: Placement | None = None,
        dim: int = 0,
        *,
        shard_min_size: int = 1024,
        reshard_after_forward: bool = True,
    ) -> Self:
        """Split every parameter over the ranks that have it whole, in place, and gather it for use.

        Each rank keeps its shard along `dim`, and so do gradients and the optimizer's state. A
        parameter of which a shard would have fewer than `shard_min_size` elements stays as it is.
        The call of the module that reads a parameter gathers it, and again in backward, so that it
        is whole only while it is used; its gradient is reduced to shards. Without
        `reshard_after_forward`, and inside a graph, it is gathered once and kept for backward. A
        local module is broadcast over `placement` first. Raises PlacementError without one, and
        OnefoldTypeError or OnefoldValueError for an invalid `dim` or size. A later call that
        changes a gathered parameter, in forward or a hook, raises OnefoldRuntimeError. Rajbhandari
        et al., "ZeRO" (2020), stage 3; torch has it as `fully_shard`.

        >>> import onefold as flow
        >>> p = flow.placement("cpu", [0, 1])
        >>> layer = flow.nn.Linear(64, 64).shard_(p)
        >>> layer.weight.sbp, layer.bias.sbp
        ((onefold.sbp.split(dim=0),), (onefold.sbp.broadcast,))
        """
        integer("shard_: shard_min_size", shard_min_size, least=1)
        integer("shard_: dim", dim, least=0)
        switch("shard_: reshard_after_forward", reshard_after_forward)
        local = any(t.is_local for t in [*self.parameters(), *self.buffers()])
        if local and placement is None:
            raise PlacementError(
                "shard_: the module is local; give placement=, for instance "
                'flow.placement("cpu", ranks=[0, 1])'
            )
        if placement is not None:
            self.to_global(placement, lambda name, tensor: None)
        params = dict(self.named_parameters())
        whole = {name: param.meta for name, param in params.items()}
        chosen = {n: split_layout(meta, shard_min_size, dim=dim) for n, meta in whole.items()}
        self.to_global(sbp=lambda name, tensor: chosen.get(name))
        split = {n: meta.nd_sbp for n, meta in whole.items() if chosen[n] != meta.nd_sbp}
        add_gathers(self, split, reshard_after_forward)
        return self

    def share_memory(self) -> Self:
        """Move every parameter and buffer into memory that other processes can share, in place.

        See `Tensor.share_memory_`.
        """
        for tensor in [*self.parameters(), *self.buffers()]:
            tensor.share_memory_()
        return self

    def to_local(self) -> Self:
        """Make every parameter and buffer this rank's local part, in place."""
        return self._apply(to_local)

    @overload
    def to(self, view: builtins.type[GraphModule], /) -> GraphModule: ...

    @overload
    def to(self, view: builtins.type[Module], /) -> Self: ...

    @overload
    def to(self, *args: torch.dtype | DeviceLike | Tensor | bool | None, **kwargs: Any) -> Self: ...

    def to(self, *args: Any, **kwargs: Any) -> Self | GraphModule:
        """Another dtype (of the floating point ones) or device, in place; or those of a tensor.

        `memory_format=flow.channels_last` turns what has four dims, `flow.channels_last_3d` what
        has five, and `flow.contiguous_format` turns both back. The values stay, in which way they
        lie is kept by optimizers, `load_state_dict` and copies.

        `to(nn.graph.GraphModule)` is the view on which graph settings are made, such as the stage.
        """
        if args and args[0] is GraphModule:
            view: GraphModule = self.__dict__.setdefault("_graph_view", GraphModule(self))
            return view
        if args and args[0] is Module:
            return self
        known = ("dtype", "device", "tensor", "non_blocking", "memory_format")
        others = {key: value for key, value in kwargs.items() if key not in known}
        dtype = kwargs.get("dtype")
        places: list[DeviceLike] = []
        for arg in (*args, kwargs.get("device"), kwargs.get("tensor")):
            if isinstance(arg, torch.dtype):
                dtype = arg
            elif isinstance(arg, Tensor):
                dtype = arg.dtype
                places.append(arg.device)
            elif arg is not None and not isinstance(arg, bool):  # bool: non_blocking
                places.append(arg)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise OnefoldTypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got {dtype}"
            )

        memory_format = kwargs.get("memory_format")
        turned = () if memory_format is None else _TURNED.get(memory_format, ())

        def convert(tensor: Tensor) -> Tensor:
            if tensor.meta.is_floating and dtype is not None:
                found = to(tensor, *places, dtype=dtype, **others)
            else:
                found = to(tensor, *places, **others)
            return to(found, memory_format=memory_format) if tensor.ndim in turned else found

        return self._apply(convert)

    def cpu(self) -> Self:
        return self._apply(cpu)

    def cuda(self, device: int | None = None) -> Self:
        return self._apply(lambda t: cuda(t, device))

    def to_empty(self, *, device: DeviceLike | None, recurse: bool = True) -> Self:
        """Unset values for every parameter and buffer, on another device; global ones stay."""

        def unset(tensor: Tensor) -> Tensor:
            return empty_like(tensor) if tensor.is_global else empty_like(tensor, device=device)

        return self._apply(unset, recurse)

    def type(self, dst_type: torch.dtype) -> Self:
        """Another dtype for every parameter and buffer, those of integers too, in place."""
        return self._apply(lambda t: cast(t, dst_type))

    def _to_real(self, dtype: torch.dtype) -> Self:
        """Another dtype for what is floating point; complex tensors stay, as in torch."""
        return self._apply(lambda t: cast(t, dtype) if t.dtype.is_floating_point else t)

    def half(self) -> Self:
        return self._to_real(torch.float16)

    def bfloat16(self) -> Self:
        return self._to_real(torch.bfloat16)

    def float(self) -> Self:
        return self._to_real(torch.float32)

    def double(self) -> Self:
        return self._to_real(torch.float64)

    def compile(self, *args: object, **kwargs: object) -> None:
        """Accepted as torch's, without effect; `flow.compile(module)` gives a compiled one."""

    # Printing.

    def _get_name(self) -> str:
        lead = "Parametrized" if "parametrizations" in self._modules else ""
        return lead + type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses of a layer's repr."""
        return ""

    def _repr_html_(self) -> str:
        """What notebooks show: the text, and who holds which part of what is global."""
        return f"<pre>{escape(repr(self))}</pre>{as_html(self._global_metas())}"

    def _global_metas(self) -> list[tuple[str, Meta]]:
        """The metas of the global parameters and buffers, by name."""
        every = [*self.named_parameters(), *self.named_buffers()]
        return [(name, tensor.meta) for name, tensor in every if tensor.is_global]

    def __repr__(self) -> str:
        lines = [
            f"({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()
        ]
        extra = self.extra_repr()
        if not lines and "\n" not in extra:
            return f"{self._get_name()}({extra})"
        body = "\n  ".join([*extra.split("\n"), *lines] if extra else lines)
        return f"{self._get_name()}(\n  {body}\n)"
