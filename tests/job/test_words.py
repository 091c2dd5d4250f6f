"""The words of job programs: ops against torch, schedules, settings, checkpoints, data."""

import gzip
import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import onefold.job as flow
import onefold.job.typing as tp
from onefold.checkpoint.save_load import load
from onefold.errors import OnefoldError


@pytest.fixture(autouse=True)
def fresh_session():
    flow.clear_default_session()
    yield
    flow.clear_default_session()


X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def run(function, *arrays, devices=2):
    """What a predicting job gives for arrays."""
    flow.clear_default_session()
    flow.config.gpu_device_num(devices)
    defs = [flow.FixedTensorDef(a.shape, dtype=getattr(flow, str(a.dtype))) for a in arrays]
    names = ["a", "b", "c"][: len(arrays)]
    space = {"function": function, **{f"d_{n}": d for n, d in zip(names, defs, strict=True)}}
    source = ", ".join(f"{n}=d_{n}" for n in names)
    exec(f"def job({source}):\n    return function({', '.join(names)})", space)
    config = flow.function_config()
    config.default_logical_view(flow.scope.consistent_view())
    job = flow.global_function(config)(space["job"])
    flow.train.CheckPoint().init()
    return job(*arrays).get().numpy()


def torch_of(*arrays):
    return [torch.tensor(a) for a in arrays]


POSITIVE = np.abs(X) + 0.1
UNARY = {
    name: getattr(torch, name)
    for name in """
    abs ceil cos cosh erf erfc exp expm1 floor log log1p negative reciprocal round rsqrt sigmoid
    sign sin sinh sqrt square tan tanh relu atan asinh lgamma
    """.split()
} | {"softplus": torch.nn.functional.softplus, "gelu": torch.nn.functional.gelu}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_elements(name):
    found = run(getattr(flow.math, name), POSITIVE)
    np.testing.assert_allclose(found, UNARY[name](*torch_of(POSITIVE)), rtol=1e-5, atol=1e-6)


BINARY = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.divide,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mod": torch.fmod,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
}


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_pairs(name):
    other = POSITIVE[::-1].copy()
    found = run(getattr(flow.math, name), POSITIVE, other)
    np.testing.assert_allclose(found, BINARY[name](*torch_of(POSITIVE, other)), rtol=1e-5)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "variance"])
def test_reductions(name, axis):
    found = run(lambda x: getattr(flow.math, f"reduce_{name}")(x, axis), X)
    wanted = getattr(np, name.replace("variance", "var"))(X, axis=axis)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


SHAPING = {
    "reshape": (lambda x: flow.reshape(x, [2, -1]), lambda x: x.reshape(2, -1)),
    "flatten": (flow.flatten, lambda x: x.reshape(-1)),
    "transpose": (flow.transpose, lambda x: x.T),
    "cast": (lambda x: flow.cast(x, flow.int32), lambda x: x.astype(np.int32)),
    "concat": (lambda x: flow.concat([x, x], axis=1), lambda x: np.concatenate([x, x], 1)),
    "stack": (lambda x: flow.stack([x, x]), lambda x: np.stack([x, x])),
    "expand_dims": (lambda x: flow.expand_dims(x, 1), lambda x: x[:, None]),
    "squeeze": (lambda x: flow.squeeze(flow.expand_dims(x, 1)), lambda x: x),
    "slice": (lambda x: flow.slice(x, [1, None], [2, -1]), lambda x: x[1:3]),
    "where": (
        lambda x: flow.where(flow.math.greater(x, 0.0), x, flow.zeros_like(x)),
        lambda x: np.maximum(x, 0),
    ),
    "clip": (lambda x: flow.math.clip_by_value(x, -0.5, 0.5), lambda x: x.clip(-0.5, 0.5)),
    "argmax": (flow.math.argmax, lambda x: x.argmax(1)),
    "top_k": (lambda x: flow.math.top_k(x, 2), lambda x: np.argsort(-x, 1)[:, :2]),
    "identity": (flow.identity, lambda x: x),
    "ones_like": (flow.ones_like, np.ones_like),
    "operators": (lambda x: -(1 - x) * 2 / 4 + x - 3, lambda x: -(1 - x) * 2 / 4 + x - 3),
    "matmul": (lambda x: flow.matmul(x, x, transpose_b=True), lambda x: x @ x.T),
    "add_n": (lambda x: flow.math.add_n([x, x, x]), lambda x: 3 * x),
    "clone": (
        lambda x: flow.advanced.distribute_add(flow.advanced.distribute_clone(x), name="sum"),
        lambda x: 2 * x,
    ),
    "map": (lambda x: flow.advanced.distribute_map(x, flow.math.square), lambda x: x * x),
    "parallel cast": (
        lambda x: flow.parallel_cast(x, distribute=flow.distribute.split(1)) + 0,
        lambda x: x,
    ),
}


