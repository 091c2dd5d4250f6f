"""parallelize_module: torch's tensor-parallel programs, with the numbers of torch on one device."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from onefold.distributed.checkpoint import load, save
from onefold.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from onefold.distributed.device_mesh import init_device_mesh
from onefold.distributed.fsdp import fully_shard
from onefold.distributed.tensor import DTensor, Partial, Replicate, Shard
from onefold.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from onefold.errors import (
    OnefoldNotImplementedError,
    OnefoldTypeError,
    OnefoldValueError,
    PlacementError,
    ShapeError,
)

WIDTH, HEADS, WORDS = 32, 4, 64
WRAPPED = "_checkpoint_wrapped_module."


def transformer(lib):
    """A model of torch or of onefold, as a program for one device writes it."""
    nn, F = lib.nn, lib.nn.functional

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(lib.ones(WIDTH))

        def forward(self, x):
            return x * lib.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_heads = HEADS
            self.wq, self.wk, self.wv, self.wo = (
                nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
            )

        def forward(self, x, scale):
            batch, length, _ = x.shape
            q, k, v = (
                w(x).view(batch, length, self.n_heads, WIDTH // HEADS).transpose(1, 2)
                for w in (self.wq, self.wk, self.wv)
            )
            y = F.scaled_dot_product_attention(q * scale, k, v, is_causal=True)
            return self.wo(y.transpose(1, 2).contiguous().view(batch, length, -1))

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1 = nn.Linear(WIDTH, 4 * WIDTH)
            self.w2 = nn.Linear(4 * WIDTH, WIDTH)
            self.w3 = nn.Linear(WIDTH, 4 * WIDTH)

        def forward(self, x):
            return self.w2(F.silu(self.w1(x)) * self.w3(x))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()
            self.feed_forward = FeedForward()
            self.attention_norm = RMSNorm()
            self.ffn_norm = nn.LayerNorm(WIDTH)

        def forward(self, x, scale):
            h = x + self.attention(self.attention_norm(x), scale)
            return h + self.feed_forward(self.ffn_norm(h))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(WORDS, WIDTH)
            self.layers = nn.ModuleList([Block() for _ in range(2)])
            self.norm = RMSNorm()
            self.output = nn.Linear(WIDTH, WORDS, bias=False)
            self.register_buffer("scale", lib.full((1,), 1.5))

        def forward(self, tokens):
            x = self.tokens(tokens)
            for layer in self.layers:
                x = layer(x, self.scale)
            return self.output(self.norm(x))

    model = Transformer().double()
    with lib.no_grad():
        for number, weight in enumerate(model.parameters(), 1):
            places = lib.arange(weight.numel()).double()
            value = lib.sin(places * number).reshape(weight.shape) * 0.2
            weight.copy_(value + (1 if weight.ndim == 1 else 0))
    return model


def train(lib, model, part=slice(None), block=nullcontext, optimizer=None):
    """The losses of three steps, and the last gradients and norms."""
    if optimizer is None:
        optimizer = lib.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    losses, norms = [], []
    for step in range(3):
        tokens = (lib.arange(36).reshape(4, 9) * (7 + step) % WORDS)[part]
        optimizer.zero_grad()
        with block():
            logits = model(tokens[:, :8]).flatten(0, 1)
            loss = lib.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
            loss.backward()
        norms.append(lib.nn.utils.clip_grad_norm_(model.parameters(), 50.0))
        optimizer.step()
        losses.append(loss)
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return losses, norms, gradients


def value(x):
    """A tensor's value as an array, on every rank."""
    x = x.detach()
    return (x.full_tensor() if isinstance(x, DTensor) else x).numpy()


def split_model(tp, kind):
    """The model under the plan of torch's tutorial, or with split sequences."""
    model = transformer(flow)
    if kind == "plain":
        ends = {
            "tokens": RowwiseParallel(input_layouts=Replicate()),
            "output": ColwiseParallel(output_layouts=Replicate()),
        }
        plan = {
            "attention.w[qkv]": ColwiseParallel(),
            "attention.wo": RowwiseParallel(),
            "feed_forward.w[13]": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(),
        }
    else:
        last = Shard(-1) if kind == "loss" else Replicate()
        ends = {
            "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(
                input_layouts=Shard(1), output_layouts=last, use_local_output=kind != "loss"
            ),
        }
        plan = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            "attention.w[qkv]": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "feed_forward.w[13]": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
    parallelize_module(model, tp, ends)
    for layer in model.layers:
        layer.attention.n_heads //= tp.size()
        parallelize_module(layer, tp, plan)
    return model


def in_one_dimension(kind):
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = split_model(mesh["tp"], kind)
    block = loss_parallel if kind == "loss" else nullcontext
    losses, norms, gradients = train(flow, model, block=block)
    return (
        [float(value(x)) for x in losses],
        [float(value(x)) for x in norms],
        {name: value(x) for name, x in gradients.items()},
        losses[0].is_global,
    )


