"""tensor_parallel: the values of one device, and the communication of Megatron-LM."""

import copy

import numpy as np
import pytest
from launched import run_ranks
from transformer_models import (
    EncoderBlock,
    GPTBlock,
    LlamaBlock,
    language_model,
    loss_of,
    losses_and_gradients,
)

import onefold as flow
from onefold import nn
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldTypeError, OnefoldValueError, PlacementError, SbpError
from onefold.parallel import (
    COLUMN,
    REPLICATE,
    ROW,
    TRANSFORMER,
    Plan,
    Rule,
    Style,
    tensor_parallel,
)

BLOCKS = {"llama": LlamaBlock, "gpt": GPTBlock, "encoder": EncoderBlock}
# Ranks, the layout of the tokens, and the axis along which the model is split.
MESHES = [
    ([0, 1], "(B)", -1),
    ([0, 1, 2], "(B)", 0),  # 4 heads on 3 ranks
    ([[0, 1], [2, 3]], "(S0, B)", -1),
    ([[0, 1], [2, 3]], "(B, S0)", 0),
]


def assert_same(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-9)
    for name, grad in wanted[1].items():
        np.testing.assert_allclose(found[1][name], grad, rtol=1e-7, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("sequence_dim", [None, 1])
def test_losses_and_gradients_are_those_of_one_device(block, sequence_dim, world):
    wanted = losses_and_gradients(*language_model(BLOCKS[block]), flow.tensor)
    for ranks, sbp, axis in MESHES:
        p = flow.placement("cpu", ranks)
        model, *data = language_model(BLOCKS[block])
        assert tensor_parallel(model, p, axis=axis, sequence_dim=sequence_dim) is model
        seen = []
        model.norm.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0].sbp))
        found = losses_and_gradients(
            model, *data, lambda x, p=p, sbp=sbp: flow.tensor(x, placement=p, sbp=parse(sbp))
        )
        assert_same(found, wanted)
        assert all((each[axis] == flow.sbp.split(1)) == (sequence_dim == 1) for each in seen)


def test_a_split_sequence_sends_as_many_bytes(world):
    p = flow.placement("cpu", [0, 1])
    sent = []
    for sequence_dim in (None, 1):
        model, *data = language_model(LlamaBlock)
        tensor_parallel(model, p, sequence_dim=sequence_dim)
        tokens, targets = (flow.tensor(x, placement=p, sbp=flow.sbp.broadcast) for x in data)
        with flow.profiler.comm() as log:
            loss_of(model, tokens, targets)
        sent.append(log.total_bytes())
    assert sent[1] <= sent[0]


def test_stages_are_split_at_once(world):
    places = [flow.placement("cpu", ranks) for ranks in ([0, 1], [2, 3])]
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    for layer, place in zip(model, places, strict=True):
        layer.to_global(place, flow.sbp.broadcast)
    tensor_parallel(model, plan={"0.*": COLUMN, "1.*": ROW})
    assert [layer.weight.placement for layer in model] == places
    assert [layer.weight.sbp[0].short for layer in model] == ["S0", "S1"]
    model[1].to_global(flow.placement("cpu", [[2, 3], [4, 5]]), (flow.sbp.broadcast,) * 2)
    with pytest.raises(PlacementError, match="other numbers of axes"):
        tensor_parallel(model, plan={"0.*": COLUMN, "1.*": ROW})


def test_the_table_decides(world):
    model, *_ = language_model(LlamaBlock)
    tensor_parallel(model, flow.placement("cpu", [[0, 1], [2, 3]]))
    laid = {name: short(param.sbp) for name, param in model.named_parameters()}
    one = {k.removeprefix("blocks.1."): v for k, v in laid.items() if not k.startswith("blocks.0")}
    assert one == {
        "embed_tokens.weight": "(B, S0)",
        "input_norm.weight": "(B, B)",
        "attn.q_proj.weight": "(B, S0)",
        "attn.k_proj.weight": "(B, S0)",
        "attn.v_proj.weight": "(B, S0)",
        "attn.o_proj.weight": "(B, S1)",
        "post_norm.weight": "(B, B)",
        "gate_proj.weight": "(B, S0)",
        "up_proj.weight": "(B, S0)",
        "down_proj.weight": "(B, S1)",
        "norm.weight": "(B, B)",
        "norm.bias": "(B, B)",
        "lm_head.weight": "(B, S0)",
    }


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("amp", [False, True])
def test_a_block_needs_two_all_reduces_in_each_direction(n, amp, world):
    p = flow.placement("cpu", list(range(n)))
    model = tensor_parallel(nn.Sequential(LlamaBlock(16, 4), LlamaBlock(16, 4)), p)
    x = flow.randn(2, 5, 16, placement=p, sbp=flow.sbp.broadcast, requires_grad=True)
    with flow.profiler.comm() as forward, flow.autocast("cpu", enabled=amp):
        y = model(x)
    loss = (y * y).mean()
    with flow.profiler.comm() as backward:
        loss.backward()
        for param in model.parameters():
            assert not param.grad.sbp[0].is_partial
    for log in (forward, backward):
        assert [record.kind for record in log.records] == ["all_reduce"] * 4
        # A ring: each rank receives all but its own part twice.
        assert log.total_bytes(0) == 4 * 2 * (n - 1) * x.numel() * (2 if amp else 4) // n


