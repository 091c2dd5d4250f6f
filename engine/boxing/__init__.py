"""Boxing: changing a tensor's placement or nd_sbp without changing its value.

`plan(src, dst)` decides once, by arithmetic alone; `run(plan, shards)` carries it out.

- `boxes`: regions of index space, and pieces of shards in them
- `message_routing`: who sends what to whom, in the fewest bytes, for any boxes
- `boxing_steps`, `route_step`: the steps of a plan, with the bytes of every rank
- `comm_cost`, `transitions`, `direct_plan`, `path_search`: the cheapest path on one placement
- `cross_placement`: paths between placements; `boxing_plan`: plans, cached and printable;
  `lower_bound`: the fewest bytes that any plan can move
- `combine`, `virtual_steps`, `launched_steps`, `run_boxing`: the two executors;
  `disjoint_placements`: a plan between disjoint placements, in two halves
"""

from .boxing_plan import BoxingPlan, plan
from .comm_cost import axis_cost, efficient_bytes
from .disjoint_placements import DisjointBoxing, disjoint_boxing
from .lower_bound import lower_bound
from .run_boxing import run, start

__all__ = [
    "BoxingPlan",
    "DisjointBoxing",
    "axis_cost",
    "disjoint_boxing",
    "efficient_bytes",
    "lower_bound",
    "plan",
    "run",
    "start",
]
