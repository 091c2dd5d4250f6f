"""Boxing: changing a tensor's placement or nd_sbp without changing its value.

`plan(src, dst)` decides once, by arithmetic alone; `run(plan, shards)` carries it out.

- `boxes`: regions of index space, and pieces of shards in them
- `message_routing`: who sends what to whom, in the fewest bytes, for any boxes
- `boxing_steps`, `route_step`: the steps of a plan, with the bytes of every rank, and the fewest
  that any plan can move
- `comm_cost`, `transitions`, `direct_plan`, `path_search`: the cheapest path on one placement
- `cross_placement`: paths between placements; `boxing_plan`: plans, cached and printable
- `combine`, `virtual_steps`, `launched_steps`, `route_end`, `run_boxing`: the two executors;
  `disjoint_placements`: a plan between disjoint placements, in two halves
"""

from .boxing_plan import BoxingPlan as BoxingPlan, plan as plan
from .comm_cost import axis_cost as axis_cost, efficient_bytes as efficient_bytes
from .disjoint_placements import (
    DisjointBoxing as DisjointBoxing,
    disjoint_boxing as disjoint_boxing,
)
from .route_step import lower_bound as lower_bound
from .run_boxing import run as run, start as start
