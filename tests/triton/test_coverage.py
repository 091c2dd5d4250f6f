"""No op silently leaves its work on cuda to torch: the table of Triton kernels is complete and
true.
"""

import op_table
import pytest
import samples
import torch
import torch_inside
from training_steps import MODELS, Train, inputs_for

from onefold.engine.dispatch_plan import ops
from onefold.engine.ops.torch_op import TorchOp
from onefold.graph.passes import fuse_chains
from onefold.kernels import coverage
from onefold.kernels.gpu.reduce import norm_kernels

# What only changes metadata.
VIEWS = "diagonal expand permute split spread squeeze transpose unbind unfold unsqueeze".split()


@pytest.fixture(scope="module")
def observed():
    """What each op does, in all samples."""
    return op_table.observe()


def by_rows():
    """The ops made from rows of torch_table, which are torch's functions on purpose."""
    return {name for name, forms in ops.items() if all(isinstance(op, TorchOp) for op in forms)}


def test_every_op_has_kernels_or_a_reason(observed):
    missing = op_table.missing(observed, sorted(set(ops) - by_rows()))
    assert missing == [], (
        "ops do their work in torch: give them Triton kernels, or reasons in coverage.py"
    )
    whole = [name for name in coverage.REASONS if name in observed and not observed[name].torch]
    assert whole == [], "these ops leave nothing to torch: take them out of REASONS"
    assert sorted(set(coverage.REASONS) - set(ops)) == []
    nothing = {name for name, row in observed.items() if row == op_table.Row((), ())}
    assert sorted(nothing - by_rows()) == VIEWS


@pytest.fixture
def unfused(monkeypatch):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: False)


def test_fused_steps_of_a_graph_leave_nothing_to_torch(monkeypatch):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)
    for name in ("mlp, local", "block, tensor-parallel"):
        make, where, split = MODELS[name]
        with op_table.recording() as record:
            Train(make())(*inputs_for(where, split))
        assert record.torch["fused"] == set()
        assert record.triton["fused"] >= {
            "epilogue_kernels.with_epilogue",
            "pointwise_chain_kernels.as_prologue",
        }


def test_the_steps_of_a_graph_use_the_kernels_of_their_ops(unfused, observed):
    """Those that are put in place of an input, too."""
    for name in ("mlp, local", "block, tensor-parallel"):
        make, where, split = MODELS[name]
        with op_table.recording() as record:
            graph = Train(make())
            graph(*inputs_for(where, split))
        rows = record.rows()
        placed = {step.name for step in graph.program.steps if step.place is not None}
        assert "gelu_backward" in placed & set(rows)
        for op in sorted(rows):
            row = rows[op]
            assert set(row.torch) <= set(observed[op].torch), f"{op} in a graph"
            assert bool(row.triton) == bool(observed[op].triton), f"{op} in a graph"


def test_a_step_in_place_by_torch_is_noticed(monkeypatch, unfused):
    monkeypatch.setattr(op_table.Record, "pick_into", lambda self, local, reference, into: into)
    with op_table.recording() as record:
        make, where, split = MODELS["mlp, local"]
        Train(make())(*inputs_for(where, split))
    assert record.rows()["gelu_backward"].torch == ("gelu_backward",)


def test_the_table_names_functions_of_every_kind():
    functions = coverage.functions()
    assert {"add", "exp", "silu_backward", "huber_error"} <= set(functions["pointwise"])
    assert "layer_norm" in functions["norm"]
    for family in functions:
        assert f"\n{family} " in f"\n{coverage.text()}"
    assert all(name in coverage.text() for name in coverage.REASONS)


def test_work_of_torch_is_noticed():
    """Beside a Triton kernel, and instead of one."""
    some = [sample for sample in samples.load() if sample.name == "layer_norm"][:2]
    assert op_table.observe(some)["layer_norm"] == op_table.Row(("norm_kernels.layer_norm",), ())
    x = torch.ones(2)

    def with_torch(self, local, attrs):
        kernel = type(self).bind(self, local, attrs)

        def run(*tensors):
            torch.exp(x)
            return kernel(*tensors)

        return run

    with pytest.MonkeyPatch().context() as patched:
        for op in ops["layer_norm"]:
            patched.setattr(op, "bind", with_torch.__get__(op), raising=False)
        row = op_table.observe(some)["layer_norm"]
    assert row == op_table.Row(("norm_kernels.layer_norm",), ("exp",))
    left = {"a": op_table.Row(("norm_kernels.a",), ()), "b": row}
    assert op_table.missing(left, ["a", "b", "never run"]) == ["b", "never run"]


COMPLEX = (
    "dot einsum exp logaddexp logsumexp rms_norm sigmoid tanh tanhshrink tensordot vdot".split()
)


@pytest.mark.slow
def test_kernels_do_in_torch_what_is_listed():
    seen = torch_inside.observe(torch_inside.some(samples.load()))
    assert torch_inside.differences(seen, torch_inside.INSIDE) == []


def test_torch_inside_a_kernel_is_noticed(monkeypatch):
    some = [sample for sample in samples.load() if sample.name == "layer_norm"][:1]
    assert torch_inside.observe(some) == {}
    launch = norm_kernels.as_rows

    def with_torch(x, last):
        return launch(torch.exp(x), last)

    with_torch.__code__ = with_torch.__code__.replace(co_filename=norm_kernels.__file__)
    monkeypatch.setattr(norm_kernels, "as_rows", with_torch)
    seen = torch_inside.observe(some)
    assert set(seen) == {"norm_kernels"}
    assert set(seen["norm_kernels"]) == {"exp"}
    assert torch_inside.differences(seen, {}) == [
        "norm_kernels uses torch's exp: give it a Triton path, or a reason in INSIDE"
    ]
    listed = {"norm_kernels": {"exp log": "why"}}
    assert torch_inside.differences(seen, listed) == ["norm_kernels no longer uses log: remove it"]
