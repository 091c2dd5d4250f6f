"""visualize_layout: shows which rank holds which part of a tensor or of a module's parameters."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from ..engine.layout_view import as_text
from ..engine.meta import Meta
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError
from ..nn import Module


def visualize_layout(
    x: Tensor | Module,
    path: str | Path | None = None,
    *,
    title: str = "",
    color: bool | None = None,
) -> None:
    """Print which rank holds which part of a tensor, or of each parameter and buffer of a module.

    Each part has the color of its rank; what several ranks hold is grey. The names of replicas
    have a comma between them, those of addends of a partial sum a plus.

    path: the PNG file to draw into instead, which needs matplotlib.
    title: the title of the output.
    color: whether to use the colors of a terminal; by default where the output is one.

    Raises OnefoldTypeError for anything else, and ModuleNotFoundError where matplotlib is needed
    and missing.

    Example:
        >>> p = flow.placement("cpu", [0, 1])
        >>> flow.visualize_layout(flow.zeros(5, 6, placement=p, sbp=flow.sbp.split(0)))
        float32[5, 6] (S0) on cpu [0, 1]
          0:3  rank 0
          3:5  rank 1
    """
    named = _metas(x)
    if path is not None:
        import_module(f"{__package__}.layout_figure").save(named, path, title)
        return
    if color is None:
        color = sys.stdout.isatty()
    lines = [title] if title else []
    lines += [as_text(name, meta, color) for name, meta in named]
    sys.stdout.write("\n".join(lines) + "\n")


def _metas(x: Tensor | Module) -> list[tuple[str, Meta]]:
    if isinstance(x, Tensor):
        return [("", x.meta)]
    if isinstance(x, Module):
        every = [*x.named_parameters(), *x.named_buffers()]
        return [(name, tensor.meta) for name, tensor in every]
    raise OnefoldTypeError(
        f"visualize_layout shows an onefold Tensor or nn.Module, but got {type(x).__name__}"
    )
