"""Bad input of graphs: a clear error that names the place, after which nothing has changed."""

import copy
import re

import numpy as np
import pytest

import onefold as flow
from onefold import nn, sbp
from onefold.errors import (
    MixedTensorsError,
    OnefoldError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    ShapeError,
)

B, S0 = sbp.broadcast, sbp.split(0)
PAIR = flow.placement("cpu", [0, 1])
HERE = r"test_bad_input\.py:\d+ in "


class Graph(nn.Graph):
    """A graph of one function of a model and the inputs; it trains if it has an optimizer."""

    def __init__(self, function, model=None, optimizer=None):
        super().__init__()
        self.function = function
        self.model = nn.Linear(3, 3) if model is None else model
        if optimizer is not None:
            self.add_optimizer(optimizer)

    def build(self, *args):
        return self.function(self.model, *args)


def loss_of(model, x):
    loss = model(x).sum()
    loss.backward()
    return loss


def x(**layout):
    return flow.ones(2, 3, **layout)


def facts(model):
    tables = [
        (path, table, name, id(value))
        for path, module in model.named_modules()
        for table in ("_parameters", "_buffers", "_modules")
        for name, value in module.__dict__[table].items()
    ]
    tensors = [*model.parameters(), *model.buffers()]
    return tables, [(id(t.shards), t.shared, t.version, id(t.grad), t.meta) for t in tensors]


def refused(graph, error, text, *inputs):
    """The call fails, and leaves the model, the generator and the compiled graphs alone."""
    before = facts(graph.model), flow.get_rng_state(), list(graph._compiled), graph._steps
    with pytest.raises(error, match=text):
        graph(*(inputs or [x()]))
    assert (facts(graph.model), flow.get_rng_state(), list(graph._compiled), graph._steps) == before


# Values asked for inside build().

