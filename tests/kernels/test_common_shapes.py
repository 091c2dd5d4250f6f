"""Shapes that several have in common, against torch's."""

import pytest
import torch
from hypothesis import given, strategies as st

from onefold.kernels.common_shapes import broadcast_shapes, joined_shape

SHAPES = st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple), max_size=4)


@given(SHAPES)
def test_as_torch(shapes):
    try:
        wanted = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="cannot be broadcast to a single shape"):
            broadcast_shapes(*shapes)
    else:
        assert broadcast_shapes(*shapes) == wanted


@given(SHAPES.filter(bool), st.integers(-4, 3))
def test_joined_as_torch(shapes, dim):
    found = joined_shape(shapes, dim)
    try:
        wanted = torch.cat([torch.empty(shape, device="meta") for shape in shapes], dim).shape
    except (RuntimeError, IndexError):
        wanted = None
    if () not in shapes and (0,) not in shapes:
        assert found == wanted
    else:  # torch must judge: of scalars, and of 1-d tensors without elements, which fit anywhere
        assert found in (None, wanted)
