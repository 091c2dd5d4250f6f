"""Conversion of tensors from and to torch's, under OneFlow's names."""

from ...engine.values import from_torch as from_torch, to_torch as to_torch
