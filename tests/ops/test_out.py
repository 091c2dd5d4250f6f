"""`out=` of our own functions: the tensors given take the results, as in torch."""

import inspect
import warnings

import numpy as np
import pytest
import samples
import torch

import onefold as flow
from onefold.engine.names import find_name
from onefold.engine.sbp import parse
from onefold.errors import MixedTensorsError, OnefoldRuntimeError, OnefoldTypeError
from onefold.testing.samples import flat

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")


def takes_out(sample):
    function = find_name(sample.name)
    return (
        function is not None
        and sample.call is None
        and "as_tuple" not in sample.kwargs
        and "out" in inspect.signature(function).parameters
    )


SAMPLES = {sample.name: sample for sample in samples.load() if takes_out(sample)}


@pytest.mark.parametrize("name", SAMPLES)
def test_out_takes_what_the_function_gives(name, world):
    sample, placement = SAMPLES[name], flow.placement("cpu", [0, 1])
    with flow.no_grad():
        given = [
            flow.tensor(x, placement=placement, sbp=flow.sbp.broadcast) for x in sample.tensors()
        ]
        wanted = sample.run(given)
        if not wanted:
            pytest.skip("no tensor comes of this sample")
        outs = [flow.empty_like(x, sbp=flow.sbp.broadcast) for x in wanted]
        args, kwargs = sample.filled(given)
        found = sample.function()(*args, **kwargs, out=outs[0] if len(outs) == 1 else outs)
    assert all(x is out for x, out in zip(flat(found, flow.Tensor), outs, strict=True))
    for out, x in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(out.numpy(), x.numpy())


X = np.linspace(-2, 2, 24).reshape(4, 6)


@pytest.mark.parametrize("sbp", ["(S0)", "(B)", "(P)", "(S1)"])
def test_out_keeps_its_layout_and_its_views_follow(sbp, world):
    placement = flow.placement("cpu", [0, 1, 2])
    x = flow.tensor(X, placement=placement, sbp=flow.sbp.split(1))
    w = flow.tensor(X.T @ X, placement=placement, sbp=flow.sbp.split(0))
    out = flow.zeros(4, 6, dtype=flow.float32, placement=placement, sbp=parse(sbp))
    view = out[1]
    calls = (
        (lambda: flow.add(x, x, out=out), X + X),
        (lambda: flow.mul(x, 2.5, out=out), X * 2.5),
        (lambda: flow.cumsum(x, 0, out=out), X.cumsum(0)),
        (lambda: flow.matmul(x, w, out=out), X @ X.T @ X),
    )
    for call, wanted in calls:
        assert call() is out and out.sbp == parse(sbp)
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)
        np.testing.assert_allclose(view.numpy(), wanted[1], rtol=1e-5)
    assert flow.sub(out, out, out=out) is out and not out.numpy().any()


def both(make_and_call):
    """What a program does in torch and in onefold: its result, or the kind of its error."""
    told = []
    for lib in (torch, flow):
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always")
            try:
                made = make_and_call(lib)
                result = (made.dtype, tuple(made.shape), made.tolist())
            except (RuntimeError, TypeError, ValueError) as error:
                result = "error", isinstance(error, TypeError)
        told.append((result, [w.filename for w in noticed]))
    return told


def leaf(lib):
    return lib.ones(2, 3, requires_grad=True)


