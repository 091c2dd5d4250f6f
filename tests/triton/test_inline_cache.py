"""Call sites: the trace of a layout in their own code does what the function does."""

import gc
import sys
import weakref
from contextlib import contextmanager

import pytest
import torch
import triton.language as tl
from hypothesis import given, strategies as st
from source_tree import REPO

import onefold as flow
from onefold.engine import dispatch_plan
from onefold.kernels.gpu.launch import inline_cache, jit_kernel, launch_trace, trace_cache
from onefold.kernels.gpu.launch.jit_kernel import Kernel
from onefold.kernels.gpu.launch.symbolic_numbers import through

sys.path.insert(0, str(REPO / "benchmarks"))

import host_path

HERE = torch.empty(0).get_device()


class Form:
    """In place of a compiled form: notes what it is started with."""

    function, packed_metadata = "function", "metadata"

    def __init__(self):
        self.calls = []

    def run(self, *args):
        self.calls.append(args)


@pytest.fixture
def form(monkeypatch):
    """Kernels compile to this."""
    with launched(monkeypatch) as made:
        yield made


@contextmanager
def launched(monkeypatch):
    made = Form()
    for module in (jit_kernel, trace_cache, inline_cache):
        monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(trace_cache, "TRACED_AFTER", 1)
    monkeypatch.setattr(jit_kernel, "driver_functions", lambda: (lambda: made.current, lambda _: 7))
    monkeypatch.setattr(Kernel, "_compile", lambda kernel, grid, *_: made)
    monkeypatch.setattr(_kernel, "_compiled", {})
    made.current = HERE
    yield made


@Kernel
def _kernel(x, y, z, factor, more: tl.int64, step, other, BLOCK: tl.constexpr):
    tl.store(z + more, tl.load(x + step) * factor + tl.load(y + other))


def work(x, y, mode, factor, more):
    """A function whose launch depends on layouts and on `mode`."""
    assert jit_kernel.INTERPRETED is False
    z = torch.empty_like(x)
    if mode:
        y = y.contiguous()
    steps = x.stride(0), y.stride(-1)
    _kernel.launch((x.numel(),), (x, y, z, through(float, factor), more, *steps), (32,))
    return z if mode != 2 else (z, x)


SCALARS = ("factor", "more")


def site_of(function, *rest):
    """A call site of a function, and how often the function was called as it is."""
    calls = []

    def noted(*args):
        if launch_trace.active() is None:
            calls.append(args)
        return function(*args)

    noted.__wrapped__ = function  # for its signature
    return trace_cache.traced(noted, SCALARS).__dict__["call_site"](*rest), calls


def last(form, result):
    """The last launch, with places in the result as distances."""
    z = result[0] if type(result) is tuple else result
    *found, at, factor, more, step, other, block = form.calls[-1]
    return *found, at - z.data_ptr(), factor, more, step, other, block, z.stride()


def test_the_code_of_a_site(form):
    site, calls = site_of(work)
    for i in range(5):
        x, y = torch.rand(4, 6), torch.rand(4, 6)
        z = site(x, y, 1, 0.5 * i, i)
        if i > 1:
            assert form.calls[-1][:3] == (24, 1, 1)
            assert form.calls[-1][-8:] == (
                x.data_ptr(), y.data_ptr(), z.data_ptr(), 0.5 * i, i, 6, 1, 32,
            )  # fmt: skip
    assert len(calls) == 1
    assert site.__code__.co_argcount == 5


def test_arguments_that_are_always_the_same(form):
    site, calls = site_of(work, 1, 2.0, 3)
    for _ in range(4):
        site(torch.rand(4, 6), torch.rand(4, 6))
    assert site.__code__.co_argcount == 2
    assert form.calls[-1][-5:] == (2.0, 3, 6, 1, 32)
    assert len(calls) == 1


def test_what_does_not_fit(form, monkeypatch):
    site, calls = site_of(work)
    x, y = torch.rand(4, 6), torch.rand(4, 6)
    for _ in range(4):
        site(x, y, 1, 0.5, 1)
    form.calls.clear()
    turned = torch.rand(6, 4).t()
    for _ in range(4):  # another layout: called, traced, replayed, then a link of its own
        z = site(turned, y, 1, 0.5, 1)
        assert z.stride() == (1, 4)
    assert [call[-3] for call in form.calls] == [1] * 3  # as the first call compiles nothing new
    assert len(calls) == 2
    for mode in (0, 2, 0, 2, 0, 2):  # another value
        site(x, y, mode, 0.5, 1)
    assert len(calls) == 4
    site(torch.rand(25)[1:].view(4, 6), y, 1, 0.5, 1)  # at no multiple of 16 bytes
    assert len(calls) == 5
    site(x, y, 1, 0.5, 1)
    assert len(calls) == 5
    form.current = HERE + 1
    monkeypatch.setattr(torch.cuda, "device", lambda index: current(form, index))
    site(x, y, 1, 0.5, 1)
    assert len(calls) == 6


@contextmanager
def current(form, index):
    before, form.current = form.current, index
    yield
    form.current = before


