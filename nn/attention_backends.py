"""Back ends of attention (`flow.nn.attention`): names of torch, which choose nothing here.

`nn.functional.scaled_dot_product_attention` chooses its algorithm by shapes, masks and devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch.nn.attention import SDPBackend

from ..errors import OnefoldTypeError, OnefoldValueError
from ..graph.unsupported import missing_attribute
from .unsupported_names import ATTENTION

__all__ = ["SDPBackend", "sdpa_kernel"]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it


@contextmanager
def sdpa_kernel(
    backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[None]:
    """Changes nothing: every algorithm of attention gives the same values, but for rounding.

    Raises OnefoldTypeError for anything but members of SDPBackend, OnefoldValueError for none.

    >>> import onefold as flow
    >>> with flow.nn.attention.sdpa_kernel(flow.nn.attention.SDPBackend.MATH):
    ...     q = flow.ones(1, 2, 3, 4)
    ...     flow.nn.functional.scaled_dot_product_attention(q, q, q).shape
    torch.Size([1, 2, 3, 4])
    """
    given = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if any(not isinstance(each, SDPBackend) for each in given):
        raise OnefoldTypeError(
            "sdpa_kernel: backends must be an instance of SDPBackend or a list of SDPBackend, but "
            f"got {backends!r}"
        )
    if not given:
        raise OnefoldValueError("sdpa_kernel: at least one backend must be given")
    yield


def __getattr__(name: str) -> object:
    raise missing_attribute(ATTENTION, "onefold.nn.attention", name)
