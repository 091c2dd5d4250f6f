"""Torch's import paths and small names: what a program names at its top, and what it is told."""

import inspect
import re
from importlib import import_module
from pkgutil import resolve_name

import pytest
import torch

import onefold as flow
from onefold.compat import missing_names
from onefold.compat.import_paths import PATHS, MissingModule
from onefold.errors import OnefoldRuntimeError
from onefold.nn import unsupported_names

IMPORTS = """
from onefold.autograd import Function, backward, grad
from onefold.autograd.function import Function, once_differentiable
from onefold.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from onefold.autograd.grad_mode import no_grad, set_grad_enabled
from onefold.autograd.graph import saved_tensors_hooks
from onefold.autograd.anomaly_mode import detect_anomaly
from onefold.autograd.variable import Variable
from onefold.utils.data.dataset import ConcatDataset, Dataset, Subset, TensorDataset, random_split
from onefold.utils.data.dataset import ChainDataset, IterableDataset, StackDataset
from onefold.utils.data.dataloader import DataLoader, default_collate, get_worker_info
from onefold.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from onefold.utils.data.sampler import SubsetRandomSampler, WeightedRandomSampler
from onefold.utils.data.distributed import DistributedSampler
from onefold.signal.windows import hann, kaiser
from onefold.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd
from onefold.utils.dlpack import from_dlpack, to_dlpack
from onefold.random import fork_rng, manual_seed
from onefold.testing import assert_close
from onefold.compiler import disable, is_compiling
from onefold.version import cuda, hip
from onefold.futures import Future, collect_all
from onefold.distributed.elastic.multiprocessing.errors import record
from onefold.autograd.profiler import profile, record_function
from onefold.hub import download_url_to_file, get_dir, load_state_dict_from_url, set_dir
from onefold.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask
from onefold.nn.attention.flex_attention import create_mask, flex_attention, or_masks
from onefold.optim.optimizer import Optimizer, ParamsT, required
from onefold.serialization import add_safe_globals, load, safe_globals, save
from onefold.types import Device, Number
from onefold.utils._pytree import tree_flatten, tree_map
from onefold.utils.hooks import RemovableHandle
from onefold.utils.model_zoo import load_url
from onefold import _dynamo, types
from onefold._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors
from onefold.amp.autocast_mode import autocast
from onefold.amp.grad_scaler import GradScaler
from onefold.autograd.profiler import emit_nvtx, profile, record_function
from onefold.cuda.amp.grad_scaler import GradScaler
from onefold.accelerator import current_accelerator, is_available
from onefold.autograd.graph import save_on_cpu
from onefold.cuda.profiler import start, stop
from onefold.distributed import Backend, get_default_backend_for_device
from onefold.distributed.distributed_c10d import ProcessGroup, ReduceOp, get_rank
from onefold.distributed._composable import replicate
from onefold.distributed._composable.replicate import replicate
from onefold.distributed._composable.fsdp.fully_shard import FSDPModule, fully_shard
from onefold.distributed._functional_collectives import all_reduce, wait_tensor
from onefold.distributed.fsdp.fully_sharded_data_parallel import BackwardPrefetch, CPUOffload
from onefold.distributed.fsdp.fully_sharded_data_parallel import OptimStateKeyType
from onefold.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from onefold.distributed.fsdp.api import ShardingStrategy, StateDictConfig
from onefold.distributed.checkpoint.api import CheckpointException
from onefold.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from onefold.distributed.tensor.device_mesh import DeviceMesh, init_device_mesh
from onefold.distributed.launcher.api import LaunchConfig, elastic_launch
from onefold.distributed.pipelining import Pipe, PipelineStage, Schedule1F1B, SplitPoint, pipeline
from onefold.distributed.pipelining import ScheduleGPipe, ScheduleInterleaved1F1B, pipe_split
from onefold.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks
from onefold.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from onefold.distributed.pipelining.stage import PipelineStage
from onefold.distributed import DistBackendError, get_node_local_rank, is_backend_available
from onefold.linalg import LinAlgError
from onefold.nn.attention import SDPBackend, sdpa_kernel
from onefold.nn.init import _calculate_correct_fan, _calculate_fan_in_and_fan_out
from onefold.nn.modules import Module, Sequential
from onefold.nn.modules.batchnorm import BatchNorm2d, _BatchNorm, _NormBase
from onefold.nn.modules.conv import Conv2d, _ConvNd, _ConvTransposeNd
from onefold.nn.modules.dropout import _DropoutNd
from onefold.nn.modules.loss import CrossEntropyLoss, _Loss, _WeightedLoss
from onefold.nn.modules.module import Module, _addindent, _IncompatibleKeys
from onefold.nn.modules.utils import _ntuple, _pair, _quadruple, _single, _triple
from onefold.nn.parallel.distributed import DistributedDataParallel
from onefold.distributed import Backend
from onefold.distributions.utils import _standard_normal, _sum_rightmost, broadcast_all
from onefold.nn.parallel import gather, parallel_apply, replicate, scatter
from onefold.nn.parallel.parallel_apply import parallel_apply
from onefold.nn.parallel.replicate import replicate
from onefold.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs
from onefold.serialization import MAP_LOCATION
from onefold.types import Device, Number, Tensor, _size
from onefold.utils.data.dataloader import _collate_fn_t, _DatasetKind
from onefold.utils._pytree import tree_flatten, tree_map, tree_unflatten
from onefold.utils.benchmark import Timer
from onefold.utils.data._utils.collate import default_collate
""".strip().splitlines()


