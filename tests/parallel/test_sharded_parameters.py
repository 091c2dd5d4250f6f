"""Module.shard_: shards between uses, the values of one device, and the bytes of ZeRO stage 3."""

import copy
import gc
import weakref

import numpy as np
import pytest
from launched import run_ranks
from transformer_models import (
    EncoderBlock,
    GPTBlock,
    LlamaBlock,
    language_model,
    losses_and_gradients,
)

import onefold as flow
from onefold import nn
from onefold.engine.sbp import parse, short
from onefold.errors import (
    AutogradError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
)

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)


def assert_same(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-9)
    for name, grad in wanted[1].items():
        np.testing.assert_allclose(found[1][name], grad, rtol=1e-7, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("block", [LlamaBlock, GPTBlock, EncoderBlock])
@pytest.mark.parametrize("dim", [0, 1])
def test_losses_and_gradients_are_those_of_one_device(block, dim, world):
    wanted = losses_and_gradients(*language_model(block), flow.tensor)
    for ranks, sbp in (([0, 1], "(S0)"), ([0, 1, 2], "(S0)"), ([[0, 1], [2, 3]], "(S0, S0)")):
        p = flow.placement("cpu", ranks)
        model, *data = language_model(block)
        assert model.shard_(p, dim, shard_min_size=4) is model
        found = losses_and_gradients(
            model, *data, lambda x, p=p, sbp=sbp: flow.tensor(x, placement=p, sbp=parse(sbp))
        )
        assert_same(found, wanted)


def test_each_rank_holds_its_part(world):
    p = flow.placement("cpu", [0, 1, 2])
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 31)).shard_(p)
    assert [short(w.sbp) for w in model.parameters()] == ["(S0)", "(B)", "(B)", "(B)"]
    model.shard_(shard_min_size=600)
    assert short(model[2].weight.sbp) == "(S0)", "uneven: 11, 10 and 10 rows"
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
    model(flow.ones(6, 64, placement=p, sbp=S0)).square().mean().backward()
    optimizer.step()
    for layer in (model[0], model[2]):
        rows = [len(part) for part in layer.weight.shards]
        assert sum(rows) == len(layer.weight) and max(rows) - min(rows) <= 1
        for kept in (layer.weight.grad, optimizer.state[layer.weight]["exp_avg"]):
            assert kept.sbp == (S0,) and [len(part) for part in kept.shards] == rows


def test_what_is_gathered_is_let_go(world):
    seen = []

    class Watched(nn.Linear):
        def forward(self, x):
            assert self.weight.sbp == (B,)
            seen.append(weakref.ref(self.weight.shards[0]))
            return super().forward(x)

    p = flow.placement("cpu", [0, 1])
    model = nn.Sequential(Watched(32, 64), nn.ReLU(), Watched(64, 32)).shard_(p)
    x = flow.randn(4, 32, placement=p, sbp=S0, requires_grad=True)
    y = model(x)
    gc.collect()
    assert [ref() for ref in seen] == [None, None], "the tape keeps shards"
    assert model[0].weight.sbp == (S0,)
    y.square().sum().backward()
    with flow.no_grad():
        model(x)
    assert [ref() for ref in seen] == [None] * 4


def test_bytes_are_those_of_zero_stage_3(world):
    n = 4
    p = flow.placement("cpu", list(range(n)))
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)).shard_(p)
    x = flow.randn(8, 64, placement=p, sbp=S0, requires_grad=True)
    with flow.profiler.comm() as forward:
        loss = model(x).square().sum()
    with flow.profiler.comm() as backward:
        loss.backward()
    parts = 2 * 64 * 64 * 4 * (n - 1) // n  # of two weights: what a rank lacks
    assert forward.count("all_gather") == forward.count() == 2
    assert forward.total_bytes(0) == parts
    assert backward.count("all_gather") == backward.count("reduce_scatter") == 2
    assert backward.count() == 4 and backward.total_bytes(0) == 2 * parts
    kept = nn.Linear(64, 64, bias=False).shard_(p, reshard_after_forward=False)
    with flow.profiler.comm() as log:
        kept(x).square().sum().backward()
    assert [r.kind for r in log.records] == ["all_gather", "reduce_scatter"]


