"""Samples of convolutions."""

from torch.nn.functional import conv2d as conv, pad

from onefold.testing import Sample, T

X, W, B = (6, 4, 7, 6), (6, 4, 3, 2), (6,)


def conv2d(**kwargs: object) -> Sample:
    return Sample("conv2d", (T(*X), T(*W), T(*B)), dict(kwargs))


SAMPLES = [
    conv2d(),
    conv2d(stride=2, padding=1),
    conv2d(stride=(1, 3), padding=(0, 2)),
    conv2d(padding=2, dilation=(2, 1)),
    Sample("conv2d", (T(2, 4, 5, 6), T(6, 4, 3, 5), T(6)), {"padding": "same"}),
    Sample(
        "conv2d",
        (T(2, 4, 5, 6), T(6, 4, 2, 4)),
        {"padding": "same"},
        torch=lambda x, w, padding: conv(pad(x, (1, 2, 0, 1)), w),
    ),
    conv2d(padding="valid", stride=2),
    Sample("conv2d", (T(5, 3, 5, 5), T(2, 3, 3, 3))),
    Sample("conv2d", (T(4, 5, 5), T(6, 4, 3, 3), T(6))),
    Sample("conv2d", (T(4, 6, 5, 5), T(6, 3, 3, 3), T(6)), {"groups": 2}),
    Sample("conv2d", (T(2, 6, 5, 5), T(12, 1, 3, 3), T(12)), {"groups": 6}),
    Sample("conv2d", (T(2, 5, 5, 5), T(5, 1, 3, 3)), {"groups": 5}),
    Sample("conv2d", (T(1, 2, 5, 5), T(3, 2, 3, 3), T(3)), {"stride": 2}),
    Sample("conv1d", (T(6, 4, 9), T(6, 4, 3), T(6)), {"stride": 2, "padding": 1}),
    Sample("conv1d", (T(4, 9), T(6, 4, 3)), {"padding": "same", "dilation": 2}),
    Sample("conv3d", (T(2, 4, 4, 3, 4), T(3, 4, 2, 2, 2), T(3)), {"padding": 1}),
    Sample("conv3d", (T(2, 4, 3, 4, 3), T(4, 2, 3, 2, 1)), {"groups": 2, "stride": (1, 2, 1)}),
    Sample(
        "conv_transpose3d",
        (T(2, 4, 2, 3, 2), T(4, 2, 2, 3, 1), T(4)),
        {"stride": 2, "padding": (0, 1, 0), "output_padding": (1, 0, 1), "groups": 2},
    ),
    Sample("conv_transpose2d", (T(6, 4, 4, 3), T(4, 6, 3, 2), T(6))),
    Sample(
        "conv_transpose2d",
        (T(3, 4, 4, 3), T(4, 3, 3, 2), T(6)),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
    ),
    Sample("conv_transpose1d", (T(5, 4, 4), T(4, 3, 3)), {"stride": 3, "dilation": 2}),
]