@pytest.mark.parametrize("line", IMPORTS)
def test_imports_of_torch(line):
    """With the package's name swapped; torch has the same line."""
    names = {}
    exec(line, names)
    exec(line.replace("onefold", "torch"), {})
    module = import_module(line.split()[1])
    assert all(names[name] is getattr(module, name) for name in names if name[0] != "_")


@pytest.mark.filterwarnings("ignore:.torch.jit.\\w+. is deprecated")  # by torch's own modules
@pytest.mark.parametrize("path", sorted(PATHS))
def test_a_path_is_the_attribute(path):
    """So what is set through one is seen through the other."""
    module = import_module(path)
    owner, _, name = path.rpartition(".")
    assert getattr(import_module(owner), name) is module
    assert hasattr(import_module(owner), "__path__")
    assert import_module(path.replace("onefold", "torch", 1))


def test_what_is_below_a_module_of_torch_is_torchs():
    """One module has one state, whatever path a program takes to it."""
    for path in (
        "_dynamo.config",
        "_inductor.config",
        "distributed.elastic.multiprocessing.errors",
    ):
        assert import_module(f"onefold.{path}") is import_module(f"torch.{path}")
    with pytest.raises(ModuleNotFoundError, match=r"torch\._dynamo\.nothing"):
        import_module("onefold._dynamo.nothing")


def test_a_module_keeps_its_own_name():
    import_module("onefold.autograd.function")
    for module in (flow.autograd, flow.autograd.function, flow.utils.data):
        assert module.__spec__.name == module.__name__


def test_the_names_of_autograd_are_one():
    autograd = import_module("onefold.autograd")
    assert autograd is flow.autograd and autograd.grad is flow.autograd.grad
    assert import_module("onefold.backends.cudnn") is torch.backends.cudnn


TABLES = {
    "onefold": missing_names.NAMES,
    "onefold.compiler": missing_names.COMPILER,
    "onefold.cuda": missing_names.CUDA,
    "onefold.fx": missing_names.FX,
    "onefold.jit": missing_names.JIT,
    "onefold.library": missing_names.LIBRARY,
    "onefold.nn": unsupported_names.LAYERS,
    "onefold.nn.attention": unsupported_names.ATTENTION,
    "onefold.onnx": missing_names.ONNX,
    "onefold.utils": missing_names.UTILS,
}
NAMES = {f"{owner}.{name}": (owner, name) for owner, table in TABLES.items() for name in table}


