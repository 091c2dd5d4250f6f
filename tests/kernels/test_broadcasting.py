"""The common shape of shapes, beside torch's."""

import pytest
import torch
from hypothesis import given, strategies as st

from onefold.kernels.broadcasting import broadcast_shapes

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