def test_a_state_of_torch(form):
    seen = []

    def asks(x):
        seen.append(launch_trace.guarded(torch.get_default_dtype))
        return work(x, x, 1, 1.0, 1)

    site, calls = site_of(asks)
    x = torch.rand(4, 6)
    for _ in range(4):
        site(x)
    assert len(calls) == 1
    torch.set_default_dtype(torch.float64)
    try:
        site(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(calls) == 2
    assert seen[-1] is torch.float64


def test_dims_of_one_element(form):
    """Their strides say nothing, but belong to the layout of the result."""
    site, calls = site_of(work)
    plain, odd = torch.rand(1, 6), torch.rand(1, 6).as_strided((1, 6), (1, 1))
    assert plain.is_contiguous()
    assert odd.is_contiguous()
    for x in (plain, odd) * 4:
        site(x, plain, 0, 1.0, 0)
        assert form.calls == [] or form.calls[-1][-3] == x.stride(0)
    assert len(calls) == 2


def test_no_tensor_is_kept(form):
    site, calls = site_of(work)
    made = [torch.rand(4, 6) for _ in range(8)]
    for x in made:
        site(x, x, 1, 1.0, 1)
    kept = [weakref.ref(x) for x in made]
    del made, x
    calls.clear()
    gc.collect()
    assert [found() for found in kept] == [None] * 8


def test_a_site_inside_a_trace(form):
    """What calls a site may be traced itself."""
    inner, _ = site_of(work, 1, 1.0, 1)

    def twice(x):
        return inner(inner(x, x), x)

    outer, calls = site_of(twice)
    for _ in range(4):
        outer(torch.rand(4, 6))
    assert len(calls) == 1
    assert outer.__code__.co_argcount == 1


def test_lists_and_objects_are_looked_up(form):
    def joined(parts, name):
        return work(parts[0], parts[1], 1, 1.0, len(parts))

    site, calls = site_of(joined)
    for _ in range(20):
        site([torch.rand(4, 6), torch.rand(4, 6)], "name")
    assert len(calls) == 1
    for _ in range(20):
        site([torch.rand(4, 6), torch.rand(4, 6)], object())
    assert len(calls) == 21


LAYOUTS = {
    "dense": lambda: torch.rand(4, 6),
    "turned": lambda: torch.rand(6, 4).t(),
    "wide": lambda: torch.rand(4, 12)[:, :6],
    "skipping": lambda: torch.rand(4, 12)[:, ::2],
    "expanded": lambda: torch.rand(6).expand(4, 6),
    "not aligned": lambda: torch.rand(25)[1:].view(4, 6),
}
LAYOUT = st.sampled_from(sorted(LAYOUTS))
CALL = st.tuples(LAYOUT, LAYOUT, st.integers(0, 2), st.floats(0, 9), st.integers(0, 2**40))


@given(st.lists(CALL, min_size=1, max_size=40))
def test_any_calls_at_one_site(calls):
    with pytest.MonkeyPatch.context() as patch, launched(patch) as form:
        site, _ = site_of(work)
        for first, second, *values in calls:
            x, y = LAYOUTS[first](), LAYOUTS[second]()
            work(x, y, *values)  # compiles
            expected = last(form, work(x, y, *values))
            before = len(form.calls)
            found = site(x, y, *values)
            assert len(form.calls) == before + 1
            if values[0] == 0:  # else y is a copy
                assert last(form, found) == expected
            else:
                copy = 10
                assert last(form, found)[:copy] == expected[:copy]
                assert last(form, found)[copy + 1 :] == expected[copy + 1 :]


CALLS = {k: ours for k, (ours, _) in host_path.calls().items() if str(host_path.MANY) not in k}
X, HEADS = flow.from_torch(torch.rand(6, 6)), flow.from_torch(torch.rand(2, 4, 16, 8))
MORE = {
    "attention with dropout": lambda: flow.nn.functional.scaled_dot_product_attention(
        HEADS, HEADS, HEADS, dropout_p=0.1, is_causal=True
    ),
    "randn": lambda: flow.randn(5, 7, dtype=torch.float64),
    "tril": lambda: flow.tril(X, -1),
    "stack": lambda: flow.stack((X, X, X), 1),
    "mean": lambda: flow.mean(X, 0),
}


@pytest.mark.parametrize("name", [*CALLS, *MORE])
def test_ops_are_replayed(name, monkeypatch):
    """After a few calls no function around a kernel runs, nor a look-up in a cache of traces."""
    for module in (jit_kernel, trace_cache, inline_cache):
        monkeypatch.setattr(module, "INTERPRETED", False)
    for owner, attribute, result in host_path.stand_ins():
        monkeypatch.setattr(owner, attribute, lambda *_, result=result: result)
    monkeypatch.setattr(trace_cache, "TRACED_AFTER", 1)
    monkeypatch.setenv("ONEFOLD_KERNELS", "triton")
    launches = []
    monkeypatch.setattr(host_path.Nothing, "run", lambda *args: launches.append(args))
    with new_sites():
        call = MORE[name] if name in MORE else host_path.calls()[name][0]
        for _ in range(5):
            call()
        launches.clear()

        def unexpected(*args, **named):
            raise AssertionError("not replayed")

        monkeypatch.setattr(trace_cache, "_key_of", unexpected)
        monkeypatch.setattr(Kernel, "launch", unexpected)
        call()
        assert launches or name == "transpose"  # a view


@contextmanager
def new_sites():
    """The block with no call sites that others made, after which those it made are forgotten."""
    dispatch_plan.clear_plans()
    yield
    dispatch_plan.clear_plans()
