"""A graph gives bit for bit what eager gives: every op sample, its gradients, random programs."""

from functools import partial

import pytest
import samples
import torch
from recorded_ops import recording

import onefold as flow
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast
from onefold.errors import OnefoldRuntimeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import cotangent, spread
from onefold.testing.samples import Sample, T

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")

SAMPLES = samples.load()
IDS = [f"{index}-{sample!r}"[:120] for index, sample in enumerate(SAMPLES)]

# Ops whose result's shape or work may depend on values: those calls cannot be captured.
READ_VALUES = set(
    """nonzero argwhere unique masked_select masked_scatter one_hot getitem setitem
    repeat_interleave unique_consecutive""".split()
)


class Build(flow.nn.Graph):
    """A graph of a function without arguments: what it uses comes from outside."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def build(self):
        return self.function()


def forward_and_backward(sample, tensors, make):
    """The sample's outputs, and the gradients of its floating arguments where there are any."""
    outputs = sample.run(tensors)
    leaves = [x for x in tensors if x.requires_grad]
    reached = [(i, x) for i, x in enumerate(outputs) if x.requires_grad]
    if not leaves or not reached:
        return [*outputs]
    ends = [x for _, x in reached]
    seeds = [make(cotangent(x.shape, x.dtype, sample.seed + i)) for i, x in reached]
    return [*outputs, *flow.autograd.grad(ends, leaves, seeds, allow_unused=True)]


def parts(results):
    return [None if x is None else [part.detach() for part in x.shards] for x in results]


def assert_same(found, wanted, moved=False):
    """All bits, but for complex numbers in memory that `moved`, as a replay's: MKL rounds products
    of those by where they lie.
    """
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        for a, b in zip(ours or [], theirs or [], strict=True):
            rounding = 4e-15 if moved and b.is_complex() else 0
            torch.testing.assert_close(a, b, rtol=rounding, atol=0, equal_nan=True)


def check(sample, make_all, make, calls=2, cuda_graph=False):
    tensors = make_all()
    for x in tensors:
        if sample.grad and (x.dtype.is_floating_point or x.dtype.is_complex):
            x.requires_grad_()
    function = partial(forward_and_backward, sample, tensors, make)
    flow.manual_seed(5)
    wanted = parts(function())
    graph = Build(function)
    graph.config.enable_cuda_graph(cuda_graph)
    for _ in range(calls):  # the second call captures nothing
        flow.manual_seed(5)
        try:
            found = graph()
        except OnefoldRuntimeError as error:
            if "the value of a tensor was asked for while a graph" not in str(error):
                raise
            assert sample.name in READ_VALUES
            return
        assert_same(parts(found), wanted, moved=cuda_graph)


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_samples_on_two_axes(sample, world):
    placement = Placement("cpu", [[0, 1], [2, 3]])
    whole = (broadcast,) * placement.ndim
    values = sample.tensors()
    for nd_sbps in spread(values, placement, 2, sample.seed):

        def make_all(nd_sbps=nd_sbps):
            pairs = zip(values, nd_sbps, strict=True)
            return [make_global(value, placement, nd_sbp, 1) for value, nd_sbp in pairs]

        check(sample, make_all, lambda value: make_global(value, placement, whole, 1))


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_local_samples(sample, world):
    check(sample, lambda: [make_local(value) for value in sample.tensors()], make_local)


@pytest.mark.parametrize("part", range(4))
def test_as_cuda_graphs(part, world, monkeypatch):
    """A sample of each op, and its gradient, in graphs that are captured and replayed."""
    recorder = recording(monkeypatch)
    for sample in [*{x.name: x for x in SAMPLES}.values()][part::4]:
        values = sample.tensors()
        check(sample, lambda values=values: [*map(make_local, values)], make_local, 4, True)
    assert recorder.replays > recorder.captures > 20


def test_another_result_is_noticed(world):
    calls = []

    def changing(x):
        calls.append(x)
        return x * len(calls)

    with pytest.raises(AssertionError, match="Tensor-likes are not equal"):
        check(Sample("neg", (T(3),), call=changing, grad=False), lambda: [flow.ones(3)], None)
