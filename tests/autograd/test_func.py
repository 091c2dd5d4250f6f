"""flow.func against torch.func: gradients, Jacobians, rows, modules with other parameters."""

import warnings

import numpy as np
import pytest
import torch

import onefold as flow

leaves = torch.utils._pytree.tree_leaves
mapped = torch.utils._pytree.tree_map_only


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


S0, B, P = flow.sbp.split(0), flow.sbp.broadcast, flow.sbp.partial_sum
LAYOUTS = [None, ([0, 1], S0), ([0, 1, 2], S0), ([0, 1], P), ([[0, 1], [2, 3]], (S0, B))]


def ours(tree, layout=None):
    """A pytree of torch tensors as ours; those of the largest size have the layout."""
    if layout is None:
        return mapped(torch.Tensor, flow.tensor, tree)
    p = flow.placement("cpu", layout[0])
    whole = (B,) * p.ndim
    return mapped(
        torch.Tensor,
        lambda x: flow.tensor(x, placement=p, sbp=layout[1] if x.ndim else whole),
        tree,
    )


def same(found, wanted):
    found, wanted = leaves(found), leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert not one.requires_grad
        assert one.shape == other.shape
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=1e-6, atol=1e-9)


X, Y = values(4), values(4, seed=1)
TREE = {"a": values(4), "b": [values(4, seed=2), values(4, seed=3)]}


def powers(x, y):
    return (x * y**2).sum()


CALLS = {
    "grad": (lambda f, m: f.grad(lambda x, y: (x.sin() * y).sum())(X_(m), Y_(m))),
    "grad of the second": lambda f, m: f.grad(powers, argnums=1)(X_(m), Y_(m)),
    "grad of both": lambda f, m: f.grad(powers, argnums=(0, -1))(X_(m), Y_(m)),
    "grad of a tree": lambda f, m: f.grad(lambda t: (t["a"] * t["b"][1] ** 2).sum())(m(TREE)),
    "grad with aux": lambda f, m: f.grad(lambda x: ((x**2).sum(), {"a": x * 2}), 0, True)(X_(m)),
    "grad and value": lambda f, m: f.grad_and_value(lambda x: (x**3).sum())(X_(m)),
    "grad of grad": lambda f, m: f.grad(lambda x: f.grad(lambda y: (y**3).sum())(x).sum())(X_(m)),
    "grad of closure": lambda f, m: f.grad(
        lambda x: (x * f.grad(lambda y: (x * y * y).sum())(Y_(m))).sum()
    )(X_(m)),
    "grad of itself": lambda f, m: f.grad(
        lambda x: f.grad(lambda y: (x * y).sum())(x).sum()
    )(X_(m)),
    "vjp": lambda f, m: pulled(f.vjp(lambda x, y: x.sin() * y, X_(m), Y_(m)), Y_(m)),
    "vjp of a tree": lambda f, m: pulled(f.vjp(lambda t: t["a"] * t["b"][0], m(TREE)), Y_(m)),
    "vjp of several": lambda f, m: pulled(
        f.vjp(lambda x: (x.sin(), {"c": x.cos()}), X_(m)), (Y_(m), {"c": Y_(m)})
    ),
    "jvp": lambda f, m: f.jvp(lambda x, y: x.sin() * y, (X_(m), Y_(m)), (Y_(m), X_(m))),
    "jvp of a tree": lambda f, m: f.jvp(
        lambda t: (t["a"] * t["b"][0], t["a"]), (m(TREE),), (m(TREE),)
    ),
    "jvp with aux": lambda f, m: f.jvp(lambda x: (x**2, x), (X_(m),), (Y_(m),), has_aux=True),
    "jvp without": lambda f, m: f.jvp(lambda x: (x, Y_(m)), (X_(m),), (Y_(m),)),
    "jvp of grad": lambda f, m: f.jvp(f.grad(lambda x: (x**4).sum()), (X_(m),), (Y_(m),)),
    "grad of jvp": lambda f, m: f.grad(
        lambda x: f.jvp(lambda y: y**3, (x,), (Y_(m),))[1].sum()
    )(X_(m)),
    "jacrev": lambda f, m: f.jacrev(lambda x: x.sin() * x.sum())(X_(m)),
    "jacrev of several": lambda f, m: f.jacrev(
        lambda x, y: (x * y, {"s": x.sum()}), (0, 1)
    )(X_(m), Y_(m)),
    "jacfwd": lambda f, m: f.jacfwd(lambda x: x.sin() * x.sum())(X_(m)),
    "hessian": lambda f, m: f.hessian(lambda x: (x**3).sum() * x[0])(X_(m)),
}  # fmt: skip


