"""einops takes tensors of Onefold: the package itself where it is installed, else a stand-in."""

import subprocess
import sys

import numpy as np
import pytest

import onefold as flow

# What the two modules of this package need of einops.
STAND_IN = {
    "__init__.py": "from ._backends import get_backend\n",
    "_backends.py": """
import sys


class AbstractBackend:
    framework_name = None


def get_backend(tensor):
    for kind in AbstractBackend.__subclasses__():
        if kind.framework_name in sys.modules and kind().is_appropriate_type(tensor):
            return kind()
    raise RuntimeError(f"Tensor type unknown to einops {type(tensor)}")
""",
    "layers/__init__.py": """
class RearrangeMixin:
    def __init__(self, *recipe, **lengths):
        super().__init__()
        self.recipe, self.lengths = recipe, lengths

    def _apply_recipe(self, x):
        return x.flatten(1)


class ReduceMixin(RearrangeMixin):
    pass
""",
    "layers/_einmix.py": """
class _EinmixMixin:
    def __init__(self, pattern, weight_shape, bias_shape=None, **axes):
        super().__init__()
        self.einsum_pattern = pattern
        self._create_rearrange_layers(None, None, None, None)
        self._create_parameters(weight_shape, 0.5, bias_shape, 0.25)
""",
    "layers/torch.py": """
import torch


class Rearrange(torch.nn.Module):
    pass
""",
}

PROGRAM = """
import numpy as np
{imports}
from onefold import nn
from onefold.errors import OnefoldTypeError

x = flow.arange(24.0).reshape(2, 3, 4)
backend = get_backend(x)
assert backend.framework_name == "onefold", backend
assert backend.transpose(x, (2, 0, 1)).shape == (4, 2, 3)
assert backend.add_axes(x, 5, {{0: 5, 2: 6}}).shape == (5, 2, 6, 3, 4)
assert backend.concat([x, x], 1).shape == (2, 6, 4)
assert backend.stack_on_zeroth_dimension([x, x]).shape == (2, 2, 3, 4)
assert backend.tile(x, (1, 2, 1)).shape == (2, 6, 4)
for name in ("min", "max", "sum", "mean", "prod"):
    theirs = getattr(x.numpy(), name)(axis=(0, 2))
    np.testing.assert_allclose(backend.reduce(x, name, (0, 2)).numpy(), theirs, rtol=1e-5)
assert backend.reduce(x > 3, "all", (1, 2)).tolist() == [False, True]
assert backend.is_float_type(x) and not backend.is_float_type(x.long())
assert backend.einsum("abc->ac", x).shape == (2, 4)
assert backend.from_numpy(np.ones(2)).requires_grad

p = flow.placement("cpu", [0, 1])
halves = x.to_global(p, flow.sbp.broadcast).to_global(sbp=flow.sbp.split(0))
assert backend.transpose(halves, (0, 2, 1)).sbp == (flow.sbp.split(0),)

from einops.layers.onefold import EinMix, Rearrange, Reduce

net = nn.Sequential(Rearrange("b h w -> b (h w)"), nn.Linear(12, 2))
assert net(x).shape == (2, 2) and len(list(net.parameters())) == 2
assert isinstance(Reduce("b h w -> b h", "mean"), nn.Module)
import einops.layers.torch as of_torch

try:
    nn.Sequential(object.__new__(of_torch.Rearrange))
except OnefoldTypeError as error:
    assert "from einops.layers.onefold import Rearrange" in str(error)
else:
    raise AssertionError
"""
EINMIX = """
mix = EinMix("abc,cd->abd", weight_shape=(4, 5), bias_shape=(5,))
assert mix(x).shape == (2, 3, 5) and list(mix.state_dict()) == ["weight", "bias"]
assert 0 < mix.weight.abs().max().item() <= 0.5
"""
FIRST = "import onefold as flow\nfrom einops._backends import get_backend"
LAST = "from einops._backends import get_backend\nimport onefold as flow"


@pytest.mark.parametrize("imports", [FIRST, LAST], ids=["onefold first", "einops first"])
def test_with_a_stand_in(tmp_path, imports):
    for name, text in STAND_IN.items():
        file = tmp_path / "einops" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    text = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    text += PROGRAM.format(imports=imports) + EINMIX
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_with_einops():
    einops = pytest.importorskip("einops")
    exec(PROGRAM.format(imports=LAST), {})
    x = flow.arange(24.0).reshape(2, 3, 4).requires_grad_()
    y = einops.rearrange(x, "b (h w) c -> b h (w c)", w=1)
    np.testing.assert_array_equal(y.detach().numpy(), x.detach().numpy())
    einops.reduce(x, "b n c -> b", "mean").sum().backward()
    assert x.grad.sum().item() == pytest.approx(2)
    packed, sizes = einops.pack([x, x], "b * c")
    assert packed.shape == (2, 6, 4) and len(einops.unpack(packed, sizes, "b * c")) == 2
