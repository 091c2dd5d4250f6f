"""torch.distributed.checkpoint.state_dict: states of models and optimizers by parameters' names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ..distributed.collectives import gather_objects
from ..distributed.world import world
from ..engine.convert import to_global, to_local
from ..engine.grad_mode import no_grad
from ..engine.inplace import take
from ..engine.ops.like import zeros_like
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..engine.values import from_torch
from ..engine.views import frozen
from ..errors import OnefoldTypeError, OnefoldValueError
from ..nn.module import Module
from ..nn.parallel import DistributedDataParallel
from ..optim.optimizer import Optimizer
from .value_tree import Description, read_dtype, restored

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

Optimizers: TypeAlias = Optimizer | Iterable[Optimizer]
State: TypeAlias = dict[str, Any]

# What modules that wrap another one call it.
_WRAPPED = ("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")


@dataclass
class StateDictOptions:
    """How states are given: whole, on the cpu, without frozen parameters, or flat.

    With `full_state_dict` tensors are local and whole, on every rank, or with `cpu_offload` too on
    rank 0 alone, where others get an empty dict. With `broadcast_from_rank0` only the state that
    rank 0 gives to a `set` function counts. `strict` is that of `load_state_dict`.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


_PLAIN = StateDictOptions()


def get_model_state_dict(
    model: Module, *, submodules: object = None, options: StateDictOptions | None = None
) -> State:
    """The parameters and buffers of a model, under the names that they have without wrappers.

    Tensors are those of the model, in its layout, unless `options` say otherwise. Raises
    OnefoldTypeError for what is no module, OnefoldValueError for `submodules`.

    >>> import onefold as flow
    >>> model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(2, 2))
    >>> [*model.state_dict()], [*get_model_state_dict(model)]
    (['module.weight', 'module.bias'], ['weight', 'bias'])
    """
    how = _checked(model, submodules, options)
    clean = _cleaner(model)
    frozen_names = {name for name, p in model.named_parameters() if not p.requires_grad}
    found = {
        clean(name): value
        for name, value in Module.state_dict(model).items()
        if not (how.ignore_frozen_params and name in frozen_names)
    }
    return _given(found, how)


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: object = None,
    options: StateDictOptions | None = None,
) -> State:
    """The state of optimizers by the names of the model's parameters.

    An optimizer that has made no step gives the state before its first one, so that a checkpoint
    can be loaded into it. With `flatten_optimizer_state_dict` there is one dict, with keys such as
    "state.layer.weight.exp_avg" and "param_groups.layer.weight.lr". Raises OnefoldValueError for
    parameters that are not the model's.
    """
    how = _checked(model, submodules, options)
    known = names_of(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _several(optimizers):
        called = _parameter_names(optimizer, known)
        with _begun(optimizer):
            found = optimizer.state_dict()
        state |= {
            called[key] if isinstance(key, int) else key: entry
            for key, entry in found["state"].items()
        }
        groups += [
            {**group, "params": [called[number] for number in group["params"]]}
            for group in found["param_groups"]
        ]
    made = {"state": state, "param_groups": groups}
    return _given(_flat(made) if how.flatten_optimizer_state_dict else made, how)


def get_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: object = None,
    options: StateDictOptions | None = None,
) -> tuple[State, State]:
    """`get_model_state_dict` and `get_optimizer_state_dict`."""
    how = _checked(model, submodules, options)
    return (
        get_model_state_dict(model, options=how),
        get_optimizer_state_dict(model, optimizers, options=how),
    )