PROGRAMS = {
    "another dtype": lambda lib: lib.add(lib.ones(2), 1, out=lib.empty(2, dtype=lib.float64)),
    "a dtype that cannot": lambda lib: lib.add(lib.ones(2), 1.5, out=lib.ones(2, dtype=lib.int64)),
    "resized": lambda lib: lib.add(lib.ones(2, 3), 1, out=lib.ones(2)),
    "resized from none": lambda lib: lib.matmul(lib.ones(2, 3), lib.ones(3), out=lib.empty(0)),
    "a leaf": lambda lib: lib.mul(lib.ones(2, 3), 2, out=leaf(lib)),
    "of a leaf": lambda lib: lib.mul(leaf(lib), 2, out=lib.ones(2, 3)),
    "no gradient": lambda lib: lib.gt(leaf(lib), 0, out=lib.zeros(2, 3, dtype=lib.bool)),
    "no tensor": lambda lib: lib.exp(lib.ones(2), out=3),
    "one for two": lambda lib: lib.sort(lib.ones(2), out=lib.empty(2)),
    "wide sum": lambda lib: lib.sum(lib.full((9,), 0.1), 0, out=lib.empty((), dtype=lib.float64)),
    "wide scan": lambda lib: lib.cumsum(
        lib.full((9,), 0.1), 0, out=lib.empty(9, dtype=lib.float64)
    ),
    "zeros": lambda lib: lib.zeros(3, out=lib.ones(2, dtype=lib.float64)),
    "zeros of a dtype": lambda lib: lib.zeros(3, dtype=lib.int64, out=lib.ones(3)),
    "arange": lambda lib: lib.arange(5, out=lib.empty(0)),
    "eye": lambda lib: lib.eye(3, out=lib.empty(3, 3, dtype=lib.int32)),
    "none": lambda lib: lib.relu(lib.add(lib.ones(2), 1, out=None)),
    "fields": lambda lib: (
        lib.max(
            lib.arange(6.0).reshape(2, 3), 1, out=(lib.empty(0), lib.empty(0, dtype=lib.int64))
        ).indices
    ),
    "a copied view": lambda lib: lib.transpose_copy(lib.ones(2, 3), 0, 1, out=lib.empty(3, 2)),
    "inverse": lambda lib: lib.linalg.inv(lib.eye(2), out=lib.empty(2, 2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_out_is_taken_and_refused_as_by_torch(name, world):
    (wanted, warned), (found, told) = both(PROGRAMS[name])
    if name == "zeros":  # torch resizes without a word
        told = warned
    assert found == wanted
    assert len(told) == len(warned) and set(told) <= {__file__}


def test_out_may_require_grad_where_none_is_recorded(world):
    x = leaf(flow)
    with flow.no_grad():
        assert flow.neg(x, out=x) is x
    assert x.requires_grad and x.tolist() == [[-1.0] * 3] * 2


def test_a_bad_out_leaves_all_as_it_was(world):
    values, indices = flow.ones(2), flow.zeros(2)  # float indices cannot take int64
    with pytest.raises(OnefoldTypeError):
        flow.sort(flow.ones(3), out=(values,))
    with pytest.raises(OnefoldRuntimeError):
        flow.sort(flow.ones(3), out=(values, flow.zeros(2, dtype=flow.bool)))
    with pytest.raises(OnefoldTypeError, match="layout is that of out="):
        flow.ones(2, out=values, device="cpu")
    assert values.shape == indices.shape == (2,)


def test_creation_takes_the_layout_of_out(world):
    placement = flow.placement("cpu", [0, 1])
    out = flow.zeros(5, placement=placement, sbp=flow.sbp.split(0))
    flow.manual_seed(3)
    wanted = flow.randn(5)
    flow.manual_seed(3)
    assert flow.randn(5, out=out) is out and out.sbp == (flow.sbp.split(0),)
    assert out.tolist() == wanted.tolist()


def test_out_in_a_graph(world):
    def step(x):
        y = flow.zeros(3)
        flow.add(x, 1.0, out=y)
        return y * 2

    graph = flow.nn.Graph.trace(step)
    assert graph(flow.ones(3)).tolist() == [4.0] * 3


@pytest.mark.parametrize("size", [0, 2, 4])
def test_a_local_tensor_for_a_global_result_stays_as_it_was(size):
    x = flow.ones(4, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    local = flow.arange(size).float()
    with pytest.raises(MixedTensorsError, match="out= must be local or global"):
        flow.add(x, x, out=local)
    assert local.tolist() == list(range(size))