def test_without_hooks_it_would_be_more(world):
    """The check above sees what the hooks do."""
    p = flow.placement("cpu", [0, 1])
    model = nn.Sequential(LlamaBlock(16, 4), LlamaBlock(16, 4)).to_global(p, flow.sbp.broadcast)
    styles = TRANSFORMER.styles(dict(model.named_parameters()))
    model.to_global(sbp=lambda name, tensor: styles[name].sbp(tensor))
    with flow.profiler.comm() as log:
        model(flow.randn(2, 5, 16, placement=p, sbp=flow.sbp.broadcast))
    assert log.count() > 4


class Train(nn.Graph):
    def __init__(self, model, amp=None):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
        if amp is not None:
            self.config.enable_amp(dtype=amp)

    def build(self, tokens, targets):
        loss = loss_of(self.model, tokens, targets)
        loss.backward()
        return loss


@pytest.mark.parametrize("sequence_dim", [None, 1])
def test_mixed_precision_is_the_same_in_a_graph(sequence_dim, world):
    model, *data = language_model(LlamaBlock)
    p = flow.placement("cpu", [0, 1])
    model = tensor_parallel(model.float(), p, sequence_dim=sequence_dim)
    given = [flow.tensor(x, placement=p, sbp=flow.sbp.broadcast) for x in data]
    step = Train(copy.deepcopy(model), flow.bfloat16)
    with flow.autocast("cpu"):
        losses = []
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = loss_of(model, *given)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert [step(*given).item() for _ in range(3)] == losses
    dtypes = {
        value.source.meta.dtype
        for value in step._latest("test").program.steps
        if value.name == "boxing" and value.scope.endswith("proj")
    }
    assert dtypes == {flow.bfloat16}


def test_in_a_graph(world):
    model, tokens, targets = language_model(LlamaBlock)
    p = flow.placement("cpu", [0, 1])
    wanted = loss_of(model, flow.tensor(tokens), flow.tensor(targets)).item()
    tensor_parallel(model, p)
    given = [flow.tensor(x, placement=p, sbp=flow.sbp.broadcast) for x in (tokens, targets)]
    step = Train(model)
    losses = [step(*given).item() for _ in range(2)]
    np.testing.assert_allclose(losses[0], wanted, rtol=1e-12)
    assert losses[1] < losses[0]


def test_a_copy_keeps_the_hooks(world):
    model = tensor_parallel(nn.Sequential(LlamaBlock(8, 2)), flow.placement("cpu", [0, 1]))
    x = flow.randn(1, 3, 8, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.broadcast)
    model(x)
    other = copy.deepcopy(model)
    with flow.profiler.comm() as log:
        y = other(x)
    assert log.count("all_reduce") == log.count() == 2
    assert np.array_equal(y.numpy(), model(x).numpy())


def test_two_forwards_of_one_leaf_have_tapes_of_their_own(world):
    p = flow.placement("cpu", [0, 1])
    flow.manual_seed(0)
    q, k = nn.Linear(4, 4), nn.Linear(4, 4)
    plain = copy.deepcopy(nn.ModuleList([q, k]))
    layers = tensor_parallel(nn.ModuleList([q, k]), p, {"*": COLUMN})
    x = flow.randn(3, 4)

    def gradient(layers, x):
        losses = [(layers[0](x) * layers[1](x)).sum() for _ in range(2)]
        for loss in losses:
            loss.backward()
        return x.grad.numpy()

    wanted = gradient(plain, x.detach().requires_grad_())
    x = flow.tensor(x.numpy(), placement=p, sbp=flow.sbp.broadcast)
    with flow.profiler.comm() as log:
        found = gradient(layers, x.detach().requires_grad_())
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert log.count("all_reduce") == 2, "one for both layers in each backward"


def test_a_copy_has_a_tape_of_its_own(world):
    p = flow.placement("cpu", [0, 1])
    layer = tensor_parallel(nn.Linear(4, 4), p, {"*": COLUMN})
    x = flow.ones(3, 4, placement=p, sbp=flow.sbp.broadcast, requires_grad=True)
    losses = [layer(x).square().sum()]
    losses.append(copy.deepcopy(layer)(x).square().sum())
    for loss in losses:
        loss.backward()
    assert layer.weight.grad is not None


