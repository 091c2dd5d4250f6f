"""The strategy programs, and one in OneFlow's words, run alike on virtual and launched ranks."""

import os
import subprocess
import sys

from source_tree import REPO

PROGRAM = str(REPO / "examples" / "parallelism.py")


LAUNCHER = [sys.executable, "-m", "onefold.distributed.launch", "--nproc_per_node", "4"]


def lines(command, **more):
    environment = {key: value for key, value in os.environ.items() if key != "ONEFOLD_DEVICE"}
    environment |= more
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.strip()]


def test_programs_print_the_same_launched_and_virtual():
    virtual = lines([sys.executable, PROGRAM])
    launched = lines([*LAUNCHER, PROGRAM])
    assert len(virtual) == 13
    assert virtual[0].split() == "data: (4, 8) as (onefold.sbp.split(dim=0),)".split()
    assert launched == virtual


def test_a_pipelined_graph_is_shown_and_needs_no_advice():
    shown = lines([sys.executable, "-W", "error", PROGRAM, "graph", "training"])
    assert shown[-3:] == [
        "         : 1f1b, one column per unit of time",
        "         : 0 F0 F1 .. .. b0 b0 F2 b1 b1 F3 b2 b2 .. b3 b3 U",
        "         : 1 .. F0 b0 b0 F1 b1 b1 F2 b2 b2 F3 b3 b3 U  .. ..",
    ]


# A staged graph as OneFlow's users write it, on 4 GPUs. Only its import lines may change.
STAGED = """
import oneflow as flow
import oneflow.nn as nn

FIRST = flow.placement(type="cuda", ranks=[0, 1])
SECOND = flow.placement(type="cuda", ranks=[2, 3])


class Layer(nn.Module):
    def __init__(self, inputs, outputs, placement=None, sbp=None):
        super().__init__()
        self.w = nn.Parameter(flow.randn(inputs, outputs, placement=placement, sbp=sbp))

    def forward(self, x):
        return flow.matmul(x, self.w)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer0 = Layer(5, 8, placement=FIRST, sbp=flow.sbp.broadcast)
        self.layer1 = Layer(8, 3, placement=SECOND, sbp=flow.sbp.split(dim=1))

    def forward(self, x):
        between = self.layer0(x)
        out = self.layer1(between.to_global(placement=SECOND, sbp=flow.sbp.broadcast))
        return between, out


class Staged(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = Model()
        self.model.layer0.to(nn.graph.GraphModule).set_stage(stage_id=0, placement=FIRST)
        self.model.layer1.to(nn.graph.GraphModule).set_stage(stage_id=1, placement=SECOND)

    def build(self, x):
        return self.model(x)


if __name__ == "__main__":
    graph = Staged()
    x = flow.randn(4, 5, placement=FIRST, sbp=flow.sbp.split(dim=0))
    between, out = graph(x)
    print(between.shape, out.shape)
"""
CHECK = """
    import numpy as np
    wanted = x.numpy() @ graph.model.layer0.w.numpy()
    print(np.allclose(between.numpy(), wanted, atol=1e-5))
    print(np.allclose(out.numpy(), wanted @ graph.model.layer1.w.numpy(), atol=1e-5))
"""


def test_a_staged_graph_runs_with_only_its_imports_changed(tmp_path):
    program = tmp_path / "test.py"
    program.write_text(STAGED.replace("import oneflow", "import onefold") + CHECK)
    wanted = ["torch.Size([4, 8]) torch.Size([4, 3])", "True", "True"]
    assert lines([sys.executable, str(program)], ONEFOLD_DEVICE="cpu") == wanted
    printed = lines([*LAUNCHER, str(program)], ONEFOLD_DEVICE="cpu")
    assert sorted(printed) == sorted(wanted * 4)


def test_an_unknown_program_is_refused():
    done = subprocess.run(
        [sys.executable, PROGRAM, "magic"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert (
        "unknown programs ['magic']; choose from data, model, pipeline, mixed, graph, training, "
        "layers, shards" in done.stderr
    )
