"""autocast: dtypes against torch's, bits against graphs' mixed precision, gradients, nesting."""

import pytest
import torch
from torch_oracle import needs_this_torch

import onefold as flow
from onefold import nn
from onefold.engine import interpreter
from onefold.engine.ops import cross_entropy

HALF = torch.bfloat16
F, TF = nn.functional, torch.nn.functional


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# Where the CPU's lists of torch and ours agree: products are in bfloat16, losses in float32, and
# the rest as their inputs are.
SAME = {
    "mm": lambda m, F, x, w: x @ w,
    "bmm": lambda m, F, x, w: m.bmm(x[None], w[None]),
    "linear": lambda m, F, x, w: F.linear(x, w, w[0]),
    "relu": lambda m, F, x, w: F.relu(F.linear(x, w)) + 1,
    "addmm": lambda m, F, x, w: m.addmm(x, x, w, beta=0.5, alpha=2),
    "addmm of half": lambda m, F, x, w: m.addmm(x @ w, x, w),
    "addmm of a row": lambda m, F, x, w: m.addmm(x[0], x @ w, w),
    "addmm double": lambda m, F, x, w: m.addmm(x.double(), x.double(), w.double()),
    "addbmm": lambda m, F, x, w: m.addbmm(x, m.stack([x, w]), m.stack([w, x])),
    "baddbmm": lambda m, F, x, w: m.baddbmm(x[None], x[None], w[None]),
    "addmv": lambda m, F, x, w: m.addmv(x[0], x, w[0]),
    "addr": lambda m, F, x, w: m.addr(x, x[0], w[0]),
    "addr of half": lambda m, F, x, w: m.addr(x, *(x @ w)[:2]),
    "mv": lambda m, F, x, w: m.mv(x, w[0]),
    "dot": lambda m, F, x, w: m.dot(x[0], w[0]),
    "vecdot": lambda m, F, x, w: m.linalg.vecdot(x, w),
    "inner": lambda m, F, x, w: m.inner(x, w),
    "inner of vectors": lambda m, F, x, w: m.inner(x[0], w[0]),
    "inner of half": lambda m, F, x, w: m.inner((x @ w)[0], (w @ x)[0]),
    "chain_matmul": lambda m, F, x, w: m.chain_matmul(x, w, x),
    "one matrix": lambda m, F, x, w: m.chain_matmul(x),
    **{
        f"matrix_power {n}": lambda m, F, x, w, n=n: m.linalg.matrix_power(2 * m.eye(4) + x / 8, n)
        for n in range(-3, 6)
    },
    "a power of half": lambda m, F, x, w: m.matrix_power(m.eye(4, dtype=HALF), -1),
    "prelu": lambda m, F, x, w: F.prelu(x, w[0]),
    "prelu of half": lambda m, F, x, w: F.prelu(x @ w, w[0, :1]),
    "index_copy": lambda m, F, x, w: x.index_copy(0, m.tensor([2, 0]), w[:2]),
    "index_copy of half": lambda m, F, x, w: x.index_copy(0, m.tensor([2, 0]), (x @ w)[:2]),
    "index_copy to half": lambda m, F, x, w: (x @ w).index_copy(0, m.tensor([2, 0]), w[:2]),
    "inverse": lambda m, F, x, w: m.inverse(m.eye(4) + 0 * (x @ w)),
    "quantile": lambda m, F, x, w: m.quantile(m.sigmoid(x @ w), 0.5),
    "fft": lambda m, F, x, w: m.fft.rfft(m.ones_like(x @ w)).real,
    "then": lambda m, F, x, w: m.tanh(x @ w) * x,
    "conv": lambda m, F, x, w: F.conv2d(x[None, None], w[None, None]),
    "attention": lambda m, F, x, w: F.scaled_dot_product_attention(*[x[None, None]] * 3),
    "mse": lambda m, F, x, w: F.mse_loss(x @ w, x),
    "cross entropy": lambda m, F, x, w: F.cross_entropy(x @ w, m.tensor([1, 0, 3, 2])),
    "cross entropies": lambda m, F, x, w: F.cross_entropy(
        x @ w, m.tensor([1, 0, 3, 2]), w[0].abs(), reduction="none", label_smoothing=0.1
    ),
    "linear_cross_entropy": lambda m, F, x, w: F.linear_cross_entropy(x, w, m.tensor([1, 0, 3, 2])),
    "linear_cross_entropy of half": lambda m, F, x, w: F.linear_cross_entropy(
        x @ w, w, m.tensor([1, 0, 3, 2]), reduction="sum"
    ),
    "pointwise": lambda m, F, x, w: m.sigmoid(x) + w.abs(),
    "gelu": lambda m, F, x, w: F.gelu(x @ w),
    "cat": lambda m, F, x, w: m.cat([x @ w, x]),
    "stack": lambda m, F, x, w: m.stack([x @ w, x @ w]),
    "double": lambda m, F, x, w: x.double() @ w.double(),
    "integers": lambda m, F, x, w: x.long() @ w.long(),
    "number": lambda m, F, x, w: (x @ w) * 2.5 / x.sum(),
    "where": lambda m, F, x, w: m.where(x > 0, x, w) @ w,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[needs_this_torch] * name.startswith("linear_cross")) for name in SAME
])  # fmt: skip
def test_dtypes_are_torchs(name):
    x, w = values(4, 4), values(4, 4, seed=1)
    with torch.autocast("cpu", dtype=HALF):
        wanted = SAME[name](torch, TF, x, w)
    with flow.autocast("cpu", dtype=HALF):
        found = SAME[name](flow, F, flow.tensor(x), flow.tensor(w))
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found.to_torch(), wanted, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_recurrent_layer_takes_what_a_product_made(kind):
    """In a block and in a graph the weights are cast, too."""
    linear, layer = nn.Linear(6, 4), kind(4, 3, num_layers=2, batch_first=True)
    x = flow.tensor(values(2, 5, 6))
    with flow.autocast("cpu", dtype=HALF):
        found = layer(linear(x))[0]
    assert found.dtype == HALF
    torch.testing.assert_close(found.float().to_torch(), layer(linear(x))[0].to_torch(),
                               atol=0.05, rtol=0.05)  # fmt: skip

    class Predict(nn.Graph):
        def __init__(self):
            super().__init__()
            self.linear, self.layer = linear, layer
            self.config.enable_amp(dtype=HALF)

        def build(self, x):
            return self.layer(self.linear(x))[0]

    assert Predict()(x).tolist() == found.tolist()


