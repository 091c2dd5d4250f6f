"""Rotary embedding with OneFlow's arguments: named layouts, positions, and tables made here."""

from __future__ import annotations

from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError

_LAYOUTS = ("BHMK", "BMHK", "MBHK", "BM(HK)", "BM(H2K)", "BM(H3K)")


def fused_apply_rotary_emb(
    x: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
    x_layout: str = "BHMK",
    output_layout: str | None = None,
    k_size: int | None = None,
    base: float = 1e4,
    rotary_size: int | None = None,
    mode: str = "plane",
    tensor_index: int | None = None,
) -> Tensor:
    """Rotary position embedding of x, in a layout of batch B, heads H, length M and features K.

    Layouts with brackets merge dims, and need `k_size`; in "BM(H2K)" and "BM(H3K)" each head holds
    2 or 3 tensors, of which `tensor_index` names one. Pairs are features 2i and 2i + 1 where `mode`
    is "interval", and i and i + rotary_size / 2 where it is "plane". `cos` and `sin` have a row of
    `rotary_size` numbers for each position; without them the angles are position / base ** (2i /
    rotary_size). `position_ids` has shape [B, M] or [B, 1, M]. Features behind `rotary_size` stay.

    Raises OnefoldValueError for other layouts and modes, and where cos or sin comes alone.
    """
    heads = _heads(x, x_layout, k_size, tensor_index)
    if mode not in ("interval", "plane"):
        raise OnefoldValueError(f'rotary: mode must be "interval" or "plane", but got {mode!r}')
    if (cos is None) != (sin is None):
        raise OnefoldValueError("rotary: give both cos and sin, or none of them")
    size = heads.shape[-1] if rotary_size is None else rotary_size
    positions = None
    if position_ids is not None:
        positions = position_ids.reshape(position_ids.shape[0], -1)
    if cos is None or sin is None:
        cos, sin = _tables(heads, size, base, positions)
    else:
        once = slice(0, size, 2) if mode == "interval" else slice(0, size // 2)
        cos, sin = cos[..., once], sin[..., once]  # both features of a pair have one angle
        if positions is None:
            cos, sin = cos[: heads.shape[2]], sin[: heads.shape[2]]
        else:
            cos, sin = cos[positions], sin[positions]
    y = tensor_ops.rotary(heads, cos, sin, interleaved=mode == "interval")
    return _laid_out(y, x_layout if output_layout is None else output_layout)


def _heads(x: Tensor, layout: str, k_size: int | None, index: int | None) -> Tensor:
    """x as BHMK."""
    if layout not in _LAYOUTS:
        raise OnefoldValueError(f"rotary: x_layout must be one of {_LAYOUTS}, but got {layout!r}")
    if "(" in layout:
        if k_size is None:
            raise OnefoldValueError(f"rotary: x_layout={layout!r} needs k_size")
        parts = int(layout[4]) if layout[4].isdigit() else 1
        if parts > 1 and (index is None or not 0 <= index < parts):
            raise OnefoldValueError(
                f"rotary: x_layout={layout!r} needs a tensor_index of 0 to {parts - 1}, but got "
                f"{index}"
            )
        merged = x.reshape(*x.shape[:2], -1, parts, k_size)
        return merged[:, :, :, index or 0].transpose(1, 2)
    return x.permute(*[layout.index(dim) for dim in "BHMK"])


def _laid_out(y: Tensor, layout: str) -> Tensor:
    if layout == "BM(HK)":
        return y.transpose(1, 2).flatten(2)
    if layout not in _LAYOUTS or "(" in layout:
        raise OnefoldValueError(
            f"rotary: output_layout must be one of {(*_LAYOUTS[:3], 'BM(HK)')}, but is {layout!r}; "
            "give it where x_layout holds several tensors"
        )
    return y.permute(*["BHMK".index(dim) for dim in layout])


def _tables(
    heads: Tensor, size: int, base: float, positions: Tensor | None
) -> tuple[Tensor, Tensor]:
    """cos and sin of the angle of each pair at each position."""
    rates = base ** (-heads.new_tensor(list(range(0, size, 2)), dtype=heads.dtype).float() / size)
    if positions is None:
        positions = heads.new_tensor(list(range(heads.shape[2])), dtype=rates.dtype)
    angles = positions.to(rates.dtype).unsqueeze(-1) * rates
    return angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