def X_(m):  # noqa: N802
    return m(X)


def Y_(m):  # noqa: N802
    return m(Y)


def pulled(made, cotangent):
    return made[0], made[1](cotangent), made[1](cotangent, retain_graph=True)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_transforms_are_torchs(world, name, layout):
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # torch's own
        wanted = CALLS[name](torch.func, lambda tree: tree)
    same(CALLS[name](flow.func, lambda tree: ours(tree, layout)), wanted)


def test_what_else_is_differentiated_stays_on_the_tape():
    w, x = flow.tensor(2.0, requires_grad=True), flow.tensor(3.0)
    slope = flow.func.grad(lambda x: w * x**2)(x)
    slope.backward()
    assert (slope.item(), w.grad.item()) == (12, 6)
    x.requires_grad_()
    flow.func.grad(lambda x: x**3)(x).backward()
    assert x.grad.item() == 18
    with flow.no_grad():
        assert not flow.func.grad(lambda x: w * x**2)(x).requires_grad
        assert flow.func.grad(lambda x: w * x**2)(x).item() == 12
    assert not flow.func.grad(lambda x: x**2)(flow.tensor(1.0)).requires_grad


def test_wrong_calls():
    f, x = flow.func, flow.ones(2)
    for call, text in (
        (lambda: f.grad(lambda x: x)(x), "scalar tensor"),
        (lambda: f.grad(lambda x: x)(flow.ones(1)), r"without dims\), got \(1,\)"),
        (lambda: f.grad(lambda x: 3)(x), "got int"),
        (lambda: f.grad(lambda x: x.sum(), has_aux=True)(x), "tuple"),
        (lambda: f.vjp(flow.sin, x)[1]((x, x)), "nested like"),
        (lambda: f.jvp(flow.sin, (x,), (x, x)), "nested like"),
        (lambda: f.jvp(lambda x: flow.ones(1), (x,), (x,), strict=True), "depend"),
        (lambda: f.jvp(flow.sin, (x,), (x[0],)), r"tangent 0 .* primal 0, \(2,\), but has \(\)"),
        (lambda: f.vjp(flow.sin, x)[1](x[0]), r"cotangent 0 .* output 0, \(2,\), but has \(\)"),
        (lambda: f.linearize(flow.sin, x)[1](x[0]), r"linearize: tangent 0 .* primal 0, \(2,\)"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    with pytest.raises(ValueError, match="argnums=1"):
        f.grad(flow.sum, argnums=1)(x)
    for call, text in (
        (lambda: f.grad(flow.sin)(1.0), "float"),
        (lambda: f.grad(flow.sum)(torch.ones(2)), "got torch.Tensor; use onefold.from_torch"),
        (lambda: f.grad(flow.sum, argnums="x")(x), "argnums must be an int"),
        (lambda: f.jacrev(flow.sum, argnums=(0, None))(x), "argnums must be an int"),
        (lambda: f.jacrev(lambda x: 3.0)(x), "return onefold Tensors, but got float"),
        (lambda: f.vjp(lambda x: 3.0, x), "return onefold Tensors, but got float"),
        (lambda: f.jvp(lambda x: torch.ones(2), (x,), (x,)), "got torch.Tensor"),
        (lambda: f.jvp(flow.sin, (x,), (2.0,)), "tangent 0 must be an onefold Tensor, but got"),
        (lambda: f.vjp(flow.sin, x)[1](2.0), "cotangent 0 must be an onefold Tensor, but got"),
        (lambda: flow.vmap(flow.sin)(torch.ones(2)), "got torch.Tensor; use onefold.from_torch"),
    ):
        with pytest.raises(TypeError, match=text):
            call()


def test_jacobians_of_nothing(world):
    wanted = torch.func.jacrev(lambda x: (x * x, x.sum()))(torch.empty(0, 2))
    p = flow.placement("cpu", [0, 1])
    for layout in ({}, {"placement": p, "sbp": B}, {"placement": p, "sbp": S0}):
        found = flow.func.jacrev(lambda x: (x * x, x.sum()))(flow.zeros(0, 2, **layout))
        same(found, wanted)


def test_results_that_all_rows_share():
    x, y = flow.arange(2.0), flow.ones(2)
    found = flow.vmap(lambda row: (row, y, y * 2), out_dims=(0, None, None))(x)
    assert [part.tolist() for part in found] == [[0, 1], [1, 1], [2, 2]]
    with pytest.raises(ValueError, match="same for every index"):
        flow.vmap(lambda row: row, out_dims=None)(x)

    class Rows(flow.nn.Graph):
        def build(self, x):
            return flow.vmap(lambda row: (row, x), out_dims=(0, None))(x)

    assert Rows()(x)[1].tolist() == [0, 1]


# vmap.

ROWS = {
    "both": (lambda x, y: x * y.sum(), (values(3, 2), values(3, 4)), {}),
    "one": (lambda x, y: x @ y, (values(3, 2), values(2)), {"in_dims": (0, None)}),
    "other dims": (torch.add, (values(2, 3), values(3, 2)), {"in_dims": (1, 0), "out_dims": 1}),
    "negative": (lambda x: x.cumsum(0), (values(2, 3),), {"in_dims": -1, "out_dims": -1}),
    "trees": (
        lambda t, y: {"s": t["a"] + y, "t": (t["b"], y)},
        ({"a": values(3), "b": values(2, 3)}, values(2)),
        {"in_dims": ({"a": 0, "b": 1}, None), "out_dims": {"s": 0, "t": (0, None)}},
    ),
    "numbers": (lambda x, k: x * k, (values(3), 2), {"in_dims": (0, None)}),
    "chunks": (torch.sin, (values(3),), {"chunk_size": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_torchs(name):
    function, args, options = ROWS[name]
    wanted = torch.func.vmap(function, **options)(*args)
    same(flow.vmap(function, **options)(*ours(args)), wanted)


def test_rows_of_transforms_and_layouts(world):
    p = flow.placement("cpu", [0, 1])
    x = values(4, 3)
    wanted = torch.func.vmap(torch.func.grad(lambda x: (x**3).sum()))(x)
    for sbp in (S0, flow.sbp.split(1), B, P):
        here = flow.tensor(x, placement=p, sbp=sbp)
        same(flow.vmap(flow.func.grad(lambda x: (x**3).sum()))(here), wanted)
        same(flow.vmap(flow.vmap(flow.sin))(here), x.sin())
    w = flow.tensor(x, requires_grad=True)
    flow.vmap(lambda row: (row * row).sum())(w).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * x.numpy())


def test_keywords_are_as_in_torch():
    for lib in (flow, torch):
        found = lib.vmap(lambda x, y: x + y)(lib.arange(2.0), y=lib.arange(2.0))
        assert found.tolist() == [[0, 1], [1, 2]]


def test_random_rows():
    def noise(x):
        return x + flow.rand(2)

    x = flow.zeros(3, 2)
    flow.manual_seed(0)
    state = flow.get_rng_state()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        flow.vmap(noise)(x)
    assert flow.get_rng_state() == state
    one = flow.vmap(noise, randomness="same")(x).tolist()
    assert one[0] == one[1] == one[2]
    assert len({tuple(row) for row in flow.vmap(noise, randomness="different")(x).tolist()}) == 3
    with pytest.raises(RuntimeError, match="randomness must be"):
        flow.vmap(noise, randomness="yes")


def test_rows_that_cannot_be():
    x = flow.ones(2, 3)
    for call, text in (
        (lambda: flow.vmap(flow.add)(x, flow.ones(3)), "one size"),
        (lambda: flow.vmap(flow.sin, in_dims=None)(x), "no tensor"),
        (lambda: flow.vmap(flow.sin, in_dims=2)(x), "-2 to 1"),
        (lambda: flow.vmap(flow.sin, in_dims=(0, 0))(x), "does not have the structure"),
        (lambda: flow.vmap(flow.mul, in_dims=(0, 1))(x, 2), "has no dims"),
        (lambda: flow.vmap(flow.sin)(flow.ones(0, 3)), "at least 1"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="must return Tensors"):
        flow.vmap(lambda x: 3)(x)


# Modules.


def test_a_module_is_called_with_other_tensors():
    model = flow.nn.Sequential(flow.nn.Linear(2, 3), flow.nn.BatchNorm1d(3))
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    given = {name: values(*x.shape, seed=1).float() for name, x in theirs.named_parameters()}
    x = values(4, 2).float()
    before = {name: value.tolist() for name, value in model.state_dict().items()}
    call = flow.func.functional_call
    model.eval()
    theirs.eval()
    same(
        call(model, ours(given), (flow.tensor(x),)).detach(),
        torch.func.functional_call(theirs, given, (x,)),
    )
    mine = {name: flow.tensor(value, requires_grad=True) for name, value in given.items()}
    call(model, [mine], flow.tensor(x), {}).sum().backward()
    assert all(value.grad is not None for value in mine.values())
    assert all(value.grad is None for value in model.parameters())
    slopes = flow.func.grad(lambda p: call(model, p, flow.tensor(x)).square().sum())(ours(given))
    wanted = torch.func.grad(lambda p: torch.func.functional_call(theirs, p, x).square().sum())(
        given
    )
    for name, slope in slopes.items():
        torch.testing.assert_close(slope.to_torch(), wanted[name])
    assert {name: value.tolist() for name, value in model.state_dict().items()} == before


def test_an_ensemble_is_stacked():
    def nets(lib):
        made = [lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3)) for _ in range(3)]
        for index, net in enumerate(made):
            state = dict(net.named_parameters()) | dict(net.named_buffers())
            for name, x in state.items():
                if x.is_floating_point():
                    data = values(*x.shape, seed=index + len(name)).abs()
                    x.data = data if lib is torch else flow.tensor(data)
            net.eval()
        return made

    x = values(4, 2)
    stacks = []
    for lib, input in ((torch, x), (flow, flow.tensor(x))):
        models = nets(lib)
        params, buffers = lib.func.stack_module_state(models)

        def call(p, b, x, lib=lib, model=models[0]):
            return lib.func.functional_call(model, (p, b), (x,))

        lib.vmap(call, (0, 0, None))(params, buffers, input).square().sum().backward()
        assert all(p.is_leaf and p.requires_grad for p in params.values())
        stacks.append(({name: p.grad for name, p in params.items()}, buffers))
    assert list(stacks[1][0]) == list(stacks[0][0]) and list(stacks[1][1]) == list(stacks[0][1])
    same(stacks[1], stacks[0])
    one, other = flow.nn.Linear(2, 3), flow.nn.Linear(2, 3).eval()
    for wrong in ([], [one, other], [one, flow.nn.Sequential()]):
        with pytest.raises(RuntimeError, match="Expected"):
            flow.func.stack_module_state(wrong)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_linearize(layout):
    def f(tree, y):
        return {"sum": (tree["a"] * y).sum(), "b": tree["b"][0].sin() * y**2}

    tangents = mapped(torch.Tensor, torch.cos, (TREE, Y))
    theirs, push = torch.func.linearize(f, TREE, Y)
    value, our_push = flow.func.linearize(f, *ours((TREE, Y), layout))
    same(value, theirs)
    for scale in (1.0, -2.0):
        given = mapped(torch.Tensor, lambda x, scale=scale: x * scale, tangents)
        same(our_push(*ours(given, layout)), push(*given))
    with pytest.raises(RuntimeError, match="nested like the primals"):
        our_push(ours(Y))


def test_linearize_in_grad():
    def outer(lib, x):
        return lib.func.linearize(lambda x: x**3, x)[1](x.sin()).sum()

    same(
        flow.func.grad(lambda x: outer(flow, x))(ours(X)),
        torch.func.grad(lambda x: torch.func.jvp(lambda x: x**3, (x,), (x.sin(),))[1].sum())(X),
    )


def test_batch_norms_of_an_ensemble():
    def replaced(lib):
        nn = lib.nn
        model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4)))
        lib.func.replace_all_batch_norm_modules_(model)
        return model

    theirs, mine = replaced(torch), replaced(flow)
    mine.load_state_dict(theirs.state_dict())
    assert repr(mine) == repr(theirs)
    x = values(5, 3).float()
    np.testing.assert_allclose(
        mine.eval()(flow.from_torch(x)).detach().numpy(),
        theirs.eval()(x).detach().numpy(),
        1e-5,
        1e-6,
    )
