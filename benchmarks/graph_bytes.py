"""Bytes that each rank receives in a program: eager's layouts, and after each pass over them.

    python benchmarks/graph_bytes.py         # prints the tables, writes results/graph_bytes.json

The model of examples/gpt.py and a few small programs, in a virtual world. `greedy` are eager's
own layouts, each boxing done once; `chains` and `partials` are the passes that are always on (and
keep every bit); `search` is `config.enable_layout_search()`, which runs before both. `us` is the
modeled time of boxing and ops, one after the other. What the optimizer moves is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import gpt_step
import timing
import torch

import onefold as flow
from onefold import nn
from onefold.engine import boxing
from onefold.graph.graph_config import GraphConfig
from onefold.graph.ir import Program
from onefold.graph.pass_table import Compilation, rewritten
from onefold.graph.passes.boxing_chains import merge_boxings
from onefold.graph.passes.cse import eliminate_common
from onefold.graph.passes.dead_code import eliminate_dead
from onefold.graph.passes.delay_partials import delay_partials
from onefold.graph.passes.layout_search import modeled_time
from onefold.graph.passes.pass_utils import is_boxing

B, P = flow.sbp.broadcast, flow.sbp.partial_sum
S0, S1 = flow.sbp.split(0), flow.sbp.split(1)


def searched(program: Program) -> Program:
    """The program after all passes of a graph that searches for layouts."""
    config = GraphConfig()
    config.enable_layout_search()
    return rewritten(program, Compilation(config), "micro-batch")


BASE = (eliminate_common, eliminate_dead)
PASSES = {
    "greedy": BASE,
    "chains": (*BASE, merge_boxings, *BASE),
    "partials": (*BASE, merge_boxings, delay_partials, *BASE),
    "search": (searched,),
}
MODELS = (("tp", 2, 4), ("tp", 4, 4), ("mixed", 4, 4), ("tp", 2, 24), ("mixed", 4, 24))
WIDTH = 128


# Small programs, on tensors of 256 x 256.


def there_and_back(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    return flow.exp(x.to_global(sbp=S0).to_global(sbp=B).to_global(sbp=S0))


def two_sums(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    return x.to_global(sbp=B) + y.to_global(sbp=B)


def one_column(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    return x.to_global(sbp=B)[:, 0]


def scaled_mean(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    return (-x.to_global(sbp=B) / 2.0).mean(1)


def split_in_the_end(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    """What gelu needs whole is wanted in splits only."""
    return flow.gelu(x).to_global(sbp=S0) * y.to_global(sbp=S0)


def mixed_up(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    h = flow.tanh(x) * flow.sigmoid(y.to_global(sbp=S1))
    return flow.softmax(h, 1).sum(0).to_global(sbp=B)


SMALL = (there_and_back, two_sums, one_column, scaled_mean, split_in_the_end, mixed_up)


def received(program: Program, ranks: int) -> list[int]:
    """The bytes that each rank receives in the boxing of one run."""
    plans = [
        boxing.plan(step.source.meta, step.outputs[0].meta)
        for step in program.steps
        if is_boxing(step)
    ]
    return [sum(plan.received(rank) for plan in plans) for rank in range(ranks)]


def layout(program: Program, passes: Sequence[Callable[[Program], Program]]) -> Program:
    """The program after these passes."""
    for each in passes:
        program = each(program)
    return program


def rows_of(
    name: str, graph: nn.Graph, inputs: Sequence[flow.Tensor], ranks: int
) -> list[timing.Results]:
    """A row for each set of passes."""
    graph._compile(*inputs)
    captured = next(reversed(graph._compiled.values())).captured
    rows = []
    for passes, each in PASSES.items():
        layout(captured, each)  # what boxing plans once is not counted
        start = time.perf_counter()
        program = layout(captured, each)
        seconds = time.perf_counter() - start
        rows.append({
            "program": name,
            "passes": passes,
            "received": received(program, ranks),
            "boxings": sum(map(is_boxing, program.steps)),
            "modeled us": modeled_time(program) * 1e6,
            "pass seconds": seconds,
        })  # fmt: skip
        print(f"{name:>16} {passes:>8} {max(rows[-1]['received']):10,} {rows[-1]['boxings']:8d} "
              f"{rows[-1]['modeled us']:12.1f} {seconds:8.3f}")  # fmt: skip
    return rows


def compile_rows() -> list[timing.Results]:
    """Seconds of capture and compile of 24 layers, without and with the search."""
    rows = []
    for strategy, ranks in (("tp", 2), ("mixed", 4)):
        for search in (False, True):
            spent = []
            for _ in range(2):
                graph, inputs = gpt_step.graph(strategy, ranks, 24, WIDTH)
                graph.config.enable_layout_search(search)
                start = time.perf_counter()
                graph._compile(*inputs)
                spent.append(time.perf_counter() - start)
            rows.append({"strategy": strategy, "layers": 24, "search": search,
                         "compile s": spent[0], "compile again s": spent[1]})  # fmt: skip
            print(f"compile, {strategy:>5}, 24 layers, search {search!s:>5}: {spent[0]:.2f} s, "
                  f"again {spent[1]:.2f} s")  # fmt: skip
    return rows


def main() -> None:
    timing.options(__doc__).parse_args()
    torch.set_num_threads(1)
    compiling = compile_rows()
    print(f"{'program':>16} {'passes':>8} {'most bytes':>10} {'boxings':>8} {'modeled us':>12} "
          f"{'seconds':>8}")  # fmt: skip
    rows: list[timing.Results] = []
    for strategy, ranks, layers in MODELS:
        graph, inputs = gpt_step.graph(strategy, ranks, layers, WIDTH)
        rows += rows_of(f"{strategy} {ranks}, {layers} layers", graph, inputs, ranks)
    place = flow.placement("cpu", [0, 1, 2, 3])
    x, y = [flow.randn(256, 256, placement=place, sbp=B).to_global(sbp=P) for _ in range(2)]
    for function in SMALL:
        rows += rows_of(function.__name__, nn.Graph.trace(function), (x, y), 4)
    path = timing.save("graph_bytes", {"programs": rows, "compile": compiling})
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
