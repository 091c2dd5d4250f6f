"""autograd.Function against torch's: the same class body gives the same gradients."""

import gc
import weakref

import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import AutogradError, MixedTensorsError, OnefoldTypeError
from onefold.testing.sample_checks import value_of


def both(body):
    """The class that `body(base, lib)` makes, for onefold and for torch."""
    return body(flow.autograd.Function, flow), body(torch.autograd.Function, torch)


def leaves(sbp="(S0)"):
    data = [0.5, -1.0, 2.0]
    x = flow.tensor(data, dtype=flow.float64)
    if sbp is not None:
        x = flow.tensor(x, placement=flow.placement("cpu", [0, 1]), sbp=parse(sbp))
    return x.requires_grad_(), torch.tensor(data, dtype=torch.float64, requires_grad=True)


def exp(base, lib):
    class Exp(base):
        @staticmethod
        def forward(ctx, x):
            y = lib.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            (y,) = ctx.saved_tensors
            return dy * y

    return Exp


def product(base, lib):
    class Product(base):
        @staticmethod
        def forward(ctx, x, factor, w, nothing):
            ctx.save_for_backward(x, None, w)
            ctx.factor = factor
            return x * w * factor

        @staticmethod
        def backward(ctx, dy):
            x, none, w = ctx.saved_tensors
            assert none is None and ctx.needs_input_grad == (True, False, True, False)
            return dy * w * ctx.factor, None, dy * x * ctx.factor, None

    return Product


def several(base, lib):
    class Several(base):
        @staticmethod
        def forward(ctx, x):
            a, b = x * 2, lib.sin(x)
            ctx.save_for_backward(x, b)
            return a, "text", b, x * 5

        @staticmethod
        def backward(ctx, da, dtext, db, dc):
            x, b = ctx.saved_tensors
            assert dtext is None
            return da * 2 + db * lib.cos(x) + dc * 5 + 0 * b

    return Several


@pytest.mark.parametrize("sbp", [None, "(S0)", "(B)", "(P)"])
@pytest.mark.parametrize("body", [exp, product, several])
def test_gradients_and_double_gradients_are_torchs(body, sbp, world):
    found = []
    ours, theirs = leaves(sbp)
    for function, x in zip(both(body), (ours, theirs), strict=True):
        w = (x.detach() + 1).requires_grad_()
        grad = flow.autograd.grad if x is ours else torch.autograd.grad
        if body is product:
            loss = (function.apply(x, 3.0, w, None) ** 2).sum()
        elif body is several:
            a, text, b, _ = function.apply(x)  # the last output stays unused: its gradient is 0
            assert text == "text"
            loss = (a * b).sum()
        else:
            loss = (function.apply(x) ** 2).sum()
        (first,) = grad(loss, x, create_graph=True)
        (second,) = grad((first * first).sum(), x)
        found.append([first.detach(), second])
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(value_of(mine), wanted)


def test_missing_gradients_are_zeros_unless_told_otherwise(world):
    seen = []

    def body(base, materialize):
        class Two(base):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, da, db):
                seen.append(None if db is None else db.tolist())
                return da * 2

        return Two

    for materialize in (True, False):
        for base, x in zip(
            (flow.autograd.Function, torch.autograd.Function), leaves(), strict=True
        ):
            body(base, materialize).apply(x)[0].sum().backward()
    assert seen == [[0.0] * 3, [0.0] * 3, None, None]


