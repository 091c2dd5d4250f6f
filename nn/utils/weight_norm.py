"""Weight normalization: a weight as its length times its direction, by the older functions."""

from __future__ import annotations

from typing import TypeVar

from ...engine.ops.data_movement import wrap
from ...engine.sbp import without_partial
from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, warn
from ..module import Module
from ..parameter import Parameter

M = TypeVar("M", bound=Module)


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """The 2-norm over all dims but one, which stay with size 1; over all dims for -1, as in torch.

    Its layout has no partial sums, so that it may be a parameter.
    """
    if dim == -1:
        made = v.norm()
    else:
        kept = wrap(dim, v.ndim)
        made = v.norm(2, [each for each in range(v.ndim) if each != kept], keepdim=True)
    return made if made.is_local else made.to_global(sbp=without_partial(made.sbp))


def weight_of(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """The weight of length g in the direction of v."""
    return v * (g / norm_except_dim(v, dim))


class WeightNorm:
    """A weight that is computed from the parameters `{name}_g` and `{name}_v`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight of the module's parameters."""
        v, g = getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g")
        return weight_of(v, g, self.dim)

    value = compute_weight

    def assign(self, module: Module, value: object) -> None:
        raise OnefoldTypeError(
            f"{self.name!r} is computed by weight_norm; assign {self.name}_g and {self.name}_v, "
            "or call remove_weight_norm first"
        )


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Replace a parameter by `{name}_g`, its norm over all dims but `dim`, and `{name}_v`.

    The attribute is computed from both wherever it is read. Deprecated in favor of
    `nn.utils.parametrizations.weight_norm`; warns, as torch does. Raises OnefoldRuntimeError when
    the parameter has a weight normalization already. Source: Salimans and Kingma, "Weight
    Normalization" (2016).
    """
    warn(
        "`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
    )
    if isinstance(module._computed_tensor(name), WeightNorm):
        raise OnefoldRuntimeError(
            f"Cannot register two weight_norm hooks on the same parameter {name}"
        )
    found = WeightNorm(name, dim)
    weight = module.get_parameter(name).detach()
    module._set_computed(name, found)
    module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight, found.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight))
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undo `weight_norm`; raises OnefoldValueError if the parameter has no weight norm."""
    found = module._computed_tensor(name)
    if not isinstance(found, WeightNorm):
        raise OnefoldValueError(f"weight_norm of '{name}' not found in {module}")
    weight = found.compute_weight(module).detach()
    del module._parameters[f"{name}_g"]
    del module._parameters[f"{name}_v"]
    module._unset_computed(name, Parameter(weight))
    return module
