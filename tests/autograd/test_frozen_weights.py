"""LoRA and frozen weights: no more is kept for backward than in torch, in eager and in graphs."""

import pytest
import torch
from kept_values import kept_by_torch, kept_on_tape

import onefold as flow
from onefold.nn.graph import GraphModule

WIDTH, HEADS, RANK = 32, 4, 2


def transformer(lib, norm):
    """Two blocks of frozen weights, of which two products have trained adapters."""
    nn = lib.nn

    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(WIDTH, WIDTH, bias=False)
            self.down = nn.Linear(WIDTH, RANK, bias=False)
            self.up = nn.Linear(RANK, WIDTH, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x)) * 2.0

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([getattr(nn, norm)(WIDTH) for _ in range(2)])
            self.query, self.value = Adapted(), Adapted()
            self.key, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.gate, self.grow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
            self.shrink = nn.Linear(4 * WIDTH, WIDTH)

        def heads(self, x):
            return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)

        def forward(self, x):
            h = self.norms[0](x)
            parts = [self.heads(part(h)) for part in (self.query, self.key, self.value)]
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            h = self.norms[1](x)
            return x + self.shrink(nn.functional.silu(self.gate(h)) * self.grow(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(50, WIDTH)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(WIDTH, 50, bias=False)

        def forward(self, tokens, targets):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            logits = self.head(x).flatten(0, 1)
            return nn.functional.cross_entropy(logits, targets.flatten())

    model = Model()
    for name, weight in model.named_parameters():
        weight.requires_grad_(".down." in name or ".up." in name)
    return model


def both(norm):
    torch.manual_seed(0)
    theirs, ours = transformer(torch, norm), transformer(flow, norm)
    weights = {name: flow.from_torch(x.detach().clone()) for name, x in theirs.named_parameters()}
    ours.load_state_dict(weights)
    return theirs, ours


def data():
    tokens = torch.randint(50, (4, 16))
    return tokens, tokens.roll(1, 1)


@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm"])
def test_a_step_keeps_no_more_than_in_torch(norm):
    theirs, ours = both(norm)
    tokens, targets = data()
    loss, memory = kept_by_torch(lambda: theirs(tokens, targets))
    for weight in theirs.parameters():
        memory.pop(weight.untyped_storage().data_ptr(), None)
    loss.backward()

    found = ours(flow.from_torch(tokens), flow.from_torch(targets))
    kept = kept_on_tape([found])
    for weight in ours.parameters():
        kept.pop(weight.shards[0].untyped_storage().data_ptr(), None)
    assert kept.total <= memory.total
    found.backward()

    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    wanted = {name: weight.grad for name, weight in theirs.named_parameters()}
    for name, weight in ours.named_parameters():
        assert (weight.grad is None) == (wanted[name] is None)
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad.to_torch(), wanted[name], rtol=1e-4, atol=1e-6)


class Train(flow.nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        self.add_optimizer(flow.optim.SGD(trained, lr=0.1))

    def build(self, tokens, targets):
        loss = self.model(tokens, targets)
        loss.backward()
        return loss


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_graph_reads_nothing_of_frozen_products_in_backward(recomputed):
    """What the gradients of frozen weights would need is not read, with checkpointing too."""
    _, model = both("LayerNorm")
    if recomputed:
        for block in model.blocks:
            block.to(GraphModule).activation_checkpointing = True
    tokens, targets = data()
    graph = Train(model)
    graph(flow.from_torch(tokens), flow.from_torch(targets))
    steps = graph.program.steps
    # The gated product of each block, which only the gradient of frozen `shrink.weight` needs.
    made = {v.number for s in steps if s.name == "mul" and not s.backward for v in s.outputs}
    shrink = [s for s in steps if s.name == "linear" and s.scope.endswith("shrink")]
    inputs = {value.number for step in shrink for value in step.inputs[:1]} & made
    readers = [s for s in steps if s.backward and not s.recomputation]
    assert inputs
    assert not inputs & {value.number for step in readers for value in step.reads()}


def test_checkpoint_saves_the_same_both_times():
    _, model = both("LayerNorm")
    x = flow.randn(2, 8, WIDTH, requires_grad=True)
    model.blocks[0](x).sum().backward()
    wanted = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    model.zero_grad()
    block = model.blocks[0]
    flow.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum().backward()
    for name, weight in model.named_parameters():
        if name in wanted:
            assert weight.grad.equal(wanted[name])


@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm"])
def test_norms_make_no_gradients_of_frozen_weights(norm):
    _, model = both(norm)
    graph = Train(model)
    graph(*map(flow.from_torch, data()))
    made = {step.name for step in graph.program.steps if step.name.endswith("_grad")}
    stem = "layer_norm_with_stats" if norm == "LayerNorm" else "rms_norm"
    assert f"{stem}_input_grad" in made
    assert not made & {"layer_norm_with_stats_grad", "layer_norm_grad", "rms_norm_grad"}
