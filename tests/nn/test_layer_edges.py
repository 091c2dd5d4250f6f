"""Layers where torch's classes have a case of their own: in place, empty, first calls, defaults."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldRuntimeError, OnefoldValueError

IN_PLACE = "CELU ELU Hardsigmoid Hardswish Hardtanh LeakyReLU Mish ReLU ReLU6 SELU SiLU".split()


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_layers_have_gradients(name, world):
    x = torch.randn(4, 3, dtype=torch.float64)
    ours, theirs = flow.tensor(x).requires_grad_(), x.requires_grad_()
    made = getattr(nn, name)(inplace=True)
    y = ours * 1
    assert made(y) is y
    (y * y).sum().backward()
    wanted = getattr(torch.nn, name)(inplace=True)(theirs * 1)
    (wanted * wanted).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ["Dropout1d", "Dropout2d", "RReLU"])
def test_random_layers_in_place_have_gradients(name, world):
    x = flow.ones(3, 2, 4, 5)[..., 0] if name == "Dropout1d" else flow.ones(3, 2, 4, 5)
    leaf = x.detach().requires_grad_()
    getattr(nn, name)(inplace=True)(leaf * 1).sum().backward()
    assert leaf.grad.shape == leaf.shape


@pytest.mark.parametrize("name", ["ReLU", "SiLU", "LeakyReLU", "Dropout", "relu", "elu"])
def test_in_place_layers_run_no_further_ops(name, world):
    """Neither zeros for the old value in backward, nor their addition to its gradient."""

    def counts(inplace):
        x = flow.ones(4, 3, requires_grad=True)
        with flow.profiler.profile() as prof:
            if hasattr(nn, name):
                y = getattr(nn, name)(inplace=inplace)(x * 2)
            else:
                y = getattr(nn.functional, name)(x * 2, inplace=inplace)
            y.sum().backward()
        return {row.key: row.count for row in prof.key_averages()}

    assert counts(True) == counts(False)


@pytest.mark.parametrize("layer", [nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)])
def test_norms_of_groups_are_one_op(layer, world):
    with flow.profiler.profile() as prof, flow.no_grad():
        layer(flow.ones(2, 4, 3, 3))
    ops = {row.key: row.count for row in prof.key_averages()}
    assert ops.get("group_norm_with_stats") == 1 and not {"mul", "add", "addcmul"} & ops.keys()


@pytest.mark.parametrize("name", ["Softmax", "Softmin", "LogSoftmax"])
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_softmax_without_a_dim_takes_torchs(name, world):
    for shape in ((3,), (3, 4), (2, 3, 4), (2, 3, 4, 5)):
        x = torch.randn(shape)
        wanted = getattr(torch.nn, name)()(x)
        np.testing.assert_allclose(
            getattr(nn, name)()(flow.tensor(x)).numpy(), wanted.numpy(), rtol=1e-5
        )


def test_defaults_that_are_layers(world):
    x = [torch.randn(4, 3) for _ in range(3)]
    wanted = torch.nn.TripletMarginWithDistanceLoss()(*x)
    found = nn.TripletMarginWithDistanceLoss()(*map(flow.tensor, x))
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


def test_bags_of_rows_that_were_trained(world):
    rows, index = torch.randn(4, 3), torch.tensor([[0, 2, 3], [3, 3, 1]])
    for options in ({}, {"freeze": False, "mode": "sum", "padding_idx": -1}):
        theirs = torch.nn.EmbeddingBag.from_pretrained(rows, **options)
        ours = nn.EmbeddingBag.from_pretrained(flow.tensor(rows), **options)
        assert ours.weight.requires_grad is theirs.weight.requires_grad
        np.testing.assert_allclose(
            ours(flow.tensor(index)).detach().numpy(), theirs(index).detach().numpy(), rtol=1e-5
        )


def test_attention_of_an_empty_batch(world):
    layer = nn.MultiheadAttention(8, 2)
    for needed in (False, True):
        y, _ = layer(*[flow.ones(5, 0, 8)] * 3, need_weights=needed)
        assert y.shape == (5, 0, 8)


def test_lazy_layers_before_their_first_call(world):
    with pytest.raises(OnefoldRuntimeError, match="before its first call"):
        nn.LazyLinear(3).double()
    with pytest.raises(OnefoldRuntimeError, match="before its first call"):
        nn.LazyLinear(3).requires_grad_(False)

    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = nn.LazyLinear(3)

        def build(self, x):
            return self.layer(x)

    net = Net()
    with pytest.raises(OnefoldRuntimeError, match="call it once before the graph"):
        net(flow.ones(2, 4))
    x = flow.ones(1, 2, 4, 4)
    y = nn.LazyConvTranspose2d(4, 3, stride=2)(x, output_size=(10, 10))
    assert y.shape == (1, 4, 10, 10)
    ranks = flow.placement("cpu", [0, 1])
    rows = nn.LazyLinear(4, placement=ranks, sbp=flow.sbp.split(0))
    rows(flow.ones(2, 3, placement=ranks, sbp=flow.sbp.broadcast))
    assert rows.weight.sbp == (flow.sbp.split(0),)


def test_batch_norm_reads_states_without_a_count(world):
    theirs = torch.nn.BatchNorm1d(3)
    state = dict(theirs.state_dict())  # without a version
    del state["num_batches_tracked"]
    layer = nn.BatchNorm1d(3)
    layer.load_state_dict(state)
    layer.track_running_stats = False
    layer(flow.ones(4, 3))
    assert int(layer.num_batches_tracked) == 0


BAD = [
    (lambda: nn.Conv1d(1, 1, 3, padding="sane", padding_mode="reflect"), "'same', 'valid' or"),
    (lambda: nn.Conv1d(1, 1, 3, padding="same", stride=2), "not supported for strided"),
    (lambda: nn.ConvTranspose1d(1, 1, 3, padding="same"), "must be ints"),
    (lambda: nn.EmbeddingBag(3, 2, _weight=flow.ones(5, 7)), r"must have the shape \(3, 2\)"),
    (lambda: nn.Embedding.from_pretrained(flow.ones(5)), "must be 2-dimensional"),
    (lambda: nn.EmbeddingBag.from_pretrained(flow.ones(5)), "must be 2-dimensional"),
    (lambda: nn.EmbeddingBag(3, 2, padding_idx=3), "must be within num_embeddings=3"),
    (
        lambda: nn.functional.embedding_bag(
            flow.tensor([[0]]), flow.ones(3, 2), max_norm=1.0, mode="sum"
        ),
        "max_norm and sparse",
    ),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_arguments(index, world):
    call, text = BAD[index]
    with pytest.raises(OnefoldValueError, match=text):
        call()


@pytest.mark.parametrize("compiled", [False, True])
def test_statistics_that_are_averages_of_all_batches(compiled, world):
    """Without a momentum; nothing asks for the number of batches, so graphs hold the steps."""
    theirs = torch.nn.BatchNorm1d(3, momentum=None)
    layer = nn.BatchNorm1d(3, momentum=None)
    run = flow.compile(layer) if compiled else layer
    for seed in range(4):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)) * (seed + 1)
        wanted = theirs(x)
        np.testing.assert_allclose(run(flow.tensor(x)).numpy(), wanted.detach().numpy(), atol=1e-6)
    for name, wanted in theirs.named_buffers():
        found = dict(layer.named_buffers())[name]
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout"])
@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_dropout_in_place_that_drops_nothing_writes_nothing(kind, p, training):
    """So what was kept for backward, such as the result of a softmax, is as it was."""
    found = []
    for package in (torch, flow):
        layer = getattr(package.nn, kind)(p, inplace=True).train(training)
        x = package.tensor([[[1.0, 2.0, 4.0]]], requires_grad=True)
        y = layer(x.softmax(-1))
        (y * y).sum().backward()
        found.append(np.asarray(x.grad))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