def test_attention_gathers_the_projection_that_it_reads(world):
    p = flow.placement("cpu", [0, 1])
    layer = nn.MultiheadAttention(32, 4, bias=False, batch_first=True).shard_(p, shard_min_size=64)
    x = flow.randn(4, 5, 32, placement=p, sbp=S0)
    with flow.profiler.comm() as log:
        layer(x, x, x, need_weights=False)
    assert log.count("all_gather") == log.count() == 2
    assert log.total_bytes(0) == 4 * 32 * 32 * 4 // 2


def test_tied_parameters(world):
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Tanh(), nn.Linear(32, 32, bias=False))
    model[2].weight = model[0].weight
    x = flow.randn(4, 32)
    wanted = copy.deepcopy(model)
    wanted(x).square().sum().backward()
    p = flow.placement("cpu", [0, 1])
    model.shard_(p, shard_min_size=1)
    assert model[2].weight is model[0].weight
    model(flow.tensor(x.numpy(), placement=p, sbp=S0)).square().sum().backward()
    assert model[0].weight.grad.sbp == (S0,)
    np.testing.assert_allclose(
        model[0].weight.grad.numpy(), wanted[0].weight.grad.numpy(), rtol=1e-4, atol=1e-4
    )


def test_with_tensor_parallel_layers(world):
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    wanted = losses_and_gradients(*language_model(LlamaBlock), flow.tensor)
    model, *data = language_model(LlamaBlock)
    flow.parallel.tensor_parallel(model, p).shard_(shard_min_size=4)
    laid = {short(w.sbp) for w in model.parameters()}
    assert laid == {"(S0, S0)", "(S0, S1)", "(S0, B)"}
    found = losses_and_gradients(
        model, *data, lambda x: flow.tensor(x, placement=p, sbp=parse("(S0, B)"))
    )
    assert_same(found, wanted)


def test_with_checkpoints_saved_tensor_hooks_and_copies(world):
    p = flow.placement("cpu", [0, 1])
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))
    x = flow.randn(4, 32)
    wanted = copy.deepcopy(model)
    wanted(x).square().sum().backward()
    right = wanted[0].weight.grad.numpy()
    model.shard_(p, shard_min_size=1)
    x = flow.tensor(x.numpy(), placement=p, sbp=S0)

    def plain(model):
        return model(x)

    def checkpointed(model):
        return flow.checkpoint.checkpoint(model, x)

    def hooked(model):
        packed = []
        with flow.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            y = model(x)
        assert packed and not any(t.shape == (32, 32) for t in packed)
        return y

    for run in (plain, checkpointed, hooked):
        other = copy.deepcopy(model)
        run(other).square().sum().backward()
        assert other[0].weight.grad.sbp == (S0,) and model[0].weight.grad is None
        np.testing.assert_allclose(other[0].weight.grad.numpy(), right, rtol=1e-4, atol=1e-4)


def test_a_parameter_changed_before_backward_is_an_error(world):
    model = nn.Linear(32, 32).shard_(flow.placement("cpu", [0, 1]), shard_min_size=1)
    x = flow.ones(2, 32, placement=flow.placement("cpu", [0, 1]), sbp=S0, requires_grad=True)
    y = model(x)
    with flow.no_grad():
        model.weight.zero_()
    with pytest.raises(AutogradError, match="a parameter that is stored split was changed"):
        y.sum().backward()


def test_an_error_in_forward_puts_the_shards_back(world):
    class Failing(nn.Linear):
        def forward(self, x):
            raise KeyboardInterrupt

    model = Failing(32, 32).shard_(flow.placement("cpu", [0, 1]), shard_min_size=1)
    with pytest.raises(KeyboardInterrupt):
        model(None)
    assert model.weight.sbp == (S0,) and isinstance(model.weight, nn.Parameter)


