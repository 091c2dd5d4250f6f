"""Older and smaller names of torch: autocast, ranges, saved tensors, profiles."""

import numpy as np
import pytest
import torch

import onefold as flow


@pytest.mark.filterwarnings("ignore:torch.*is deprecated:DeprecationWarning")
def test_autocast_by_older_names():
    for lib in (torch, flow):
        with lib.autocast("cpu", dtype=lib.bfloat16):
            assert lib.get_autocast_cpu_dtype() is torch.bfloat16 and lib.is_autocast_cpu_enabled()
            lib.clear_autocast_cache()
            assert (lib.ones(2, 2) @ lib.ones(2, 2)).dtype is torch.bfloat16
        assert not lib.is_autocast_cpu_enabled() and not lib.is_anomaly_enabled()
        assert lib.get_autocast_gpu_dtype() is torch.float16
        assert lib.amp.is_autocast_available("cpu")


@pytest.mark.parametrize("name", ["inv", "cholesky"])
def test_matrices_without_factors(name):
    for lib in (torch, flow):
        with pytest.raises(lib.linalg.LinAlgError):
            getattr(lib.linalg, name)(lib.zeros(2, 2))
        with pytest.raises(RuntimeError, match=f"linalg.{name}"):
            getattr(lib.linalg, name)(lib.zeros(2, 2))


def test_ranges_with_their_ends():
    for given in ((1, 4), (0, 1, 0.25), (0, 1, 0.3), (3, 1, -0.5), (1, 1)):
        values = []
        for lib in (torch, flow):
            with pytest.warns(UserWarning, match="range is deprecated"):
                values.append(lib.range(*given).numpy())
        np.testing.assert_array_equal(*values)
        assert values[0].dtype == values[1].dtype
    for given in ((2, 1), (0, float("inf")), (0, 1, 0)):
        for lib in (torch, flow):
            with pytest.warns(UserWarning, match="range"), pytest.raises(RuntimeError):
                lib.range(*given)


def test_saved_tensors_on_the_cpu():
    grads = []
    for lib in (torch, flow):
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        with lib.autograd.graph.save_on_cpu(pin_memory=False):
            y = (x * x).exp().sum()
        y.backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


def test_profile_takes_torchs_arguments():
    for lib in (torch, flow):
        with lib.profiler.profile(profile_memory=True, with_flops=True, with_stack=True) as prof:
            lib.ones(2).exp()
        assert any("exp" in row.key for row in prof.key_averages())
