"""nn.modules: torch's files of layers, and the base classes that programs name."""

from importlib import import_module

import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.nn.modules.batchnorm import _BatchNorm
from onefold.nn.modules.loss import _Loss, _WeightedLoss
from onefold.nn.modules.utils import _ntuple, _pair

FILES = sorted(
    name for name, module in vars(torch.nn.modules).items()
    if type(module) is type(torch) and name[0] != "_" and name != "linear_cross_entropy_options"
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_each_file_holds_its_layers(name):
    theirs, ours = getattr(torch.nn.modules, name), import_module(f"onefold.nn.modules.{name}")
    assert ours is getattr(nn.modules, name)
    layers = [
        key for key, value in vars(theirs).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and hasattr(torch.nn, key)
    ]  # fmt: skip
    for layer in layers:
        assert getattr(ours, layer) is getattr(nn.modules, layer) is getattr(nn, layer)


BASES = """
batchnorm._BatchNorm batchnorm._NormBase instancenorm._InstanceNorm conv._ConvNd
conv._ConvTransposeNd dropout._DropoutNd loss._Loss loss._WeightedLoss padding._ConstantPadNd
padding._ReflectionPadNd padding._ReplicationPadNd pooling._AdaptiveAvgPoolNd
pooling._AdaptiveMaxPoolNd pooling._LPPoolNd pooling._MaxUnpoolNd rnn.RNNCellBase rnn.RNNBase
activation.Hardtanh padding.ConstantPad2d upsampling.Upsample
""".split()


@pytest.mark.parametrize("path", BASES)
def test_bases_have_the_classes_that_torchs_have(path):
    file, name = path.split(".")
    theirs = getattr(getattr(torch.nn.modules, file), name)
    ours = getattr(getattr(nn.modules, file), name)
    for key, kind in vars(torch.nn).items():
        own = getattr(nn, key, None)
        skipped = "Lazy" in key or key == "LinearCrossEntropyLoss" or kind is theirs
        if isinstance(kind, type) and isinstance(own, type) and not skipped:
            assert issubclass(own, ours) == issubclass(kind, theirs), key


def test_tuples_of_sizes():
    assert _pair(3) == (3, 3) and _pair((1, 2)) == (1, 2) and _ntuple(4)(0) == (0,) * 4


def test_losses_of_users():
    class Dice(_Loss):
        def __init__(self, smooth=1.0, **kwargs):
            super().__init__(**kwargs)
            self.smooth = smooth

        def forward(self, input, target):
            both = 2 * (input * target).sum(-1) + self.smooth
            return 1 - (both / (input.sum(-1) + target.sum(-1) + self.smooth)).mean()

    class Scaled(_WeightedLoss):
        def forward(self, input, target):
            return flow.nn.functional.mse_loss(
                input * self.weight, target, reduction=self.reduction
            )

    assert Dice().reduction == "mean" and Dice(size_average=False).reduction == "sum"
    x = flow.tensor([[0.5, 0.25]])
    assert Dice()(x, x * 0).item() == pytest.approx(1 - 1 / 1.75)
    loss = Scaled(flow.tensor([2.0, 4.0]), reduction="sum")
    assert loss(x, x).item() == pytest.approx(0.25 + 0.75**2)
    assert list(loss.state_dict()) == ["weight"]


def test_normalization_of_users():
    class AnyDims(_BatchNorm):
        def _check_input_dim(self, input):
            if input.dim() < 2:
                raise ValueError("too few dims")

    layer, theirs = AnyDims(3, eps=1e-3), torch.nn.BatchNorm2d(3, eps=1e-3)
    x = torch.arange(24.0).reshape(2, 3, 2, 2).sin()
    torch.testing.assert_close(layer(flow.from_torch(x)).to_torch(), theirs(x))
    with pytest.raises(ValueError, match="too few"):
        layer(flow.ones(3))


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
@pytest.mark.parametrize("padding", [(1, 2), "same"])
def test_convolutions_with_other_weights(mode, padding):
    """As weight standardisation, which computes a weight from the layer's own."""

    def standardised(base, functions):
        class Standardised(base):
            def forward(self, x):
                w = self.weight
                w = (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)
                return self._conv_forward(x, w, self.bias)

            def padded(self, x):
                return functions.pad(x, self._reversed_padding_repeated_twice)

        return Standardised(2, 3, (3, 5), padding=padding, padding_mode=mode)

    theirs = standardised(torch.nn.Conv2d, torch.nn.functional)
    ours = standardised(nn.Conv2d, nn.functional)
    ours.load_state_dict(theirs.state_dict())
    x = torch.arange(2 * 2 * 6 * 7.0).reshape(2, 2, 6, 7).cos()
    torch.testing.assert_close(ours(flow.from_torch(x)).to_torch(), theirs(x))
    torch.testing.assert_close(ours.padded(flow.from_torch(x)).to_torch(), theirs.padded(x))
    assert ours.transposed is theirs.transposed is False
    assert nn.ConvTranspose2d(2, 2, 3).transposed
