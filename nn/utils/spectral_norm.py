"""Spectral normalization: a weight divided by its largest singular value, by older functions.

The singular vectors are estimated by power iteration, a step with every call that trains.
"""

from __future__ import annotations

from typing import TypeVar

from ...engine.grad_mode import no_grad
from ...engine.ops.creation import empty
from ...engine.ops.vector_norm import normalize
from ...engine.sbp import broadcast
from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from .. import init
from ..convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..module import Module
from ..parameter import Parameter

M = TypeVar("M", bound=Module)


def output_dim(module: Module, dim: int | None) -> int:
    """The dim of a layer's outputs in its weight, unless it is given."""
    if dim is not None:
        return dim
    return int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """A weight as the matrix (size of `dim`, all the rest)."""
    if dim != 0:
        weight = weight.movedim(dim, 0)
    return weight.reshape(weight.shape[0], -1)


def random_direction(matrix: Tensor, dim: int, eps: float) -> Tensor:
    """A random unit vector of the size of a matrix's dim, whole on every rank."""
    size, dtype = matrix.shape[dim], matrix.dtype
    if matrix.is_local:
        made = empty(size, dtype=dtype, device=matrix.device)
    else:
        sbp = (broadcast,) * matrix.placement.ndim
        made = empty(size, dtype=dtype, placement=matrix.placement, sbp=sbp)
    return normalize(init.normal_(made), dim=0, eps=eps)


@no_grad
def update_direction(vector: Tensor, matrix: Tensor, other: Tensor, eps: float) -> None:
    """Half a step of power iteration: `vector` becomes matrix @ other, normalized."""
    vector.copy_(normalize(matrix.mv(other), dim=0, eps=eps))


def largest_singular_value(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u^T matrix v. The vectors are copied: the next step may come before backward."""
    return u.clone().vdot(matrix.mv(v.clone()))


class SpectralNorm:
    """A weight that is computed from `{name}_orig` and the vectors `{name}_u` and `{name}_v`."""

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise OnefoldValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def value(self, module: Module) -> Tensor:
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        made: Tensor = weight / largest_singular_value(as_matrix(weight, self.dim), u, v)
        return made

    def assign(self, module: Module, value: object) -> None:
        raise OnefoldTypeError(
            f"{self.name!r} is computed by spectral_norm; assign {self.name}_orig, or call "
            "remove_spectral_norm first"
        )

    def __call__(self, module: Module, inputs: object) -> None:
        """Before every call that trains: take the steps of power iteration."""
        if not module.training:
            return
        matrix = as_matrix(getattr(module, f"{self.name}_orig").detach(), self.dim)
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        for _ in range(self.n_power_iterations):
            update_direction(v, matrix.t(), u, self.eps)
            update_direction(u, matrix, v, self.eps)


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide a parameter by its largest singular value, as a matrix of the outputs in `dim`.

    The parameter is `{name}_orig`, and the attribute is computed wherever it is read. `dim` is 0,
    or 1 for transposed convolutions. Raises OnefoldRuntimeError when the parameter has a spectral
    normalization already. `nn.utils.parametrizations.spectral_norm` is the newer function. Source:
    Miyato et al., "Spectral Normalization for Generative Adversarial Networks" (2018).
    """
    found = SpectralNorm(name, n_power_iterations, output_dim(module, dim), eps)
    if isinstance(module._computed_tensor(name), SpectralNorm):
        raise OnefoldRuntimeError(
            f"Cannot register two spectral_norm hooks on the same parameter {name}"
        )
    weight = module.get_parameter(name)
    matrix = as_matrix(weight.detach(), found.dim)
    u, v = random_direction(matrix, 0, eps), random_direction(matrix, 1, eps)
    module._set_computed(name, found)
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    module.register_forward_pre_hook(found)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Let a parameter have its normalized value; OnefoldValueError if it has no such norm."""
    found = module._computed_tensor(name)
    if not isinstance(found, SpectralNorm):
        raise OnefoldValueError(f"spectral_norm of '{name}' not found in {module}")
    weight = found.value(module).detach()
    del module._parameters[f"{name}_orig"]
    del module._buffers[f"{name}_u"], module._buffers[f"{name}_v"]
    module._unset_computed(name, Parameter(weight))
    for number, hook in list(module._forward_pre_hooks.items()):
        if hook is found:
            del module._forward_pre_hooks[number]
    return module