def test_numbers_are_broadcast(world):
    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.scale = nn.Parameter(flow.tensor(2.0))

    for style in (COLUMN, ROW):
        layer = tensor_parallel(Scaled(), flow.placement("cpu", [0, 1]), {"*": style})
        assert short(layer.scale.sbp) == "(B)" and short(layer.weight.sbp) != "(B)"


# Plans.


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def test_a_dict_is_a_plan(world):
    p = flow.placement("cpu", [0, 1])
    model = tensor_parallel(mlp(), p, {"0.*": COLUMN, "2.*": ROW})
    assert [short(param.sbp) for param in model.parameters()] == ["(S0)", "(S0)", "(S1)", "(B)"]
    x = flow.randn(3, 4, placement=p, sbp=flow.sbp.broadcast)
    with flow.profiler.comm() as log:
        y = model(x)
    assert log.count() == log.count("all_reduce") == 1 and short(y.sbp) == "(B)"


def test_a_parameter_without_a_rule_and_a_rule_without_a_parameter(world):
    p = flow.placement("cpu", [0, 1])
    model = mlp()
    with pytest.raises(OnefoldValueError, match=r"matches 2.weight \(4, 8\), 2.bias \(4,\)\. Add"):
        tensor_parallel(model, p, {"0.*": COLUMN})
    with pytest.raises(OnefoldValueError, match=r"no parameter matches '3\.\*'; the model has 0.w"):
        tensor_parallel(model, p, {"*": REPLICATE, "3.*": COLUMN})
    with pytest.raises(OnefoldValueError, match=r"no rule of the plan matches 0.weight"):
        tensor_parallel(model, p)
    assert all(param.is_local for param in model.parameters())
    plan = Plan([Rule("3.*", COLUMN, optional=True)]) + Plan({"*": REPLICATE})
    tensor_parallel(model, p, plan)
    assert {short(param.sbp) for param in model.parameters()} == {"(B)"}


def test_a_plan_prints():
    plan = Plan({"up.*": COLUMN}) + Plan({"down.*": ROW})
    assert str(plan) == (
        "pattern  style   matrix  vector\nup.*     column  S0      S0\ndown.*   row     S1      B"
    )
    assert len(plan) == 2 and [rule.pattern for rule in plan] == ["up.*", "down.*"]
    assert len(str(TRANSFORMER).splitlines()) == len(TRANSFORMER) + 1


def test_what_is_refused(world):
    with pytest.raises(OnefoldTypeError, match=r"needs an onefold\.nn\.Module, but got str"):
        tensor_parallel("model")
    with pytest.raises(OnefoldTypeError, match=r"must be an onefold.placement, such .* got 'cpu'"):
        tensor_parallel(mlp(), "cpu", {"*": REPLICATE})
    with pytest.raises(PlacementError, match="give placement="):
        tensor_parallel(mlp(), plan={"*": REPLICATE})
    with pytest.raises(OnefoldTypeError, match="a plan has rules"):
        tensor_parallel(mlp(), flow.placement("cpu", [0, 1]), {"*": "column"})
    with pytest.raises(OnefoldValueError, match="has 1 axes, without an axis 1"):
        tensor_parallel(mlp(), flow.placement("cpu", [0, 1]), {"*": COLUMN}, axis=1)
    vectors = mlp()
    odd = Style("odd", flow.sbp.split(0), flow.sbp.split(1))
    with pytest.raises(SbpError):
        tensor_parallel(vectors, flow.placement("cpu", [0, 1]), {"*": odd})
    assert all(param.is_local for param in vectors.parameters())


def test_a_model_that_is_global_stays_where_it_is(world):
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    model = mlp().to_global(p, (flow.sbp.broadcast,) * 2)
    model.to_global(sbp={"0.weight": (flow.sbp.split(1), flow.sbp.broadcast)})
    tensor_parallel(model, plan={"0.*": COLUMN, "2.*": ROW})
    assert short(model[0].weight.sbp) == "(S1, S0)" and short(model[2].weight.sbp) == "(B, S1)"


def _launched():
    p = flow.placement("cpu", [0, 1])
    model, *data = language_model(LlamaBlock)
    tensor_parallel(model, p)
    with flow.profiler.comm() as log:
        found = losses_and_gradients(
            model, *data, lambda x: flow.tensor(x, placement=p, sbp=flow.sbp.broadcast)
        )
    return found, log.count("all_reduce"), sum(w.shards[0].numel() for w in model.parameters())


def test_two_processes(world):
    model, *data = language_model(LlamaBlock)
    wanted = losses_and_gradients(model, *data, flow.tensor)
    whole = sum(w.numel() for w in model.parameters())
    for found, _, held in run_ranks(2, _launched):
        assert_same(found, wanted)
        assert held < 0.52 * whole
