"""Views are torch's: a write to a view changes its base and the base's other views."""

import gc
import random
import weakref
from contextlib import nullcontext

import pytest
import samples
import torch
import view_programs
from hypothesis import given, settings, strategies as st
from launched import run_ranks

import onefold as flow
from onefold.engine import views
from onefold.engine.dispatch_plan import ops
from onefold.engine.op import Op
from onefold.engine.sbp import parse
from onefold.errors import AutogradError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of
from onefold.testing.strategies import nd_sbps, placements, shapes


@st.composite
def cases(draw, recorded=False):
    """A program, and the placement and layout of its base (None: local)."""
    shape = draw(shapes(1, 3, 0, 5))
    program = view_programs.draw_program(
        lambda choices: draw(st.sampled_from(choices)), shape, 10, recorded
    )
    if draw(st.integers(0, 3)) == 0:
        return program, None, None
    placement = draw(placements(max_ranks=4))
    return program, placement, draw(nd_sbps(shape, placement.ndim))


def base_value(program):
    count = torch.Size(program.shape).numel()
    return torch.arange(float(count), dtype=torch.float64).reshape(program.shape)


def laid_out(value, placement, nd_sbp):
    value = torch.as_tensor(value, dtype=torch.float64)
    if placement is None:
        return flow.tensor(value)
    return make_global(value, placement, nd_sbp)


def beside(values, placement):
    """A tensor of these values, for a write to one on the placement."""
    if placement is None:
        return flow.tensor(values, dtype=flow.float64)
    layout = {"placement": placement, "sbp": [flow.sbp.broadcast] * placement.ndim}
    return flow.tensor(values, dtype=flow.float64, **layout)


def histories(program, placement, nd_sbp):
    """All values after each write, as torch and as onefold has them."""
    found, wanted = [], []
    base = base_value(program)
    view_programs.run(
        program,
        base.clone(),
        None,
        view_programs._torch_tensor,
        lambda pool: wanted.append([x.clone() for x in pool]),
    )
    view_programs.run(
        program,
        laid_out(base, placement, nd_sbp),
        None,
        lambda values: beside(values, placement),
        lambda pool: found.append([value_of(x).clone() for x in pool]),
    )
    return found, wanted


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=0)


@settings(max_examples=300)
@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(cases())
def test_random_views_have_torchs_values(case):
    assert_same(*histories(*case))


def gradients(program, make_base, make, sum_of):
    """Gradients of the base and of a scale, from all tensors that are left; None as in torch."""
    leaf = make_base()
    scale = make(1.0).requires_grad_()
    pool = view_programs.run(program, leaf * 1, scale, make)
    total = (scale * 0).sum()
    used = []
    for number, x in enumerate(pool):
        try:
            total = total + sum_of(x, number)
        except RuntimeError:  # torch's views of several whose base has changed
            continue
        used.append(number)
    total.backward()
    return leaf.grad, scale.grad, used


def torch_sum(x, number):
    return (x * x * (number + 1)).sum()


@settings(max_examples=300)
@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(cases(recorded=True))
def test_random_views_have_torchs_gradients(case):
    program, placement, nd_sbp = case
    value = base_value(program)
    *wanted, used = gradients(
        program, lambda: value.clone().requires_grad_(), view_programs._torch_tensor, torch_sum
    )

    def sum_of(x, number):
        if number not in used:
            raise RuntimeError
        return torch_sum(x, number)

    found = gradients(
        program,
        lambda: laid_out(value, placement, nd_sbp).requires_grad_(),
        lambda values: beside(values, placement),
        sum_of,
    )
    for ours, theirs in zip(found[:2], wanted, strict=True):
        assert theirs is not None or ours is None
        if ours is None:  # where torch has a history of constants
            assert theirs is None or not theirs.any()
        else:
            torch.testing.assert_close(value_of(ours), theirs)


# The idioms.

