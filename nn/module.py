"""Module: parameters, buffers and submodules by name, and operations on all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeVar, overload

import torch

from ..engine import interpreter
from ..engine.convert import to_global, to_local
from ..engine.grad_attributes import detach
from ..engine.grad_mode import no_grad
from ..engine.inplace import fitted, take
from ..engine.ops.device_transfer import cpu, cuda, to
from ..engine.ops.like import zeros_like
from ..engine.sbp import Sbp
from ..engine.tensor import Tensor
from ..engine.views import leave
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ..graph.graph_config import GraphModule
from .module_tree import Tree

M = TypeVar("M", bound="Module")
_hook_ids = count()


class HookHandle:
    """Takes a module hook away again."""

    def __init__(self, hooks: dict[int, Callable[..., Any]]) -> None:
        self._hooks = hooks
        self._id = next(_hook_ids)

    def add(self, hook: Callable[..., Any]) -> HookHandle:
        self._hooks[self._id] = hook
        return self

    def remove(self) -> None:
        self._hooks.pop(self._id, None)


class Incompatible(tuple[list[str], list[str]]):
    """What `load_state_dict` found missing and unexpected."""

    __slots__ = ()

    @property
    def missing_keys(self) -> list[str]:
        return self[0]

    @property
    def unexpected_keys(self) -> list[str]:
        return self[1]

    def __repr__(self) -> str:
        if not (self[0] or self[1]):
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self[0]}, unexpected_keys={self[1]})"


class Module(Tree):
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
        fields: dict[str, Any] = {
            "training": True,
            "_forward_pre_hooks": {},
            "_forward_hooks": {},
        }
        self.__dict__.update(fields)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f'{type(self).__name__} is missing the required "forward"')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if interpreter.current is not None:
            return interpreter.current.call_module(self, self._call, args, kwargs)
        return self._call(*args, **kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        fields = self.__dict__
        if not fields["_forward_pre_hooks"] and not fields["_forward_hooks"]:
            return self.forward(*args, **kwargs)
        for hook in list(fields["_forward_pre_hooks"].values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in list(fields["_forward_hooks"].values()):
            changed = hook(self, args, result)
            if changed is not None:
                result = changed
        return result

    def apply(self: M, function: Callable[[Module], Any]) -> M:
        """Call `function` on every submodule, then on this module."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    # Modes.

    def train(self: M, mode: bool = True) -> M:
        if not isinstance(mode, bool):
            raise OnefoldValueError(f"training mode is expected to be boolean, but got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: M) -> M:
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for param in self.parameters():
            if param.grad is not None:
                param.grad = None if set_to_none else zeros_like(param.grad)

    # Converting all parameters and buffers, in place.

    def _convert(self: M, function: Callable[[Tensor], Tensor]) -> M:
        tensors = {id(t): t for t in [*self.parameters(), *self.buffers()]}.values()
        with no_grad():  # all of them first, so that an error changes nothing
            converted = [
                (t, function(t), None if t.grad is None else function(t.grad)) for t in tensors
            ]
        for tensor, new, grad in converted:
            if new is not tensor:
                leave(tensor)  # of another shape, perhaps: views keep what was there
                tensor.meta = new.meta
                take(tensor, new)
            if grad is not None:
                tensor.grad = grad
        return self

    def to_global(self: M, placement: Any = None, sbp: Any = None) -> M:
        """Make every parameter and buffer global, in place; `sbp` may be one value for all.

        `sbp` may also be a function of (name, tensor). What is local is read as the value of the
        placement's first rank, or as this rank's part where sbp splits.
        """
        names_of: dict[int, str] = {}
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            names_of.setdefault(id(tensor), name)
        chooses = callable(sbp) and not isinstance(sbp, Sbp)  # an Sbp is callable as well

        def convert(tensor: Tensor) -> Tensor:
            wanted = sbp(names_of[id(tensor)], tensor) if chooses else sbp
            return to_global(tensor, placement, wanted)

        for param in self.parameters():
            if param.grad is not None:
                names_of[id(param.grad)] = names_of[id(param)]
        return self._convert(convert)

    def to_local(self: M) -> M:
        """Make every parameter and buffer this rank's local part, in place."""
        return self._convert(to_local)

    @overload
    def to(self, view: type[GraphModule], /) -> GraphModule: ...

    @overload
    def to(self: M, *args: Any, **kwargs: Any) -> M: ...

    def to(self: M, *args: Any, **kwargs: Any) -> M | GraphModule:
        """Another dtype (of the floating point ones) or device, in place.

        `to(nn.graph.GraphModule)` is the view on which graph settings are made, such as the stage.
        """
        if args and args[0] is GraphModule:
            view = self.__dict__.get("_graph_view")
            if view is None:
                view = self.__dict__["_graph_view"] = GraphModule(self)
            return view
        if args and args[0] is Module:
            return self
        others = {key: value for key, value in kwargs.items() if key != "dtype"}
        places = [arg for arg in args if not isinstance(arg, torch.dtype)]
        dtypes = [arg for arg in args if isinstance(arg, torch.dtype)]
        dtype = kwargs.get("dtype") or next(iter(dtypes), None)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise OnefoldTypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got {dtype}"
            )

        def convert(tensor: Tensor) -> Tensor:
            if tensor.meta.is_floating and dtype is not None:
                return to(tensor, *places, dtype=dtype, **others)
            return to(tensor, *places, **others)

        return self._convert(convert)

    def cpu(self: M) -> M:
        return self._convert(cpu)

    def cuda(self: M, device: int | None = None) -> M:
        return self._convert(lambda t: cuda(t, device))

    def half(self: M) -> M:
        return self.to(torch.float16)

    def bfloat16(self: M) -> M:
        return self.to(torch.bfloat16)

    def float(self: M) -> M:
        return self.to(torch.float32)

    def double(self: M) -> M:
        return self.to(torch.float64)

    # State.

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = ""
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by its path, detached: they change together.

        `copy.deepcopy(module.state_dict())` keeps the values of now, as in torch.
        """
        found: dict[str, Any] = OrderedDict() if destination is None else destination
        for path, module in self.named_modules(remove_duplicate=False):
            lead = prefix + (f"{path}." if path else "")
            for name, param in module._parameters.items():
                if param is not None:
                    found[lead + name] = detach(param)
            for name, buffer in module._buffers.items():
                if buffer is not None and name not in module._non_persistent:
                    found[lead + name] = detach(buffer)
        return found

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Incompatible:
        """Take the values of `state`, converted to each parameter's dtype, placement and sbp.

        All or nothing: raises OnefoldRuntimeError listing every missing or unexpected key, wrong
        shape, or mix of local and global, before anything is changed.
        """
        own = self.state_dict()
        missing = [key for key in own if key not in state]
        unexpected = [key for key in state if key not in own]
        problems: list[str] = []
        if strict and missing:
            problems.append(f"Missing key(s) in state_dict: {', '.join(missing)}")
        if strict and unexpected:
            problems.append(f"Unexpected key(s) in state_dict: {', '.join(unexpected)}")
        tensors: dict[str, Tensor] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            lead = f"{path}." if path else ""
            for table in (module._parameters, module._buffers):
                tensors.update({lead + k: t for k, t in table.items() if t is not None})
        values: dict[str, Tensor] = {}
        for key in own:
            if key in state:
                try:
                    values[key] = fitted(state[key], tensors[key])
                except (OnefoldTypeError, OnefoldValueError) as error:
                    problems.append(f"{key}: {error}")
        if problems:
            raise OnefoldRuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n  "
                + "\n  ".join(problems)
            )
        for key, value in values.items():
            take(tensors[key], value)
        return Incompatible((missing, unexpected))

    # Hooks.

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments."""
        return HookHandle(self._forward_pre_hooks).add(hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, args, result)` after forward; what it returns replaces the result."""
        return HookHandle(self._forward_hooks).add(hook)

    # Printing.

    def extra_repr(self) -> str:
        """What stands between the parentheses of a layer's repr."""
        return ""

    def __repr__(self) -> str:
        lines = []
        for name, module in self._modules.items():
            text = repr(module).replace("\n", "\n  ")
            lines.append(f"({name}): {text}")
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        body = "\n  ".join([extra, *lines] if extra else lines)
        return f"{type(self).__name__}(\n  {body}\n)"
