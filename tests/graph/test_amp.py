"""Mixed precision: which dtypes a program has, training near to float32's, torch.autocast."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold import nn, sbp
from onefold.engine.amp_rules import FLOAT32, LOW, LOW_ON_GPU, dtype_of_inputs
from onefold.engine.dispatch_plan import ops
from onefold.engine.meta import Meta
from onefold.engine.ops.torch_row import ROWS
from onefold.errors import OnefoldTypeError, OnefoldValueError

B, S0, S1 = sbp.broadcast, sbp.split(0), sbp.split(1)
PAIR = flow.placement("cpu", [0, 1])
WORDS, WIDTH, LENGTH = 12, 16, 8


class Block(nn.Module):
    """One block of a GPT; its layers are split over the placement by columns, then rows."""

    def __init__(self, where):
        super().__init__()
        rows, columns = ({**where, "sbp": S1}, {**where, "sbp": S0}) if where else ({}, {})
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, **where) for _ in range(2))
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, **columns) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, **rows)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, **columns)
        self.down = nn.Linear(4 * WIDTH, WIDTH, **rows)

    def forward(self, x):
        y = self.norm1(x)
        heads = [self.split(layer(y)) for layer in (self.q, self.k, self.v)]
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(*x.shape))
        return x + self.down(flow.gelu(self.up(self.norm2(x))))

    def split(self, x):
        return x.reshape(*x.shape[:2], 2, -1).transpose(1, 2)


class Gpt(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, **where)
        self.places = nn.Embedding(LENGTH, WIDTH, **where)
        self.blocks = nn.Sequential(*[Block(where) for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH, **where)
        self.where = where

    def forward(self, tokens):
        x = self.words(tokens) + self.places(flow.arange(LENGTH, **self.where))
        return nn.functional.linear(self.norm(self.blocks(x)), self.words.weight)


class Mlp(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, **where)
        self.hidden = nn.Linear(WIDTH, 32, **where)
        self.out = nn.Linear(32, WORDS, **where)

    def forward(self, tokens):
        return self.out(flow.relu(self.hidden(self.words(tokens))))


class Train(nn.Graph):
    def __init__(self, model, dtype=None):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=0.01))
        if dtype is not None:
            self.config.enable_amp(dtype=dtype)

    def build(self, tokens, labels):
        scores = self.model(tokens).reshape(-1, WORDS)
        loss = nn.functional.cross_entropy(scores, labels.reshape(-1))
        loss.backward()
        return loss


class Predict(nn.Graph):
    def __init__(self, function, dtype=flow.bfloat16):
        super().__init__()
        self.function = function
        self.config.enable_amp(dtype=dtype)

    def build(self, *inputs):
        return self.function(*inputs)


def batch(where):
    random = np.random.default_rng(0)
    tokens = (random.integers(0, WORDS, (4, 1)) + np.arange(LENGTH)) % WORDS
    layout = {**where, "sbp": S0} if where else {}
    return flow.tensor(tokens, **layout), flow.tensor((tokens + 1) % WORDS, **layout)


def trained(make, where, dtype, checkpointed=False):
    flow.manual_seed(0)
    model = make(where)
    if checkpointed:
        for block in model.blocks:
            block.to(nn.graph.GraphModule).activation_checkpointing = True
    graph = Train(model, dtype)
    inputs = batch(where)
    return graph, [graph(*inputs).item() for _ in range(30)]


def dtypes_of(program, name):
    """The dtypes that the steps of a name read and make."""
    found = [s for s in program.steps if s.name == name]
    return {v.meta.dtype for s in found for v in (*s.reads(), *s.outputs) if v.meta.is_floating}


def test_the_lists_are_of_ops():
    assert {*ops, *ROWS} >= LOW | LOW_ON_GPU | FLOAT32
    assert not LOW & FLOAT32


@pytest.mark.parametrize("make", [Mlp, Gpt])
@pytest.mark.parametrize("where", [{}, {"placement": PAIR, "sbp": B}], ids=["local", "two ranks"])
def test_training_stays_near_float32(make, where, world):
    _, wanted = trained(make, where, None)
    graph, losses = trained(make, where, flow.bfloat16)
    assert wanted[-1] < wanted[0] / 2
    np.testing.assert_allclose(losses, wanted, rtol=0.1, atol=0.03)
    assert losses != wanted
    assert all(param.dtype == flow.float32 for param in graph.model.parameters())
    tensors = [x for key, x in graph.state_dict().items() if key.endswith(("-m", "-v"))]
    assert tensors and {x.dtype for x in tensors} == {flow.float32}
    program = graph.program
    assert {value.meta.dtype for _, value in program.gradients} == {flow.float32}
    assert dtypes_of(program, "linear") == {flow.bfloat16}
    assert dtypes_of(program, "mm_tn") <= {flow.bfloat16}
    attends = [step for step in program.steps if step.name == "attention"]
    read = {v.meta.dtype for step in attends for v in (*step.reads(), step.outputs[0])}
    assert read == ({flow.bfloat16} if make is Gpt else set())
    losses = [step for step in program.steps if step.name == "cross_entropy"]
    given = {(step.inputs[0].meta.dtype, step.outputs[0].meta.dtype) for step in losses}
    assert given == {(flow.bfloat16, flow.float32)}  # no logits in float32
    assert dtypes_of(program, "layer_norm") <= {flow.float32}


def test_rotary_embeddings_have_no_casts_around_them(world):
    """So that attention reads what it is given."""

    def attend(x, w, table):
        q = flow.rotary(x @ w, table, table)
        return nn.functional.scaled_dot_product_attention(q, q, x @ w)

    graph = Predict(attend)
    y = graph(flow.randn(1, 2, 6, 8), flow.randn(8, 8), flow.randn(6, 4))
    assert y.dtype is flow.bfloat16
    assert [step.outputs[0].meta.shape for step in graph.program.steps if step.name == "cast"] == [
        (1, 2, 6, 8), (8, 8)
    ]  # fmt: skip


@pytest.mark.parametrize("trained", [False, True])
def test_products_of_a_loss_are_low_and_its_sums_are_not(trained, world):
    """Of linear_cross_entropy, also for an input that is in half precision already."""

    class Loss(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 5, bias=False)
            self.config.enable_amp(dtype=flow.bfloat16)
            if trained:
                self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=0.1))

        def build(self, x, target):
            weight = self.layer.weight if trained else self.layer.weight.detach()
            loss = nn.functional.linear_cross_entropy(x @ x.T @ x, weight, target)
            if trained:
                loss.backward()
            return loss

    graph = Loss()
    assert graph(flow.randn(3, 4), flow.tensor([0, 2, 4])).dtype is flow.float32
    name = "linear_cross_entropy" + "_with_grads" * trained
    (step,) = [step for step in graph.program.steps if step.name == name]
    floating = [value.meta.dtype for value in step.reads() if value.meta.is_floating]
    assert floating == [flow.bfloat16] * 2
    made = [value.meta.dtype for value in step.outputs]
    assert made == [flow.float32, flow.bfloat16, flow.float32][: 3 if trained else 1]


def test_float16_is_the_default_dtype(world):
    graph = Train(Mlp({}))
    graph.config.enable_amp()
    graph(*batch({}))
    assert dtypes_of(graph.program, "linear") == {flow.float16}


@pytest.mark.parametrize("dtype", [None, flow.bfloat16])
def test_checkpointing_changes_no_bit(dtype, world):
    graph, losses = trained(Gpt, {}, dtype, checkpointed=True)
    assert losses == trained(Gpt, {}, dtype)[1]
    assert any(step.recomputation for step in graph.program.steps)


def test_a_parameter_is_cast_once(world):
    for checkpointed in (False, True):
        graph, _ = trained(Gpt, {}, flow.bfloat16, checkpointed)
        read = {variable.value.number for variable in graph.program.variables}
        casts = [
            step.inputs[0].number
            for step in graph.program.steps
            if step.name == "cast" and step.inputs[0].number in read
        ]
        assert casts and len(casts) == len(set(casts))


def test_the_forward_pass_is_that_of_torchs_autocast(world):
    theirs = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 16), torch.nn.Tanh(),
        torch.nn.Linear(16, 3),
    )  # fmt: skip
    ours = nn.Sequential(
        nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)
    )
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    wanted = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = x
        for layer in theirs:
            y = layer(y)
            wanted.append(y)

    def layers(x):
        found = []
        for layer in ours:
            x = layer(x)
            found.append(x)
        return found

    found = Predict(layers)(flow.from_torch(x))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype == torch.bfloat16
        torch.testing.assert_close(a.to_torch(), b, rtol=0.02, atol=0.01)


def test_other_ops_run_in_the_widest_dtype():
    def meta(dtype, *shape):
        return Meta.of(shape, dtype, device=torch.device("cpu"))

    half, single, double = (meta(d, 2, 2) for d in (flow.bfloat16, flow.float32, flow.float64))
    number, index = meta(flow.float32), meta(flow.int64, 2, 2)
    for name, metas, wanted in [
        ("add", [half, single], flow.float32),
        ("add", [half, half], None),
        ("mul", [half, number], None),
        ("gather", [half, index], None),
        ("mm", [single, half], flow.bfloat16),
        ("mm", [double, double], None),
        ("exp", [half], flow.float32),
        ("sum", [index], None),
    ]:
        assert dtype_of_inputs(name, metas, flow.bfloat16) == wanted, (name, metas)


def test_mixed_inputs_and_what_follows(world):
    weight = flow.ones(2, 2)

    def function(x):
        low = x @ weight
        return low, low + x, low.exp(), low.relu(), low.sum(), low.double() @ weight.double()

    found = [y.dtype for y in Predict(function)(flow.ones(2, 2))]
    low, wide = flow.bfloat16, flow.float32
    assert found == [low, wide, wide, low, wide, flow.float64]


def test_the_setting_counts_from_the_next_call(world):
    graph = Predict(lambda x: x @ x)
    x = flow.ones(2, 2)
    found = [graph(x).dtype]
    graph.config.enable_amp(False)
    found.append(graph(x).dtype)
    graph.config.enable_amp(dtype=flow.float16)
    found.append(graph(x).dtype)
    assert found == [flow.bfloat16, flow.float32, flow.float16]
    assert (x @ x).dtype == flow.float32  # eager


def test_the_config_says_what_is_set():
    config = nn.graph.GraphConfig()
    assert config.enable_amp(dtype=flow.bfloat16) is None
    assert config.set_gradient_accumulation_steps(2) is None
    assert repr(config) == (
        "GraphConfig(training=False, gradient_accumulation_steps=2, schedule=None, "
        "amp=torch.bfloat16, layout_search=False, zero=None)"
    )
    config.enable_amp(False)
    assert config.amp_dtype is None


def test_bad_settings_change_nothing():
    config = nn.graph.GraphConfig()
    with pytest.raises(OnefoldTypeError, match="mode must be True or False, but got 1"):
        config.enable_amp(1)
    with pytest.raises(OnefoldTypeError, match="dtype must be a dtype, but got 'half'"):
        config.enable_amp(dtype="half")
    with pytest.raises(OnefoldValueError, match="must be float16 or bfloat16, but got"):
        config.enable_amp(dtype=flow.float32)
    assert config.amp_dtype is None
