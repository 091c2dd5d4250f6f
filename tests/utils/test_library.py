"""Custom ops by torch.library's names: both libraries run the same programs."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import AutogradError

LIBRARIES = {"torch": torch, "onefold": flow}


def _scale(lib, space):
    """An op of two tensors and a number, with a gradient."""

    @lib.library.custom_op(f"{space}::scale", mutates_args=())
    def scale(x: lib.Tensor, w: lib.Tensor, by: float = 2.0) -> tuple[lib.Tensor, lib.Tensor]:
        assert not lib.is_grad_enabled()
        return x @ w * by, x.sum(0)

    @scale.register_fake
    def _(x, w, by=2.0):
        return x.new_empty(x.shape[0], w.shape[1]), x.new_empty(x.shape[1])

    def setup_context(ctx, inputs, output):
        x, w, ctx.by = inputs
        ctx.save_for_backward(x, w)

    def backward(ctx, dy, dsum):
        x, w = ctx.saved_tensors
        return dy @ w.T * ctx.by + dsum, x.T @ dy * ctx.by, None

    scale.register_autograd(backward, setup_context=setup_context)
    return scale


def _tensors(lib):
    x = torch.arange(6.0).reshape(3, 2) / 4
    w = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, 1.0]])
    make = (lambda t: t.clone()) if lib is torch else flow.from_torch
    return make(x).requires_grad_(), make(w).requires_grad_()


def _results(lib, space):
    scale = _scale(lib, space)
    x, w = _tensors(lib)
    y, total = scale(x, w, 3.0)
    z, _ = getattr(lib.ops, space).scale(x, w, by=0.5)
    (y.sum() + (total * total).sum() + (z * z).sum()).backward()
    return [each.detach().numpy() for each in (y, total, z, x.grad, w.grad)]


def test_a_custom_op_and_its_gradient_are_those_of_torch(world):
    expected, actual = (_results(lib, f"t_{name}") for name, lib in LIBRARIES.items())
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_a_custom_op_takes_global_tensors(world):
    scale = _scale(flow, "t_global")
    expected = _results(flow, "t_local")
    p = flow.placement("cpu", ranks=[0, 1])
    x, w = _tensors(flow)
    x = x.detach().to_global(p, flow.sbp.broadcast)
    x = x.to_global(p, flow.sbp.split(0)).requires_grad_()
    w = w.detach().to_global(p, flow.sbp.broadcast).requires_grad_()
    y, total = scale(x, w, 3.0)
    z, _ = scale(x, w, 0.5)
    (y.sum() + (total * total).sum() + (z * z).sum()).backward()
    for one, other in zip(expected, (y, total, z, x.grad, w.grad), strict=True):
        np.testing.assert_allclose(other.detach().numpy(), one, rtol=1e-6)


def test_a_compiled_function_captures_what_a_custom_op_runs(world):
    scale = _scale(flow, "t_compiled")
    x, w = _tensors(flow)
    compiled = flow.compile(lambda x, w: scale(x, w)[0].relu())
    for _ in range(2):
        np.testing.assert_allclose(
            compiled(x, w).detach().numpy(), scale(x, w)[0].relu().detach().numpy()
        )


def test_tensors_without_data_go_to_the_fake(world):
    scale = _scale(flow, "t_fake")
    y, total = scale(flow.empty(5, 2, device="meta"), flow.empty(2, 4, device="meta"))
    assert (y.shape, total.shape) == ((5, 4), (2,))


def test_lists_of_tensors_have_gradients(world):
    @flow.library.custom_op("t_lists::double", mutates_args=())
    def double(xs: list[flow.Tensor], by: int = 2) -> list[flow.Tensor]:
        return [x * by for x in xs]

    double.register_autograd(lambda ctx, dys: ([2 * dy for dy in dys], None))
    xs = [flow.ones(2, requires_grad=True), flow.ones(3, requires_grad=True)]
    ys = double(xs)
    assert isinstance(ys, list)
    (ys[0].sum() + 3 * ys[1].sum()).backward()
    np.testing.assert_array_equal(xs[0].grad.numpy(), [2, 2])
    np.testing.assert_array_equal(xs[1].grad.numpy(), [6, 6, 6])


def test_an_op_may_write_its_arguments(world):
    @flow.library.custom_op("t_writes::increment", mutates_args={"x"})
    def increment(x: flow.Tensor) -> None:
        x.add_(1)

    x = flow.zeros(2)
    assert increment(x) is None
    np.testing.assert_array_equal(x.numpy(), [1, 1])


def test_functions_by_device(world):
    @flow.library.custom_op("t_kernels::f", mutates_args=(), device_types="cuda")
    def f(x: flow.Tensor) -> flow.Tensor:
        return x + 1

    with pytest.raises(NotImplementedError, match=r"t_kernels::f .* tensors on cpu"):
        f(flow.ones(2))

    @flow.library.register_kernel("t_kernels::f", "cpu")
    def _(x):
        return x + 2

    assert f(flow.ones(2)).sum().item() == 6


def test_errors_of_custom_ops_say_what_to_do(world):
    library = flow.library
    with pytest.raises(ValueError, match="form 'namespace::name', but got 'scale'"):
        library.custom_op("scale", mutates_args=())(lambda x: x)

    def untyped(x) -> flow.Tensor:
        return x

    with pytest.raises(ValueError, match="'x' of t_errors::f must have a type annotation"):
        library.custom_op("t_errors::f", untyped, mutates_args=())

    def same(x: flow.Tensor, by: float = 1.0) -> flow.Tensor:
        return x if by == 0 else x[1:] if by < 0 else x * by

    with pytest.raises(ValueError, match=r"names 'y', but the parameters .* are x, by"):
        library.custom_op("t_errors::f", same, mutates_args=("y",))
    op = library.custom_op("t_errors::f", same, mutates_args=())
    x = flow.ones(2, requires_grad=True)
    for by in (0.0, -1.0):
        with pytest.raises(RuntimeError, match=r"t_errors::f: a result .* return x.clone"):
            op(x, by)
    with pytest.raises(TypeError, match="t_errors::f: 'x' must be an onefold Tensor, but got str"):
        op("a")
    with pytest.raises(TypeError, match=r"t_errors::f: too many .*it takes \(x: .*, by: float"):
        op(x, 1.0, 2)
    with pytest.raises(AutogradError, match="through t_errors::f but no autograd formula"):
        op(x).sum().backward()
    with pytest.raises(AttributeError, match=r"ops.t_errors has no op 'g': it has t_errors::f;"):
        flow.ops.t_errors.g  # noqa: B018
    with pytest.raises(ValueError, match="no custom op 't_errors::g'"):
        library.register_fake("t_errors::g")
    with pytest.raises(ValueError, match=r"sequence of names or 'unknown', but got 'x'; write"):
        library.custom_op("t_errors::h", same, mutates_args="x")
    with pytest.raises(AttributeError, match=r"decorate it with flow.library.custom_op"):
        library.triton_op  # noqa: B018


def test_names_of_aten_are_functions_of_the_package(world):
    aten = flow.ops.aten
    x = flow.ones(2, 3)
    assert aten.mm.default(x, x.t()).shape == (2, 2)
    assert aten.sum.dim_IntList(x, [1], True).shape == (2, 1)
    assert aten.mm.default is flow.ops.aten.mm.default
    assert (str(aten.mm.default), str(aten.mm)) == ("aten.mm.default", "aten.mm")
    assert aten.mm.default not in {aten.bmm.default, aten.mm}
    y = aten.view.default(x, [3, 2])  # a method, as the next ones
    assert aten.add_.Tensor(y, 1).tolist() == aten.copy_.default(y, 2 * flow.ones(3, 2)).tolist()
    assert x.tolist() == [[2, 2, 2], [2, 2, 2]]
    wanted = torch.ops.aten.gelu.default(x.to_torch(), approximate="tanh")
    assert aten.gelu.default(x, approximate="tanh").tolist() == wanted.tolist()
    with pytest.raises(AttributeError, match=r"ops.aten has no op 'nothing'"):
        aten.nothing  # noqa: B018