class Net(nn.Module):
    """Products, a norm, a softmax, a shared weight and a loss."""

    def __init__(self, where):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8, **where), nn.Linear(8, 6, **where)
        self.norm = nn.LayerNorm(8, **where)

    def forward(self, x, labels):
        y = F.relu(self.norm(self.first(x)))
        y = y + flow.softmax(F.linear(y, self.last.weight) @ self.last.weight, -1)
        return F.cross_entropy(self.last(y), labels)


LAYOUTS = [None, ([0, 1], "S0"), ([[0, 1], [2, 3]], "S0 B")]


def inputs(layout, make):
    sbps = {"S0": flow.sbp.split(0), "B": flow.sbp.broadcast}
    where, there = {}, {}
    if layout:
        p = flow.placement("cpu", layout[0])
        where = {"placement": p, "sbp": [flow.sbp.broadcast] * p.ndim}
        there = {"placement": p, "sbp": [sbps[part] for part in layout[1].split()]}
    flow.manual_seed(0)
    return make(where), flow.randn(4, 6, **there), flow.tensor([0, 2, 1, 5], **there)


class Step(nn.Graph):
    def __init__(self, model, optimizer, dtype):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.enable_amp(dtype=dtype)

    def build(self, x, labels):
        loss = self.model(x, labels)
        loss.backward()
        return loss


