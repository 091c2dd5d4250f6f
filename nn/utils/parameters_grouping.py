"""Groups of parameters in one piece of memory: OneFlow's name, with what does the same here."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError


class ContiguousParamsGroup:
    """Raises OnefoldRuntimeError: optimizers update all parameters of a group in one launch."""

    def __init__(
        self, params_group_list: Sequence[Sequence[Tensor]], group_on_current_buffer: bool = True
    ) -> None:
        raise OnefoldRuntimeError(
            "ContiguousParamsGroup is not supported: parameters keep memory of their own, and the "
            "optimizers of flow.optim update all parameters of a group in one launch; pass the "
            "parameters to an optimizer as they are"
        )
