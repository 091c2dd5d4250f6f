"""Writes go into the memory of a tensor where no other has it, and leave that of others alone."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import AutogradError, OnefoldError


def both(*shape):
    values = torch.arange(float(np.prod(shape))).reshape(shape)
    return values.clone(), flow.tensor(values.tolist())


INDEX = [
    "2", "-1", "1, 2", "slice(1, 3)", "slice(None, None, 2), 1", "Ellipsis, 0", "None, 2",
    "t.tensor([0, 2, 2])", "t.tensor([-1, 0])", "t.tensor(2)", "slice(None), t.tensor([1, 3])",
    "t.tensor([0, 1]), t.tensor([2, 3])", "t.arange(24).reshape(4, 6) % 5 == 0",
    "t.arange(4) > 1", "t.zeros(4, dtype=t.bool)", "t.tensor([], dtype=t.int64)", "[0, 3]", "True",
    "t.tensor([0, 1], dtype=t.int32)", "[0, -1]", "[True, False, True, False]", "Ellipsis, [0, -2]",
    "Ellipsis, t.tensor([1, 5])", "1, Ellipsis, t.tensor([-6])", "Ellipsis, t.arange(6) > 2",
    "slice(None), [1, 5]", "[0, 1], [2, -1]",
]  # fmt: skip


@pytest.mark.parametrize("index", INDEX)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
@pytest.mark.parametrize("value", [3, 2.5, "tensor"])
def test_assigned_elements_are_those_of_torch(index, dtype, value):
    results = []
    for t in (torch, flow):
        x = t.zeros(4, 6, dtype=dtype)
        given = t.tensor(7.0).to(dtype) if value == "tensor" else value
        x[eval(index, {"t": t})] = given
        results.append(x.tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "call",
    [
        "x[2] = 1.0", "x[1:3, 2] = 5", "x[i] = 0.0", "x[:, i] = 2.0", "x[x > 3] = 0.5", "x[0] = z",
        "x.zero_()", "x.fill_(3)", "x.add_(y, alpha=0.5)", "x.lerp_(y, 0.25)", "x.mul_(z)",
        "x.addcmul_(y, z)", "x.clamp_min_(3)", "x.exp_()", "x.pow_(2)", "x.sub_(1)",
        "x[..., 0] = 1.0", "x[..., 1:3] = y[..., :2]", "x[..., i] = 2.0", "x[[0, -1]] = z",
        "x[:, [1, 3]] = y[:, :2]", "x[..., z > 2] = 0.0",
        "x.index_copy_(1, i, y[:, :2])", "x.index_fill_(0, i, 2.0)", "x.index_put_((i, i), z[:2])",
    ],
)  # fmt: skip
def test_a_write_stays_in_the_tensor_s_memory(call):
    results = []
    for t in (torch, flow):
        x, y = (t.arange(24.0).reshape(4, 6).clone() for _ in range(2))
        z, i = t.arange(6.0), t.tensor([0, 2])
        before = x.data_ptr()
        exec(call, {"x": x, "y": y, "z": z, "i": i})
        assert x.data_ptr() == before
        results.append(x.tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "share",
    [
        "kept = x.numpy()", "kept = x.to_torch()", "kept = x.detach().numpy()", "kept = x[:]",
        "kept = flow.from_torch(x.to_torch())", "kept = flow.zeros(4, 6).copy_(x)",
        "kept = flow.nn.Parameter(x)", "kept = x.to_local() if x.is_global else x.numpy()",
        "kept = np.from_dlpack(x)", "kept = x.untyped_storage()",
    ],
)  # fmt: skip
@pytest.mark.parametrize("write", ["x[1] = 5.0", "x.zero_()", "x.lerp_(x + 1, 0.5)"])
def test_who_shares_the_memory_sees_what_it_saw_before(share, write):
    x = flow.ones(4, 6)
    names = {"x": x, "flow": flow, "np": np}
    exec(share, names)
    kept = names["kept"]
    is_view = (
        isinstance(kept, flow.Tensor)
        and not isinstance(kept, flow.nn.Parameter)
        and ("[:]" in share)
    )
    before = torch.tensor(list(kept)) if isinstance(kept, torch.UntypedStorage) else None
    exec(write, names)
    if is_view:
        assert kept.tolist() == x.tolist()
    elif before is not None:
        assert torch.equal(torch.tensor(list(kept)), before)
    else:
        assert np.asarray(kept.tolist()).min() == 1 == np.asarray(kept.tolist()).max()
    assert x.tolist() != flow.ones(4, 6).tolist()


@pytest.mark.parametrize(
    "call",
    [
        "x[9] = 1.0", "x[i] = 1.0", "x[1] = y", "x[0, i] = 1.0", "x.add_(y)", "x[::-1] = 0.0",
        "x[..., i] = 1.0", "x[[0, 9]] = 1.0", "x[..., [0, -7]] = 1.0", "x[..., i, i, i] = 1.0",
        "x[..., [True, False]] = 1.0", "x[..., 0, ...] = 1.0", "x[[0, 1, 2], [0, 1]] = 1.0",
    ],
)  # fmt: skip
def test_a_bad_write_changes_nothing(call):
    x, y, i = flow.ones(4, 6), flow.ones(5), flow.tensor([0, 1, 99])
    version = x.version
    with pytest.raises(OnefoldError):
        exec(call, {"x": x, "y": y, "i": i})
    assert x.tolist() == [[1.0] * 6] * 4
    assert x.version == version


def test_backward_knows_of_a_write():
    x, w = flow.ones(3), flow.ones(3, requires_grad=True)
    y = x * w
    x[0] = 2.0
    with pytest.raises(AutogradError, match="inplace"):
        y.sum().backward()
    z = w.exp()
    with flow.no_grad():
        z[0] = 7.0
    with pytest.raises(AutogradError, match="inplace"):
        z.sum().backward()


@pytest.mark.parametrize("write", ["y.add_(1.0)", "y[0] = 1.0", "y.zero_()"])
def test_a_write_after_detach_leaves_what_backward_kept(write):
    w = flow.ones(3, requires_grad=True)
    y = w.exp()
    z = y * 2
    y.detach_()
    exec(write, {"y": y})
    z.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * np.exp(np.ones(3)), rtol=1e-6)


def test_a_recorded_write_has_a_gradient():
    w = flow.ones(3, requires_grad=True)
    x = flow.zeros(4, 3)
    x[1] = w * 2
    x[2] = 4.0
    x.lerp_(flow.ones(4, 3), 0.5)
    x.sum().backward()
    assert w.grad.tolist() == [1.0] * 3


def test_a_parameter_is_written_without_grad():
    model = flow.nn.Linear(3, 2)
    with flow.no_grad():
        model.weight[0] = 3.0
        model.bias.zero_()
    assert model.weight.tolist()[0] == [3.0] * 3
    with pytest.raises(AutogradError, match="leaf"):
        model.weight[0] = 3.0
    with pytest.raises(AutogradError, match="leaf"):
        model.bias.zero_()


def test_a_captured_write_is_a_step():
    buffer = flow.zeros(3)

    def write(x):
        buffer[1] = x
        buffer.add_(x, alpha=2)
        return buffer * 1

    graph = flow.nn.Graph.trace(write)
    assert graph(flow.tensor(2.0)).tolist() == [4.0, 6.0, 4.0]
    assert graph(flow.tensor(1.0)).tolist() == [6.0, 3.0, 6.0]


@pytest.mark.parametrize(
    "call",
    [
        "x[3].zero_()", "x[3] += 1", "x[3].copy_(z)", "x[1:3].mul_(2)", "x.t()[0] = 1",
        "x[2] = 1.0", "x[i] = 2.0", "x[i, 1:3] = 5", "x.data[1].fill_(3)", "x.view(-1)[5] = 7.0",
        "x.add_(1)",
        "x.diagonal().fill_(0)", "x[1:3, 2:4].sigmoid_()", "x.chunk(2)[1].mul_(2)", "row.sub_(3)",
        "x.index_fill_(1, i, 4.0)", "x.fill_diagonal_(9)", "x[1].clamp_(0, 1)", "x.t().add_(z[:4])",
        "t.add(z, z, out=x[2])", "[r.mul_(2) for r in x]", "x[::2, None].neg_()",
    ],
)  # fmt: skip
@pytest.mark.parametrize("shared", [False, True])
def test_a_write_through_a_view_stays_in_the_memory_of_the_base(call, shared):
    """Where another tensor shares the memory, it goes into that of a copy from then on."""
    results = []
    for t in (torch, flow):
        x = t.arange(24.0).reshape(4, 6).clone()
        row, columns, z, i = x[0], x[:, 2:], t.arange(6.0), t.tensor([0, 2])
        copies = [t.nn.Parameter(x if t is flow else x.clone())] * shared
        for repeat in range(3):
            before = x.data_ptr()
            exec(call, {"x": x, "row": row, "z": z, "i": i, "t": t})
            if repeat or not shared:
                assert x.data_ptr() == row.data_ptr() == before
        results.append([y.tolist() for y in (x, row, columns, *copies)])
    assert results[0] == results[1]


def test_a_step_of_a_cache_takes_no_pass_over_it():
    cache = flow.zeros(2, 3, 8, 4)
    seen, k = cache[:, :, :5], flow.ones(2, 3, 4)
    address = cache.data_ptr()
    for position in range(5):
        cache[:, :, position].copy_(k * position)
        cache[:, :, position] += 1
    assert cache.data_ptr() == seen.data_ptr() == address
    assert seen[1, 2, :, 3].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_backward_knows_of_a_write_through_a_view():
    for write in ("x[0].zero_()", "row.add_(1)", "x.data[0] = 1", "x[0] = 3.0"):
        x, w = flow.ones(2, 3), flow.ones(2, 3, requires_grad=True)
        row = x[0]
        kept, apart = (x * w).sum(), (x[1] * w[1]).sum()
        exec(write, {"x": x, "row": row})
        with pytest.raises(AutogradError, match="inplace"):
            kept.backward()
        if write != "x[0] = 3.0":
            continue
        with pytest.raises(AutogradError, match="inplace"):
            apart.backward()


def test_a_write_through_a_view_leaves_the_output_that_backward_keeps():
    w = flow.ones(3, requires_grad=True)
    y = w.exp()
    with flow.no_grad():
        y[0:1].zero_()
    assert y.tolist()[0] == 0.0
    with pytest.raises(AutogradError, match="inplace"):
        y.sum().backward()