LAYOUTS = [None, "(S0)", "(S1)", "(B)", "(P)"]


def on_two(value, sbp, **options):
    if sbp is None:
        return flow.tensor(value, **options)
    return flow.tensor(value, placement=flow.placement("cpu", [0, 1]), sbp=parse(sbp), **options)


def ascending(sbp, **options):
    return on_two(torch.arange(20.0).reshape(4, 5).tolist(), sbp, **options)


def doubled_rows(x):
    for row in x:
        row.mul_(2)


def doubled_chunk(x):
    q, _ = x.chunk(2)
    q.mul_(2)


def element(x):
    x[1][2] += 5


def itself(x):
    x[0] += x[1]
    x[1:] += x[2].clone()


IDIOMS = {
    "zero a row": lambda x: x[0].zero_(),
    "copy into columns": lambda x: x[:, :2].copy_(x[:, 2:4]),
    "fill data": lambda x: x.data[1].fill_(7),
    "chunk": doubled_chunk,
    "rows": doubled_rows,
    "transpose": lambda x: x.t().add_(1),
    "flat slice": lambda x: x.view(-1)[3:5].fill_(2),
    "detach": lambda x: x.detach().add_(1),
    "diagonal": lambda x: x.diagonal().mul_(-1),
    "element of an element": element,
    "in place of itself": itself,
    "index in a view": lambda x: x[1:][[0, 2]].zero_(),  # a copy, as in torch
    "set by index in a view": lambda x: x[1:].__setitem__([0, 2], -1.0),
    "mask in a view": lambda x: x.t()[1:].masked_fill_(x.t()[1:] > 6, 0.0),
    "select by a tensor": lambda x: x[x.argmax(0)[0]].fill_(3),
    "clamp rows": lambda x: x[::2].clamp_(2, 11),
    "squeeze": lambda x: x.unsqueeze(1)[2].squeeze(0).neg_(),
    "new dims": lambda x: x[None, 1:, ..., None].sub_(3),
    "windows": lambda x: x.unfold(1, 2, 3)[:, 1].fill_(-4),
    "positive": lambda x: (torch if isinstance(x, torch.Tensor) else flow).positive(x)[0].zero_(),
}


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", IDIOMS)
def test_idioms(name, sbp, world):
    x, wanted = ascending(sbp), torch.arange(20.0).reshape(4, 5)
    IDIOMS[name](x)
    IDIOMS[name](wanted)
    assert torch.equal(value_of(x), wanted)


def test_initializers_of_parts(world):
    embedding = flow.nn.Embedding(4, 3)
    init = flow.nn.init
    init.ones_(embedding.weight)
    init.zeros_(embedding.weight[0])
    init.constant_(embedding.weight[:, 1], 5)
    flow.manual_seed(0)
    init.normal_(embedding.weight.t()[2, 1:])
    value = value_of(embedding.weight.detach())
    assert value[:, :2].tolist() == [[0, 5], [1, 5], [1, 5], [1, 5]]
    assert value[0, 2] == 0 and value[1:, 2].unique().numel() == 3
    assert embedding.weight.is_leaf and embedding.weight.requires_grad


def test_a_tensor_of_its_own_takes_no_part(world):
    x = ascending(None)
    copies = {
        "clone": x.clone(),
        "index": x[[0, 1]],
        "reshape of a transpose": x.t().reshape(-1),
        "contiguous transpose": x.t().contiguous(),
        "ravel of a column": x[:, :1].ravel(),
        "diag": x.diag(),
        "rot90": x.rot90(4),
    }
    for name, copied in copies.items():
        copied.zero_()
        assert value_of(x).eq(torch.arange(20.0).reshape(4, 5)).all(), name
    assert not x.t().is_contiguous() and x[1:].is_contiguous() and x.contiguous() is x


