"""detect_anomaly names the op and the line whose result first held NaN or infinity."""

import inspect

import numpy as np
import pytest
import torch

import onefold as flow

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)


def line():
    return inspect.currentframe().f_back.f_lineno


def made(*values, **options):
    return flow.tensor(np.array(values, np.float32), **options)


def layouts():
    p = flow.placement("cpu", [0, 1])
    return [{}, {"placement": p, "sbp": S0}, {"placement": p, "sbp": B}]


@pytest.mark.parametrize("layout", range(3))
def test_forward(world, layout):
    x = made(1.0, -1.0, **layouts()[layout])
    with (
        pytest.raises(RuntimeError, match=r"log returned nan values") as caught,
        flow.autograd.detect_anomaly(),
    ):
        flow.log(x)
    assert "at test_anomaly.py:" in str(caught.value)
    assert not flow.autograd.is_anomaly_enabled()


def test_infinity(world):
    with pytest.raises(RuntimeError, match="infinite values"), flow.autograd.detect_anomaly():
        made(1.0) / made(0.0)


@pytest.mark.parametrize("layout", range(3))
def test_backward_names_the_line_of_forward(world, layout):
    x = made(0.0, 4.0, **layouts()[layout]).requires_grad_()
    with flow.autograd.detect_anomaly():
        at = line() + 1
        y = flow.sqrt(x)
        z = (y * 3).sum()
        with pytest.raises(RuntimeError, match=r"in backward: Function 'sqrt'") as caught:
            z.backward()
    assert f"Its forward was called at test_anomaly.py:{at}" in str(caught.value)
    assert x.grad is None


def test_a_value_that_was_there_before_is_not_blamed(world):
    x = made(float("nan"), 1.0)
    with flow.autograd.detect_anomaly():
        assert np.isnan((x * 2).sum().numpy())


def test_a_mask_is_no_anomaly(world):
    scores, mask = made(1.0, 2.0), flow.tensor([True, False])
    with flow.autograd.detect_anomaly():
        y = flow.softmax(scores.masked_fill(mask, float("-inf")), 0)
        z = flow.softmax(scores + flow.full((2,), float("-inf")).where(mask, 0.0), 0)
    np.testing.assert_array_equal(y.numpy(), [0, 1])
    np.testing.assert_array_equal(z.numpy(), [0, 1])


def test_switch_and_not_looking(world):
    flow.autograd.set_detect_anomaly(True)
    assert flow.autograd.is_anomaly_enabled()
    flow.autograd.set_detect_anomaly(False)
    assert not flow.autograd.is_anomaly_enabled()
    with flow.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
        flow.log(made(-1.0))
    assert not flow.autograd.is_anomaly_enabled()
    with flow.autograd.detect_anomaly(check_nan=False):
        flow.log(made(-1.0))


def test_set_detect_anomaly_may_be_used_again():
    on = flow.autograd.set_detect_anomaly(True)
    for _ in range(2):
        with on:
            pass
        assert not flow.autograd.is_anomaly_enabled()


@pytest.mark.parametrize("name", ["detect_anomaly", "set_detect_anomaly"])
def test_arguments_are_those_of_torch(name):
    ours = inspect.signature(getattr(flow.autograd, name).__init__).parameters
    theirs = inspect.signature(getattr(torch.autograd, name).__init__).parameters
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values()
    ]
