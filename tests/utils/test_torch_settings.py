"""flow.cuda, flow.backends and settings of the process: torch's, with one random state."""

from inspect import signature

import pytest
import torch

import onefold as flow


def outcome(call):
    try:
        return repr(call())
    except (AssertionError, AttributeError, RuntimeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "name", [n for n in flow.cuda.__all__ if hasattr(torch.cuda, n) and n != "amp"]
)
def test_every_name_is_torchs_or_has_its_arguments(name):
    ours, theirs = getattr(flow.cuda, name), getattr(torch.cuda, name)
    assert ours is theirs or [*signature(ours).parameters] == [*signature(theirs).parameters]


@pytest.mark.parametrize(
    "name",
    "is_available device_count is_initialized get_device_properties current_device mem_get_info "
    "memory_allocated max_memory_allocated reset_peak_memory_stats empty_cache Stream "
    "Event synchronize get_device_name".split(),
)
def test_devices_are_torchs(name):
    """Without a device, the same errors and zeros."""
    if name in ("Stream", "Event"):
        assert getattr(flow.cuda, name) is getattr(torch.cuda, name)
    else:
        assert outcome(getattr(flow.cuda, name)) == outcome(getattr(torch.cuda, name))


def test_one_random_state_serves_all_devices():
    flow.cuda.manual_seed_all(3)
    assert flow.initial_seed() == flow.cuda.initial_seed() == 3
    state, each = flow.cuda.get_rng_state(), [flow.cuda.get_rng_state()] * 2
    drawn = flow.rand(3).tolist()
    flow.cuda.set_rng_state(state, "cuda:0")
    assert flow.rand(3).tolist() == drawn
    flow.cuda.set_rng_state_all(each)
    assert flow.rand(3).tolist() == drawn
    flow.cuda.manual_seed(3)
    assert flow.rand(3).tolist() == drawn
    assert len(flow.cuda.get_rng_state_all()) == torch.cuda.device_count()
    flow.cuda.set_rng_state_all([])
    with pytest.raises(ValueError, match="one generator"):
        flow.cuda.set_rng_state_all([(1, 0), (2, 0)])
    flow.cuda.seed()
    flow.cuda.seed_all()
    assert flow.initial_seed() != 3


@pytest.fixture
def unfrozen():
    """Flags that torch's own test tools, which other tests import, have frozen."""
    with getattr(torch.backends, "__allow_nonbracketed_mutation")():
        yield


@pytest.mark.usefixtures("unfrozen")
def test_settings_reach_torch():
    before = torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32
    flow.backends.cudnn.benchmark = not before[0]
    flow.backends.cuda.matmul.allow_tf32 = not before[1]
    try:
        assert torch.backends.cudnn.benchmark is not before[0]
        assert torch.backends.cuda.matmul.allow_tf32 is not before[1]
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32 = before
    assert flow.get_num_threads() == torch.get_num_threads()


def test_printing_follows_the_options():
    flow.set_printoptions(precision=2)
    try:
        assert str(flow.tensor([1.23456])) == "tensor([1.23])"
    finally:
        flow.set_printoptions(profile="default")