@pytest.mark.parametrize("path", sorted(NAMES))
def test_what_is_not_there_says_what_to_use(path):
    owner, name = NAMES[path]
    assert not hasattr(import_module(owner), name)
    text = rf"{path} is not offered: \S+"
    with pytest.raises(OnefoldRuntimeError, match=text):
        getattr(import_module(owner), name)
    if owner in (
        "onefold.compiler",
        "onefold.jit",
        "onefold.library",
    ):  # they have no modules below them
        return
    for line in (f"import {path}", f"import {path}.more as x", f"from {owner} import {name}"):
        with pytest.raises(ImportError, match=text) as caught:
            exec(line, {})
        assert isinstance(caught.value, MissingModule)


def test_other_names_are_not_there():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'onefold\.nothing'"):
        exec("import onefold.nothing", {})
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from onefold import nothing", {})
    with pytest.raises(ModuleNotFoundError, match=r"onefold\.backends\.nothing"):
        exec("import onefold.backends.nothing", {})
    for module in (flow.compiler, flow.cuda, flow.signal.windows, flow.utils, flow.utils.data):
        with pytest.raises(AttributeError, match="nothing"):
            _ = module.nothing


@pytest.mark.parametrize("path", sorted(NAMES))
def test_what_to_use_is_there(path):
    """Every name in the advice exists; it is not out of date."""
    owner, name = NAMES[path]
    for root, named in re.findall(r"\b(flow|torch)((?:\.\w+)+)", TABLES[owner][name]):
        if not named.startswith(".utils.cpp_extension"):  # of more packages
            assert resolve_name(("onefold" if root == "flow" else root) + named)


def test_constants():
    for name in ("pi", "inf", "e"):
        assert getattr(flow, name) == getattr(torch, name)
    assert flow.nan != flow.nan
    assert flow.ones(3)[:, flow.newaxis].shape == (3, 1)
    for name in ("memory_format", "layout", "channels_last_3d"):
        assert getattr(flow, name) is getattr(torch, name)
    assert isinstance(flow.channels_last, flow.memory_format)
    for name in ("Event", "Stream", "OutOfMemoryError"):
        assert getattr(flow.cuda, name) is getattr(torch.cuda, name)
    assert flow.GradScaler is flow.amp.GradScaler
    assert flow.OutOfMemoryError is torch.OutOfMemoryError
    assert flow.version.cuda == torch.version.cuda


def test_settings_are_those_of_torch():
    before = flow.get_float32_matmul_precision()
    try:
        flow.set_float32_matmul_precision("high")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        flow.set_float32_matmul_precision(before)
    assert not flow.are_deterministic_algorithms_enabled()
    flow.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert torch.are_deterministic_algorithms_enabled()
        assert flow.is_deterministic_algorithms_warn_only_enabled()
        x = flow.ones(4, requires_grad=True)
        x[flow.tensor([0, 0, 1])].sum().backward()
        assert x.grad.tolist() == [2, 1, 0, 0]
    finally:
        flow.use_deterministic_algorithms(False)


def test_the_default_device_is_where_tensors_are_made():
    flow.set_default_device("meta")
    try:
        assert flow.get_default_device() == flow.device("meta")
        assert flow.ones(2).device.type == flow.nn.Linear(2, 2).weight.device.type == "meta"
        assert flow.ones(2, device="cpu").tolist() == [1, 1]
    finally:
        flow.set_default_device(None)
    assert flow.ones(2).device.type == "cpu"


