"""Plans: what is noted, that a replay does the same with other tensors, and when none is used."""

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch
import triton.language as tl

from onefold.kernels import matmul, norm, select
from onefold.kernels.gpu import launch, plans, tape
from onefold.kernels.gpu.launch import Kernel
from onefold.kernels.gpu.plans import planned
from onefold.kernels.gpu.product_rule import kind_of


@Kernel
def _sum(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(z + at, v, mask=at < n)


def added(x, y):
    z = torch.empty_like(x)
    _sum.launch((1,), (x, y, z, x.numel()), (64,))
    return z


@pytest.fixture
def calls(monkeypatch):
    """How often a function was called as it is, which each call of `counted` is."""
    found = []
    monkeypatch.setattr(plans, "AT_ONCE", False)
    return found


def counted(function, calls):
    def run(*args, **named):
        if not any(isinstance(arg, tape.Shadow) for arg in args):
            calls.append(args)
        return function(*args, **named)

    return planned(run)


def test_from_the_second_call_on(calls):
    add = counted(added, calls)
    for i in range(4):
        x, y = torch.full((5,), float(i)), torch.arange(5.0)
        assert torch.equal(add(x, y), x + y)
    assert len(calls) == 1


def test_what_is_one_tensor_may_be_two():
    x, y = torch.rand(5), torch.rand(5)
    add = planned(added)
    assert torch.equal(add(x, x), x + x)
    assert torch.equal(add(x, y), x + y)
    mul = planned(select.twin(torch.mul))
    assert torch.equal(mul(x, x), x * x)
    assert torch.equal(mul(x, y), x * y)


def test_views(calls):
    """Parts of arguments and of what is allocated, and results in another shape."""

    def halves(x):
        z = torch.empty(2, 8)
        _sum.launch((1,), (x[0], x.view(4, 4)[1], z[1], 4), (64,))
        _sum.launch((1,), (x[1], x[0], z[0], 8), (64,))
        return z.view(16), x, None

    run = counted(halves, calls)
    for _ in range(3):
        x = torch.rand(2, 8)
        z, same, nothing = run(x)
        assert z.shape == (16,)
        assert same is x
        assert nothing is None
        assert torch.equal(z[:8], x[0] + x[1])
        assert torch.equal(z[8:12], x[0, :4] + x[0, 4:])
    assert len(calls) == 1


def test_layouts_and_values_are_told_apart():
    def filled(x, value):
        seen.append(value)
        return torch.empty_like(x)

    seen = []
    fill = planned(filled)
    values = [1, 1.0, True, 0.0, -0.0, "1", None, (1, 2), [1, 2]]
    for value in values * 2:
        fill(torch.ones(3), value)
    for named in (1, 1.0):
        fill(torch.ones(3), value=named)
    assert list(map(repr, seen)) == list(map(repr, [*values, 1, 1.0]))
    for x in (torch.ones(4), torch.ones(6)[::2], torch.ones(3, dtype=torch.float64)):
        assert fill(x, 1).dtype is x.dtype
    assert len(seen) == len(values) + 5


def test_a_state_of_torch_that_was_asked_for():
    matmul_of = planned(select.twin(matmul.mm))
    before = torch.get_float32_matmul_precision()
    a, b = torch.rand(16, 16), torch.rand(16, 16)
    try:
        exact = [matmul_of(a, b) for _ in range(2)]
        torch.set_float32_matmul_precision("high")
        assert kind_of(torch.float32) == "tf32"
        rounded = [matmul_of(a, b) for _ in range(2)]
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(*exact)
    assert torch.equal(*rounded)
    assert not torch.equal(exact[0], rounded[0])


def with_torch(x):
    return x.sum()


def by_address(x):
    return torch.empty_like(x) if x.data_ptr() % 2 == 0 else x


def by_value(x):
    return torch.empty_like(x) if x[0] > 0 else x


def part_of_what_is_allocated(x):
    return torch.empty(9)[1:]


def made_elsewhere(x):
    return torch.empty(3, device="meta")


@pytest.mark.parametrize(
    "function", [with_torch, by_address, by_value, part_of_what_is_allocated, made_elsewhere]
)
def test_what_cannot_be_noted(function, calls):
    run = counted(function, calls)
    for _ in range(3):
        run(torch.ones(3))
    assert len(calls) == 3


def test_arguments_that_have_no_plan(calls):
    add = counted(added, calls)
    for args in [
        (torch.ones(4)[1:], torch.ones(3)),  # at no multiple of 16 bytes
        (torch.nn.Parameter(torch.ones(3)), torch.ones(3)),
    ]:
        before = len(calls)
        for _ in range(3):
            with torch.no_grad():
                assert add(*args).tolist() == [2.0] * 3
        assert len(calls) == before + 3
    with pytest.raises(TypeError, match="empty_like"):
        add(3, "x")


def test_errors_are_the_functions_own():
    def wrong(x):
        raise ValueError("as it is")

    run = planned(wrong)
    for _ in range(3):
        with pytest.raises(ValueError, match="as it is"):
            run(torch.ones(3))


def test_no_tensor_is_kept():
    add = planned(added)
    x, y = torch.rand(7), torch.rand(7)
    kept = weakref.ref(x), weakref.ref(y), weakref.ref(add(x, y))
    del x, y
    gc.collect()
    assert [found() for found in kept] == [None] * 3


def test_twins_of_a_model_are_noted(monkeypatch):
    noted = []
    before = plans._noted

    def note(function, args):
        noted.append(before(function, args))
        return noted[-1]

    monkeypatch.setattr(plans, "_noted", note)
    x, w = torch.rand(4, 8), torch.rand(8)
    for reference, args in [
        (torch.add, (x, w)),
        (torch.mul, (x, 2.0)),
        (matmul.linear, (x, torch.rand(3, 8), torch.rand(3))),
        (matmul.matmul, (x.view(2, 2, 8), torch.rand(8, 3))),
        (norm.layer_norm, (x, w, w, (8,), 1e-5)),
        (torch.cat, ((x, x), 0)),
    ]:
        planned(select.twin(reference))(*args)
    assert len(noted) == 6
    assert None not in noted


DEVICE = 3


class Form:
    """In place of a compiled form."""

    function, packed_metadata = "function", "metadata"

    def __init__(self):
        self.calls = []

    def run(self, *args):
        self.calls.append(args)


@pytest.fixture
def device(monkeypatch):
    """Kernels that compile to nothing, on a device; gives the number of the current one."""
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(plans, "INTERPRETED", False)
    current = [DEVICE]

    @contextmanager
    def made_current(index):
        before, current[0] = current[0], index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", made_current)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: DEVICE)
    driver = lambda: current[0], lambda index: index + 100
    monkeypatch.setattr(launch, "driver_functions", lambda: driver)
    form = Form()
    monkeypatch.setattr(Kernel, "_compile", lambda *given: form)
    return current, form


def test_the_written_function(device, calls):
    current, form = device

    def run(pair, number):
        x, y = pair
        z = torch.empty(2, 8)
        _sum.launch((2, 3), (x, y[1], z[1], 8), (64,))
        return z

    add = counted(run, calls)
    for _ in range(2):
        add([torch.rand(8), torch.rand(2, 8)], 5)
    before = len(calls)
    form.calls.clear()
    x, y = torch.rand(8), torch.rand(2, 8)
    z = add([x, y], 5)
    expected = (2, 3, 1, DEVICE + 100, "function", "metadata", None, None, None)
    assert form.calls == [(*expected, x.data_ptr(), y[1].data_ptr(), z[1].data_ptr(), 8, 64)]
    assert len(calls) == before
    odd = torch.rand(9)[1:]
    add([odd, y], 5)
    assert len(calls) == before + 1
    current[0] = 0
    add([x, y], 5)
    assert len(calls) == before + 2
