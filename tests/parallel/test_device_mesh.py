"""DeviceMesh: made of groups and of other meshes, and as a block."""

import pytest
from launched import run_ranks

import onefold as flow
import onefold.distributed as dist
from onefold import nn
from onefold.distributed.device_mesh import DeviceMesh, init_device_mesh
from onefold.distributed.tensor import Replicate, Shard, distribute_tensor, ones
from onefold.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError


def mesh_of(shape=(2, 3, 2), names=("dp", "cp", "tp")):
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def test_axes_as_one(world):
    mesh = mesh_of()
    both = mesh["dp", "cp"]._flatten("dp_cp")
    assert both.mesh.tolist() == [0, 2, 4, 6, 8, 10] and both.mesh_dim_names == ("dp_cp",)
    assert both.placement.shape == (6, 2) and both.axes == (0,)
    assert mesh["dp_cp"] is both and both._get_root_mesh() is mesh
    assert mesh["dp", "cp"]._flatten("dp_cp") is both
    apart = mesh["dp", "tp"]._flatten()
    assert apart.mesh.tolist() == [0, 1, 6, 7] and mesh["dp_tp"] is apart
    assert mesh._flatten().mesh.tolist() == list(range(12))
    called = mesh["tp"]._flatten("tensor")
    assert called.placement is mesh.placement and called.axes == (2,)
    assert mesh["cp"]._flatten("cp") == mesh["cp"]
    x = distribute_tensor(flow.arange(12.0), both, [Shard(0)])
    assert x.shards[2].tolist() == [2, 3] and flow.equal(x.full_tensor(), flow.arange(12.0))
    with pytest.raises(OnefoldValueError, match="is called 'tp' already"):
        mesh["dp", "cp"]._flatten("tp")
    with pytest.raises(OnefoldValueError, match="is called 'dp_tp' already"):
        mesh["dp", "cp"]._flatten("dp_tp")
    with pytest.raises(OnefoldRuntimeError, match="the axes need names"):
        init_device_mesh("cpu", (2, 2))._flatten()


def test_an_axis_as_several(world):
    mesh = init_device_mesh("cpu", (2, 6), mesh_dim_names=("pp_", "all"))
    parted = mesh._unflatten("all", (3, 2), ("dp", "tp"))
    assert parted == mesh_of(names=("pp_", "dp", "tp"))
    assert parted["tp"].mesh.tolist() == [0, 1] and parted["dp", "tp"].shape == (3, 2)
    assert init_device_mesh("cpu", (4,))._unflatten(0, (2, 2), ("a", "b"))["b"].shape == (2,)
    for sizes, names in (((2, 2), ("a", "b")), ((3, 2), ("a",))):
        with pytest.raises(OnefoldValueError, match="their product must be that"):
            mesh._unflatten(1, sizes, names)


def of_groups():
    mesh = mesh_of((2, 2), ("dp", "tp"))
    group, ranks = dist.new_group([0, 2]), []
    if group.rank() >= 0:
        ranks = DeviceMesh.from_group(group, "cpu", mesh_dim_names=("x",)).mesh.tolist()
    groups = [mesh.get_group("dp"), mesh.get_group("tp")]
    again = DeviceMesh.from_group(groups, "cpu", mesh.mesh, mesh_dim_names=("dp", "tp"))
    with pytest.raises(OnefoldValueError, match="but the groups have the ranks"):
        DeviceMesh.from_group(groups[::-1], "cpu", mesh.mesh)
    same = mesh["tp"].get_group() is mesh.get_group("tp") is again.get_group(1)
    return same, again == mesh, ranks, mesh["dp"]._flatten("d").get_local_rank()


def test_meshes_of_groups(world):
    found = run_ranks(4, of_groups)
    assert [each[:2] for each in found] == [(True, True)] * 4
    assert [each[2] for each in found] == [[0, 2], [], [0, 2], []]
    assert [each[3] for each in found] == [0, 0, 1, 1]
    with pytest.raises(OnefoldValueError, match="mesh= must say how the ranks of 2 groups lie"):
        DeviceMesh.from_group([dist.group.WORLD] * 2, "cpu")


def test_a_block_of_a_mesh(world):
    mesh = mesh_of((2, 2), ("dp", "tp"))
    x = flow.ones(4, 4)
    with mesh as found:
        assert found is mesh
        assert distribute_tensor(x, placements=[Shard(0), Replicate()]).placement is mesh.placement
        with mesh["tp"]:
            assert ones(4, 4, placements=[Shard(1)]).placements == (Replicate(), Shard(1))
            layer = parallelize_module(nn.Linear(4, 4), parallelize_plan=ColwiseParallel())
            assert layer.weight.placements == (Replicate(), Shard(0))
        assert distribute_tensor(x).sbp == (flow.sbp.broadcast,) * 2
    with pytest.raises(OnefoldTypeError, match="device_mesh must be a DeviceMesh"):
        distribute_tensor(x)
