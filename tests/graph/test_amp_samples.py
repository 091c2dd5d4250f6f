"""Every op sample in mixed precision: it runs, and no layout changes a dtype."""

import pytest
import samples
import torch

import onefold as flow
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast
from onefold.errors import OnefoldRuntimeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import cotangent, spread, value_of

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")

SAMPLES = [s for s in samples.load() if any(v.dtype.is_floating_point for v in s.tensors())]
IDS = [f"{index}-{sample!r}"[:120] for index, sample in enumerate(SAMPLES)]


class Build(flow.nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.config.enable_amp(dtype=flow.bfloat16)

    def build(self):
        return self.function()


def results(sample, tensors, make):
    """What a graph in mixed precision gives: outputs and gradients; None if it reads values."""
    for x in tensors:
        if sample.grad and x.dtype.is_floating_point:
            x.requires_grad_()

    def function():
        outputs = sample.run(tensors)
        leaves = [x for x in tensors if x.requires_grad]
        ends = [x for x in outputs if x.requires_grad]
        if not leaves or not ends:
            return list(outputs)
        seeds = [make(cotangent(x.shape, x.dtype, sample.seed)) for x in ends]
        gradients = flow.autograd.grad(ends, leaves, seeds, allow_unused=True)
        for x, gradient in zip(leaves, gradients, strict=True):
            assert gradient is None or gradient.dtype == x.dtype
        return [*outputs, *gradients]

    flow.manual_seed(5)
    try:
        return Build(function)()
    except OnefoldRuntimeError as error:
        if "the value of a tensor was asked for while a graph" not in str(error):
            raise
        return None


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_dtypes_do_not_depend_on_the_layout(sample, world):
    placement = Placement("cpu", [[0, 1], [2, 3]])
    whole = (broadcast,) * 2
    values = [v.float() if v.dtype == torch.float64 else v for v in sample.tensors()]
    local = results(sample, [make_local(v) for v in values], make_local)
    if local is None:
        return
    for nd_sbps in spread(values, placement, 2, sample.seed):
        tensors = [make_global(v, placement, s, 1) for v, s in zip(values, nd_sbps, strict=True)]
        found = results(sample, tensors, lambda v: make_global(v, placement, whole, 1))
        assert len(found) == len(local)
        for ours, theirs in zip(found, local, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert ours.dtype == theirs.dtype
                a, b = value_of(ours), value_of(theirs)
                torch.testing.assert_close(a, b, rtol=0.1, atol=0.1, equal_nan=True)
