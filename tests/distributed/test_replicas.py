"""check_replicas: values that ranks hold twice, and the first that differs."""

import pytest
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.world import world as this_world
from onefold.errors import RankMismatch

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)


def test_check_replicas_names_the_first_that_differs():
    def program():
        mesh = flow.placement("cpu", [[0, 1], [2, 3]])
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to_global(mesh, [B, B])
        model[0].to_global(mesh, [S0, B])
        adam = flow.optim.Adam(model.parameters(), lr=0.1)
        flow.check_replicas(model, adam)
        if this_world().rank == 3:
            model[1].running_mean.shards[0].sub_(0.25)
        try:
            flow.check_replicas(model, adam)
        except RankMismatch as error:
            return str(error)
        return None

    texts = run_ranks(4, program, timeout=60.0)
    assert len({text and text.partition(", at ")[0] for text in texts}) == 1
    assert "buffer '1.running_mean'" in texts[0]
    assert "ranks 0 and 3: 4 of 4 elements differ, by up to 0.25" in texts[0]


def test_check_replicas_in_one_process(world):
    mesh = flow.placement("cpu", [0, 1])
    layer = nn.Linear(2, 2).to_global(mesh, B)
    flow.check_replicas(layer)
    layer.bias.shards = (layer.bias.shards[0], layer.bias.shards[1] + 1)
    with pytest.raises(RankMismatch, match=r"parameter 'bias'.*ranks 0 and 1: 2 of 2"):
        flow.check_replicas(layer)
    with pytest.raises(TypeError, match="needs a module"):
        flow.check_replicas([layer])
