"""Names of torch.onnx that programs hold (`flow.onnx`): nothing is exported."""

from __future__ import annotations

from .compat.missing_names import ONNX
from .graph.unsupported import missing_attribute

__all__ = ["is_in_onnx_export"]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it


def is_in_onnx_export() -> bool:
    """False: nothing is exported.

    >>> import onefold as flow
    >>> flow.onnx.is_in_onnx_export()
    False
    """
    return False


def __getattr__(name: str) -> object:
    raise missing_attribute(ONNX, __name__, name)
