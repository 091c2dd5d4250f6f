"""Mistakes in programs of jobs: the message says what was asked, found, allowed, and what to do."""

import numpy as np
import pytest
from launched import run_ranks

import onefold.job as flow
import onefold.job.typing as tp
from onefold.errors import OnefoldError


@pytest.fixture(autouse=True)
def fresh_session():
    flow.clear_default_session()
    yield
    flow.clear_default_session()


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def double():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return x + x

    return job


def mirrored():
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(function_config=config)
    def job(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        return x + x

    return job


def refused(call, *words):
    with pytest.raises(OnefoldError) as caught:
        call()
    for word in words:
        assert word in str(caught.value), caught.value


def test_what_is_not_refused_or_says_too_little_is_noticed():
    with pytest.raises(pytest.fail.Exception):
        refused(lambda: None)
    with pytest.raises(AssertionError):
        refused(lambda: flow.config.gpu_device_num(0), "a word that it does not say")


def test_a_list_has_an_array_for_each_device():
    flow.config.gpu_device_num(2)
    job = mirrored()
    refused(lambda: job([ones(4, 3)]), "2 arrays", "got 1", "gpu_device_num")
    refused(lambda: job(ones(4, 3)), "ListNumpy", "list", "got ndarray")
    assert [x.tolist() for x in job([ones(2, 3), ones(1, 3)])] == [[[2.0] * 3] * 2, [[2.0] * 3]]


def test_shapes_and_dtypes_are_those_declared():
    job = double()
    refused(lambda: job(ones(4, 2)), "argument 'x'", "(4, 3)", "(4, 2)")
    refused(lambda: job(ones(2, 3)), "(4, 3)", "(2, 3)")
    refused(lambda: job(ones(4, 3, dtype=np.float64)), "float32", "float64", "astype")
    refused(lambda: job([[1.0]]), "numpy array", "list")
    refused(job, "argument")
    refused(lambda: job(ones(4, 3), ones(4, 3)), "argument")


def test_a_mirrored_array_is_at_most_as_large_as_declared():
    flow.config.gpu_device_num(2)
    refused(lambda: mirrored()([ones(5, 3), ones(4, 3)]), "[0]", "(4, 3) at most", "(5, 3)")


def test_a_name_has_one_job():
    double()
    refused(double, "'job' is defined already", "rename")


def test_placements_name_devices_that_are_there():
    flow.config.gpu_device_num(2)

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        with flow.scope.placement("gpu", "0:2"):
            return x + x

    refused(lambda: job(ones(4, 3)), "device 2 of machine 0", "0 to 1", "gpu_device_num")
    refused(lambda: flow.scope.placement("tpu", "0:0"), "'cpu' or 'gpu'", "'tpu'")
    refused(lambda: flow.scope.placement("gpu", "0"), "machine:first-last", "'0'")
    refused(lambda: flow.scope.placement("gpu", "0:3-1"), "'0:3-1'")
    refused(lambda: flow.scope.placement("gpu", []), "at least one device")


def test_devices_are_set_before_the_first_call_and_are_there():
    refused(lambda: flow.config.gpu_device_num(0), "at least 1")
    refused(lambda: flow.config.gpu_device_num("2"), "integer", "'2'")
    job = double()
    job(ones(4, 3))
    refused(lambda: flow.config.gpu_device_num(2), "too late", "before")

    def rank():
        flow.clear_default_session()
        refused(lambda: flow.config.gpu_device_num(3), "2 processes", "--nproc_per_node")

    run_ranks(2, rank)


def first_generation():
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    definition = flow.FixedTensorDef((4, 3))

    @flow.global_function(config)
    def job(x=definition):
        loss = flow.layers.dense(x, 2)
        flow.losses.add_loss(loss)
        return loss

    return job


def test_the_first_generation_initializes_before_it_calls():
    job = first_generation()
    refused(lambda: job(ones(4, 3)), "before its variables were initialized", "init()")
    flow.train.CheckPoint().init()
    assert job(ones(4, 3)).get().ndarray().shape == (4, 2)


def test_two_unnamed_layers_are_an_error_in_the_second_generation_only():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.layers.dense(flow.layers.dense(x, 2), 2)

    refused(lambda: job(ones(4, 3)), "'Dense-weight'", "name=")
    flow.clear_default_session()
    definition = flow.FixedTensorDef((4, 3))

    @flow.global_function
    def older(x=definition):
        return flow.layers.dense(flow.layers.dense(x, 2), 2)

    flow.train.CheckPoint().init()
    assert older(ones(4, 3)).get().numpy().shape == (4, 2)


def test_jobs_train_with_a_loss_and_an_optimizer():
    @flow.global_function(type="train")
    def forgot(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.layers.dense(x, 2)

    refused(lambda: forgot(ones(4, 3)), "'forgot'", "minimize(loss)")
    refused(lambda: flow.global_function(type="learn"), "'train' or 'predict'", "'learn'")
    refused(lambda: flow.get_variable("x", (2,)), "global_function")
    refused(
        lambda: flow.optimizer.PiecewiseConstantScheduler([1], [0.1]), "needs 2 values", "got 1"
    )
    flow.clear_default_session()

    @flow.global_function()
    def predicts(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        y = flow.layers.dense(x, 2)
        flow.optimizer.SGD(flow.optimizer.CosineScheduler(0.1, 10)).minimize(y)
        return y

    refused(lambda: predicts(ones(4, 3)), "not a training job", 'type="train"')


def test_results_are_what_the_annotation_says():
    @flow.global_function()
    def nothing(x: tp.Numpy.Placeholder((4, 3))) -> None:
        return x + x

    refused(lambda: nothing(ones(4, 3)), "None")

    @flow.global_function()
    def two(x: tp.Numpy.Placeholder((4, 3))) -> tuple[tp.Numpy, tp.Numpy]:
        return x + x

    refused(lambda: two(ones(4, 3)), "tuple", "'two'")


def test_a_job_is_not_called_in_another():
    job = double()

    @flow.global_function()
    def outer(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return job(x)

    refused(lambda: outer(ones(4, 3)), "in another job", "plain function")


def test_an_error_in_a_function_leaves_the_session_as_it_was():
    broken = [True]

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        y = flow.layers.dense(x, 2, name="layer")
        if broken[0]:
            raise KeyError("mine")
        return y

    with pytest.raises(KeyError, match="mine"):
        job(ones(4, 3))
    broken[0] = False
    assert job(ones(4, 3)).shape == (4, 2)


def test_settings_without_an_effect_say_so_once():
    config = flow.function_config()
    with pytest.warns(flow.IgnoredSettingWarning, match="cudnn_buf_limit_mbyte"):
        config.cudnn_buf_limit_mbyte(100)
    config.cudnn_buf_limit_mbyte(100)
    with pytest.raises(AttributeError, match="no setting named 'speed'"):
        config.speed(1)


def test_dropout_follows_the_one_seed():
    @flow.global_function()
    def noisy(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.nn.dropout(x, 0.5, noise_shape=(4, 1))

    refused(lambda: noisy(ones(4, 3)), "noise_shape=(4, 1)", "leave it out")
    flow.clear_default_session()

    @flow.global_function()
    def seeded(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.nn.dropout(x, 0.5, seed=3)

    with pytest.warns(flow.IgnoredSettingWarning, match=r"seed=3 changes nothing.*manual_seed"):
        assert seeded(ones(4, 3)).tolist() == ones(4, 3).tolist()


def test_labels_are_integers_with_one_for_each_row():
    @flow.global_function()
    def job(
        x: tp.Numpy.Placeholder((4, 3)), y: tp.Numpy.Placeholder((4, 1), dtype=flow.int32)
    ) -> tp.Numpy:
        return flow.nn.sparse_softmax_cross_entropy_with_logits(y, x)

    refused(lambda: job(ones(4, 3), ones(4, 1, dtype=np.int32)), "(4, 3)", "(4,)", "(4, 1)")
    flow.clear_default_session()

    @flow.global_function()
    def other(x: tp.Numpy.Placeholder((4, 3)), y: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
        return flow.nn.sparse_softmax_cross_entropy_with_logits(y, x)

    refused(lambda: other(ones(4, 3), ones(4)), "int32 or int64", "float32", "flow.int32")


def test_a_part_is_that_of_a_device():
    flow.config.gpu_device_num(2)

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))):
        return x + x

    result = job(ones(4, 3)).get()
    assert result.numpy(1).shape == (2, 3)
    assert result.parallel_num() == 2
    refused(lambda: result.numpy(2), "numpy(2)", "there are 2", "from 0")


def test_devices_can_still_be_set_after_a_job_that_could_not_be_traced():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        with flow.scope.placement("gpu", "0:1"):
            return x + x

    refused(lambda: job(ones(4, 3)), "device 1")
    flow.config.gpu_device_num(2)
    assert job(ones(4, 3)).tolist() == [[2.0] * 3] * 4


def test_a_watched_gradient_is_one_that_the_loss_has():
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        loss = flow.layers.dense(x, 2, name="a")
        flow.watch_diff(flow.layers.dense(x, 2, name="b"), lambda grad: None)
        flow.optimizer.SGD(flow.optimizer.CosineScheduler(0.1, 10)).minimize(loss)
        return loss

    refused(lambda: job(ones(4, 3)), "'job'", "gradient", "no loss depends")