def test_a_layout_of_its_own_is_a_copy(world):
    x = ascending("(S0)")
    assert x.to_global(sbp=flow.sbp.split(0)) is x
    other = x.to_global(sbp=flow.sbp.broadcast)
    x[0].zero_()
    other[1].zero_()
    assert value_of(other)[0].tolist() == [0, 1, 2, 3, 4] and value_of(x)[1].tolist()[0] == 5


def test_complex_parts(world):
    x = flow.tensor([1 + 2j, 3 - 1j])
    c, real = flow.conj(x), flow.real(x)
    c.mul_(2j)
    assert x.tolist() == [4 - 2j, -2 - 6j]
    assert c.tolist() == [4 + 2j, -2 + 6j] and real.tolist() == [4, -2]
    real.zero_()
    x.imag[1] = 5
    assert x.tolist() == [-2j, 5j] and c.tolist() == [2j, -5j]
    x.real = flow.tensor([7.0, 8.0])
    assert x.tolist() == [7 - 2j, 8 + 5j]


def test_a_squeeze_of_nothing_is_another_tensor(world):
    x = flow.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = x.squeeze(0).unsqueeze_(0)
    y.zero_()
    assert y.shape == (1, 2, 2) and x.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("sbp", [None, "(S0)", "(B)", "(P)"])
def test_views_as_other_numbers(sbp, world):
    """A write to view_as_real, view_as_complex or linalg.diagonal changes the base, as in torch."""
    start = torch.arange(12.0).reshape(3, 2, 2)
    laid = flow.tensor(start)
    if sbp is not None:
        p = flow.placement("cpu", [0, 1])
        laid = flow.tensor(start, placement=p, sbp=parse("(B)")).to_global(sbp=parse(sbp))
    found = []
    for lib, x in ((torch, start.clone()), (flow, laid)):
        y = lib.view_as_complex(x)
        y[0] = 5
        lib.view_as_real(y)[1, :, 1].mul_(2)
        lib.view_as_real(y).copy_(lib.view_as_real(y).transpose(1, 2).sin())
        lib.linalg.diagonal(x).add_(1)
        found.append((x, y) if lib is torch else (value_of(x), value_of(y)))
    torch.testing.assert_close(found[1], found[0])


def test_a_graph_keeps_what_a_view_shares(world):
    """The gradient of exp reads its result, which no later step may write over."""
    w = flow.tensor([0.5, -1.0], requires_grad=True)

    def loss(w):
        return flow.view_as_real((w * 1j).exp()).tanh().sum()

    wanted = torch.tensor([0.5, -1.0], requires_grad=True)
    torch.view_as_real((wanted * 1j).exp()).tanh().sum().backward()
    flow.compile(loss)(w).backward()
    assert torch.allclose(value_of(w.grad), wanted.grad)


OVERLAPPING = {
    "expand": lambda x: x.unsqueeze(0).expand(3, 4, 5),
    "part of expand": lambda x: x.unsqueeze(0).expand(3, 4, 5)[1],
    "broadcast_to": lambda x: x[:1].broadcast_to(4, 5),
    "unfold": lambda x: x.unfold(0, 2, 1),
}


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", OVERLAPPING)
def test_writes_that_overlap_are_errors(name, sbp, world):
    x = ascending(sbp)
    view = OVERLAPPING[name](x)
    before = value_of(view).clone()
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers"):
        view.add_(1)
    assert torch.equal(value_of(view), before)
    assert torch.equal(value_of(x), torch.arange(20.0).reshape(4, 5))
    x.add_(1)
    assert torch.equal(value_of(view), before + 1)


def test_other_data_takes_a_tensor_out_of_its_family(world):
    x, y = flow.zeros(4), torch.zeros(4)
    v, w = (t[1:] for t in (x, y))
    a, b = (t[:2] for t in (x, y))
    for t in (x, y):
        t.data = (flow if t is x else torch).ones(4)
    for t in (v, w):
        t.add_(2)
    for t in (x, y):
        t[0] = 5
    for ours, theirs in ((x, y), (v, w), (a, b)):
        assert ours.tolist() == theirs.tolist()
    v.data = flow.full((3,), 9.0)
    a.add_(1)
    assert v.tolist() == [9, 9, 9] and a.tolist() == [1, 3]


