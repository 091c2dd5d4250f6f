"""Plans: what is noted, that a replay does the same with other tensors, and when none is used."""

import gc
import math
import weakref
from collections import namedtuple
from contextlib import contextmanager
from functools import wraps

import pytest
import torch
import triton.language as tl

from onefold.kernels import matmul_ref, norm_ref, random_ref, select
from onefold.kernels.gpu.launch import (
    host_replay,
    jit_kernel,
    launch_trace,
    symbolic_numbers,
    trace_cache,
)
from onefold.kernels.gpu.launch.jit_kernel import Kernel
from onefold.kernels.gpu.launch.symbolic_numbers import runtime_scalars
from onefold.kernels.gpu.launch.trace_cache import replayed
from onefold.kernels.gpu.matmul.gemm_config import kind_of


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
    monkeypatch.setattr(trace_cache, "TRACED_AFTER", 1)
    return found


def counted(function, calls):
    @wraps(function)
    def run(*args, **named):
        if launch_trace.active() is None:
            calls.append(args)
        return function(*args, **named)

    return replayed(run)


def test_from_the_second_call_on(calls):
    add = counted(added, calls)
    for i in range(4):
        x, y = torch.full((5,), float(i)), torch.arange(5.0)
        assert torch.equal(add(x, y), x + y)
    assert len(calls) == 1


def test_what_is_one_tensor_may_be_two():
    x, y = torch.rand(5), torch.rand(5)
    add = replayed(added)
    assert torch.equal(add(x, x), x + x)
    assert torch.equal(add(x, y), x + y)
    mul = replayed(select.triton_kernel(torch.mul))
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


Pair = namedtuple("Pair", "x options")


def test_results_that_are_views(calls):
    def parts(pair, cut):
        made = torch.empty(2, 8)
        _sum.launch((1,), (pair.x[0], pair.x[1], made[1], 8), (64,))
        _sum.launch((1,), (pair.x[1], pair.x[1], made[0], 8), (64,))
        return made[1], made.t(), made, pair.x[1, cut].view(2, -1), pair.x

    run = counted(parts, calls)
    for _ in range(3):
        x = torch.rand(5, 8)[1:3]
        assert x.data_ptr() % 16 == 0
        row, turned, made, cut, same = run(Pair(x, (None, slice)), slice(2, 6, None))
        assert torch.equal(made, torch.stack([x[1] + x[1], x[0] + x[1]]))
        assert torch.equal(turned, made.t())
        assert torch.equal(row, made[1])
        assert same is x
        assert torch.equal(cut, x[1, 2:6].view(2, 2))
        assert cut.data_ptr() == x[1, 2:6].data_ptr()
        assert row.data_ptr() == made[1].data_ptr()
    assert len(calls) == 1


def test_layouts_and_values_are_told_apart(monkeypatch):
    monkeypatch.setattr(trace_cache, "TRACED_AFTER", 0)

    def filled(x, value):
        seen.append(repr(value))
        return torch.empty_like(x)

    seen = []
    fill = replayed(filled)
    values = [1, 1.0, True, 0.0, -0.0, "1", None, (1, 2), [1, 2]]
    for value in values * 2:
        fill(torch.ones(3), value)
    for named in (1, 1.0):
        fill(torch.ones(3), value=named)
    assert seen == list(map(repr, [*values, 1, 1.0]))
    for x in (torch.ones(4), torch.ones(6)[::2], torch.ones(3, dtype=torch.float64)):
        assert fill(x, 1).dtype is x.dtype
    assert len(seen) == len(values) + 5


def test_a_state_of_torch_that_was_asked_for():
    matmul_of = replayed(select.triton_kernel(matmul_ref.mm))
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


@Kernel
def _scaled(x, z, factor, more: tl.int64, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) * factor + more, mask=at < n)


@runtime_scalars("factor", "more")
def scaled(x, factor, more=0):
    z = torch.empty_like(x)
    _scaled.launch((1,), (x, z, symbolic_numbers.through(float, factor), more, x.numel()), (64,))
    return z


