"""tensor_parallel: splits the layers of a model over ranks, by a table of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from weakref import ReferenceType, ref

from ..engine.convert import to_global
from ..engine.meta import check_nd_sbp
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError, PlacementError
from ..graph.pytree import tree_map
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
) -> M:
    """Split the layers of `model` along one axis of `placement`, in place, as `plan` says.

    Along other axes parameters keep their layout (a local model is broadcast first, from the
    placement's first rank). Without a placement the model is global, and stays where it is.
    Column-parallel layers get their input broadcast, and row-parallel ones give the sum over the
    axis: hooks do this, so that a block of attention and a feed-forward part needs two all-reduces
    in forward and two in backward, as in Megatron-LM, whatever is done with the results.

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
    params = dict(model.named_parameters(remove_duplicate=False))
    placement = _common(params, placement)
    axis = _axis_of(placement, axis)
    styles = plan.styles(params)

    def chosen(name: str, tensor: Tensor) -> NdSbp | None:
        if name not in styles:
            return None
        before = (broadcast,) * placement.ndim if tensor.is_local else tensor.sbp
        return (*before[:axis], styles[name].sbp(tensor), *before[axis + 1 :])

    for name, tensor in params.items():
        check_nd_sbp(tensor.shape, chosen(name, tensor) or ())
    if any(tensor.is_local for tensor in params.values()):
        model.to_global(placement, lambda name, tensor: None)
    model.to_global(placement, chosen)
    _add_hooks(model, styles, axis)
    return model


def _common(params: Mapping[str, Tensor], placement: Placement | None) -> Placement:
    if isinstance(placement, Placement):
        return placement
    if placement is not None:
        raise OnefoldTypeError(
            "tensor_parallel: placement must be an onefold.placement, such as "
            f'flow.placement("cpu", ranks=[0, 1]), but got {placement!r}'
        )
    found = {tensor.meta.placement for tensor in params.values()}
    (only,) = found if len(found) == 1 else (None,)
    if only is None:
        raise PlacementError(
            "tensor_parallel: the parameters of the model are local, or not all on one placement; "
            'give placement=, for instance flow.placement("cpu", ranks=[0, 1])'
        )
    return only


def _axis_of(placement: Placement, axis: int) -> int:
    if not -placement.ndim <= axis < placement.ndim:
        raise OnefoldValueError(
            f"tensor_parallel: {placement!r} has {placement.ndim} axes, without an axis {axis}"
        )
    return axis % placement.ndim


def _add_hooks(model: Module, styles: Mapping[str, Style], axis: int) -> None:
    """Hooks on the modules that read the parameters of a style."""
    replicate, reduce = _Replicate(axis), _Reduce(axis)
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
    the first may have been differentiated by then.
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
        given = tree_map(args, self._replicated), tree_map(kwargs, self._replicated)
        self._called.add(id(module))
        return given

    def _replicated(self, x: Tensor) -> Tensor:
        if not _lies_on(x, self.axis):
            return x
        if self._last is not None and self._last[0]() is x and self._last[1] == x.version:
            last = self._last[2]()
            if last is not None:
                return last
        target = _with(x.sbp, self.axis, broadcast)
        if x.requires_grad:
            back = _with(x.sbp, self.axis, broadcast) if x.sbp[self.axis].is_partial else x.sbp
            y = to_global(x, sbp=target, grad_sbp=back)
            if y.requires_grad:
                self._last = ref(x), x.version, ref(y)
                self._called.clear()
            return y
        return to_global(x, sbp=target)


class _Reduce:
    """Sums what a layer returns over an axis, where its ranks have addends of it."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __call__(self, module: Module, args: object, result: Any) -> Any:
        return tree_map(result, self._reduced)

    def _reduced(self, y: Tensor) -> Tensor:
        if not _lies_on(y, self.axis) or not y.sbp[self.axis].is_partial:
            return y
        whole = _with(y.sbp, self.axis, broadcast)
        return to_global(y, sbp=whole, grad_sbp=whole)


def _lies_on(x: Tensor, axis: int) -> bool:
    return x.is_global and x.placement.ndim > axis


def _with(nd_sbp: NdSbp, axis: int, sbp: Sbp) -> NdSbp:
    return (*nd_sbp[:axis], sbp, *nd_sbp[axis + 1 :])
