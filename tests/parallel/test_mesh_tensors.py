"""DeviceMesh and DTensor's names: the layouts of global tensors in torch's words."""

import numpy as np
import pytest
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.device_mesh import DeviceMesh, init_device_mesh
from onefold.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    full,
    ones,
    randn,
)
from onefold.errors import (
    OnefoldIndexError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    ShapeError,
)

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


@pytest.fixture
def mesh(world):
    return init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))


def test_the_axes_of_a_mesh(mesh):
    assert mesh.shape == (2, 3) and mesh.ndim == 2 and mesh.size() == 6 and mesh.size(1) == 3
    assert mesh.mesh.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert mesh.placement is flow.placement("cpu", [[0, 1, 2], [3, 4, 5]])
    assert mesh.get_coordinate() == [0, 0] and mesh.get_local_rank("tp") == 0
    assert repr(mesh) == "DeviceMesh('cpu', [[0, 1, 2], [3, 4, 5]], mesh_dim_names=('dp', 'tp'))"
    tp, dp = mesh["tp"], mesh["dp"]
    assert tp.shape == (3,) and tp.mesh.tolist() == [0, 1, 2] and tp.get_local_rank() == 0
    assert dp.mesh.tolist() == [0, 3] and dp.get_group().ranks == (0, 3)
    assert [group.ranks for group in mesh.get_all_groups()] == [(0, 3), (0, 1, 2)]
    assert mesh["dp", "tp"] == mesh and tp != dp and hash(mesh["tp"]) == hash(tp)
    assert DeviceMesh("cpu", flow.tensor([[0, 1], [2, 3]])).shape == (2, 2)


def test_bad_meshes(mesh):
    with pytest.raises(OnefoldValueError, match="should have same length"):
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp",))
    with pytest.raises(OnefoldValueError, match="must be unique"):
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "dp"))
    with pytest.raises(KeyError, match="no axis 'pp'"):
        _ = mesh["pp"]
    with pytest.raises(OnefoldRuntimeError, match="has 2 axes; name one"):
        mesh.get_group()
    with pytest.raises(OnefoldRuntimeError, match="has 2 axes; name one"):
        mesh.get_local_rank()
    with pytest.raises(OnefoldValueError, match="without an axis 2"):
        mesh.get_group(2)


def ranks_of_meshes():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    rank = flow.distributed.get_rank()
    return (
        mesh.get_coordinate(),
        mesh["tp"].mesh.tolist(),
        mesh["dp"].get_local_rank(),
        mesh.get_group("dp").ranks,
        rank,
    )


def test_each_process_has_its_part_of_a_mesh():
    found = run_ranks(4, ranks_of_meshes)
    assert [each[0] for each in found] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert [each[1] for each in found] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [each[2] for each in found] == [0, 0, 1, 1]
    assert [each[3] for each in found] == [(0, 2), (1, 3), (0, 2), (1, 3)]


def test_words_for_layouts():
    assert Shard(1).is_shard() and Shard(1).is_shard(1) and not Shard(1).is_shard(0)
    assert Replicate().is_replicate() and not Replicate().is_partial()
    assert Partial("max").is_partial("max") and not Partial().is_partial("max")
    assert Shard(0) == Shard(0) != Shard(1) and repr(Partial()) == "Partial(reduce_op='sum')"


@pytest.mark.parametrize(
    ("placements", "sbp"),
    [
        (None, (B, B)),
        ([Shard(0), Replicate()], (S0, B)),
        ([Shard(-1), Shard(0)], (S1, S0)),
    ],
)
def test_distributed_tensors(mesh, placements, sbp):
    x = flow.randn(6, 4)
    y = distribute_tensor(x, mesh, placements)
    assert isinstance(y, DTensor) and not isinstance(x, DTensor)
    assert y.sbp == sbp and y.placement is mesh.placement and y.is_leaf
    assert y.full_tensor().is_local and flow.equal(y.full_tensor(), x)
    assert y.device_mesh.placement is mesh.placement
    assert distribute_tensor(x, y.device_mesh, y.placements).sbp == sbp
    assert distribute_tensor(y, mesh, placements) is y