def clamped(layer):
    with flow.no_grad():
        layer.weight.clamp_(-0.1, 0.1)


def assigned(layer):
    layer.weight = nn.Parameter(layer.weight.detach() * 2)


@pytest.mark.parametrize(
    "change",
    [
        clamped,
        assigned,
        lambda layer: layer.weight.data.clamp_(-0.1, 0.1),
        lambda layer: layer.weight.detach()[0].zero_(),
        lambda layer: nn.init.zeros_(layer.weight),
        lambda layer: delattr(layer, "weight"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_change_in_the_call_is_refused(change, again, world):
    p = flow.placement("cpu", [0, 1])
    model = nn.Sequential(nn.Linear(64, 64)).shard_(p, reshard_after_forward=again)
    before = model[0].weight.numpy()
    x = flow.ones(2, 64, placement=p, sbp=S0)
    hook = model[0].register_forward_hook(lambda layer, args, y: change(layer))
    for block in (flow.enable_grad(), flow.no_grad()):
        with (
            block,
            pytest.raises(OnefoldRuntimeError, match=r"^weight changed while .* outside of"),
        ):
            model(x)
        assert model[0].weight.sbp == (S0,) and np.array_equal(model[0].weight.numpy(), before)
    hook.remove()
    model(x)
    change(model[0])


def test_an_error_in_a_call_that_changed_a_parameter_is_the_one_that_is_raised(world):
    class Failing(nn.Linear):
        def forward(self, x):
            nn.init.zeros_(self.weight)
            raise KeyError

    model = Failing(32, 32).shard_(flow.placement("cpu", [0, 1]), shard_min_size=1)
    with pytest.raises(KeyError):
        model(None)
    assert model.weight.sbp == (S0,)


def test_in_a_graph(world):
    p = flow.placement("cpu", [0, 1])
    flow.manual_seed(0)
    plain = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32)).to_global(p, B)
    models = [copy.deepcopy(plain).shard_(shard_min_size=1), plain]
    x = flow.randn(4, 32, placement=p, sbp=S0)

    class Train(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=0.01))

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    losses = []
    for model in models:
        step = Train(model)
        losses.append([step(x).item() for _ in range(3)])
    assert models[0][0].weight.sbp == (S0,)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_the_state_dict_is_whole(world):
    flow.manual_seed(0)
    model = nn.Linear(32, 33)
    wanted = model.weight.numpy()
    model.shard_(flow.placement("cpu", [0, 1]), shard_min_size=1)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    assert np.array_equal(state["weight"], wanted)
    model.load_state_dict({name: value * 2 for name, value in state.items()})
    assert model.weight.sbp == (S0,) and np.array_equal(model.weight.numpy(), 2 * wanted)


def test_what_is_refused(world):
    model = nn.Linear(4, 4)
    with pytest.raises(OnefoldValueError, match="shard_min_size must be at least 1"):
        model.shard_(flow.placement("cpu", [0, 1]), shard_min_size=0)
    with pytest.raises(OnefoldTypeError, match="dim must be an integer"):
        model.shard_(flow.placement("cpu", [0, 1]), "rows")
    with pytest.raises(OnefoldValueError, match="give placement="):
        model.shard_()
    assert model.weight.is_local


def _launched():
    p = flow.placement("cpu", [0, 1])
    model, *data = language_model(LlamaBlock)
    model.shard_(p, shard_min_size=4)
    found = losses_and_gradients(model, *data, lambda x: flow.tensor(x, placement=p, sbp=S0))
    return found, sum(w.shards[0].numel() for w in model.parameters() if w.ndim > 1)


def test_two_processes(world):
    model, *data = language_model(LlamaBlock)
    wanted = losses_and_gradients(model, *data, flow.tensor)
    whole = sum(w.numel() for w in model.parameters() if w.ndim > 1)
    for found, held in run_ranks(2, _launched):
        assert_same(found, wanted)
        assert held == whole // 2