def set_model_state_dict(
    model: Module, model_state_dict: Mapping[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Load what `get_model_state_dict` gave, into a model of any layout.

    Returns the keys that are missing or unexpected, as `load_state_dict` does.
    """
    how = _checked(model, None, options)
    given = from_rank_0(dict(model_state_dict)) if how.broadcast_from_rank0 else model_state_dict
    clean = _cleaner(model)
    own = {clean(name): name for name in Module.state_dict(model)}
    renamed = {own.get(name, name): value for name, value in given.items()}
    return Module.load_state_dict(model, renamed, how.strict)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    optim_state_dict: Mapping[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what `get_optimizer_state_dict` gave, flat or not, into optimizers of any layout.

    Raises OnefoldValueError where it has no group for a parameter.
    """
    how = _checked(model, None, options)
    given: Any = dict(optim_state_dict)
    if how.broadcast_from_rank0:
        given = from_rank_0(given)
    known = names_of(model)
    for optimizer in _several(optimizers):
        optimizer.load_state_dict(numbered(optimizer, known, given))


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: Mapping[str, Any],
    optim_state_dict: Mapping[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """`set_model_state_dict` and `set_optimizer_state_dict`; returns what the first does."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found


def numbered(optimizer: Optimizer, known: Mapping[int, str], given: State) -> State:
    """A state by names as one by numbers, which `optimizer` loads; `known` names parameters by id.

    Raises OnefoldValueError where it has no group for a parameter.
    """
    called = _parameter_names(optimizer, known)
    mine = {*called.values()}
    if "state" in given and "param_groups" in given:
        entries_of = given["state"]
        of_group = {name: group for group in given["param_groups"] for name in group["params"]}
    else:
        entries_of = {name: _below(given, f"state.{name}.") for name in mine}
        of_group = {name: _below(given, f"param_groups.{name}.") for name in mine}
        of_group = {name: options for name, options in of_group.items() if options}
    state = {n: entries_of[name] for n, name in called.items() if entries_of.get(name)}
    groups = []
    first = 0
    for group in optimizer.param_groups:
        numbers = [*range(first, first + len(group["params"]))]
        first += len(numbers)
        lacking = [called[number] for number in numbers if called[number] not in of_group]
        if lacking:
            raise OnefoldValueError(
                f"set_optimizer_state_dict: no group of the state has {lacking[0]!r}; it has "
                f"{', '.join(map(str, of_group)) or 'no parameters'}"
            )
        options = of_group[called[numbers[0]]] if numbers else {}
        groups.append({**options, "params": numbers})
    return {"state": state, "param_groups": groups}


def names_of(model: Module) -> dict[int, str]:
    """The name of each parameter without wrappers, by the parameter's id."""
    clean = _cleaner(model)
    return {id(param): clean(name) for name, param in model.named_parameters()}


def whole(value: Any) -> Any:
    """A tensor as a local one that has all of it; other values as they are. Collective."""
    if not isinstance(value, Tensor) or value.is_local:
        return value
    return to_local(to_global(value, sbp=(broadcast,) * value.placement.ndim))


def _checked(
    model: object, submodules: object, options: StateDictOptions | None
) -> StateDictOptions:
    if not isinstance(model, Module):
        raise OnefoldTypeError(
            f"the model must be an onefold Module, but is {type(model).__name__}"
        )
    if submodules is not None:
        raise OnefoldValueError(
            "submodules is not supported; call the function with the submodule as the model"
        )
    how = _PLAIN if options is None else options
    if how.broadcast_from_rank0 and not how.full_state_dict:
        raise OnefoldValueError("full_state_dict must be True when broadcast_from_rank0 is True")
    return how


def _several(optimizers: Optimizers) -> list[Optimizer]:
    found = [optimizers] if isinstance(optimizers, Optimizer) else [*optimizers]
    for each in found:
        if not isinstance(each, Optimizer):
            raise OnefoldTypeError(
                f"optimizers must be onefold optimizers, but one is {type(each).__name__}"
            )
    return found


def _cleaner(model: Module) -> Callable[[str], str]:
    """What gives names of a model's tensors without the wrappers on the way."""
    wrapped = {
        f"{path}.module." if path else "module."
        for path, module in model.named_modules()
        if isinstance(module, DistributedDataParallel)
    }
    longest = sorted(wrapped, key=len, reverse=True)

    def clean(name: str) -> str:
        for prefix in longest:
            if name.startswith(prefix):
                name = prefix.removesuffix("module.") + name.removeprefix(prefix)
        return ".".join([part for part in name.split(".") if part not in _WRAPPED])

    return clean


def _parameter_names(optimizer: Optimizer, known: Mapping[int, str]) -> dict[int, str]:
    """The names of an optimizer's parameters by their numbers."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for number, param in enumerate(params):
        if id(param) not in known:
            raise OnefoldValueError(
                f"parameter {number} of the optimizer, {tuple(param.shape)}, is none of the "
                "model's; pass the model whose parameters the optimizer was made with"
            )
    return {number: known[id(param)] for number, param in enumerate(params)}


@contextmanager
def _begun(optimizer: Optimizer) -> Iterator[None]:
    """A block in which an optimizer without state has that before its first step."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if optimizer.state or not params or not optimizer.has_rule:
        yield
        return
    before = [(param, frozen(param), param.grad) for param in params]
    hooks = optimizer._step_pre_hooks, optimizer._step_post_hooks
    state = optimizer.state
    optimizer._step_pre_hooks, optimizer._step_post_hooks = OrderedDict(), OrderedDict()
    try:
        with no_grad():
            for param in params:
                param.grad = zeros_like(param)
            optimizer.step()
            for param, value, _ in before:
                take(param, value)
        for entry in optimizer.state.values():
            entry.update({key: 0 for key in entry if key == "step"})
        yield
    finally:
        for param, _, grad in before:
            param.grad = grad
        optimizer._step_pre_hooks, optimizer._step_post_hooks = hooks
        optimizer.state = type(state)(state.default_factory)


def _flat(made: State) -> State:
    found = {
        f"state.{name}.{key}": value
        for name, entry in made["state"].items()
        for key, value in entry.items()
    }
    for group in made["param_groups"]:
        for name in group["params"]:
            found |= {
                f"param_groups.{name}.{key}": value
                for key, value in group.items()
                if key != "params"
            }
    return found


def _below(flat: Mapping[str, Any], prefix: str) -> State:
    """What a flat state has under a prefix; names of states have no dots."""
    found = {key.removeprefix(prefix): x for key, x in flat.items() if key.startswith(prefix)}
    return {key: value for key, value in found.items() if "." not in key}


def _given(found: State, how: StateDictOptions) -> State:
    """A state as options ask for it. Collective for global tensors that become whole."""
    if not (how.full_state_dict or how.cpu_offload):
        return found

    def one(value: Any) -> Any:
        value = whole(value) if how.full_state_dict else value
        return value.cpu() if how.cpu_offload and isinstance(value, Tensor) else value

    made: State = {key: _mapped(value, one) for key, value in found.items()}
    drops = how.full_state_dict and how.cpu_offload and world().rank not in (None, 0)
    return {} if drops else made


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _mapped(value, function) for key, value in tree.items()}
    return [_mapped(each, function) for each in tree] if type(tree) is list else function(tree)


def from_rank_0(state: State) -> State:
    """The state that rank 0 has, on every rank, with whole local tensors. Collective."""
    here = world()
    if not here.launched:
        return state
    described = Description(state if here.rank == 0 else {})
    forms = {
        name: (str(leaf.dtype).removeprefix("torch."), list(leaf.shape))
        for name, leaf in described.tensors.items()
    }
    tree, forms = gather_objects((described.tree, forms), tuple(range(here.size)))[0]
    everywhere = Placement.all("cpu")
    found: dict[str, Tensor] = {}
    for name, (dtype, shape) in forms.items():
        leaf = described.tensors.get(name)
        if leaf is None:
            leaf = torch.empty(shape, dtype=read_dtype(dtype))
        part = (
            leaf.detach().cpu() if isinstance(leaf, Tensor) else from_torch(torch.as_tensor(leaf))
        )
        found[name] = to_local(to_global(part, everywhere, broadcast, check_meta=False))
    made: State = restored(tree, lambda entry: found[entry["name"]])
    return made