def test_a_part_of_a_mesh_replicates_along_its_other_axes(mesh):
    x = distribute_tensor(flow.ones(6, 4), mesh["tp"], [Shard(0)])
    assert x.sbp == (B, S0)


def test_other_layouts_of_a_tensor(mesh):
    x = distribute_tensor(flow.randn(6, 4), mesh, [Shard(0), Shard(1)]).requires_grad_()
    y = x.redistribute(placements=[Replicate(), Shard(0)])
    assert y.placements == (Replicate(), Shard(0))
    (y * y).sum().backward()
    assert flow.allclose(x.grad.full_tensor(), 2 * x.detach().full_tensor())
    total = x.detach().sum()
    assert total.placements == (Partial(), Partial())
    assert total.redistribute().placements == (Replicate(), Replicate())


def test_parameters_stay_parameters(mesh):
    weight = distribute_tensor(nn.Parameter(flow.ones(6, 2)), mesh, [Shard(0), Replicate()])
    assert isinstance(weight, nn.Parameter) and weight.requires_grad
    frozen = distribute_tensor(nn.Parameter(flow.ones(6, 2), requires_grad=False), mesh)
    assert isinstance(frozen, nn.Parameter) and not frozen.requires_grad


def test_tensors_made_on_a_mesh(mesh):
    assert ones(6, 2, device_mesh=mesh, placements=[Shard(0), Replicate()]).sbp == (S0, B)
    assert ones((6, 2), device_mesh=mesh["tp"], placements=[Shard(-1)]).sbp == (B, S1)
    assert full((6,), 7.0, device_mesh=mesh).full_tensor().tolist() == [7.0] * 6
    flow.manual_seed(1)
    x = randn(6, 2, device_mesh=mesh, placements=[Shard(0), Shard(1)], dtype=flow.float64)
    flow.manual_seed(1)
    assert flow.equal(x.full_tensor(), flow.randn(6, 2, dtype=flow.float64))


def gradients_of_local_tensors():
    """What torch's DTensor gives in the same program."""
    mesh = init_device_mesh("cpu", (2,))
    rank = flow.distributed.get_rank()
    part = flow.arange(4.0).add(rank).requires_grad_()
    rows = DTensor.from_local(part, mesh, [Shard(0)])
    whole = flow.ones(8, requires_grad=True)
    same = DTensor.from_local(whole, mesh, [Replicate()])
    y = (rows * same).full_tensor()
    (y * flow.arange(8.0)).sum().backward()
    return y.tolist(), part.grad.tolist(), whole.grad.tolist()


def test_gradients_of_local_tensors_are_torchs():
    parts = [np.arange(4.0), np.arange(4.0) + 1]
    y = np.concatenate(parts)
    factors = np.arange(8.0)
    for rank, found in enumerate(run_ranks(2, gradients_of_local_tensors)):
        assert found == (y.tolist(), factors[4 * rank :][:4].tolist(), (y * factors).tolist())


def gradients_by_placements():
    """The gradients of what torch's tests call hints, and in which dtype they are sent."""
    mesh = init_device_mesh("cpu", (2,))
    rank = flow.distributed.get_rank()
    factor = flow.arange(8.0) + rank
    found = {}
    for name, layout, back in (
        ("sum", Replicate(), [Partial()]),
        ("equal", Replicate(), [Replicate()]),
        ("default", Replicate(), None),
        ("rows", Shard(0), [Shard(0)]),
    ):
        x = distribute_tensor(flow.ones(8), mesh, [layout]).requires_grad_()
        local = x.to_local(grad_placements=back)
        (local * factor[: local.shape[0]]).sum().backward()
        found[name] = x.grad.full_tensor().tolist()
    for name, back in (("whole", None), ("whole sum", [Partial()])):
        x = distribute_tensor(flow.ones(8), mesh, [Shard(0)]).requires_grad_()
        (x.full_tensor(grad_placements=back) * flow.arange(8.0)).sum().backward()
        found[name] = x.grad.full_tensor().tolist()
    x = distribute_tensor(flow.full((8,), 1.001), mesh, [Shard(0)]).requires_grad_()
    with flow.profiler.comm() as log:
        y = x.redistribute(
            placements=[Replicate()], forward_dtype=flow.bfloat16, backward_dtype=flow.float32
        )
    assert {each.dtype for each in log.records} == {flow.bfloat16} and y.dtype is flow.bfloat16
    y.float().sum().backward()
    found["low"] = y.float().tolist(), x.grad.dtype, x.grad.full_tensor().tolist()
    z = distribute_tensor(flow.ones(8), mesh, [Replicate()]).requires_grad_()
    z.redistribute(placements=[Shard(0)], backward_dtype=flow.bfloat16).mul(1.001).sum().backward()
    found["low gradient"] = z.grad.dtype, z.grad.full_tensor().tolist()
    return found


