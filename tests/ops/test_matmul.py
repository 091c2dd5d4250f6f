"""Matrix products beyond the samples: layouts chosen, errors, einsum's language."""

import pytest
import torch

from onefold.engine.grad_mode import no_grad
from onefold.engine.names import names
from onefold.engine.ops.einsum import parse
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, parse as sbps, short, split
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, ShapeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

TWO = Placement("cpu", [0, 1])


def tensor(*shape, sbp=None):
    value = torch.randn(*shape, dtype=torch.float64)
    return make_local(value) if sbp is None else make_global(value, TWO, sbps(sbp))


@pytest.mark.parametrize(
    ("x", "w", "bias", "y"),
    [
        ("(S0)", "(B)", "(B)", "(S0)"),  # data parallel
        ("(B)", "(S0)", "(S0)", "(S1)"),  # column parallel
        ("(S1)", "(S1)", "(B)", "(P)"),  # row parallel
        ("(P)", "(B)", "(P)", "(P)"),
        ("(B)", "(B)", "(B)", "(B)"),
    ],
)
def test_linear_keeps_the_layouts_of_parallel_layers(x, w, bias, y):
    out = names.linear(tensor(8, 6, sbp=x), tensor(4, 6, sbp=w), tensor(4, sbp=bias))
    assert short(out.sbp) == y


def test_gradients_of_a_data_parallel_layer_are_partial():
    x, w, b = tensor(8, 6, sbp="(S0)"), tensor(4, 6, sbp="(B)"), tensor(4, sbp="(B)")
    for leaf in (x, w, b):
        leaf.requires_grad_()
    y = names.linear(x, w, b)
    names.sum(names.mul(y, y)).backward()
    assert [short(leaf.grad.sbp) for leaf in (x, w, b)] == ["(S0)", "(P)", "(P)"]


def test_attention_scores_keep_batch_and_heads_split():
    mesh = Placement("cpu", [[0, 1], [2, 3]])
    layout = (split(0), split(1))
    q = make_global(torch.randn(4, 2, 3, 5), mesh, layout)
    assert names.einsum("bhid,bhjd->bhij", q, q).sbp == layout
    assert names.matmul(q, names.transpose(q, 2, 3)).sbp == layout


def test_matmul_multiplies_by_a_number():
    with pytest.raises(OnefoldTypeError, match=r"matmul: .* a number, but got str"):
        names.matmul(tensor(2, 2), tensor(2, 2), alpha="two")


@pytest.mark.parametrize("alpha", [None, 0.5])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("sbp", [None, "(S0)", "(S1)", "(B)", "(P)"])
def test_matmul_of_oneflow(sbp, batch, transpose_a, transpose_b, alpha):
    """OneFlow's options swap the last dims and scale the product."""
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b, "alpha": alpha}
    values = [
        torch.randn(*batch, *((4, 3) if transpose_a else (3, 4)), dtype=torch.float64),
        torch.randn(*batch, *((5, 4) if transpose_b else (4, 5)), dtype=torch.float64),
    ]
    tensors = [
        make_local(value) if sbp is None else make_global(value, TWO, sbps(sbp)) for value in values
    ]
    for leaf in (*values, *tensors):
        leaf.requires_grad_()
    turned = zip(values, (transpose_a, transpose_b), strict=True)
    a, b = (value.mT if turns else value for value, turns in turned)
    wanted, found = (alpha or 1) * (a @ b), names.matmul(*tensors, **options)
    torch.testing.assert_close(value_of(found.detach()), wanted.detach())
    wanted.square().sum().backward()
    names.sum(names.mul(found, found)).backward()
    for tensor, value in zip(tensors, values, strict=True):
        torch.testing.assert_close(value_of(tensor.grad), value.grad)
    out = make_local(torch.empty_like(wanted))
    if sbp is None:
        with no_grad():
            assert names.matmul(*tensors, out=out, **options) is out
        torch.testing.assert_close(value_of(out), wanted.detach())


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mm", [(2, 3), (4, 2)]),
        ("mm", [(2, 3, 1), (3, 2)]),
        ("bmm", [(2, 3, 4), (3, 4, 2)]),
        ("matmul", [(2, 3), (4, 2)]),
        ("matmul", [(2, 2, 3), (3, 3, 2)]),
        ("linear", [(2, 3), (2, 4)]),
        ("dot", [(3,), (4,)]),
        ("mv", [(2, 3), (2,)]),
    ],
)
def test_shapes_that_do_not_fit(name, shapes):
    with pytest.raises(OnefoldRuntimeError, match=name):
        getattr(names, name)(*[tensor(*shape) for shape in shapes])


def test_addmm_input_must_broadcast_to_the_product():
    with pytest.raises(ShapeError, match="does not broadcast"):
        names.addmm(tensor(3, 2, 2), tensor(2, 3), tensor(3, 2))


@pytest.mark.parametrize(
    ("equation", "ndims", "found"),
    [
        ("ij,jk", (2, 2), (("ij", "jk"), "ik")),
        ("ba", (2,), (("ba",), "ab")),
        ("...ij,jk", (4, 2), (("abij", "jk"), "abik")),
        ("...,...", (2, 1), (("ab", "b"), "ab")),
        ("i ... j -> j ...", (3,), (("iaj",), "ja")),
    ],
)
def test_parse(equation, ndims, found):
    assert parse(equation, ndims) == found


@pytest.mark.parametrize(
    ("numbers", "shapes"),
    [
        (([0, 1], [2, 1], [0, 2]), [(2, 3), (4, 3)]),
        (([0, 1], [1, 30]), [(2, 3), (3, 4)]),
        (([51, 3],), [(2, 3)]),
        (([..., 1], [2, 1], [..., 2]), [(2, 5, 3), (4, 3)]),
    ],
)
def test_dims_of_einsum_by_numbers(numbers, shapes):
    given = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    pairs = list(zip(given, numbers, strict=False))
    out = numbers[len(given) :]
    wanted = torch.einsum(*[x for pair in pairs for x in pair], *out)
    ours = [x for a, dims in pairs for x in (make_local(a), dims)]
    torch.testing.assert_close(names.einsum(*ours, *out).to_torch(), wanted)
    for wrong in ([0, 52], [0, "a"], 3):
        with pytest.raises((ValueError, TypeError), match="numbers of dims"):
            names.einsum(make_local(given[0]), wrong)


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [
        ("ij,jk", [(2, 3)], "2 operands"),
        ("ij", [(2, 3, 4)], "2 letters"),
        ("ij->ik", [(2, 3)], "output"),
        ("ij->ii", [(2, 3)], "output"),
        ("i1->i", [(2, 3)], "subscript"),
        ("ij,jk->ik", [(2, 3), (4, 2)], "size 3 in one place and 4"),
    ],
)
def test_wrong_equations(equation, shapes, reason):
    with pytest.raises(ValueError, match=reason):
        names.einsum(equation, *[tensor(*shape) for shape in shapes])


def test_a_replicated_product_stays_replicated():
    assert names.mm(tensor(4, 4, sbp="(B)"), tensor(4, 4, sbp="(B)")).sbp == (broadcast,)