class Llama(nn.Module):
    """Norms, rotary embeddings, attention, a gated network and the loss of a last layer."""

    def __init__(self, where):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(8, **where), nn.RMSNorm(8, **where)
        self.q, self.k, self.v, self.gate, self.up, self.head = (
            nn.Linear(8, 8, bias=False, **where) for _ in range(6)
        )
        self.where = where

    def forward(self, x, labels):
        x = x[..., None] * flow.ones(8, **self.where)
        y = self.norm1(x)
        q, k, v = (layer(y).view(4, 6, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        angles = flow.arange(12.0, **self.where).view(6, 2)
        q, k = (F.rotary(part, angles.cos(), angles.sin()) for part in (q, k))
        assert q.dtype == v.dtype
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(4, 6, 8)
        y = self.norm2(x)
        x = x + F.silu(self.gate(y)) * self.up(y)
        loss = F.linear_cross_entropy(x[:, 0], self.head.weight, labels)
        return loss + F.cross_entropy(self.head(x[:, 1]), labels)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_bits_of_a_llama_block(world, layout, keeps, monkeypatch):
    """Also with what the loss keeps where Triton does the work."""
    monkeypatch.setattr(cross_entropy, "uses_triton", lambda device_type: keeps)
    assert_bits_are_those_of_a_graph(Llama, layout, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_bits_are_those_of_a_graph(world, layout, dtype):
    assert_bits_are_those_of_a_graph(Net, layout, dtype)


def assert_bits_are_those_of_a_graph(make, layout, dtype):
    model, *batch = inputs(layout, make)
    graph = Step(model, flow.optim.SGD(model.parameters(), lr=0.1), dtype)
    wanted = [graph(*batch).item() for _ in range(3)], [w.tolist() for w in model.parameters()]
    model, *batch = inputs(layout, make)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with flow.autocast("cpu", dtype):
            loss = model(*batch)
        loss.backward()
        assert {w.grad.dtype for w in model.parameters()} == {torch.float32}
        optimizer.step()
        losses.append(loss.item())
    assert (losses, [w.tolist() for w in model.parameters()]) == wanted


def test_blocks_nest():
    x = flow.ones(2, 2)

    def dtype():
        return (x @ x).dtype

    assert dtype() == torch.float32
    assert not flow.is_autocast_enabled("cpu")
    assert not flow.is_autocast_enabled("mps") and not torch.is_autocast_enabled("mps")
    with flow.autocast("cpu"):
        assert flow.is_autocast_enabled("cpu")
        assert not flow.is_autocast_enabled("cuda")
        assert dtype() == torch.bfloat16
        with flow.autocast("cpu", enabled=False):
            assert dtype() == torch.float32
            assert interpreter.get_current() is None
            with flow.autocast("cpu", torch.float16):
                assert (dtype(), flow.get_autocast_dtype("cpu")) == (torch.float16,) * 2
            assert dtype() == torch.float32
        with flow.autocast("cuda"):
            assert dtype() == torch.bfloat16
            assert flow.get_autocast_dtype("cuda") == torch.float16
        with flow.amp.autocast("cpu", dtype=torch.float16):
            assert dtype() == torch.float16
        assert dtype() == torch.bfloat16
    with flow.autocast("cuda"):
        assert dtype() == torch.float32  # it is elsewhere
    assert interpreter.get_current() is None


def test_an_error_leaves_the_block():
    with pytest.raises(KeyError), flow.autocast("cpu"):
        raise KeyError
    assert interpreter.get_current() is None


def test_it_decorates():
    @flow.autocast("cpu")
    def product(x, again=True):
        return product(x, False) if again else x @ x

    assert product(flow.ones(2, 2)).dtype == torch.bfloat16
    assert product.__name__ == "product"


def test_arguments():
    with pytest.raises(ValueError, match="one of"):
        flow.autocast("xpu")
    with pytest.raises(ValueError, match="of type `str`"):
        flow.autocast(torch.float16)
    with pytest.warns(UserWarning, match="disabled"), flow.autocast("cpu", torch.float32):
        assert (flow.ones(2, 2) @ flow.ones(2, 2)).dtype == torch.float32
    with flow.autocast("cpu", torch.float32, enabled=False):
        pass


@pytest.mark.parametrize(("cached", "casts"), [(None, 3), (True, 3), (False, 5)])
def test_parameters_are_cast_once(cached, casts):
    flow.manual_seed(0)
    layer, x = nn.Linear(3, 3), flow.randn(2, 3)
    count = []

    class Counter(interpreter.Through):
        def run(self, call, op, args):
            count.append(op.name)
            return super().run(call, op, args)

    with interpreter.using(Counter(None)), flow.autocast("cpu", cache_enabled=cached):
        layer(layer(x))
        assert count.count("cast") == casts
        with flow.autocast("cpu"):
            layer(x)
        before = count.count("cast")
        with flow.no_grad():
            layer.weight.copy_(flow.zeros(3, 3))
        y = layer(x) - layer.bias
        assert count.count("cast") > before
    assert y.detach().abs().max().item() < 0.01


def test_a_step_inside_the_block():
    """Gradients are computed as they are called, and a cast serves several backward passes."""
    layer, x = nn.Linear(3, 3), flow.ones(2, 3)
    with flow.autocast("cpu"):
        for _ in range(2):
            layer(x).sum().backward()
    inside = layer.weight.grad.tolist()
    layer.zero_grad()
    for _ in range(2):
        with flow.autocast("cpu"):
            y = layer(x).sum()
        y.backward()
    assert layer.weight.grad.tolist() == inside
    assert layer.weight.grad.dtype == torch.float32


def test_a_checkpoint_is_repeated_as_it_ran():
    def gradients(through):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 3))
        x = flow.randn(2, 3, requires_grad=True)
        with flow.autocast("cpu"):
            y = through(model, x)
        assert y.dtype == torch.bfloat16
        y.sum().backward()
        return [x.grad.tolist(), *[w.grad.tolist() for w in model.parameters()]]

    plain = gradients(lambda model, x: model(x))
    assert gradients(flow.checkpoint.checkpoint) == plain


def test_methods_in_place_keep_the_dtype():
    x = flow.ones(2, dtype=torch.bfloat16)
    with flow.autocast("cpu"):
        x.exp_()
        x += flow.ones(2)
    assert x.dtype == torch.bfloat16


def test_in_a_graph():
    """A block in build is part of the program."""

    class Predict(nn.Graph):
        def build(self, x):
            with flow.autocast("cpu"):
                y = x @ x
            return y, x @ x

    x = flow.tensor(values(3, 3))
    with flow.autocast("cpu"):
        wanted = x @ x
    low, whole = Predict()(x)
    assert low.tolist() == wanted.tolist()
    assert (low.dtype, whole.dtype) == (torch.bfloat16, torch.float32)


def test_a_checkpointed_module_of_a_graph():
    def results(checkpointed):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 3))
        model.to(nn.graph.GraphModule).activation_checkpointing = checkpointed

        class Train(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

            def build(self, x):
                with flow.autocast("cpu"):
                    loss = self.model(x).float().square().mean()
                loss.backward()
                return loss

        graph, x = Train(), flow.tensor(values(5, 3).float())
        steps = [graph(x).item() for _ in range(3)]
        made = {v.meta.dtype for s in graph.program.steps if s.name == "linear" for v in s.outputs}
        return steps, made, [w.tolist() for w in model.parameters()]

    plain = results(False)
    assert plain[1] == {torch.bfloat16}
    assert results(True) == plain


class Product(flow.autograd.Function):
    seen = []  # noqa: RUF012

    @staticmethod
    @flow.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    @flow.amp.custom_bwd(device_type="cpu")
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        product = dy.float() @ x.t()
        Product.seen.append(product.dtype)
        return product.float()


class Whole(Product):
    @staticmethod
    @flow.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        return Product.forward(ctx, x)


@pytest.mark.parametrize(
    ("function", "enabled", "forward", "backward"),
    [
        (Product, True, torch.bfloat16, torch.bfloat16),
        (Product, False, torch.float32, torch.float32),
        (Whole, True, torch.float32, torch.float32),
        (Whole, False, torch.float32, torch.float32),
    ],
)
def test_functions(function, enabled, forward, backward):
    x = flow.ones(2, 2, requires_grad=True)
    with flow.autocast("cpu", enabled=enabled):
        y = function.apply(x)
    y.sum().backward()
    assert y.dtype == forward
    assert Product.seen[-1] == backward


def test_a_program_is_not_called_under_autocast(world):
    class Linear(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = flow.nn.Linear(2, 2)

        def build(self, x):
            return self.layer(x)

    graph = Linear()
    with flow.autocast("cpu"), pytest.raises(RuntimeError, match="called under autocast, which"):
        graph(flow.ones(1, 2))
    assert graph(flow.ones(1, 2)).dtype is flow.float32


def test_a_dtype_by_name(world):
    with pytest.raises(TypeError, match="dtype must be a dtype such as"):
        flow.autocast("cpu", dtype="bfloat16")


def test_multi_dot_runs_in_low_precision(world):
    x = flow.ones(2, 2)
    with flow.autocast("cpu"):
        assert flow.linalg.multi_dot([x, x, x]).dtype is flow.bfloat16