# Torch's rules for gradients.


def both(function):
    """What a function of a library does in torch and here: its result, or its error."""
    found = []
    for lib in (torch, flow):
        try:
            result = function(lib)
            found.append([x.tolist() if hasattr(x, "tolist") else x for x in result])
        except RuntimeError as error:
            found.append(error)
    return found


def part_without_grad(lib):
    x = lib.ones(3, requires_grad=True) * 1
    with lib.no_grad():
        part = x[0]
    return x, part


def write_to_a_part_made_without_grad(lib):
    _, part = part_without_grad(lib)
    part.add_(1)
    return ()


def read_a_part_made_without_grad(lib):
    x, part = part_without_grad(lib)
    x.mul_(2)
    (part * 2).sum().backward()
    return ()


def write_to_the_base_of_a_part_made_without_grad(lib):
    x, part = part_without_grad(lib)
    with lib.no_grad():
        x.mul_(2)
        part.add_(1)
    return x.detach(), part


def square_then_write(where):
    def function(lib):
        leaf = lib.ones(3, requires_grad=True)
        x = leaf * 1
        part = x[:2]
        y = (part * part).sum()
        {"base": x, "view": part, "other view": x[2], "detached": x.detach()}[where].add_(1)
        y.backward()
        return (leaf.grad,)

    return function


def leaf_parts(change):
    def function(lib):
        x = lib.ones(3, requires_grad=True)
        change(lib, x)
        return (x.detach(),)

    return function


def without_grad(change):
    def function(lib, x):
        with lib.no_grad():
            change(x)

    return function


def written_by_weight(take):
    def function(lib):
        x, w = lib.ones(4), lib.ones((), requires_grad=True)
        take(x).mul_(w)
        x.sum().backward()
        return (w.grad,)

    return function


def later_leaf(lib):
    x = lib.ones(3)
    part = x[0]
    x.requires_grad_()
    part.add_(1)
    return ()


def leaf_view(lib):
    x = lib.ones(3)
    part = x[0].requires_grad_()
    x.add_(1)
    (part * part).backward()
    return part.is_leaf, part.detach(), part.grad


def written_leaf_view(lib):
    lib.ones(3)[0].requires_grad_().add_(1)
    return ()


def detached_writes(lib):
    leaf, w = lib.ones(3, requires_grad=True), lib.full((), 3.0, requires_grad=True)
    x = leaf * 2
    d = x.detach()
    d[0].mul_(w)
    (x * lib.ones(3)).sum().backward()
    (d * d).sum().backward()
    return x.detach(), d.detach(), leaf.grad, w.grad


def rebased(lib):
    leaf, w = lib.ones(4, requires_grad=True), lib.full((), 3.0, requires_grad=True)
    x = leaf * 2
    a, b = x[:3], x.view(2, 2).t()
    a.mul_(w)
    b[0].add_(a[1] * w)
    x[1:3].copy_(w * 5)
    total = (x * x).sum() + (a * 2).sum() + (b * b).sum()
    total.backward()
    return x.detach(), a.detach(), b.detach(), leaf.grad, w.grad


def detached_in_place(lib):
    (lib.ones(3, requires_grad=True) * 1)[0].detach_()
    return ()