def in_two_dimensions(kind, low, again):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    rank = flow.distributed.get_rank()
    model = split_model(mesh["tp"], kind)
    if again:
        block = type(model.layers[0])
        apply_activation_checkpointing(model, check_fn=lambda each: isinstance(each, block))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=not low)
    fully_shard(model, mesh=mesh["dp"])
    layouts = model.layers[0].feed_forward.w2.weight.placements
    block = loss_parallel if kind == "loss" else nullcontext
    losses, norms, gradients = train(
        flow, model, slice(2 * (rank // 2), 2 * (rank // 2) + 2), block
    )
    return (
        [float(value(x)) for x in losses],
        [float(value(x)) for x in norms],
        {
            name.replace("_checkpoint_wrapped_module.", ""): value(x)
            for name, x in gradients.items()
        },
        layouts,
    )


@pytest.fixture(scope="module")
def wanted():
    losses, norms, gradients = train(torch, transformer(torch))
    return (
        [x.item() for x in losses],
        [x.item() for x in norms],
        {name: x.numpy() for name, x in gradients.items()},
    )


def assert_same_gradients(found, wanted, rtol=1e-7):
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, rtol=rtol, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("kind", ["plain", "sequence", "loss"])
def test_a_transformer_on_two_ranks(wanted, kind):
    for losses, norms, gradients, is_global in run_ranks(2, in_one_dimension, kind):
        np.testing.assert_allclose(losses, wanted[0], rtol=1e-10)
        np.testing.assert_allclose(norms, wanted[1], rtol=1e-6)
        assert_same_gradients(gradients, wanted[2])
        assert is_global == (kind == "loss")


@pytest.mark.parametrize(
    ("kind", "low", "again"),
    [("plain", False, False), ("sequence", True, False), ("loss", False, True)],
)
def test_a_transformer_with_fully_shard_on_four_ranks(wanted, kind, low, again):
    env = {"ONEFOLD_CHECK": "1"} if low else None
    found = run_ranks(4, in_two_dimensions, kind, low, again, env=env)
    np.testing.assert_allclose(np.mean([each[0] for each in found], 0), wanted[0], rtol=1e-10)
    for _, norms, gradients, layouts in found:
        np.testing.assert_allclose(norms, wanted[1], rtol=1e-6)
        assert_same_gradients(gradients, wanted[2])
        assert layouts == (Shard(0), Shard(1))


def step_and_save(folder):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    first = 2 * (flow.distributed.get_rank() // 2)
    model = fully_shard(split_model(mesh["tp"], "sequence"), mesh=mesh["dp"])
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    train(flow, model, slice(first, first + 2), optimizer=optimizer)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    save({"model": model_state, "optim": optimizer_state}, checkpoint_id=folder)


def load_and_step(folder):
    model = split_model(init_device_mesh("cpu", (2,)), "plain")
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state}
    load(state, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
    losses, _, gradients = train(flow, model, optimizer=optimizer)
    return [x.item() for x in losses], {name: value(x) for name, x in gradients.items()}


def test_a_checkpoint_of_four_ranks_continues_on_two(tmp_path):
    model = transformer(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    train(torch, model, optimizer=optimizer)
    losses, _, gradients = train(torch, model, optimizer=optimizer)
    folder = str(tmp_path / "step")
    run_ranks(4, step_and_save, folder)
    for found, others in run_ranks(2, load_and_step, folder):
        np.testing.assert_allclose(found, [x.item() for x in losses], rtol=1e-8)
        assert_same_gradients(others, {name: x.numpy() for name, x in gradients.items()}, 1e-5)


def test_one_process_with_all_ranks(world, wanted):
    """With fully_shard all of the model is global; heads are counted whole."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = split_model(mesh["tp"], "loss")
    for layer in model.layers:
        layer.attention.n_heads = HEADS
    fully_shard(model, mesh=mesh["dp"])
    losses, _, gradients = train(flow, model)
    np.testing.assert_allclose([x.item() for x in losses], wanted[0], rtol=1e-10)
    assert_same_gradients({name: value(x) for name, x in gradients.items()}, wanted[2])


def small():
    flow.manual_seed(2)
    return flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.ReLU(), flow.nn.Linear(8, 4)).double()


PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def test_what_is_split_stays_global_in_one_process(world):
    mesh = init_device_mesh("cpu", (2,))
    plain, model = small(), small()
    parallelize_module(model, mesh, PLAN)
    x = flow.randn(3, 4, dtype=flow.float64, requires_grad=True)
    middle, y = model[0](x), model(x)
    assert middle.placements == (Shard(1),) and y.is_local
    (y * y).sum().backward()
    found, x.grad = x.grad, None
    (plain(x) ** 2).sum().backward()
    np.testing.assert_allclose(found.numpy(), x.grad.numpy())
    for mine, weight in zip(model.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(value(mine.grad), weight.grad.numpy())


def prepared():
    """What modules get and give, as placements or shapes."""
    mesh = init_device_mesh("cpu", (2,))
    seen = []

    class Two(flow.nn.Module):
        def forward(self, x, word, scale=None):
            seen.append((x.placements, word, scale.placements, scale.shape))
            return x * scale, x.sum(0)

    model = Two()
    both = PrepareModuleInputOutput(
        input_layouts=(Shard(0), None),
        desired_input_layouts=(Replicate(), None),
        input_kwarg_layouts={"scale": Replicate()},
        desired_input_kwarg_layouts={"scale": Shard(0)},
        output_layouts=(Replicate(), None),
        desired_output_layouts=(Shard(1), None),
    )
    parallelize_module(model, mesh, both)
    rank = flow.distributed.get_rank()
    rows = flow.arange(4.0).reshape(2, 2) + 4 * rank
    y, total = model(rows, "word", scale=flow.ones(4, 2))
    whole = flow.nn.Identity()
    parallelize_module(
        whole,
        mesh,
        PrepareModuleOutput(
            output_layouts=Partial(), desired_output_layouts=Replicate(), use_local_output=False
        ),
    )
    summed = whole(rows)
    return seen, y.tolist(), total.full_tensor().tolist(), summed.full_tensor().tolist()


def test_inputs_and_outputs_are_prepared():
    rows = np.arange(8.0).reshape(4, 2)
    for rank, (seen, y, total, summed) in enumerate(run_ranks(2, prepared)):
        assert seen == [((Replicate(),), "word", (Shard(0),), torch.Size([4, 2]))]
        assert y == rows[:, rank : rank + 1].tolist()
        assert total == rows.sum(0).tolist()
        assert summed == (rows[:2] + rows[2:]).tolist()


def from_each_rank():
    mesh = init_device_mesh("cpu", (2,))
    flow.manual_seed(flow.distributed.get_rank())
    layer = flow.nn.Linear(2, 2)
    other = flow.nn.Linear(2, 2)
    own = other.weight.detach().numpy()
    parallelize_module(layer, mesh, ColwiseParallel())
    parallelize_module(other, mesh, ColwiseParallel(), src_data_rank=None)
    return value(layer.weight), value(other.weight), own


def test_whose_values_parameters_take():
    (first, mixed, own), (second, _, other) = run_ranks(2, from_each_rank)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(mixed, [own[0], other[1]])


def uneven():
    mesh = init_device_mesh("cpu", (2,))
    layer = parallelize_module(flow.nn.Linear(4, 5), mesh, ColwiseParallel())
    with pytest.raises(ShapeError, match=r"5 is not a multiple of 2.*use_local_output=False"):
        layer(flow.ones(3, 4))
    whole = ColwiseParallel(use_local_output=False)
    return parallelize_module(flow.nn.Linear(4, 5), mesh, whole)(flow.ones(3, 4)).shape


def test_uneven_parts_cannot_be_local():
    assert run_ranks(2, uneven) == [torch.Size([3, 5])] * 2


def test_errors(world):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tp = mesh["tp"]
    with pytest.raises(OnefoldTypeError, match="needs an onefold Module, but got Linear"):
        parallelize_module(torch.nn.Linear(2, 2), tp, ColwiseParallel())
    with pytest.raises(OnefoldTypeError, match="device_mesh must be a DeviceMesh"):
        parallelize_module(small(), None, PLAN)
    with pytest.raises(OnefoldValueError, match=r"one axis.*mesh\['tp'\]"):
        parallelize_module(small(), mesh, PLAN)
    with pytest.raises(OnefoldTypeError, match="a plan is a style"):
        parallelize_module(small(), tp, {"0": Shard(0)})
    with pytest.raises(OnefoldTypeError, match=r"a layout is Shard\(dim\)"):
        ColwiseParallel(output_layouts="shard")
    with pytest.raises(OnefoldNotImplementedError, match=r"only support nn\.Linear"):
        parallelize_module(small(), tp, ColwiseParallel())
    with pytest.raises(OnefoldValueError, match="should have same length"):
        PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=None)
    with pytest.raises(OnefoldValueError, match="need the same names"):
        PrepareModuleInput(input_kwarg_layouts={"x": Shard(0)})
    with pytest.warns(UserWarning, match=r"matches 'up'.*it has 0, 1, 2"):
        parallelize_module(small(), tp, {"up": ColwiseParallel()})
    with pytest.warns(UserWarning, match="without a plan"):
        parallelize_module(small(), tp)
    model = parallelize_module(small(), tp, PLAN)
    with pytest.raises(OnefoldValueError, match=r"global already.*call fully_shard afterwards"):
        parallelize_module(model, tp, PLAN)
    with pytest.raises(PlacementError, match=r"but the module on .*call x.to_global"):
        model(flow.ones(2, 4, placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast))
    with pytest.raises(OnefoldValueError, match="make one mesh with both axes"):
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    pair = PrepareModuleInput(
        input_layouts=(Shard(0), None), desired_input_layouts=(Shard(0), None)
    )
    one = parallelize_module(flow.nn.Identity(), tp, pair)
    with pytest.raises(OnefoldValueError, match="there are 1 for 2 layouts"):
        one(flow.ones(2))
    assert "Shard(dim=-1)" in repr(ColwiseParallel())