def test_one_plan_for_all_values_of_numbers(calls):
    run = counted(scaled, calls)
    # Their products with these factors are exact: a GPU rounds x * factor + more once, torch twice.
    x = torch.arange(1, 6) / 8
    for factor, more in [(1.5, 0), (0.25, 1), (-7.0, 10**9), (2.0, 16), (float("inf"), 3)]:
        assert torch.equal(run(x, factor, more=more), x * factor + more)
    for factor in (2, 3, -5):
        assert torch.equal(run(x, factor, more=4), x * factor + 4)
    assert len(calls) == 2  # the first with a float, and the first with an int


def asks(x, number):
    return scaled(x, 2.0 if number > 0 else 3.0)


def asks_in_c(x, number):
    return scaled(x, 2.0 if math.isinf(number) else 3.0)


def of_its_size(x, number):
    return scaled(x[: int(number)], 2.0)


def of_its_place(x, number):
    return scaled(x, (2.0, 3.0, 5.0)[number])


def in_a_set(x, number):
    return scaled(x, 2.0 if number in {1, 2} else 3.0)


def specialized(x, number):
    z = torch.empty_like(x)
    _scaled.launch((1,), (x, z, 1.0, 0, number), (64,))
    return z


def as_a_constant(x, number):
    z = torch.zeros_like(x) if type(x) is torch.Tensor else torch.empty_like(x)
    _scaled.launch((1,), (x, z, 1.0, 0, 5), (number,))
    return z


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (asks, (1.0, 0.0, -1.0)),
        (asks_in_c, (1.0, math.inf, -1.0)),
        (of_its_size, (3, 4, 5.0)),
        (of_its_place, (0, 1, 2)),
        (in_a_set, (0, 1, 2)),
        (specialized, (5, 4, 1)),
        (as_a_constant, (8, 16, 32)),
    ],
)
@pytest.mark.parametrize("declared", [False, True])
def test_numbers_that_are_asked_for(function, values, declared):
    """Their values belong to the key. Where C reads a number, it may not be declared."""
    if declared and function in (asks_in_c, of_its_place):
        return
    run = trace_cache.traced(function, ["number"] * declared)
    x = torch.rand(5)
    for number in values * 3:
        expected = function(x, number)
        found = run(x, number)
        shown = number if function is specialized else None
        assert torch.equal(found[:shown], expected[:shown])


@pytest.mark.parametrize("kind", [int, float])
def test_a_symbol_is_asked_for_in_every_way(kind):
    made = symbolic_numbers.symbol(kind(3), symbolic_numbers.Number(2))
    for ask in (
        bool, hash, repr, str, float, int, abs, lambda x: -x, lambda x: x + 1, lambda x: 1 - x,
        lambda x: x == 3, lambda x: x < 1, lambda x: f"{x}", lambda x: f"{x:.1f}", lambda x: x**2,
        lambda x: 2 % x, lambda x: x.real, lambda x: x.as_integer_ratio(), round, math.floor,
        lambda x: x in (1, 2), {}.get, lambda x: [0] * x, divmod_by_two,
    ):  # fmt: skip
        with pytest.raises(symbolic_numbers.ValueNeeded):
            ask(made)


def divmod_by_two(x):
    return divmod(x, 2)


def test_numbers_of_kernels(monkeypatch):
    """Functions whose work depends on a number keep to it; the others have one plan."""
    x = torch.rand(4, 3) + 0.5
    power = replayed(select.triton_kernel(torch.pow))
    for number in (3.7, 2.0, -1.0, 0.5, 2, 3, -2.0, 3.7):
        assert torch.equal(power(x, number), select.triton_kernel(torch.pow)(x, number))
    ints = torch.arange(5)
    for twin_of, given, values in [
        (torch.mul, x, (2.0, 3.5, 2, 7, -0.0, math.nan)),
        (torch.add, ints, (1, 2, 2**40, 2.5)),
        (torch.full_like, ints, (1, 2.0, 3)),
        (torch.tril, x, (0, 1, -1)),
        (torch.sum, x, ()),
    ]:
        for value in values:
            expected = select.triton_kernel(twin_of)(given, value)
            found = replayed(select.triton_kernel(twin_of))(given, value)
            assert torch.equal(found.nan_to_num(9), expected.nan_to_num(9))