AUTOGRAD = {
    "write to a part made without grad": write_to_a_part_made_without_grad,
    "read a part made without grad": read_a_part_made_without_grad,
    "no grad at all": write_to_the_base_of_a_part_made_without_grad,
    "saved, then base": square_then_write("base"),
    "saved, then view": square_then_write("view"),
    "saved, then another view": square_then_write("other view"),
    "saved, then detached": square_then_write("detached"),
    "part of a leaf": leaf_parts(lambda lib, x: x[0].add_(1)),
    "item of a part of a leaf": leaf_parts(lambda lib, x: x[1:].__setitem__(0, 3.0)),
    "part of a leaf, without grad": leaf_parts(without_grad(lambda x: x[0].add_(1))),
    "data of a leaf": leaf_parts(lambda lib, x: x.data[1].fill_(7)),
    "detached leaf": leaf_parts(lambda lib, x: x.detach()[1:].mul_(3)),
    "leaf later": later_leaf,
    "view that is a leaf": leaf_view,
    "written view that is a leaf": written_leaf_view,
    "chunk": written_by_weight(lambda x: x.chunk(2)[1]),
    "split": written_by_weight(lambda x: x.split(3)[0]),
    "unbind": written_by_weight(lambda x: x.unbind()[1]),
    "part of a chunk": written_by_weight(lambda x: x.chunk(2)[1][0]),
    "tensor_split": written_by_weight(lambda x: x.tensor_split(2)[1]),
    "slice": written_by_weight(lambda x: x[1:3]),
    "detached writes": detached_writes,
    "rebased": rebased,
    "detach_ of a view": detached_in_place,
}


# Of torch's errors; the first that one has says what it is about.
WORDS = (
    "is the output of a function that returns multiple views",
    "created in no_grad mode and its base or another view of its base has been modified",
    "created in no_grad mode and is being modified inplace with grad mode",
    "a view of a leaf Variable that requires grad is being used in an in-place operation",
    "needed for gradient computation has been modified by an inplace operation",
    "Can't detach views in-place. Use detach() instead",
)


@pytest.mark.parametrize("name", AUTOGRAD)
def test_gradients_follow_torchs_rules(name, world):
    theirs, ours = both(AUTOGRAD[name])
    if isinstance(theirs, RuntimeError):
        assert isinstance(ours, RuntimeError), f"torch raises {theirs}"
        assert isinstance(ours, flow.OnefoldError)
        words = next(words for words in WORDS if words in str(theirs))
        assert words in str(ours)
    else:
        assert ours == theirs


def test_writes_that_fail_change_nothing(world):
    x = flow.ones(3, requires_grad=True) * 1
    parts = x.unbind()
    version = x.version
    for _ in range(2):
        with pytest.raises(AutogradError, match="a function that returns multiple views"):
            parts[0].mul_(flow.full((), 2.0, requires_grad=True))
    assert x.version == version and x.tolist() == [1, 1, 1]


