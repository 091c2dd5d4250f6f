"""Variables: tensors that jobs share by name, created when a job that needs one is first traced."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine import interpreter
from ..engine.generator import Generator
from ..engine.inplace import take
from ..engine.meta import Box, slices_of
from ..engine.ops.creation import empty, make
from ..engine.sbp import broadcast as whole
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from ..nn.parameter import Parameter
from .blob import Blob
from .distribute import Distribute
from .initializers import Initializer, zeros_initializer
from .regularizers import Regularizer
from .scope import current_devices
from .session import Variable, session
from .tracing import tracing


def get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    initializer: Initializer | None = None,
    regularizer: Regularizer | None = None,
    trainable: bool | None = None,
    model_name: str | None = None,
    random_seed: int | None = None,
    distribute: Distribute | None = None,
    reuse: bool = True,
) -> Blob:
    """The variable of this name: made once, shared by all jobs.

    It lies on the devices of the scope that first asked for it, whole or split as `distribute`
    says, and begins with zeros where there is no initializer. Its dtype is the job's default where
    none is given. Raises OnefoldValueError for another shape or dtype than it has, and, without
    `reuse`, where this job asked for the name before.

    Example: `weight = flow.get_variable("weight", (512, 784), initializer=flow.truncated_normal())`
    """
    job = tracing(f"get_variable({name!r})")
    if not isinstance(name, str):
        raise OnefoldTypeError(f"get_variable needs a name, but got {name!r}")
    if name in job.used and not reuse:
        raise OnefoldValueError(
            f"job {job.name!r} uses the variable {name!r} already, so two of its layers have one "
            "name; give each its own with name=, or share the variable with reuse=True"
        )
    found = session.variables.get(name)
    if found is None:
        if shape is None:
            raise OnefoldValueError(f"there is no variable {name!r} yet, so it needs a shape")
        found = Variable(
            name,
            _empty(tuple(shape), dtype or job.default_dtype, trainable is not False, distribute),
            initializer or zeros_initializer(),
            random_seed,
        )
        session.variables[name] = found  # its job initializes it, once the trace has ended
    _check(found, shape, dtype)
    job.use(found, model_name, regularizer)
    return Blob.of(found.tensor, variable=True)


def _empty(
    shape: tuple[int, ...], dtype: torch.dtype, trainable: bool, distribute: Distribute | None
) -> Tensor:
    sbp = whole if distribute is None or distribute.sbp is None else distribute.sbp
    with interpreter.using(None):
        data = empty(shape, dtype=dtype, placement=current_devices(), sbp=sbp)
        return Parameter(data, requires_grad=trainable and dtype.is_floating_point)


def initialize(variable: Variable) -> None:
    """Fill a variable with its initial values; they replace the present ones."""
    seed = variable.random_seed
    source = None if seed is None else Generator().manual_seed(seed)
    with interpreter.using(None):
        variable.initializer.fill(variable.tensor, source)
    variable.is_new = False


def set_value(variable: Variable, array: torch.Tensor) -> None:
    """Give a variable the value of a tensor of its shape."""
    tensor = variable.tensor

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        return array[slices_of(box)].to(device, tensor.dtype, copy=True)

    made = make(
        "load", tensor.shape, tensor.dtype, maker, placement=tensor.placement, sbp=tensor.sbp
    )
    take(tensor, made)
    variable.is_new = False


def _check(variable: Variable, shape: Sequence[int] | None, dtype: torch.dtype | None) -> None:
    tensor = variable.tensor
    if shape is not None and tuple(shape) != tuple(tensor.shape):
        raise OnefoldValueError(
            f"the variable {variable.name!r} has shape {tuple(tensor.shape)}, but is asked for "
            f"with shape {tuple(shape)}; jobs share variables by name, so give this one another"
        )
    if dtype is not None and dtype is not tensor.dtype:
        raise OnefoldValueError(
            f"the variable {variable.name!r} has dtype {tensor.dtype}, but is asked for with "
            f"{dtype}; jobs share variables by name, so give this one another"
        )
