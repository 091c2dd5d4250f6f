"""OneFlow's switches of boxing are accepted and checked."""

import pytest

import onefold as flow


def test_switches_are_accepted():
    assert flow.boxing.nccl.enable_use_compute_stream(True) is None
    assert flow.boxing.nccl.allow_fuse_all_reduce() is None
    assert flow.boxing.nccl.set_fusion_threshold_mbytes(16) is None


def test_wrong_values_and_names():
    with pytest.raises(TypeError, match="enable_use_compute_stream must be True or False, but got"):
        flow.boxing.nccl.enable_use_compute_stream("yes")
    with pytest.raises(TypeError, match="set_stream_num must be an integer, but got None"):
        flow.boxing.nccl.set_stream_num()
    with pytest.raises(AttributeError, match="set_streams"):
        flow.boxing.nccl.set_streams(2)