def test_a_function_that_returns_its_input(world):
    class Same(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 3

    x = flow.ones(3, requires_grad=True) * 1
    y = Same.apply(x)
    with pytest.raises(AutogradError, match="created inside a custom Function"):
        y.add_(1)
    with flow.no_grad():
        y.add_(1)
    assert x.tolist() == y.tolist() == [2, 2, 2]


# What views cost.


def test_views_that_are_gone_leave_nothing(world):
    x = flow.ones(2, 2)
    kept = x[0]
    for _ in range(1000):
        x.t()
        x.chunk(2)
    assert len(x._views) < 10 and [view is kept for view in views.views_of(x)] == [True]
    base = x.detach()
    rows = [base[0] for _ in range(100)]
    for _ in range(1000):
        pair = base[0], base[1]
        del pair
    assert len(base._views) < 300 and len(views.views_of(base)) == len(rows)


def test_a_view_keeps_its_base_and_nothing_else_does(world):
    x = flow.ones(2, 2)
    gone = weakref.ref(x)
    row = x[0]
    del x
    assert gone() is not None
    del row
    assert gone() is None  # without the garbage collector


def test_a_detached_tensor_keeps_no_history(world):
    """Else a list of losses would keep all that they were computed from."""
    gc.disable()
    try:
        leaf = flow.ones(4, requires_grad=True)
        hidden = leaf * 2
        last = hidden[1:]
        edges = [weakref.ref(t.node) for t in (hidden, last)]
        tensors = [hidden.detach(), last.detach(), last.detach().detach()]
        del hidden, last
        assert [edge() for edge in edges] == [None, None]
        tensors[0].zero_()
        assert [t.tolist() for t in tensors[1:]] == [[0, 0, 0]] * 2
        tensors[2].add_(1)
        assert tensors[0].tolist() == [0, 1, 1, 1] and tensors[1].tolist() == [1, 1, 1]
    finally:
        gc.enable()


def test_ordinary_tensors_have_no_links(world):
    x = flow.ones(2) + flow.ones(2)
    assert (
        not any(hasattr(x, name) for name in ("_base", "_step", "_view", "_views")) and not x.shared
    )


def test_disjoint_views_are_left_alone(world, monkeypatch):
    x = flow.zeros(100, 2)
    rows = list(x)
    places = [row.data_ptr() for row in rows]
    rows[3].add_(1)
    assert [index for index, row in enumerate(rows) if row.version] == [3]
    assert [row.data_ptr() for row in rows] == places
    x.add_(1)
    assert [row.tolist() for row in rows[2:5]] == [[1, 1], [2, 2], [1, 1]]


# Ranks that are processes.


def random_case(seed, ranks):
    rng = random.Random(seed)
    shape = tuple(rng.choice([1, 2, 3, 4, 5, 5, 0]) for _ in range(rng.choice([1, 2, 3])))
    program = view_programs.draw_program(rng.choice, shape, 10)
    mesh = rng.sample(range(ranks), rng.choice(range(1, ranks + 1)))
    placement = flow.placement("cpu", mesh)
    if len(mesh) == 4:
        placement = flow.placement("cpu", [mesh[:2], mesh[2:]])
    sbps = [*map(flow.sbp.split, range(len(shape))), flow.sbp.broadcast, flow.sbp.partial_sum]
    return program, placement, tuple(rng.choice(sbps) for _ in range(placement.ndim))


@pytest.mark.parametrize("ranks", [2, 4])
def test_random_views_in_a_launched_world(ranks):
    def program():
        for seed in range(40):
            assert_same(*histories(*random_case(seed, ranks)))
        return True

    assert run_ranks(ranks, program) == [True] * ranks


# The tests can fail.


@pytest.mark.parametrize(
    "lost",
    [
        ("onefold.engine.inplace.has_links", lambda x: False),
        ("onefold.engine.view_writes.views_of", lambda x: []),
        ("onefold.engine.views.OpStep.disjoint", lambda self, other: True),
    ],
    ids=["no links", "no other views", "all disjoint"],
)
def test_a_lost_write_is_noticed(lost, monkeypatch):
    monkeypatch.setattr(*lost)
    caught = 0
    for seed in range(30):
        try:
            assert_same(*histories(*random_case(seed, 2)))
        except AssertionError:
            caught += 1
    assert caught > 3


# Every op.

UNLIKE_TORCH = {
    "cartesian_prod": "one tensor alone is copied",
    "conj": "the sample's reference is conj_physical, which copies",
    "cast": "torch.real stands for the cast of a complex tensor in one sample",
    "dropout": "the sample's reference draws torch's numbers by hand",
}


def root(x):
    while views.base_of(x) is not None:
        x = views.base_of(x)
    return x


def storage(x):
    return x.untyped_storage().data_ptr()


@pytest.mark.filterwarnings("ignore")
def test_results_are_views_exactly_where_torchs_are(world):
    unlike = set()
    for sample in samples.load():
        given, ours = sample.tensors(), [make_local(value) for value in sample.tensors()]
        try:
            wanted, found = sample.run_torch(given), sample.run(ours)
        except (RuntimeError, TypeError, ValueError):
            continue  # of what only some devices or modes have
        theirs = {storage(x) for x in given if x.numel()}
        roots = {id(root(x)) for x in ours}
        for y, x in zip(found, wanted, strict=True):
            if x.numel() and (storage(x) in theirs) != (id(root(y)) in roots):
                unlike.add(sample.name)
    assert unlike == set(UNLIKE_TORCH)


def test_every_view_op_can_be_written():
    unable = [
        name
        for name, forms in ops.items()
        for op in forms
        if op.makes_views and type(op).scatter_view is Op.scatter_view
    ]
    assert unable == [] and any(op.makes_views for forms in ops.values() for op in forms)


def test_an_optimizer_updates_a_parameter_that_is_a_view(world):
    for lib in (torch, flow):
        flat = lib.ones(5)
        weights = [flat[:3].requires_grad_(), flat[3:].view(2, 1).requires_grad_()]
        optimizer = lib.optim.SGD(weights, lr=0.5)
        for step in range(3):
            for weight in weights:
                weight.grad = lib.full(tuple(weight.shape), float(step))
            optimizer.step()
        assert flat.tolist() == [-0.5] * 5
        assert [weight.is_leaf for weight in weights] == [True, True]


def test_long_chains(world):
    x = flow.zeros(3, 3)
    y = x
    for _ in range(3000):
        y = y.t()
    y[0].add_(1)
    assert x.tolist() == y.tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]
    d = x
    for _ in range(100):
        d = d.detach()
    assert d._base is x
    del y, d


