"""gradcheck: the gradients of a function against differences of its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import AutogradError, OnefoldNotImplementedError, OnefoldValueError, warn
from .functional_autograd import gradients_or_zeros
from .grad_mode import enable_grad
from .names import names
from .tensor import Tensor, tensor_ops

_DOUBLE = (torch.float64, torch.complex128)


class GradcheckError(AutogradError):
    """The error of `gradcheck` for wrong gradients."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[object],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Check the gradients of a function against finite differences, as in torch.

    Each element of the inputs that require grad, which should be float64, is moved by `eps` both
    ways, and backward runs twice for each element of the outputs; two runs may differ by
    `nondet_tol`. `fast_mode` and `check_undefined_grad` change nothing. Raises GradcheckError for a
    wrong gradient, or returns False without `raise_exception`; OnefoldValueError where no input
    requires grad; OnefoldNotImplementedError for complex numbers.

    Example:
        >>> import onefold as flow
        >>> x = flow.tensor([0.5, 2.0], dtype=flow.float64, requires_grad=True)
        >>> flow.autograd.gradcheck(lambda x: (x * x).sum(), x)
        True
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    places = [
        index for index, x in enumerate(given) if isinstance(x, Tensor) and x.node is not None
    ]
    if not places:
        raise OnefoldValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True"
        )
    for index in places:
        _check_dtype(index, given[index])
    try:
        _check(func, given, places, eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[object],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Whether the second gradients of a function are right: `gradcheck` of its gradients.

    They are those of the inputs and of `grad_outputs`, which are normal numbers by default. The
    errors are those of `gradcheck`.

    Example:
        >>> import onefold as flow
        >>> x = flow.tensor([0.5, 2.0], dtype=flow.float64, requires_grad=True)
        >>> flow.autograd.gradgradcheck(lambda x: x**3, x)
        True
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = [y for y in _outputs(func, given) if y.requires_grad]
    if grad_outputs is None:
        seeds = [tensor_ops.randn_like(tensor_ops.detach(y)).requires_grad_() for y in outputs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        of, seeds = args[: len(given)], args[len(given) :]
        linked = [y for y in _outputs(func, of) if y.requires_grad]
        leaves = [x for x in of if isinstance(x, Tensor) and x.node is not None]
        return gradients_or_zeros(linked, leaves, seeds, True)

    return gradcheck(
        gradients, (*given, *seeds), eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception, nondet_tol=nondet_tol,
    )  # fmt: skip


def _check_dtype(index: int, x: Any) -> None:
    if x.dtype.is_complex:
        raise OnefoldNotImplementedError(
            f"gradcheck takes real inputs, but input {index} is {x.dtype}; check the function of "
            "its real and imaginary parts"
        )
    if x.dtype not in _DOUBLE:
        warn(
            f"Input #{index} requires gradient and is not a double precision floating point. This "
            "check will likely fail if all the inputs are not of double precision floating point.",
            UserWarning,
        )


@enable_grad
def _check(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    places: Sequence[int],
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    outputs = _outputs(func, inputs)
    some = any(y.requires_grad for y in outputs)
    leaves = [inputs[place] for place in places]
    numerical = [_differences(func, inputs, place, eps) for place in places]
    for index, y in enumerate(outputs):
        of_input = [jacobian[index] for jacobian in numerical]
        if not some:
            _check_zero(index, places, of_input, atol)
        elif y.requires_grad:
            analytical, again = _gradients(y, leaves), _gradients(y, leaves)
            for place, n, a, b in zip(places, of_input, analytical, again, strict=True):
                _compare(index, place, (n, a, b), atol, rtol, nondet_tol)


def _outputs(func: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Tensor]:
    """The floating tensors among what the function returns."""
    found = func(*inputs)
    several = found if isinstance(found, tuple | list) else (found,)
    outputs = [y for y in several if isinstance(y, Tensor) and y.meta.is_floating]
    if any(y.dtype.is_complex for y in outputs):
        raise OnefoldNotImplementedError(
            "gradcheck takes functions with real results, but one is complex; check its real and "
            "imaginary parts"
        )
    return outputs


def _differences(
    func: Callable[..., Any], inputs: tuple[Any, ...], place: int, eps: float
) -> list[torch.Tensor]:
    """The Jacobian (elements of the input, of the output) of each output, by finite differences."""
    x = tensor_ops.detach(inputs[place])
    flat = tensor_ops.reshape(x, (-1,))
    columns = []
    for index in range(flat.numel()):
        step = tensor_ops.zeros_like(flat)
        names.setitem_(step, index, eps)
        step = tensor_ops.reshape(step, x.shape)
        ends = []
        for moved in (tensor_ops.add(x, step), tensor_ops.sub(x, step)):
            given = (*inputs[:place], moved.requires_grad_(), *inputs[place + 1 :])
            # A copy, since the function may return memory of its input, which the next call has.
            ends.append([_values(y).clone() for y in _outputs(func, given)])
        columns.append([(a - b) / (2 * eps) for a, b in zip(*ends, strict=True)])
    if not columns:
        return [torch.zeros(0, y.numel()) for y in _outputs(func, inputs)]
    return [torch.stack(rows) for rows in zip(*columns, strict=True)]


def _gradients(y: Tensor, leaves: Sequence[Tensor]) -> list[torch.Tensor]:
    """The Jacobian (elements of the leaf, of the output) for each leaf, by backward."""
    flat = tensor_ops.reshape(y, (-1,))
    rows = [
        gradients_or_zeros([tensor_ops.getitem(flat, index)], leaves, retain_graph=True)
        for index in range(flat.numel())
    ]
    if not rows:
        return [torch.zeros(leaf.numel(), 0) for leaf in leaves]
    return [torch.stack([_values(dx) for dx in of], 1) for of in zip(*rows, strict=True)]


def _values(x: Tensor) -> torch.Tensor:
    value: torch.Tensor = names.to_torch(x)
    return value.detach().reshape(-1)


def _check_zero(
    index: int, places: Sequence[int], numerical: Sequence[torch.Tensor], atol: float
) -> None:
    for place, slope in zip(places, numerical, strict=True):
        if bool((slope.abs() > atol).any()):
            raise GradcheckError(
                f"gradcheck: output {index} does not require grad, but changes with input {place}: "
                f"its gradient is not zero,\nnumerical: {slope}"
            )


def _compare(
    index: int,
    place: int,
    slopes: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    numerical, analytical, again = slopes
    if not torch.allclose(analytical, again, rtol=0.0, atol=nondet_tol, equal_nan=True):
        raise GradcheckError(
            f"gradcheck: backward is not reentrant: for output {index} and input {place} two runs "
            "with the same inputs gave different gradients. Give nondet_tol= for how much they "
            f"may differ\nfirst: {analytical}\nsecond: {again}"
        )
    if not torch.allclose(analytical, numerical.to(analytical.dtype), rtol=rtol, atol=atol):
        raise GradcheckError(
            f"gradcheck: Jacobian mismatch for output {index} with respect to input {place}, with "
            "a row for each element of the input,\n"
            f"numerical: {numerical}\nanalytical: {analytical}"
        )