ASKED = rf"value of a tensor was asked for while a graph is captured.*{HERE}<lambda>"
VALUES = {
    "if": lambda m, x: x if m(x).sum() > 1 else -x,
    "while": lambda m, x: [x for _ in iter(lambda: bool(x.sum() > 3), False)],
    "and": lambda m, x: x.sum() > 1 and x,
    "assert": lambda m, x: x if flow.equal(x, x) else -x,
    "range": lambda m, x: [x for _ in range(x.sum().to(flow.int64))],
    "float": lambda m, x: x * float(m(x).sum()),
    "item": lambda m, x: x * m(x).sum().item(),
    "item of a parameter": lambda m, x: x * m.weight.sum().item(),
    "numpy": lambda m, x: m(x).numpy(),
    "np.asarray": lambda m, x: np.asarray(m(x)),
    "tolist": lambda m, x: m(x).tolist(),
    "to_torch": lambda m, x: m(x).to_torch(),
    "nonzero": lambda m, x: flow.nonzero(x),
    "a mask": lambda m, x: x[x > 0],
    "masked_select": lambda m, x: flow.masked_select(x, x > 0),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("layout", [{}, {"placement": PAIR, "sbp": B}], ids=["local", "global"])
def test_values_inside_build(name, layout, world):
    graph = Graph(VALUES[name], nn.Linear(3, 3, **layout))
    refused(graph, OnefoldRuntimeError, ASKED, x(**layout))
    assert not graph.is_compiled


SIZES = {
    "bincount": (
        lambda m, x: flow.bincount(x.long()[0]),
        r"zeros\(n\)\.index_add_\(0, index, ones\)",
    ),
    "unique": (lambda m, x: flow.unique(x), r"ask for them outside build\(\)"),
    "unique_consecutive": (lambda m, x: flow.unique_consecutive(x), r"outside build\(\)"),
    "repeat_interleave": (lambda m, x: x[0].repeat_interleave(x[0].long()), "index_select"),
    "one_hot": (lambda m, x: nn.functional.one_hot(x.long()), "Give num_classes"),
    "tensor": (lambda m, x: flow.tensor([x[0, 0], x[0, 1]]), r"onefold\.stack"),
}


@pytest.mark.parametrize("name", SIZES)
def test_results_whose_size_depends_on_values(name, world):
    function, text = SIZES[name]
    refused(Graph(function), OnefoldRuntimeError, rf"when the graph runs\. .*{text}.*{HERE}", x())


def test_a_constant_made_local_beside_global_inputs(world):
    def build(m, x):
        return x * flow.arange(3.0).to(device=x.device)

    given = x(placement=PAIR, sbp=B)
    text = rf"float32\[3\] on cpu should at {HERE}.*arange\(n, device=x\.device\)"
    refused(Graph(build), OnefoldRuntimeError, text, given)
    found = Graph(lambda m, x: x * flow.arange(3.0, device=x.device))(given)
    assert found.tolist() == build(None, given).tolist()


def test_the_count_that_bincount_suggests(world):
    index = flow.tensor([0, 2, 2])
    counted = Graph(lambda m, x: flow.zeros(4).index_add_(0, x, flow.ones(3)))(index)
    assert counted.tolist() == flow.bincount(index, minlength=4).tolist()


def test_an_array_beside_a_tensor_in_build(world):
    array = np.array([1.0, 2.0, 3.0])
    found = Graph(lambda m, x: array * x + x / np.float64(2))(x())
    assert found.dtype is flow.float64 and found.tolist() == (array * x() + x() / 2).tolist()


def test_printing_inside_build_shows_what_is_known(world, capsys):
    Graph(lambda m, x: [print(m(x)), x][1])(x())
    assert capsys.readouterr().out == "tensor(captured: float32[2, 3] on cpu)\n"


# What does not belong into build().


def test_local_tensors_among_global_ones(world):
    model = nn.Linear(3, 3, placement=PAIR, sbp=B)
    text = rf"(?s)add: got local and global tensors together.*Called at {HERE}<lambda>"
    given = x(placement=PAIR, sbp=B)
    refused(Graph(lambda m, x: m(x) + flow.ones(3), model), MixedTensorsError, text, given)
    text = rf"(?s)linear: got local and global tensors together.*Called at {HERE}<lambda>"
    refused(Graph(lambda m, x: m(x)), MixedTensorsError, text, given)


@pytest.mark.parametrize("compiled", [False, True])
def test_nested_graphs(compiled, world):
    inner = Graph(lambda m, x: m(x))
    if compiled:
        inner(x())
    text = rf"called inside another graph's build\(\); .* Called at {HERE}<lambda>"
    refused(Graph(lambda m, x: inner(x)), OnefoldRuntimeError, text)


class Assigns(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.layer = nn.Linear(3, 3)
        self.scale = nn.Parameter(flow.ones(3))
        self.register_buffer("mean", flow.zeros(3))

    def forward(self, x):
        if self.kind == "buffer":
            self.mean = self.mean * 0.9 + x.mean(0)
        elif self.kind == "parameter":
            self.scale = nn.Parameter(flow.zeros(3))
        elif self.kind == "new":
            self.register_buffer("late", x)
        elif self.kind == "module":
            self.layer = nn.Linear(3, 3)
        elif self.kind == "gone":
            del self.mean
        return self.layer(x * self.scale)


ASSIGNED = {
    "buffer": r"assigned model\.0\.mean, a buffer.*model\.0\.mean\.copy_\(value\)",
    "parameter": r"assigned model\.0\.scale, a parameter",
    "new": r"assigned model\.0\.late, a buffer.*assign it in __init__",
    "module": r"assigned model\.0\.layer, a module",
    "gone": r"assigned model\.0\.mean, a buffer",
}


@pytest.mark.parametrize("kind", ASSIGNED)
@pytest.mark.parametrize("fails", [False, True])
def test_assigning_inside_build(kind, fails, world):
    def build(model, x):
        model(x)
        if fails:
            raise OnefoldRuntimeError("assigned, and then no")
        return x

    model = nn.Sequential(Assigns(kind))
    # A layer that is made inside build() draws numbers, which are given back as well.
    text = "and then no" if fails else ASSIGNED[kind]
    refused(Graph(build, model), OnefoldRuntimeError, text)


def test_assigning_a_module_to_the_graph_inside_build(world):
    class Assigning(Graph):
        def build(self, x):
            self.late = nn.Linear(3, 3)
            return self.late(x)

    graph = Assigning(None)
    refused(graph, OnefoldRuntimeError, r"build\(\) assigned late, a module\. A capture")
    assert list(graph._modules) == ["model"]


def test_a_graph_without_super_init(world):
    class Forgetful(nn.Graph):
        def __init__(self):
            pass

        def build(self, x):
            return x

    for use in (
        lambda graph: graph(x()),
        lambda graph: graph.config.enable_amp(),
        lambda graph: graph.add_optimizer(flow.optim.SGD([nn.Parameter(flow.ones(1))], lr=0.1)),
        repr,
    ):
        with pytest.raises(OnefoldRuntimeError, match=r"Forgetful\.\w+ before Graph\.__init__\(\)"):
            use(Forgetful())


# Copies.


@pytest.mark.parametrize("compiled", [False, True])
def test_a_copy_trains_for_itself(compiled, world):
    model = nn.Linear(3, 3)
    graph = Graph(loss_of, model, flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for _ in range(compiled):
        graph(x())
    other = copy.deepcopy(graph)
    before = model.weight.numpy().copy()
    found = other(x()).item()
    np.testing.assert_array_equal(model.weight.numpy(), before)
    assert graph(x()).item() == found
    np.testing.assert_array_equal(other.model.weight.numpy(), model.weight.numpy())
    assert other(x()).item() == graph(x()).item()  # the momentum was copied too


def test_a_deleted_module(world):
    graph = Graph(lambda m, x: m(x))
    graph(x())
    del graph.model
    with pytest.raises(AttributeError, match="no attribute 'model'"):
        graph(x())
    with pytest.raises(AttributeError, match="late"):
        del graph.late


# Tensors that outlive the capture.

STRAY = rf"made in model while a graph was captured, at {HERE}<lambda>"
USES = {
    "add": lambda k, x: k + 1,
    "second": lambda k, x: x + k,
    "several": lambda k, x: flow.cat([x, k]),
    "view": lambda k, x: k.view(-1),
    "dropout": lambda k, x: nn.functional.dropout(k, 0.5),
    "norm": lambda k, x: nn.functional.layer_norm(k, (3,)),
    "item": lambda k, x: k[0, 0].item(),
    "numpy": lambda k, x: k.detach().numpy(),
    "tolist": lambda k, x: k.tolist(),
    "repr": lambda k, x: repr(k),
    "copy_": lambda k, x: x.clone().copy_(k),
    "add_": lambda k, x: k.detach().add_(1),
    "module": lambda k, x: nn.Linear(3, 3, **where(k))(k),
    "parameter": lambda k, x: nn.Parameter(k) * 2,
    "to_local": lambda k, x: k.to_local() if k.is_global else k.to_torch(),
    "to_global": lambda k, x: k.to_global(PAIR, S0),
    "backward": lambda k, x: k.sum().backward(),
    "an input": lambda k, x: Graph(lambda m, x: x * 2)(k),
    "in another build": lambda k, x: Graph(lambda m, x: x + k)(x),
    "out of another build": lambda k, x: Graph(lambda m, x: (x * 2, k))(x),
}


def where(tensor):
    return {"placement": PAIR, "sbp": B} if tensor.is_global else {}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("layout", [{}, {"placement": PAIR, "sbp": B}], ids=["local", "global"])
def test_a_tensor_kept_from_a_capture(use, layout, world):
    kept = []
    graph = Graph(lambda m, x: [kept.append(m(x)), x * 2][1], nn.Linear(3, 3, **layout))
    given = x(**layout)
    graph(given)
    with pytest.raises(OnefoldError, match=STRAY):
        USES[use](kept[0], given)
    assert tuple(kept[0].shape) == (2, 3)  # what is known stays known


def test_a_tensor_kept_for_the_next_capture(world):
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x):
            y = x * 2 if self.last is None else x + self.last[:1]
            self.last = y
            return y

    graph = Graph(lambda m, x: m(x), Remembers())
    assert graph(x()).tolist() == [[2.0] * 3] * 2
    refused(graph, OnefoldRuntimeError, rf"made in model while .*{HERE}forward", flow.ones(4, 3))
    assert graph(x()).tolist() == [[2.0] * 3] * 2


# Optimizers.


def test_an_optimizer_of_another_module(world):
    strangers = nn.Linear(5, 2)
    model = nn.Linear(3, 3)
    groups = [{"params": model.parameters()}, {"params": strangers.parameters()}]
    graph = Graph(loss_of, model, flow.optim.SGD(groups, lr=0.1))
    text = (
        r"Graph: 2 of the optimizers' 4 parameters belong to no module of this graph: one of "
        r"shape \(2, 5\) in group 1 of SGD \(optimizer 0\); one of shape \(2,\) in group 1 .*"
        r"modules are: model \(Linear\)\. Assign the module"
    )
    refused(graph, OnefoldRuntimeError, text)
    with pytest.raises(OnefoldRuntimeError, match=text):
        graph.state_dict()


@pytest.mark.parametrize(
    "name", ["optimizer.step()", "scheduler.step()", "optimizer.clip_grad()", "value"]
)
def test_what_a_call_does_by_itself_inside_build(name, world):
    model = nn.Linear(3, 3)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    schedule = flow.optim.lr_scheduler.StepLR(optimizer, 1)
    act = {
        "optimizer.step()": optimizer.step,
        "scheduler.step()": schedule.step,
        "optimizer.clip_grad()": optimizer.clip_grad,
        "value": lambda: nn.utils.clip_grad_value_(model.parameters(), 1.0),
    }[name]
    graph = Graph(lambda m, x: [loss_of(m, x), act()][0], model, optimizer)
    text = rf"{re.escape(name)}_? was called inside build\(\), at {HERE}<lambda>; leave it out"
    refused(graph, OnefoldRuntimeError, text)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_gradients_changed_inside_build(world):
    """What clip_grad_value_ tells to do instead."""
    model, eager = nn.Linear(3, 3), nn.Linear(3, 3)
    eager.load_state_dict(model.state_dict())

    def build(m, x):
        loss = loss_of(m, x)
        for param in m.parameters():
            param.grad = param.grad.clamp(-0.5, 0.5)
        return loss

    graph = Graph(build, model, flow.optim.SGD(model.parameters(), lr=0.1))
    optimizer = flow.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(2):
        graph(x())
        loss_of(eager, x())
        nn.utils.clip_grad_value_(eager.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        for one, other in zip(model.parameters(), eager.parameters(), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_schedule_of_another_optimizer(world):
    model = nn.Linear(3, 3)
    one, other = (flow.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    graph = Graph(loss_of, model)
    with pytest.raises(OnefoldValueError, match=r"lr_sch is a schedule of another SGD, so it"):
        graph.add_optimizer(one, lr_sch=flow.optim.lr_scheduler.StepLR(other, 1))
    assert not graph.training


def test_only_the_first_strangers_are_listed(world):
    optimizer = flow.optim.AdamW([flow.nn.Parameter(flow.ones(1)) for _ in range(8)])
    graph = Graph(loss_of, optimizer=optimizer)
    refused(graph, OnefoldRuntimeError, r"8 of the optimizers' 8 .* and 3 more\. The graph's")


def test_parameters_that_are_added_after_compiling(world):
    optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(1))], lr=0.1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = flow.optim.SGD(model[0].parameters(), lr=1.0)
    graph = Graph(loss_of, model, optimizer)
    graph(x())
    before = model[1].bias.numpy().copy()
    optimizer.add_param_group({"params": [model[1].bias]})
    graph(x())
    np.testing.assert_array_equal(model[1].bias.numpy(), before - 2)
    optimizer.add_param_group({"params": [nn.Parameter(flow.ones(7))]})
    refused(graph, OnefoldRuntimeError, r"one of shape \(7,\) in group 2 of SGD")


def test_an_error_in_a_run_names_the_module_and_the_line(world):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Embedding(5, 2)

        def forward(self, i):
            return self.rows(i)

    graph = Graph(lambda m, i: m(i), Table())
    graph(flow.tensor([0]))
    with pytest.raises(IndexError, match=rf"embedding of model\.rows, written at {HERE}forward"):
        graph(flow.tensor([7]))
    assert graph(flow.tensor([4])).shape == (1, 2)


# Changes after compiling.


def test_a_module_assigned_after_compiling(world):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    graph = Graph(lambda m, x: m(x), model)
    graph(x())
    for layer in (nn.Tanh(), nn.Linear(3, 4), nn.Sequential(nn.Linear(3, 2), nn.ReLU())):
        model[1] = layer
        np.testing.assert_array_equal(graph(x()).numpy(), model(x()).numpy())
    model[1][0].bias = nn.Parameter(flow.ones(2))
    np.testing.assert_array_equal(graph(x()).numpy(), model(x()).numpy())
    graph.model = nn.Linear(3, 5)
    assert graph(x()).shape == (2, 5)


def test_a_trained_module_replaced_after_compiling(world):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    graph = Graph(loss_of, model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph(x())
    model[1] = nn.Linear(3, 3)
    text = r"2 of the optimizers' 4 .*shape \(3, 3\).*create a new optimizer and graph"
    refused(graph, OnefoldRuntimeError, text)


def test_buffers_and_hooks_after_compiling(world):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", flow.ones(3))

        def forward(self, x):
            return x * self.scale

    model = Scaled()
    graph = Graph(lambda m, x: m(x), model)
    graph(x())
    model.scale = flow.full((3,), 2.0)
    assert graph(x()).tolist() == [[2.0] * 3] * 2
    handle = model.register_forward_hook(lambda module, args, result: -result)
    assert graph(x()).tolist() == [[-2.0] * 3] * 2
    handle.remove()
    assert graph(x()).tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("train", [False, True])
def test_a_parameter_of_another_shape_or_dtype(train, world):
    model = nn.Linear(3, 3)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1) if train else None
    graph = Graph(loss_of if train else lambda m, x: m(x), model, optimizer)
    graph(x())
    with pytest.raises(ShapeError, match=r"\.data must keep the shape \(3,\), but got \(1,\)"):
        model.bias.data = flow.ones(1)
    graph(x())
    model.bias.data = flow.ones(3).double()
    text = r"model\.bias was float32\[3\].*is float64\[3\].* now; make the graph after changing"
    refused(graph, OnefoldRuntimeError, text)


def test_parameters_frozen_and_trained_again_after_compiling(world):
    model, eager = nn.Linear(3, 3, placement=PAIR, sbp=B), nn.Linear(3, 3, placement=PAIR, sbp=B)
    eager.load_state_dict(model.state_dict())
    ours, theirs = (flow.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, eager))
    graph = Graph(loss_of, model, ours)
    given = x(placement=PAIR, sbp=S0)
    for trained in (True, False, False, True):
        for each in (model, eager):
            each.weight.requires_grad_(trained)
        before = model.weight.numpy().copy()
        graph(given)
        loss_of(eager, given)
        theirs.step()
        theirs.zero_grad()
        for one, other in zip(model.parameters(), eager.parameters(), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert np.array_equal(model.weight.numpy(), before) is not trained


def test_a_parameter_assigned_with_another_shape(world):
    model = nn.Linear(3, 3)
    graph = Graph(lambda m, x: m(x), model)
    graph(x())
    model.weight, model.bias = nn.Parameter(flow.ones(2, 3)), None
    assert graph(x()).shape == (2, 2)


# Inputs.


@pytest.mark.parametrize("train", [False, True])
def test_another_dtype_or_nest(train, world):
    model = nn.Linear(3, 3)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1) if train else None
    graph = Graph(loss_of if train else lambda m, x: m(x), model, optimizer)
    graph(x())
    refused(graph, OnefoldTypeError, r"input 0 of dtype .*float32.*float64", x().double())
    refused(graph, OnefoldTypeError, "compiled for inputs nested as .* but was called", x(), x())
    refused(graph, OnefoldTypeError, "must be a Tensor, None, or a list.* got int", 3)
    refused(graph, OnefoldTypeError, r"got numpy\.ndarray", np.ones((2, 3)))


def test_an_error_in_a_later_micro_batch_undoes_the_earlier_ones(world):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Embedding(4, 3)
            self.register_buffer("seen", flow.zeros(()))

        def forward(self, index):
            with flow.no_grad():
                self.seen.add_(1)
            return nn.functional.dropout(self.rows(index))

    model = Counts()
    graph = Graph(loss_of, model, flow.optim.AdamW(model.parameters()))
    graph.config.set_gradient_accumulation_steps(2)
    graph(flow.tensor([0, 1, 2, 3]))
    refused(graph, OnefoldError, "got 4, but the weight has 4 rows", flow.tensor([0, 1, 2, 4]))
    assert model.seen.item() == 2


def test_a_batch_that_micro_batches_do_not_divide(world):
    model = nn.Linear(3, 3)
    graph = Graph(loss_of, model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph.config.set_gradient_accumulation_steps(4)
    graph(flow.ones(8, 3))
    text = r"input 0 of the graph has shape \(6, 3\), whose dim 0 cannot be cut into 4 micro"
    refused(graph, OnefoldError, text, flow.ones(6, 3))


def test_copying_the_error_of_a_stray_tensor_is_possible(world):
    kept = []
    Graph(lambda m, x: [kept.append(x * 2), x][1])(x())
    with pytest.raises(OnefoldRuntimeError, match="a tensor was used that was made") as caught:
        kept[0].numpy()
    assert str(copy.copy(caught.value)) == str(caught.value)
