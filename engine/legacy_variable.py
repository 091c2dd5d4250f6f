"""Variable: torch's name, from before tensors had gradients, for a tensor of the same value."""

from __future__ import annotations

from ..errors import OnefoldTypeError
from .tensor import Tensor


class _VariableType(type):
    """Every tensor counts as a Variable."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """`Variable(x)` is `x.detach()`, which requires a gradient with `requires_grad`.

    Raises OnefoldTypeError if `data` is no tensor. `volatile` has no effect, as in torch.

    >>> from onefold.autograd import Variable
    >>> import onefold as flow
    >>> x = Variable(flow.ones(2), requires_grad=True)
    >>> type(x).__name__, x.requires_grad, isinstance(x, Variable)
    ('Tensor', True, True)
    """

    def __new__(  # type: ignore[misc]
        cls, data: Tensor, requires_grad: bool = False, volatile: bool = False
    ) -> Tensor:
        if not isinstance(data, Tensor):
            raise OnefoldTypeError(
                f"Variable data has to be an onefold Tensor, but got {type(data).__name__}; use "
                "flow.tensor(data, requires_grad=...)"
            )
        return data.detach().requires_grad_(requires_grad)