F = torch.nn.functional
ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "selu": F.selu,
    "mish": F.mish,
    "silu": F.silu,
    "elu": F.elu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "softmax": lambda x: F.softmax(x, -1),
    "logsoftmax": lambda x: F.log_softmax(x, -1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    found = run(getattr(flow.nn, name), 3 * X)
    np.testing.assert_allclose(found, ACTIVATIONS[name](torch.tensor(3 * X)), rtol=1e-5, atol=1e-6)


def test_losses_of_shares():
    shares = F.softmax(torch.tensor(X[::-1].copy()), -1).numpy()
    found = run(flow.nn.softmax_cross_entropy_with_logits, shares, X)
    wanted = F.cross_entropy(torch.tensor(X), torch.tensor(shares), reduction="none")
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    found = run(flow.nn.sigmoid_cross_entropy_with_logits, shares, X)
    wanted = F.binary_cross_entropy_with_logits(
        torch.tensor(X), torch.tensor(shares), reduction="none"
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_moments_and_what_is_normalized_by_them():
    def normalized(x):
        mean, variance = flow.nn.moments(x, [0])
        return flow.nn.batch_normalization(x, mean, variance, mean, variance, 1e-3)

    mean, variance = X.mean(0), X.var(0)
    wanted = (X - mean) / np.sqrt(variance + 1e-3) * variance + mean
    np.testing.assert_allclose(run(normalized, X), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("begin_params", [1, -1])
def test_layer_norm(begin_params):
    image = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    found = run(lambda x: flow.layers.layer_norm(x, begin_params_axis=begin_params), image)
    wanted = F.layer_norm(torch.tensor(image), (2, 3))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [1, -1])
def test_batch_normalization_moves_its_statistics(axis):
    flow.config.gpu_device_num(2)
    image = np.random.default_rng(0).normal(3, 2, size=(4, 5, 3, 5)).astype(np.float32)

    def network(x):
        return flow.layers.batch_normalization(x, axis=axis, momentum=0.9)

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((4, 5, 3, 5))) -> tp.Numpy:
        y = network(x)
        flow.optimizer.SGD(flow.optimizer.CosineScheduler(0.0, 10)).minimize(y)
        return y

    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((4, 5, 3, 5))) -> tp.Numpy:
        return network(x)

    module = torch.nn.BatchNorm2d(5, eps=1e-3, momentum=0.1)
    moved = torch.tensor(image).movedim(axis, 1)
    for _ in range(3):
        wanted = module(moved).movedim(1, axis).detach()
        np.testing.assert_allclose(train(image), wanted, rtol=1e-4, atol=1e-4)
    wanted = module.eval()(moved).movedim(1, axis).detach()
    np.testing.assert_allclose(predict(image), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SHAPING)
