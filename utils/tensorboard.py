"""Logs for TensorBoard (`flow.utils.tensorboard`): torch's writer, which takes tensors of Onefold.

The package tensorboard must be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.utils import tensorboard
from torch.utils._pytree import tree_map_only

from ..engine.tensor import Tensor
from ..engine.values import to_torch
from ..errors import OnefoldNotImplementedError

__all__ = ["FileWriter", "SummaryWriter"]

FileWriter = tensorboard.FileWriter


class SummaryWriter(tensorboard.SummaryWriter):
    """torch's class; its methods also take tensors of Onefold, whose values they write.

    All ranks must call a method that gets a global tensor, which is gathered, or the program gives
    it `loss.item()`. Raises OnefoldNotImplementedError for `add_graph`.

    Example: `SummaryWriter("runs/first").add_scalar("loss", loss, step)`.
    """

    def add_graph(self, *args: Any, **kwargs: Any) -> None:
        raise OnefoldNotImplementedError(
            "SummaryWriter.add_graph draws what torch.jit.trace gives, and nothing is traced here; "
            "leave it out, and print(graph.program) of an nn.Graph"
        )


def _taking_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def add(self: SummaryWriter, *args: Any, **kwargs: Any) -> Any:
        given = tree_map_only(Tensor, lambda x: to_torch(x.detach()), (args, kwargs))
        return method(self, *given[0], **given[1])

    return add


for _name in dir(SummaryWriter):
    if _name.startswith("add_") and _name not in vars(SummaryWriter):
        setattr(SummaryWriter, _name, _taking_tensors(getattr(SummaryWriter, _name)))
