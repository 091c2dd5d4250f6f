"""tensor_parallel: splits the layers of a model over ranks, by a table of names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar
from weakref import ReferenceType, ref

import torch

from ..engine.convert import to_global
from ..engine.interpreter import get_current
from ..engine.meta import check_nd_sbp
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, broadcast, split
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError, PlacementError
from ..graph.pytree import tree_map
from ..graph.setting_checks import integer
from ..nn.linear import Linear
from ..nn.module import Module
from ..nn.parameter_readers import readers
from .layout_plan import TRANSFORMER, Plan, Style

M = TypeVar("M", bound=Module)


def tensor_parallel(
    model: M,
    placement: Placement | None = None,
    plan: Plan | Mapping[str, Style] = TRANSFORMER,
    *,
    axis: int = -1,
    sequence_dim: int | None = None,
) -> M:
    """Split the layers of `model` along one axis of `placement`, in place, as `plan` says.

    Along other axes parameters keep their layout (a local model is broadcast first, from the
    placement's first rank). Without a placement the model is global, and stays where it is, as the
    stages of a pipeline do.
    Column-parallel layers get their input broadcast, and row-parallel ones give the sum over the
    axis: hooks do this, so that a block of attention and a feed-forward part needs two all-reduces
    in forward and two in backward, as in Megatron-LM, whatever is done with the results.

    With `sequence_dim` row-parallel layers give that sum split along this dim of their output, so
    that norms, shortcuts and what is kept for backward are split, too; the next column-parallel
    layer gathers it. As many bytes are sent. Source: Korthikanti et al., "Reducing activation
    recomputation in large transformer models" (2022).

    Buffers are broadcast. Raises OnefoldValueError for parameters that no rule matches and rules
    that match nothing, and OnefoldTypeError for a placement that is none; then nothing is changed.

    >>> import onefold as flow
    >>> from onefold.parallel import COLUMN, ROW
    >>> model = flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.ReLU(), flow.nn.Linear(8, 4))
    >>> p = flow.placement("cpu", [0, 1])
    >>> model = flow.parallel.tensor_parallel(model, p, {"0.*": COLUMN, "2.*": ROW})
    >>> [w.sbp[0].short for w in model.parameters()]
    ['S0', 'S0', 'S1', 'B']
    """
    if not isinstance(model, Module):
        raise OnefoldTypeError(
            f"tensor_parallel needs an onefold.nn.Module, but got {type(model).__name__}"
        )
    if not isinstance(plan, Plan):
        plan = Plan(plan)
    if sequence_dim is not None:
        integer("tensor_parallel: sequence_dim", sequence_dim, least=0)
    params = dict(model.named_parameters(remove_duplicate=False))
    ndim = _ndim(params, placement)
    axis = _axis_of(ndim, axis)
    styles = plan.styles(params)

    def chosen(name: str, tensor: Tensor) -> NdSbp | None:
        if name not in styles:
            return None
        before = (broadcast,) * ndim if tensor.is_local else tensor.sbp
        return (*before[:axis], styles[name].sbp(tensor), *before[axis + 1 :])

    for name, tensor in params.items():
        check_nd_sbp(tensor.shape, chosen(name, tensor) or ())
    if any(tensor.is_local for tensor in params.values()):
        model.to_global(placement, lambda name, tensor: None)
    model.to_global(placement, chosen)
    _add_hooks(model, styles, axis, sequence_dim)
    return model


def _ndim(params: Mapping[str, Tensor], placement: Placement | None) -> int:
    """How many axes the mesh has."""
    if isinstance(placement, Placement):
        return placement.ndim
    if placement is not None:
        raise OnefoldTypeError(
            "tensor_parallel: placement must be an onefold.placement, such as "
            f'flow.placement("cpu", ranks=[0, 1]), but got {placement!r}'
        )
    found = {tensor.meta.placement for tensor in params.values()}
    axes = {None if each is None else each.ndim for each in found}
    (only,) = axes if len(axes) == 1 else (None,)
    if only is None:
        raise PlacementError(
            "tensor_parallel: parameters of the model are local, or on meshes with other numbers "
            'of axes; give placement=, for instance flow.placement("cpu", ranks=[0, 1])'
        )
    return only


def _axis_of(ndim: int, axis: int) -> int:
    if not -ndim <= axis < ndim:
        raise OnefoldValueError(
            f"tensor_parallel: the mesh has {ndim} axes, without an axis {axis}"
        )
    return axis % ndim


def _add_hooks(
    model: Module, styles: Mapping[str, Style], axis: int, sequence_dim: int | None
) -> None:
    """Hooks on the modules that read the parameters of a style."""
    replicate, reduce = _Replicate(axis), _Reduce(axis, sequence_dim)
    replicating: dict[Module, None] = {}
    reducing: dict[Module, None] = {}
    for name, _, reader in readers(model):
        if styles[name].replicates:
            replicating[reader] = None
        if styles[name].reduces:
            reducing[reader] = None
    for module in replicating:
        module.register_forward_pre_hook(replicate, with_kwargs=True)
    for module in reducing:
        module.register_forward_hook(reduce)


class _Replicate:
    """Broadcasts what a layer gets along an axis, and sums the gradient where that was.

    Layers that get the same tensor, such as the projections of attention, get the same result, so
    that their gradients are summed together. A layer that is called again gets another one, since
    the first may have been differentiated by then. In mixed precision a linear layer's input is
    cast first: half the bytes are sent, and the result is what the layer keeps for backward, so
    that it lives until the next one asks for it.
    """

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self._last: tuple[ReferenceType[Tensor], int, ReferenceType[Tensor]] | None = None
        self._called: set[int] = set()  # ids of the layers that were called since

    def __reduce__(self) -> tuple[type[_Replicate], tuple[int]]:
        return _Replicate, (self.axis,)

    def __call__(
        self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if id(module) in self._called:
            self._last = None
        replicated = partial(self._replicated, isinstance(module, Linear))
        given = tree_map(args, replicated), tree_map(kwargs, replicated)
        self._called.add(id(module))
        return given

    def _replicated(self, is_linear: bool, x: Tensor) -> Tensor:
        if not _lies_on(x, self.axis):
            return x
        if self._last is not None and self._last[0]() is x and self._last[1] == x.version:
            last = self._last[2]()
            if last is not None:
                return last
        target = _with(x.sbp, self.axis, broadcast)
        back = _with(x.sbp, self.axis, broadcast) if x.sbp[self.axis].is_partial else x.sbp
        low = _dtype_of_products(x) if is_linear else None
        y = to_global(x if low is None else x.to(low), sbp=target, grad_sbp=back)
        if y.requires_grad:
            self._last = ref(x), x.version, ref(y)
            self._called.clear()
        return y


class _Reduce:
    """Sums what a layer returns over an axis, where its ranks have addends of it.

    Each rank gets all of the sum, or a part of it along the dim of the sequence.
    """

    def __init__(self, axis: int, sequence_dim: int | None = None) -> None:
        self.axis = axis
        self.sequence_dim = sequence_dim

    def __call__(self, module: Module, args: object, result: Any) -> Any:
        return tree_map(result, self._reduced)

    def _reduced(self, y: Tensor) -> Tensor:
        if not _lies_on(y, self.axis) or not y.sbp[self.axis].is_partial:
            return y
        whole = _with(y.sbp, self.axis, broadcast)
        dim = self.sequence_dim
        if dim is None or dim >= y.ndim or y.shape[dim] < y.placement.shape[self.axis]:
            return to_global(y, sbp=whole, grad_sbp=whole)
        return to_global(y, sbp=_with(y.sbp, self.axis, split(dim)), grad_sbp=whole)


def _dtype_of_products(x: Tensor) -> torch.dtype | None:
    """The dtype to which matrix products cast a tensor in mixed precision; None: they do not."""
    current = get_current()
    if current is None or x.dtype is not torch.float32:
        return None
    return current.dtype_of_products(x.meta.device_type)


def _lies_on(x: Tensor, axis: int) -> bool:
    return x.is_global and x.placement.ndim > axis


def _with(nd_sbp: NdSbp, axis: int, sbp: Sbp) -> NdSbp:
    return (*nd_sbp[:axis], sbp, *nd_sbp[axis + 1 :])