def test_shaping(name):
    function, wanted = SHAPING[name]
    np.testing.assert_allclose(run(function, X), wanted(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("padding", ["VALID", "SAME", "SAME_UPPER", [1, 1]])
@pytest.mark.parametrize("size", [(7, 8), (6, 6)])
def test_convolution_and_pooling(data_format, padding, size):
    """Against torch on an image that is padded by hand."""
    x = np.random.default_rng(1).normal(size=(2, 3, *size)).astype(np.float32)
    weight = np.random.default_rng(2).normal(size=(4, 3, 3, 2)).astype(np.float32)
    last = data_format == "NHWC"

    def order(a):
        return a.transpose(0, 2, 3, 1).copy() if last else a

    def back(a):
        return a.transpose(0, 3, 1, 2) if last else a

    def around(n, reach, stride):
        if padding == "VALID":
            return 0, 0
        if padding == [1, 1]:
            return 1, 1
        total = max((math.ceil(n / stride) - 1) * stride + reach - n, 0)
        small, large = total // 2, total - total // 2
        return (small, large) if padding == "SAME_UPPER" else (large, small)

    def padded(stride, reach, value):
        pairs = [around(n, r, stride) for n, r in zip(size, reach, strict=True)]
        return torch.nn.functional.pad(torch.tensor(x), (*pairs[1], *pairs[0]), value=value)

    options = {"padding": padding, "data_format": data_format}
    found = run(lambda a, b: flow.nn.conv2d(a, b, 1, **options), order(x), order(weight))
    wanted = torch.nn.functional.conv2d(padded(1, (3, 2), 0.0), torch.tensor(weight))
    np.testing.assert_allclose(back(found), wanted, rtol=1e-4, atol=1e-5)
    found = run(lambda a: flow.nn.max_pool2d(a, 3, 2, **options), order(x))
    wanted = torch.nn.functional.max_pool2d(padded(2, (3, 3), -math.inf), 3, 2)
    np.testing.assert_allclose(back(found), wanted)
    found = run(lambda a: flow.nn.avg_pool2d(a, 3, 2, **options), order(x))
    sums = torch.nn.functional.avg_pool2d(padded(2, (3, 3), 0.0), 3, 2)
    inside = torch.nn.functional.avg_pool2d(
        (padded(2, (3, 3), math.nan) == padded(2, (3, 3), math.nan)).float(), 3, 2
    )
    np.testing.assert_allclose(back(found), sums / inside, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (2, 3), ()])
def test_cross_entropy_has_the_classes_last(shape):
    logits = np.random.default_rng(3).normal(size=(*shape, 5)).astype(np.float32)
    labels = np.random.default_rng(4).integers(0, 5, size=shape).astype(np.int32)
    found = run(flow.nn.sparse_softmax_cross_entropy_with_logits, labels, logits)
    rows = torch.tensor(logits).reshape(-1, 5), torch.tensor(labels).long().reshape(-1)
    wanted = torch.nn.functional.cross_entropy(*rows, reduction="none").reshape(shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


# Schedules.


@given(step=st.integers(0, 30), warm=st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_schedules_follow_their_formulas(step, warm):
    lr = flow.optimizer
    ahead = lr.warmup.linear(warm, 0.25)
    formulas = {
        lr.PiecewiseConstantScheduler([4, 9], [1.0, 0.5, 0.1]): (1.0, 0.5, 0.1)[
            (step > 4) + (step > 9)
        ],
        lr.PiecewiseScalingScheduler(2.0, [4, 9], [0.5, 0.1]): 2.0
        * (1.0, 0.5, 0.1)[(step > 4) + (step > 9)],
        lr.CosineScheduler(2.0, 20, alpha=0.1): 2.0
        * (0.9 * 0.5 * (1 + math.cos(math.pi * min(step, 20) / 20)) + 0.1),
        lr.PolynomialScheduler(2.0, 20, 0.5, power=2.0): 1.5 * (1 - min(step, 20) / 20) ** 2 + 0.5,
        lr.PolynomialScheduler(2.0, 5, 0.5, cycle=True): 0.5
        + 1.5 * (1 - max(step, 1) / (5 * math.ceil(max(step, 1) / 5))),
        lr.LinearCosineScheduler(2.0, 20): 2.0
        * ((1 - min(step, 20) / 20) * 0.5 * (1 + math.cos(math.pi * min(step, 20) / 20)) + 0.001),
        lr.ExponentialScheduler(2.0, 5, 0.5): 2.0 * 0.5 ** (step / 5),
        lr.ExponentialScheduler(2.0, 5, 0.5, staircase=True): 2.0 * 0.5 ** (step // 5),
        lr.InverseTimeScheduler(2.0, 5, 0.5): 2.0 / (1 + 0.5 * step / 5),
        lr.NaturalExpScheduler(2.0, 5, 0.5): 2.0 * math.exp(-0.5 * step / 5),
        lr.CustomScheduler(lambda s: 1.0 / (s + 1)): 1.0 / (step + 1),
    }
    for schedule, wanted in formulas.items():
        assert schedule.rate(0.0, step) == pytest.approx(wanted)
    warmed = lr.CosineScheduler(2.0, 20, warmup=ahead).rate(0.0, step)
    if step < warm:
        assert warmed == pytest.approx(2.0 * (0.25 + 0.75 * step / warm))
    else:
        assert warmed == lr.CosineScheduler(2.0, 20).rate(0.0, step)
    assert lr.CosineScheduler(2.0, 20, warmup=lr.warmup.constant(warm, 0.1)).rate(0.0, 0) == 0.2


# Checkpoints.


def trained():
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
        loss = flow.layers.dense(x, 2, kernel_initializer=flow.truncated_normal(0.1), name="d")
        flow.optimizer.Adam(flow.optimizer.CosineScheduler(0.1, 10)).minimize(loss)
        return loss

    return job


def test_checkpoints_are_numbered_and_restored(tmp_path):
    manager = flow.train.SimpleCheckPointManager(tmp_path)
    job = trained()
    manager.initialize_or_restore()
    assert manager.latest_checkpoint() is None
    job(X)
    manager.save()
    job(X)
    path = manager.save()
    assert manager.list_checkpoints() == ["snapshot_0", "snapshot_1"]
    assert manager.latest_checkpoint() == path
    weight = flow.checkpoint.get(path)["d-weight"]
    wanted = job(X)
    flow.clear_default_session()
    again = trained()
    flow.train.SimpleCheckPointManager(tmp_path).initialize_or_restore()
    np.testing.assert_array_equal(again(X), wanted)
    flow.clear_default_session()
    last = trained()
    flow.load_variables({"d-weight": weight, "d-bias": np.zeros(2, np.float32)})
    np.testing.assert_allclose(last(X), X @ weight.T, rtol=1e-5, atol=1e-6)


def test_what_is_no_checkpoint_is_refused_and_changes_nothing(tmp_path):
    trained()
    check_point = flow.train.CheckPoint()
    check_point.init()
    check_point.save(tmp_path / "a")
    before = flow.checkpoint.get(tmp_path / "a")
    with pytest.raises(OnefoldError, match="name a new folder"):
        check_point.save(tmp_path / "a")
    with pytest.raises(OnefoldError, match="no checkpoint"):
        check_point.load(tmp_path / "b")
    file = tmp_path / "a" / "variables.safetensors"
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[-5] ^= 1
    for damaged in (b"", content[:100], content[: len(content) // 2], b"x" * 50, flipped):
        file.write_bytes(damaged)
        with pytest.raises(OnefoldError, match=r"variables\.safetensors"):
            check_point.load(tmp_path / "a")
    with pytest.raises(OnefoldError, match="shape"):
        flow.load_variables({"d-weight": np.zeros((3, 3)), "d-bias": np.ones(2)})
    check_point.save(tmp_path / "c")
    after = flow.checkpoint.get(tmp_path / "c")
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    with pytest.warns(UserWarning, match="d-bias"):
        flow.load_variables({"d-weight": np.zeros((2, 6))})


def test_a_checkpoint_of_another_optimizer_is_refused_and_changes_nothing(tmp_path):
    trained()(X)
    flow.checkpoint.save(tmp_path / "adam")
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 6))) -> tp.Numpy:
        loss = flow.layers.dense(x, 2, kernel_initializer=flow.truncated_normal(0.1), name="d")
        flow.optimizer.LARS(flow.optimizer.CosineScheduler(0.1, 10)).minimize(loss)
        return loss

    job(X)
    flow.checkpoint.save(tmp_path / "before")
    with pytest.raises(OnefoldError, match="LARS"):
        flow.train.CheckPoint().load(tmp_path / "adam")
    flow.checkpoint.save(tmp_path / "after")
    files = [load(tmp_path / name / "variables.safetensors") for name in ("before", "after")]
    assert str(files[0]) == str(files[1])


# Data.


def write_mnist(folder, count):
    source = np.random.default_rng(0)
    for lead, n in (("train", count), ("t10k", count // 2)):
        images = source.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        labels = (np.arange(n) % 10).astype(np.uint8)
        head = struct.pack(">4I", 0x803, n, 28, 28) + images.tobytes()
        (folder / f"{lead}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head))
        head = struct.pack(">2I", 0x801, n) + labels.tobytes()
        (folder / f"{lead}-labels-idx1-ubyte").write_bytes(head)


def test_the_original_files_are_read(tmp_path):
    write_mnist(tmp_path, 20)
    (images, labels), (test, _) = flow.data.load_mnist(6, 5, out_dir=tmp_path)
    assert images.shape == (3, 6, 1, 28, 28)
    assert images.dtype == np.float32
    assert 0 <= images.min() < images.max() <= 1
    assert labels.tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 0, 1], [2, 3, 4, 5, 6, 7]]
    assert labels.dtype == np.int32
    assert test.shape == (2, 5, 1, 28, 28)
    (last, _), _ = flow.data.load_mnist(6, 5, data_format="NHWC", out_dir=tmp_path)
    np.testing.assert_array_equal(last[..., 0], images[:, :, 0])


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"no" + b, lambda b: b[:3]])
def test_damaged_files_are_refused(tmp_path, damage):
    write_mnist(tmp_path, 20)
    file = tmp_path / "train-labels-idx1-ubyte"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(OnefoldError, match="train-labels-idx1-ubyte"):
        flow.data.load_mnist(out_dir=tmp_path)


def test_without_the_files_the_images_of_a_package_are_used(tmp_path):
    with pytest.warns(flow.data.FewImagesWarning, match="5,000"):
        (images, labels), (_, test_labels) = flow.data.load_mnist(out_dir=tmp_path)
    assert images.shape == (40, 100, 1, 28, 28)
    assert labels.shape == (40, 100)
    assert sorted(set(test_labels.reshape(-1).tolist())) == list(range(10))


def test_lists_of_lists_may_be_of_other_lengths_in_each_call():
    flow.config.gpu_device_num(2)
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(function_config=config)
    def job(x: tp.ListListNumpy.Placeholder((4, 3))) -> tp.Bundle[tp.ListNumpy]:
        return [blob + 1 for blob in x]

    def arrays(count):
        return [[np.full((i + 1, 3), i + j, np.float32) for j in range(count)] for i in range(2)]

    for count in (1, 3, 1, 2):
        found = job(arrays(count))
        assert len(found) == count
        for j, parts in enumerate(found):
            assert [part.shape for part in parts] == [(1, 3), (2, 3)]
            assert [part.max() for part in parts] == [j + 1, j + 2]