@pytest.mark.filterwarnings("ignore:Module.to_global")  # the parts are meant
@pytest.mark.parametrize("sbp", [flow.sbp.split(0), flow.sbp.broadcast])
def test_a_converted_module_leaves_its_views_behind(sbp, world):
    model = flow.nn.Linear(3, 2)
    state, row = model.state_dict(), model.weight.data[0]
    before = value_of(row).clone()
    joins = pytest.warns(flow.LocalPartsWarning) if sbp.is_split else nullcontext()
    with joins:
        model.to_global(flow.placement("cpu", [0, 1]), sbp)
    model.double()
    with flow.no_grad():
        model.weight.zero_()
    assert torch.equal(value_of(row), before)
    row.fill_(1)
    assert value_of(state["weight"])[0].eq(1).all() and value_of(model.weight).eq(0).all()


def test_gradients_are_no_views(world):
    """What the backward pass makes them of is nobody's, and would be kept by them."""
    x, y = (flow.ones(2, 3, requires_grad=True) for _ in range(2))
    (x.t() * 2 + y[0].view(3, 1).expand(3, 2)).sum().backward()
    for leaf in (x, y):
        assert views.base_of(leaf.grad) is None
        leaf.grad.mul_(2)
    assert x.grad.tolist() == [[4] * 3] * 2 and y.grad.tolist() == [[4] * 3, [0] * 3]


@pytest.mark.parametrize("name", ["view_as_real", "view_as_complex"])
def test_gradients_of_complex_views_are_views(name):
    """They are no ops of their own, which would compute forward again."""

    def gradient(lib):
        lead = lib.arange(6.0, dtype=lib.float64).view(3, 2).requires_grad_()
        pairs = lib.view_as_complex(lead * 2.0) if name == "view_as_real" else lead * 2.0
        (getattr(lib, name)(pairs).abs() ** 2).sum().backward()
        return lead.grad

    torch.testing.assert_close(gradient(flow).to_torch(), gradient(torch))
    dtype = flow.complex64 if name == "view_as_real" else flow.float32
    x = flow.ones(3, 2, dtype=dtype, requires_grad=True)
    y = getattr(flow, name)(x)
    with flow.profiler.profile() as prof:
        y.backward(flow.ones_like(y))
    ran = {row.key for row in prof.key_averages()}
    assert not any("view_as" in key and "backward" in key for key in ran), ran