def test_how_gradients_of_local_tensors_lie():
    k = np.arange(8.0)
    for rank, found in enumerate(run_ranks(2, gradients_by_placements)):
        assert found["sum"] == found["default"] == (2 * k + 1).tolist()
        assert found["equal"] == (k + rank).tolist()
        assert found["rows"] == [0, 1, 2, 3, 1, 2, 3, 4]
        assert found["whole"] == k.tolist() and found["whole sum"] == (2 * k).tolist()
        assert found["low"] == ([1.0] * 8, flow.float32, [1.0] * 8)
        assert found["low gradient"] == (flow.float32, [1.0] * 8)


def test_only_global_tensors_have_a_layout():
    x = flow.ones(2)
    assert not hasattr(x, "placements") and getattr(x, "device_mesh", None) is None
    with pytest.raises(AttributeError, match="a local tensor has no placements; make it global"):
        _ = x.placements


def test_modules_on_a_mesh(mesh):
    def partition(name, module, mesh):
        if isinstance(module, nn.Linear):
            weight = distribute_tensor(module.weight, mesh, [Replicate(), Shard(0)])
            module.register_parameter("weight", weight)

    def read(module, inputs, mesh):
        return DTensor.from_local(inputs[0], mesh, [Replicate(), Replicate()])

    def give(module, outputs, mesh):
        return outputs.redistribute(placements=[Replicate(), Replicate()]).to_local()

    model = nn.Linear(4, 6)
    x = flow.randn(2, 4)
    wanted = model(x)
    distribute_module(model, mesh, partition, read, give)
    assert model.weight.sbp == (B, S0) and model.bias.sbp == (B, B)
    found = model(x)
    assert found.is_local and flow.allclose(found, wanted)


def test_errors(mesh):
    x = flow.ones(6, 4)
    with pytest.raises(OnefoldTypeError, match="device_mesh must be a DeviceMesh"):
        distribute_tensor(x, flow.placement("cpu", [0, 1]), [Shard(0)])
    with pytest.raises(OnefoldValueError, match=r"same length as `device_mesh.ndim`: got 1"):
        distribute_tensor(x, mesh, [Shard(0)])
    for dim in (2, -3):
        with pytest.raises(OnefoldIndexError, match=r"tensor of 2 dims has the dims -2 to 1"):
            distribute_tensor(x, mesh, [Shard(dim), Replicate()])
    addends = distribute_tensor(x, mesh, [Partial(), Replicate()])
    assert addends.placements == (Partial(), Replicate())
    assert flow.equal(addends.full_tensor(), x)
    with pytest.raises(ShapeError, match="whose shards have other shapes"):
        distribute_tensor(x, mesh).to_local(grad_placements=[Shard(0), Replicate()])
    with pytest.raises(OnefoldValueError, match="'sum', 'max' or 'min', but got"):
        distribute_tensor(x, mesh, [Partial("avg"), Replicate()])
    with pytest.raises(OnefoldValueError, match="is global already"):
        distribute_tensor(distribute_tensor(x, mesh), mesh, [Shard(0), Replicate()])
    with pytest.raises(OnefoldRuntimeError, match="redistribute: the tensor is local"):
        x.redistribute(placements=[Replicate()])
    with pytest.raises(OnefoldRuntimeError, match="full_tensor: the tensor is local"):
        x.full_tensor()
    with pytest.raises(ImportError, match="infer their layouts"):
        __import__("onefold.distributed.tensor.experimental")