def test_non_differentiable_outputs_and_integers(world):
    class Sort(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            index, mask = flow.argsort(x), x * 0
            ctx.mark_non_differentiable(mask)
            return x * 1, index, mask

        @staticmethod
        def backward(ctx, dy, dindex, dmask):
            return dy

    x, _ = leaves(None)
    y, index, mask = Sort.apply(x)
    assert y.requires_grad and not index.requires_grad and not mask.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [1.0] * 3


def test_an_input_may_be_returned(world):
    class Same(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.saved_tensors[0]

    x, _ = leaves()
    y = Same.apply(x)
    assert y is not x and x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [0.5, -1.0, 2.0]


def test_nothing_is_recorded_where_no_gradient_is_needed(world):
    Exp, _ = both(exp)
    x, _ = leaves()
    assert not Exp.apply(x.detach()).requires_grad
    with flow.no_grad():
        assert not Exp.apply(x).requires_grad


def test_saved_tensors_are_freed_without_the_garbage_collector(world):
    kept = []

    class Keep(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y, other = x * 2, x * 3
            kept.extend([weakref.ref(ctx), weakref.ref(other)])
            ctx.save_for_backward(x, y, other)
            return y

        @staticmethod
        def backward(ctx, dy):
            return dy * len(ctx.saved_tensors)

    x, _ = leaves()
    y = Keep.apply(x)
    gc.disable()
    try:
        y.sum().backward()
        assert [ref() for ref in kept] == [None, None]
        z = Keep.apply(x)
        del z
        assert kept[-1]() is None
    finally:
        gc.enable()


def test_saved_tensors_pass_through_the_hooks(world):
    Exp, _ = both(exp)
    Product, _ = both(product)
    x, _ = leaves()
    packed = []
    with flow.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = Product.apply(Exp.apply(x), 2.0, x, None)
    assert len(packed) == 3
    (g,) = flow.autograd.grad(y.sum(), x, create_graph=True)
    value = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(value_of(g.detach()), 2 * (1 + value) * value.exp())
    g.sum().backward()
    torch.testing.assert_close(value_of(x.grad), 2 * (2 + value) * value.exp())


def broken(result):
    class Broken(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, dy):
            return result(dy)

    return Broken


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (lambda dy: dy, AutogradError, "returned 1 gradients, but forward got 2 arguments"),
        (lambda dy: (dy, dy, dy), AutogradError, "returned 3 gradients"),
        (
            lambda dy: (dy, 1.0),
            OnefoldTypeError,
            "gradient 1 must be a Tensor or None, but got float",
        ),
    ],
)
def test_wrong_backwards(result, kind, text, world):
    x, _ = leaves()
    y = broken(result).apply(x, x).sum()
    with pytest.raises(kind, match=text):
        y.backward()
    assert x.grad is None


def test_what_a_function_must_have(world):
    x, _ = leaves()
    with pytest.raises(NotImplementedError, match="static forward"):
        flow.autograd.Function.apply(x)

    class Half(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    with pytest.raises(OnefoldTypeError, match="save_for_backward keeps Tensors and None"):
        Half.apply(x)


def modern(base, lib):
    class Power(base):
        @staticmethod
        def forward(x, factor):
            y = x**3 * factor
            return y, x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.factor = inputs
            ctx.save_for_backward(x, output[0])
            ctx.save_for_forward(x)

        @staticmethod
        def backward(ctx, dy, dz):
            x, y = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, False)
            assert (y == x**3 * ctx.factor).all()
            return dy * 3 * x * x * ctx.factor + dz * 2, None

    return Power


@pytest.mark.parametrize("sbp", [None, "(S0)"])
def test_setup_context(sbp, world):
    found = []
    ours, theirs = leaves(sbp)
    for function, x in zip(both(modern), (ours, theirs), strict=True):
        grad = flow.autograd.grad if x is ours else torch.autograd.grad
        y, z = function.apply(x, 2.0)
        (first,) = grad((y * z).sum(), x, create_graph=True)
        (second,) = grad((first * first).sum(), x)
        found.append([y.detach(), first.detach(), second])
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(value_of(mine), wanted)


def test_once_differentiable(world):
    def body(base, lib):
        class Square(base):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @lib.autograd.function.once_differentiable
            def backward(ctx, dy):
                """The gradient."""
                return dy * 2 * ctx.saved_tensors[0]

        return Square

    for function, x, lib in zip(both(body), leaves(None), (flow, torch), strict=True):
        assert function.backward.__doc__ == "The gradient."
        function.apply(x).sum().backward()
        assert x.grad.tolist() == [1.0, -2.0, 4.0]
        (first,) = lib.autograd.grad((function.apply(x) * x).sum(), x, create_graph=True)
        assert first.tolist() == [0.75, 3.0, 12.0] and first.requires_grad
        with pytest.raises(RuntimeError, match="twice a function that was marked with @once"):
            first.sum().backward()


def with_gradient(gradient):
    """`2 * x` whose backward returns `gradient(lib, dy)`."""

    def body(base, lib):
        class Twice(base):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, dy):
                return gradient(lib, dy)

        return Twice

    return both(body)


@pytest.mark.parametrize("sbp", [None, "(S0)", "(B)"])
@pytest.mark.parametrize(
    "gradient", [lambda lib, dy: lib.stack([dy, dy * 3]), lambda lib, dy: dy.float()]
)
def test_a_gradient_is_brought_to_the_shape_and_dtype_of_the_input(gradient, sbp):
    mine, theirs = with_gradient(gradient)
    x, ref = leaves(sbp)
    mine.apply(x).sum().backward()
    theirs.apply(ref).sum().backward()
    assert x.grad.dtype is ref.grad.dtype and x.grad.tolist() == ref.grad.tolist()


@pytest.mark.parametrize(
    "gradient", [lambda lib, dy: dy.sum(), lambda lib, dy: dy[:2], lambda lib, dy: dy[:0]]
)
def test_a_gradient_of_another_shape_is_an_error(gradient):
    for function, x in zip(with_gradient(gradient), leaves(None), strict=True):
        with pytest.raises(RuntimeError, match="shape"):
            function.apply(x).sum().backward()
        assert x.grad is None


def test_a_local_gradient_of_a_global_input_is_an_error():
    mine, _ = with_gradient(lambda lib, dy: lib.ones(3))
    x, _ = leaves("(S0)")
    with pytest.raises(MixedTensorsError, match="gradient 0"):
        mine.apply(x).sum().backward()
    assert x.grad is None
