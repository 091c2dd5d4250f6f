"""What ops deduce of their results is what their kernels make of tensors without data."""

from collections import Counter, defaultdict

import pytest
import samples
import torch
from hypothesis import given, settings, strategies as st

from onefold.engine.meta import Meta
from onefold.engine.op import Op
from onefold.testing.recording import Recorder, record
from onefold.testing.sample_checks import local_results

pytestmark = pytest.mark.filterwarnings("ignore")

CPU = torch.device("cpu")
DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn,
    torch.int64, torch.int32, torch.uint8, torch.uint16, torch.bool, torch.complex64,
]  # fmt: skip
NUMBERS = [-3, -2, -1, 0, 1, 2, 3, 7, None, True, False, 0.5, float("inf"), 1e300, 1j]
TEXTS = ["mean", "amax", "none"]
OF_EACH = 6  # samples of each op
# Calls of these of which nothing is deduced: complex numbers, integers and other rare cases.
SELDOM = 0.3


@pytest.fixture(scope="module")
def calls():
    """The distinct calls of ops that deduce, of the samples, forward and backward, by op name."""
    recorder, met = Recorder(), Counter()
    for sample in samples.load():
        met.update([sample.name])
        if met[sample.name] <= OF_EACH:
            with record(recorder):
                local_results(sample, second=True)
    found = defaultdict(dict)
    for call in recorder.calls.values():
        op = call.op
        if type(op).deduce is not Op.deduce:
            metas = call.with_tensors(meta(v.shape, v.dtype) for v in call.tensors)
            found[op.name][op, *metas, *op.attribute_args(call.attrs)] = None
    return {name: [(op, args) for op, *args in some] for name, some in found.items()}


def meta(shape, dtype):
    return Meta.of(shape, dtype, device=CPU)


def told(infer, args):
    """The shapes and dtypes of the results, or the error; None where nothing is told."""
    try:
        found = infer(*args)
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)
    if found is None:
        return None
    several = found if isinstance(found, tuple) else (found,)
    return [(tuple(each.shape), each.dtype) for each in several]


def test_of_samples_nearly_everything_is_deduced(calls):
    assert len(calls) > 60
    for name, some in calls.items():
        deduced = [(op, args) for op, args in some if op.deduce(*args) is not None]
        assert len(deduced) >= SELDOM * len(some), name
        for op, args in deduced:
            assert told(op.deduce, args) == told(op.infer_by_kernel, args), (op, args)


def other_metas(x):
    """Metas of another shape or dtype."""
    places = st.integers(0, max(x.ndim - 1, 0))
    sizes = st.sampled_from([0, 1, 2, 3, 5])
    shape = tuple(x.shape)
    resized = st.tuples(places, sizes).map(lambda at: (*shape[: at[0]], at[1], *shape[at[0] + 1 :]))
    shapes = [
        st.sampled_from([(), (0,), shape[1:], shape[::-1], (2, *shape), (1, *shape)]),
        resized,
    ]
    return st.one_of(
        st.sampled_from(DTYPES).map(lambda dtype: meta(shape, dtype)),
        st.one_of(shapes).map(lambda found: meta(found, x.dtype)),
    )


def other_values(x):
    """Other values of an attribute: of other kinds, or longer and shorter tuples."""
    if isinstance(x, Meta):
        return other_metas(x)
    if isinstance(x, tuple) and x:
        forms = [changed(x)]
        if not hasattr(x, "_fields"):
            forms.append(st.sampled_from([remade(x, found) for found in (x[:-1], (*x, x[-1]), ())]))
        return st.one_of(forms)
    if isinstance(x, str):
        return st.sampled_from(TEXTS)
    if isinstance(x, torch.dtype):
        return st.sampled_from(DTYPES)
    return st.sampled_from(NUMBERS)


@st.composite
def changed(draw, values):
    """A tuple (or record) with one value changed."""
    index = draw(st.integers(0, len(values) - 1))
    if values[index] is None and not hasattr(values, "_fields"):
        return values  # an absent tensor
    found = (*values[:index], draw(other_values(values[index])), *values[index + 1 :])
    return remade(values, found)


def remade(values, found):
    """What is found as a record, or as another kind of tuple, as `values` is."""
    return found if type(values) is tuple else type(values)(*found)


# Errors of arguments of wrong kinds, after which `infer` asks the kernel.
WRONG = (TypeError, ValueError, IndexError)


@settings(max_examples=2000, deadline=None)
@given(data=st.data())
def test_what_is_deduced_is_what_the_kernel_makes_or_the_kernel_is_asked(calls, data):
    op, args = data.draw(st.sampled_from(calls[data.draw(st.sampled_from(sorted(calls)))]))
    for _ in range(data.draw(st.integers(1, 2))):
        args = data.draw(changed(tuple(args)))
    try:
        found = op.deduce(*args)
    except WRONG:
        found = None
    by_kernel = told(op.infer_by_kernel, args)
    if found is not None:
        assert told(lambda *args: found, args) == by_kernel
    elif type(op).infer is Op.infer:
        assert told(op.infer, args) == by_kernel
