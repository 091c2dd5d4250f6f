"""The programs of both generations: every layout gives torch's losses from the same weights."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold.job as flow
import onefold.job.typing as tp
from onefold.job.session import session

BATCH = 8


@pytest.fixture(autouse=True)
def fresh_session():
    flow.clear_default_session()
    yield
    flow.clear_default_session()


def mlp(data, output_name="output", **of_output):
    initializer = flow.truncated_normal(0.1)
    flat = flow.reshape(data, [data.shape[0], -1])
    hidden = flow.layers.dense(
        flat, 32, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    return flow.layers.dense(
        hidden, 10, kernel_initializer=initializer, name=output_name, **of_output
    )


def lenet(data, scopes):
    initializer = flow.truncated_normal(0.1)
    options = {"padding": "SAME", "activation": flow.nn.relu, "kernel_initializer": initializer}
    conv1 = flow.layers.conv2d(data, 4, 5, name="conv1", **options)
    pool1 = flow.nn.max_pool2d(conv1, ksize=2, strides=2, padding="SAME", name="pool1")
    conv2 = flow.layers.conv2d(pool1, 6, 5, name="conv2", **options)
    pool2 = flow.nn.max_pool2d(conv2, ksize=2, strides=2, padding="SAME", name="pool2")
    flat = flow.reshape(pool2, [pool2.shape[0], -1])
    with scopes[0]:
        hidden = flow.layers.dense(
            flat, 16, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
        )
    with scopes[1]:
        return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")


def data(steps, seed=0):
    source = np.random.default_rng(seed)
    for _ in range(steps):
        images = source.normal(size=(BATCH, 1, 28, 28)).astype(np.float32)
        yield images, source.integers(0, 10, size=BATCH).astype(np.int32)


def values():
    return {name: v.tensor.numpy() for name, v in session.variables.items()}


def torch_losses(batches, start, forward, lr, momentum=0.0):
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
    optimizer = torch.optim.SGD(weights.values(), lr=lr, momentum=momentum)
    found = []
    for images, labels in batches:
        logits = forward(weights, torch.tensor(images))
        losses = torch.nn.functional.cross_entropy(
            logits, torch.tensor(labels).long(), reduction="none"
        )
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        found.append(losses.detach().numpy())
    return found


def torch_mlp(w, x):
    x = torch.relu(x.flatten(1) @ w["hidden-weight"].T + w["hidden-bias"])
    return x @ w["output-weight"].T + w["output-bias"]


def torch_lenet(w, x):
    functional = torch.nn.functional
    for name in ("conv1", "conv2"):
        x = functional.conv2d(x, w[f"{name}-weight"], w[f"{name}-bias"], padding=2)
        x = functional.max_pool2d(torch.relu(x), 2)
    return torch_mlp(w, x)


def minimize(loss, **options):
    schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(schedule, **({"momentum": 0} | options)).minimize(loss)


def second_generation(model, **options):
    @flow.global_function(type="train")
    def train_job(
        images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
    ) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        minimize(loss, **options)
        return loss

    return train_job


def mirrored_config():
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.default_logical_view(flow.scope.mirrored_view())
    return config


def mirrored(model):
    @flow.global_function(type="train", function_config=mirrored_config())
    def train_job(
        images: tp.ListNumpy.Placeholder((BATCH // 2, 1, 28, 28), dtype=flow.float),
        labels: tp.ListNumpy.Placeholder((BATCH // 2,), dtype=flow.int32),
    ) -> tp.ListNumpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        minimize(loss)
        return loss

    return lambda x, y: np.concatenate(train_job(np.split(x, 2), np.split(y, 2)))


def first_generation(model, definition, view=None):
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    if view is not None:
        config.default_distribute_strategy(view)
    rows = BATCH // 2 if view is None else BATCH

    images_def = definition((rows, 1, 28, 28), dtype=flow.float)
    labels_def = definition((rows,), dtype=flow.int32)

    @flow.global_function(config)
    def train_job(
        images=images_def,
        labels=labels_def,
    ):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        flow.losses.add_loss(loss)
        return loss

    if view is not None:
        return lambda x, y: train_job(x, y).get().ndarray()
    return lambda x, y: np.concatenate(
        train_job(np.split(x, 2), np.split(y, 2)).get().ndarray_list()
    )


def placed(x):
    return lenet(x, (flow.scope.placement("gpu", "0:0"), flow.scope.placement("gpu", "0:1")))


def spread(x):
    return lenet(x, (flow.scope.consistent_view(),) * 2)


def split_output(x):
    return mlp(x, model_distribute=flow.distribute.split(axis=0))


CASES = {
    "mlp": (lambda: second_generation(mlp), torch_mlp),
    "mixed": (lambda: second_generation(split_output), torch_mlp),
    "mirrored": (lambda: mirrored(mlp), torch_mlp),
    "lenet": (lambda: second_generation(spread), torch_lenet),
    "placement": (lambda: second_generation(placed), torch_lenet),
    "mirrored, first generation": (
        lambda: first_generation(mlp, flow.MirroredTensorDef),
        torch_mlp,
    ),
    "lenet, first generation": (
        lambda: first_generation(
            spread, flow.FixedTensorDef, flow.distribute.consistent_strategy()
        ),
        torch_lenet,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_torch(case):
    make, forward = CASES[case]
    flow.config.gpu_device_num(2)
    call = make()
    flow.train.CheckPoint().init()
    wanted = torch_losses(data(4), values(), forward, 0.1)
    found = [call(images, labels) for images, labels in data(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_processes_give_the_losses_of_one(case):
    make, _ = CASES[case]
    flow.config.gpu_device_num(2)
    call = make()
    flow.train.CheckPoint().init()
    start = values()
    wanted = [call(images, labels) for images, labels in data(3)]

    def rank():
        flow.clear_default_session()
        flow.config.gpu_device_num(2)
        call = make()
        flow.load_variables(start)
        return [call(images, labels) for images, labels in data(3)]

    for found in run_ranks(2, rank):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_output_layer_of_the_mixed_program_stays_split():
    flow.config.gpu_device_num(2)
    call = second_generation(split_output)
    call(*next(data(1)))
    layouts = {name: v.tensor.sbp[0] for name, v in session.variables.items()}
    assert [name for name, sbp in layouts.items() if sbp.is_split] == [
        "output-weight",
        "output-bias",
    ]


def test_momentum_is_point_nine_unless_another_is_given():
    call = second_generation(mlp, momentum=0.9)
    flow.train.CheckPoint().init()
    wanted = torch_losses(data(4), values(), torch_mlp, 0.1, momentum=0.9)
    found = [call(images, labels) for images, labels in data(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def in_pieces(count, at_once):
    """A job that works on pieces of its batch; `at_once` packs the logits before their loss."""

    @flow.global_function(type="train")
    def train_job(
        images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
    ) -> tp.Numpy:
        logits = mlp(flow.unpack(images, count))
        if at_once:
            logits = flow.pack(logits, count)
        else:
            labels = flow.unpack(labels, count)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        minimize(loss, momentum=0.9)
        return loss if at_once else flow.pack(loss, count)

    return train_job


@pytest.mark.parametrize("at_once", [True, False], ids=["one program", "in time"])
@pytest.mark.parametrize("devices", [1, 2])
def test_pieces_accumulate_gradients(devices, at_once):
    flow.config.gpu_device_num(devices)
    call = in_pieces(4, at_once)
    flow.train.CheckPoint().init()
    wanted = torch_losses(data(4), values(), torch_mlp, 0.1, momentum=0.9)
    found = [call(images, labels) for images, labels in data(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert call.graph.config.micro_batches == (1 if at_once else 4)


def test_what_pieces_have_in_common_is_given_once():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tuple[tp.Numpy, tp.Numpy]:
        weight = flow.get_variable("w", (3, 3), initializer=flow.ones_initializer())
        return flow.pack(flow.matmul(flow.unpack(x, 2), weight), 2), weight

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    found, weight = job(x)
    np.testing.assert_allclose(found, x @ np.ones((3, 3)))
    assert weight.shape == (3, 3)


def test_pieces_of_lists_accumulate_gradients():
    flow.config.gpu_device_num(2)

    @flow.global_function(type="train", function_config=mirrored_config())
    def train_job(
        images: tp.ListNumpy.Placeholder((BATCH // 2, 1, 28, 28), dtype=flow.float),
        labels: tp.ListNumpy.Placeholder((BATCH // 2,), dtype=flow.int32),
    ) -> tp.ListNumpy:
        x, y = flow.unpack(images, 2), flow.unpack(labels, 2)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, mlp(x))
        minimize(loss)
        return flow.pack(loss, 2)

    flow.train.CheckPoint().init()
    assert train_job.graph.config.micro_batches == 2
    wanted = torch_losses(data(3), values(), torch_mlp, 0.1)
    found = [np.concatenate(train_job(np.split(x, 2), np.split(y, 2))) for x, y in data(3)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("packs_early", [False, True])
def test_pieces_in_time_need_less_memory(packs_early):
    """Of a network whose activations are larger than its variables."""

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4096, 8))) -> tp.Numpy:
        y = flow.unpack(x, 8)
        for number in range(4):
            y = flow.math.tanh(flow.layers.dense(y, 8, name=f"layer{number}"))
        if packs_early:
            y = flow.math.square(flow.pack(y, 8))
        minimize(y)
        return y

    job(np.ones((4096, 8), np.float32))
    activations = 4096 * 8 * 4 * 4  # bytes, of four layers
    memory = job.graph.memory(0)
    # The pieces of the result are joined in the end, which takes as many bytes once more.
    assert (memory.peak - memory.kept < activations / 2) is not packs_early


def test_an_evaluating_job_shares_the_variables():
    call = second_generation(mlp)

    @flow.global_function()
    def logits(images: tp.Numpy.Placeholder((BATCH, 1, 28, 28))) -> tp.Numpy:
        return mlp(images)

    images, labels = next(data(1))
    before = logits(images)
    weights = {name: torch.tensor(value) for name, value in values().items()}
    np.testing.assert_allclose(
        before, torch_mlp(weights, torch.tensor(images)), rtol=1e-4, atol=1e-5
    )
    call(images, labels)
    assert not np.array_equal(logits(images), before)


def test_watches_see_values_and_gradients():
    seen = {}

    def model(x):
        logits = mlp(x)

        def value(y: tp.Numpy):
            seen["value"] = y

        def gradient(dy: tp.Numpy):
            seen["gradient"] = dy

        flow.watch(logits, value)
        flow.watch_diff(logits, gradient)
        return logits

    call = second_generation(model)
    images, labels = next(data(1))
    flow.train.CheckPoint().init()
    weights = {name: torch.tensor(value) for name, value in values().items()}
    call(images, labels)
    logits = torch_mlp(weights, torch.tensor(images)).requires_grad_()
    torch.nn.functional.cross_entropy(logits, torch.tensor(labels).long()).backward()
    np.testing.assert_allclose(seen["value"], logits.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen["gradient"], logits.grad, rtol=1e-4, atol=1e-6)


def test_a_checkpoint_resumes_exactly(tmp_path):
    batches = list(data(6))
    call = second_generation(mlp, momentum=0.9)
    for images, labels in batches[:3]:
        call(images, labels)
    flow.train.CheckPoint().save(tmp_path / "after_three")
    wanted = [call(images, labels) for images, labels in batches[3:]]
    flow.clear_default_session()
    again = second_generation(mlp, momentum=0.9)
    flow.train.CheckPoint().load(tmp_path / "after_three")
    found = [again(images, labels) for images, labels in batches[3:]]
    np.testing.assert_array_equal(found, wanted)
