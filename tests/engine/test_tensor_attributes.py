"""What tensors tell of themselves: dtype, place, memory; and what is refused with a reason."""

import gc
import multiprocessing
import warnings
import weakref

import pytest
import torch

import onefold as flow
from onefold.engine.ops.unsupported_methods import UNSUPPORTED
from onefold.engine.sbp import parse
from onefold.errors import OnefoldRuntimeError

LAYOUTS = [None, "(S0)", "(B)", "(P)"]


def make(data, sbp=None, **kwargs):
    if sbp is None:
        return flow.tensor(data, **kwargs)
    return flow.tensor(data, placement=flow.placement("cpu", [0, 1]), sbp=parse(sbp), **kwargs)


ATTRIBUTES = """is_cpu is_cuda is_meta is_sparse is_sparse_csr is_quantized is_nested itemsize
nbytes layout is_leaf retains_grad requires_grad""".split()
METHODS = """is_signed is_floating_point is_complex is_conj is_neg is_pinned is_shared numel
element_size get_device""".split()


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex64, torch.bool])
def test_equal_torchs(dtype, sbp, world):
    wanted = torch.ones(4, 3, dtype=dtype)
    x = make(wanted, sbp) if "P" not in str(sbp) or dtype != torch.bool else make(wanted, "(B)")
    for name in ATTRIBUTES:
        assert getattr(x, name) == getattr(wanted, name), name
    for name in METHODS:
        assert getattr(x, name)() == getattr(wanted, name)(), name


def test_functions(world):
    x = flow.ones(2, 3)
    assert flow.numel(x) == 6 and flow.is_floating_point(x) and not flow.is_complex(x)
    assert flow.is_signed(x) and not flow.is_conj(x.conj()) and not flow.is_neg(x)
    assert flow.is_same_size(x, x + 1) and not flow.is_same_size(x, x[0])
    assert flow.is_nonzero(x[0, 0]) and not (x[0, 0] * 0).is_nonzero()
    with pytest.raises(OnefoldRuntimeError, match="ambiguous"):
        x.is_nonzero()
    for a, b in (
        (x, 1),
        (x.long(), 2.5),
        (x.long(), x[0, 0]),
        (x.half(), x[0, 0].double()),
        (1, 2.0),
    ):
        theirs = [torch.ones(v.shape, dtype=v.dtype) if isinstance(v, flow.Tensor) else v
                  for v in (a, b)]  # fmt: skip
        assert flow.result_type(a, b) == torch.result_type(*theirs)


def test_real_and_imag(world):
    for sbp in LAYOUTS:
        x = make([1 + 2j, 3 - 1j], sbp)
        assert x.real.tolist() == [1, 3] and x.imag.tolist() == [2, -1]
        x.imag = flow.zeros_like(x.real)
        assert x.tolist() == [1, 3]
    assert flow.ones(2).real.tolist() == [1, 1]
    with pytest.raises(RuntimeError):
        _ = flow.ones(2).imag


def test_retains_grad(world):
    x = flow.ones(2, requires_grad=True)
    y = x * 2
    assert not y.retains_grad
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad


def test_global_id(world):
    x, y = make([1.0, 2], "(S0)"), make([1.0, 2], "(S0)")
    assert x.global_id == x.global_id != y.global_id
    with pytest.raises(OnefoldRuntimeError, match="local"):
        _ = flow.ones(2).global_id
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


# Memory


@pytest.mark.parametrize("sbp", LAYOUTS)
def test_memory_is_that_of_the_first_shard(sbp, world):
    x = make([1.0, 2, 3, 4], sbp)
    assert x.data_ptr() == x.shards[0].data_ptr()
    assert x.untyped_storage().nbytes() == x.shards[0].untyped_storage().nbytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that typed storages go away
        assert x.storage().tolist()[: len(x.shards[0])] == x.shards[0].tolist()
    assert x.is_set_to(x.detach()) and not x.is_set_to(x + 0)
    storage = x.untyped_storage()
    x.add_(1)
    assert x.data_ptr() != storage.data_ptr(), "the memory was left to who asked for it"


def test_memory_while_a_graph_is_captured(world):
    class Graph(flow.nn.Graph):
        def build(self, x):
            assert x.stride() == (3, 1) and x.is_contiguous() and x.nbytes == 24
            return x + x.data_ptr()

    with pytest.raises(OnefoldRuntimeError, match="no memory while a graph is captured"):
        Graph()(flow.ones(2, 3))


def test_pinned_and_streams(world):
    x = make([1.0, 2], "(S0)")
    assert not x.is_pinned()
    if torch.cuda.is_available():
        assert x.pin_memory().is_pinned() and x.pin_memory().tolist() == [1, 2]
    else:
        with pytest.raises(RuntimeError):
            x.pin_memory()


def _add_one(x):
    x.add_(1)


def test_shared_memory(world):
    x = make([1.0, 2, 3], "(S0)")
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared()
    process = multiprocessing.get_context("fork").Process(target=_add_one, args=(x.shards[0],))
    process.start()
    process.join(60)
    assert x.tolist() == [2, 3, 3]


def test_dense(world):
    x = make([1.0, 2], "(S0)")
    assert x.to_dense() is x and x.to_dense(flow.float64).dtype == flow.float64


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_what_is_refused_says_what_to_do(name, world):
    with pytest.raises(OnefoldRuntimeError, match=f"^{name}: .*; use "):
        getattr(flow.ones(2, 2), name)()
