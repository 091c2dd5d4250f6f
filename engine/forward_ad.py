"""torch.autograd.forward_ad: dual numbers, values with the direction in which they change."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import AutogradError, OnefoldValueError
from .autograd import grad
from .autograd_tape import Edge, Leaf, Node, Output
from .functional_autograd import gradients_or_zeros
from .grad_mode import enable_grad, no_grad
from .tensor import Tensor, tensor_ops
from .thread_stack import ThreadStack

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual"]
__all__ += ["unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives; the tangent is None for what depends on no dual number."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    """The dual numbers that were made inside a block, with their tangents."""

    def __init__(self) -> None:
        self.duals: list[tuple[Tensor, Tensor]] = []


_levels = ThreadStack[_Level]("dual_levels")


@contextmanager
def dual_level() -> Iterator[None]:
    """A block in which `make_dual` and `unpack_dual` compute directional derivatives.

    >>> import onefold as flow
    >>> from onefold.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(flow.tensor(0.0), flow.tensor(2.0))
    ...     forward_ad.unpack_dual(flow.sin(x)).tangent
    tensor(2.)
    """
    enter_dual_level()
    try:
        yield
    finally:
        exit_dual_level()


def enter_dual_level() -> int:
    """Begin what `dual_level` does, without a block. Raises AutogradError inside of another."""
    if _levels.last is not None:
        raise AutogradError("Nested forward mode AD is not supported at the moment")
    _levels.push(_Level())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End what `enter_dual_level` began. Raises AutogradError if it was not called."""
    _here("exit_dual_level")
    _levels.pop()


@enable_grad
def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """The tensor as a dual number with this tangent, of the same shape, for ops in the block.

    Ops record it on the tape, from which `unpack_dual` computes; so it requires a gradient. Raises
    AutogradError outside of a block, OnefoldValueError for a tangent of another shape or dtype.
    """
    here = _here("make_dual")
    if tangent.shape != tensor.shape or tangent.dtype != tensor.dtype:
        raise OnefoldValueError(
            f"make_dual: the tangent must have the tensor's shape and dtype, {tuple(tensor.shape)} "
            f"{tensor.dtype}, but has {tuple(tangent.shape)} {tangent.dtype}"
        )
    if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
        raise OnefoldValueError(
            f"Expected primal to be floating point or complex, but got: {tensor.dtype}"
        )
    dual: Tensor
    if tensor.requires_grad:
        dual = tensor_ops.view(tensor, tensor.shape)
    else:
        dual = tensor_ops.detach(tensor).requires_grad_()
    here.duals.append((dual, tangent))
    return dual


@enable_grad
def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a tensor and its tangent: its Jacobian times the tangents of dual numbers.

    By differentiating backward in its seed, so it takes the time of two backward passes. Raises
    AutogradError outside of a block.
    """
    here = _here("unpack_dual")
    duals = [dual for dual, _ in here.duals]
    own = {dual.node for dual in duals}
    primal = tensor if _has_leaves_but(tensor, own) else tensor_ops.detach(tensor)
    for dual, tangent in here.duals:
        if dual is tensor:
            return UnpackedDualTensor(primal, tangent)
    if not duals or not tensor.requires_grad:
        return UnpackedDualTensor(primal, None)
    with no_grad():
        seed = tensor_ops.zeros_like(primal).requires_grad_()
    found = grad([tensor], duals, [seed], create_graph=True, allow_unused=True)
    linear = [(g, t) for g, (_, t) in zip(found, here.duals, strict=True) if g is not None]
    if not linear:
        return UnpackedDualTensor(primal, None)
    outputs, tangents = zip(*linear, strict=True)
    (product,) = gradients_or_zeros(outputs, [seed], tangents, create_graph=True)
    if not _has_leaves_but(product, {*own, seed.node}):
        product = tensor_ops.detach(product)
    return UnpackedDualTensor(primal, product)


def _has_leaves_but(x: Tensor, own: Collection[Edge | None]) -> bool:
    """Whether a tensor depends on a leaf that is none of these."""
    seen: set[Edge | None] = {None}
    left: list[Edge | None] = [x.node]
    while left:
        edge = left.pop()
        if edge in seen:
            continue
        seen.add(edge)
        if isinstance(edge, Leaf) and edge not in own:
            return True
        if isinstance(edge, Output):
            left.append(edge.node)
        elif isinstance(edge, Node):
            left.extend(edge.parents)
    return False


def _here(function: str) -> _Level:
    found = _levels.last
    if found is None:
        raise AutogradError(
            f"{function}: Trying to use forward AD at a level that does not exist; call it inside "
            "`with forward_ad.dual_level():`"
        )
    return found
