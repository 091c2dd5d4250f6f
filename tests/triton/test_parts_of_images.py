"""Parts of channels-last images, as the gradients of `cat`: results are channels-last too."""

import pytest
import torch
from triton_harness import assert_matches_reference

from onefold.kernels import batch_norm_ref, group_norm_ref, interpolate_ref, pool_ref
from onefold.kernels.gpu.pointwise.channels_last import dense, is_channels_last, turned

SIZES = ((2, 2), (2, 2), (0, 0), False, True, None)


def part(*shape, channels=4):
    """The last channels of channels-last images."""
    whole = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    return whole[:, -channels:]


def test_which_are_channels_last():
    image = part(2, 9, 6, 5)
    assert is_channels_last(image)
    assert is_channels_last(image[:, :, 1:, ::2])
    assert is_channels_last(image[1:])
    assert is_channels_last(part(2, 4, 6, 5)) and is_channels_last(part(2, 9, 6, 5)[:, :, :1])
    assert dense(image, True).is_contiguous()
    rows = torch.randn(2, 9, 6, 5)
    for other in (
        rows, rows[:, 1:], rows[:, :, 1:], rows[..., ::2], rows.transpose(2, 3), rows[:, :1],
        image[:, :1], image[:, ::2], image.transpose(2, 3), image.flip(1).transpose(0, 1),
        rows[:, :, :1, :1].expand(2, 9, 6, 5), torch.ones(()).expand(2, 9, 6, 5), rows[0, 0],
    ):  # fmt: skip
        assert not is_channels_last(other)


@pytest.mark.parametrize("channels", [3, 4])
def test_kernels_read_them(channels):
    x, dy = part(2, 7, 6, 4, channels=channels), part(2, 7, 6, 4, channels=channels)
    small = part(2, 7, 3, 2, channels=channels)
    given = (small, 2, (6, 4), "bilinear", False, (None, None))
    found = [assert_matches_reference(interpolate_ref.interpolate, *given)]
    given = (dy, small.shape, 2, (6, 4), "nearest", False, (None, None))
    found += [assert_matches_reference(interpolate_ref.interpolate_grad, *given)]
    found += [assert_matches_reference(pool_ref.avg_pool, x, 2, SIZES)]
    found += [assert_matches_reference(pool_ref.avg_pool_grad, small, tuple(x.shape), 2, SIZES)]
    mean, rstd = assert_matches_reference(group_norm_ref.group_statistics, x, 1, 1e-5, slack=8)
    assert_matches_reference(group_norm_ref.group_sums, dy, x, mean, rstd, None, 1, slack=64)
    found += [group_norm_ref.standardized(x, mean, rstd, 1, 1e-5, None)]
    mean, rstd, *_ = assert_matches_reference(
        batch_norm_ref.channel_statistics, x, None, None, 1.0, 1e-5, slack=8
    )
    assert_matches_reference(batch_norm_ref.channel_sums, dy, x, mean, rstd, slack=64)
    assert all(turned(y).is_contiguous() for y in found)


def test_maxima_return_to_their_places():
    x = part(2, 7, 6, 4)
    window = ((2, 2), (2, 2), (0, 0), (1, 1), False)
    y, places = assert_matches_reference(pool_ref.max_pool, x, 2, window)
    assert_matches_reference(pool_ref.max_pool_grad, part(2, 7, 3, 2), places, x.shape, 2, window)
    sizes = ((2, 2), (2, 2), (0, 0), (6, 4))
    values = part(2, 7, 3, 2)
    made = assert_matches_reference(pool_ref.max_unpool, values, places, 2, sizes)
    assert all(turned(each).is_contiguous() for each in (y, places, made))