def test_random_tensors_have_plans(calls):
    fill = counted(select.triton_kernel(random_ref.uniform), calls)
    drop = counted(select.triton_kernel(random_ref.dropout), calls)
    box = (3, 7), (0, 0), (3, 7)
    x = torch.rand(3, 7)
    for call in (0, 1, 2**40, 2**63, 2**64 - 1):
        drawn = {"seed": 2**64 - 5, "call": call}
        made = {"dtype": torch.float32, "device": x.device}
        found = fill(*box, **drawn, **made)
        assert torch.equal(found, random_ref.uniform(*box, **drawn, **made))
        assert torch.equal(
            drop(x, *box[:2], p=0.5, **drawn), random_ref.dropout(x, *box[:2], p=0.5, **drawn)
        )
    assert len(calls) == 2


def made_dense(x):
    y = x.t().contiguous()
    z = torch.empty_like(y)
    _sum.launch((1,), (y, x[:2].t().contiguous(), z, 10), (64,))
    return z, x.t().reshape(-1), y.view(-1)


def test_dense_copies(calls):
    run = counted(made_dense, calls)
    for _ in range(3):
        x = torch.rand(8, 5)
        for found, expected in zip(run(x), made_dense(x), strict=True):
            assert torch.equal(found.view(-1)[:10], expected.view(-1)[:10])
            assert found.shape == expected.shape
            assert found.stride() == expected.stride()
    assert len(calls) == 1


def with_torch(x):
    return x.sum()


def by_address(x):
    return torch.empty_like(x) if x.data_ptr() % 2 == 0 else x


def by_value(x):
    return torch.empty_like(x) if x[0] > 0 else x


def of_another_dtype(x):
    return torch.empty(9).view(torch.int32)


def of_other_values(x):
    return torch.empty(9, dtype=torch.complex64).conj()


def made_elsewhere(x):
    return torch.empty(3, device="meta")