def test_fork_rng_gives_the_state_back():
    flow.random.manual_seed(5)
    before = flow.random.get_rng_state()
    with flow.random.fork_rng(devices=[0], device_type="cuda"):
        drawn = flow.rand(3).tolist()
        flow.random.manual_seed(6)
    assert flow.random.get_rng_state() == before and flow.random.initial_seed() == 5
    assert flow.rand(3).tolist() == drawn
    with flow.random.fork_rng(enabled=False):
        flow.random.manual_seed(7)
    assert flow.initial_seed() == 7
    with pytest.raises(ValueError, match="seed"), flow.random.fork_rng():
        flow.random.manual_seed(flow.random.seed() + 2**64)
    assert flow.initial_seed() == 7


def test_mixed_precision_under_the_old_path():
    amp = flow.cuda.amp
    assert amp.GradScaler is flow.amp.GradScaler and amp.GradScaler(128.0).get_scale() == 128
    with amp.autocast():
        assert flow.get_autocast_dtype("cuda") == flow.float16 and flow.is_autocast_enabled()
        with amp.autocast(False):
            assert not flow.is_autocast_enabled()
    for name in ("autocast", "custom_fwd", "custom_bwd"):
        ours, theirs = getattr(amp, name), getattr(torch.cuda.amp, name)
        assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]

    class Half(flow.autograd.Function):
        @staticmethod
        @amp.custom_fwd(cast_inputs=flow.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @amp.custom_bwd
        def backward(ctx, g):
            return g * 2

    x = flow.ones(2, requires_grad=True)
    with amp.autocast():
        y = Half.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_assert_close(world):
    theirs = inspect.signature(torch.testing.assert_close).parameters
    ours = inspect.signature(flow.testing.assert_close).parameters
    shown = [[(p.name, p.kind, p.default) for p in each.values()] for each in (ours, theirs)]
    assert shown[0] == shown[1]
    x = flow.arange(6.0)
    p = flow.placement("cpu", [0, 1])
    halves = flow.tensor(x.tolist(), placement=p, sbp=flow.sbp.split(0))
    flow.testing.assert_close(halves, x)
    flow.testing.assert_close([x, {"a": halves}], [x.to_torch(), {"a": x}])
    flow.testing.assert_close(x.requires_grad_(), x.detach() + 1e-9)
    flow.testing.assert_close(x, x + 0.5, rtol=0, atol=1)
    with pytest.raises(AssertionError, match="not close"):
        flow.testing.assert_close(halves, x + 0.5)
    with pytest.raises(AssertionError, match="dtype"):
        flow.testing.assert_close(x, x.double())
    with pytest.raises(AssertionError, match="here"):
        flow.testing.assert_close(x, x + 1, msg="here")


def test_code_knows_that_it_is_captured():
    seen = []

    @flow.compile
    def step(x):
        seen.append(flow.compiler.is_compiling())
        return x + 1

    step(flow.ones(2))
    assert seen == [True] and not flow.compiler.is_compiling()


def test_what_is_disabled_is_not_captured():
    @flow.compiler.disable(reason="it prints")
    def shown(x):
        return x.tolist()

    @flow.compile
    def step(x):
        shown(x)
        return x + 1

    assert shown(flow.ones(2)) == [1, 1] and shown.__name__ == "shown"
    with pytest.raises(OnefoldRuntimeError, match=r"shown .*captured.*\(it prints\)"):
        step(flow.ones(2))


def test_marks_of_torchs_compiler_change_nothing():
    @flow.compiler.allow_in_graph
    def halves(x):
        return x / 2

    seen = []

    @flow.compile
    def step(x):
        seen.append((flow.compiler.is_dynamo_compiling(), flow.compiler.is_exporting()))
        return halves(x) * flow.compiler.assume_constant_result(lambda: 3)()

    flow.compiler.cudagraph_mark_step_begin()
    assert step(flow.ones(2)).tolist() == [1.5, 1.5]
    flow.compiler.reset()
    assert step(flow.ones(2)).tolist() == [1.5, 1.5]
    assert seen == [(True, False)] and not flow.compiler.is_dynamo_compiling()
    with pytest.raises(AttributeError, match="one back end"):
        _ = flow.compiler.list_backends