@pytest.mark.parametrize(
    "function",
    [with_torch, by_address, by_value, of_another_dtype, of_other_values, made_elsewhere],
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

    run = replayed(wrong)
    for _ in range(3):
        with pytest.raises(ValueError, match="as it is"):
            run(torch.ones(3))


def test_no_tensor_is_kept():
    add = replayed(added)
    x, y = torch.rand(7), torch.rand(7)
    kept = weakref.ref(x), weakref.ref(y), weakref.ref(add(x, y))
    del x, y
    gc.collect()
    assert [found() for found in kept] == [None] * 3


def test_kernels_of_a_model_are_noted(monkeypatch):
    recorded = []
    before = trace_cache._recorded

    def record(*given):
        recorded.append(before(*given))
        return recorded[-1]

    monkeypatch.setattr(trace_cache, "_recorded", record)
    monkeypatch.setattr(trace_cache, "TRACED_AFTER", 0)
    x, w = torch.rand(4, 8), torch.rand(8)
    for reference, args in [
        (torch.add, (x, w)),
        (torch.mul, (x, 2.0)),
        (matmul_ref.linear, (x, torch.rand(3, 8), torch.rand(3))),
        (matmul_ref.matmul, (x.view(2, 2, 8), torch.rand(8, 3))),
        (norm_ref.layer_norm, (x, w, w, (8,), 1e-5)),
        (torch.cat, ((x, x), 0)),
    ]:
        # Without the plans that other tests made.
        trace_cache.traced(select.triton_kernel(reference))(*args)
    assert len(recorded) == 6
    assert None not in recorded


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
    monkeypatch.setattr(jit_kernel, "INTERPRETED", False)
    monkeypatch.setattr(trace_cache, "INTERPRETED", False)
    current = [DEVICE]

    @contextmanager
    def made_current(index):
        before, current[0] = current[0], index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", made_current)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: DEVICE)
    driver = lambda: current[0], lambda index: index + 100
    monkeypatch.setattr(jit_kernel, "driver_functions", lambda: driver)
    form = Form()
    for kernel in (_sum, _scaled):
        monkeypatch.setattr(kernel, "_compiled", {})
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


def test_numbers_in_the_written_function(device, calls):
    _, form = device
    run = counted(scaled, calls)
    x = torch.rand(5)
    for factor, more in [(1, 2), (3, 4), (5, 6)]:
        z = run(x, factor, more=more)
    assert form.calls[-1][-6:] == (x.data_ptr(), z.data_ptr(), 5.0, 6, 5, 64)
    assert type(form.calls[-1][-4]) is float
    assert len(calls) == 1


def test_views_in_the_written_function(device, calls):
    def parts(x):
        made = torch.empty(2, 8)
        _sum.launch((1,), (x, x, made, 16), (64,))
        return made[1], made.t(), x[1, 2:]

    run = counted(parts, calls)
    for _ in range(3):
        x = torch.rand(5, 8)[1:3]
        row, turned, rest = run(x)
        assert (turned.shape, turned.stride()) == ((8, 2), (1, 8))
        assert row.data_ptr() == turned.data_ptr() + 32
        assert row.shape == (8,)
        assert torch.equal(rest, x[1, 2:])
        assert rest.data_ptr() == x[1, 2:].data_ptr()
    assert len(calls) == 1


def test_copies_in_the_written_function(device, calls):
    _, form = device
    run = counted(made_dense, calls)
    for _ in range(3):
        x = torch.rand(8, 5)
        z, flat, y = run(x)
        assert torch.equal(flat, x.t().reshape(-1))
        assert torch.equal(y, flat)
    assert form.calls[-1][-5] == y.data_ptr()
    assert form.calls[-1][-3:] == (z.data_ptr(), 10, 64)
    assert len(calls) == 1


def test_memory_is_dropped_after_its_last_use(device, calls, monkeypatch):
    """So a function that goes by chunks takes no more memory for more of them."""
    made, alive = [], []
    empty = torch.empty_strided

    def allocate(shape, strides, dtype=torch.float32, **more):
        made.append(weakref.ref(x := empty(shape, strides, dtype=dtype, **more)))
        return x

    def chunks(x):
        total = torch.empty(8)
        for _ in range(5):
            part = torch.empty(8)
            _sum.launch((1,), (x, x, part, 8), (64,))
            _sum.launch((1,), (part, total, total, 8), (64,))
        return total

    _, form = device
    monkeypatch.setattr(form, "run", lambda *args: alive.append(sum(x() is not None for x in made)))
    monkeypatch.setattr(torch, "empty_strided", allocate)
    monkeypatch.setitem(host_replay._EMPTY, torch.empty(0).device.type, allocate)
    run = counted(chunks, calls)
    run(torch.rand(8))
    for replay in ("once", "written"):
        alive.clear()
        run(torch.rand(8))
        assert max(alive) == 2, replay
    assert len(calls) == 1


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("takes_out", [True, False])
def test_results_in_the_memory_of_an_argument(place, takes_out, monkeypatch):
    """What elementwise steps of graphs do: recorded as other calls are, and replayed.

    A kernel that cannot put its result there allocates it.
    """
    monkeypatch.setattr(trace_cache, "TRACED_AFTER", 1)
    monkeypatch.setenv("ONEFOLD_KERNELS", "triton")
    monkeypatch.setattr(select, "takes_out", lambda kernel: takes_out)
    add = select.triton_kernel(torch.add)
    adapt, plain = add.adapt, []
    monkeypatch.setattr(
        add, "adapt", lambda *args: plain.append(launch_trace.active()) or adapt(*args)
    )
    new = replayed.__wrapped__(add)  # without the plans that other tests made
    monkeypatch.setattr(select, "_replayed_kernel", lambda reference: new)
    into = select.pick_into(torch.add, torch.add, "cpu")
    for i in range(5):
        args = [torch.full((3, 5), float(i)), torch.rand(3, 5)]
        expected = args[0] + args[1]
        result = into(*args, out=args[place])
        assert (result is args[place]) == takes_out
        assert torch.equal(result, expected)
    assert plain.count(None) == 1  # later calls are recorded, then replayed
