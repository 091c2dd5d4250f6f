"""Boxing: changing a tensor's placement or nd_sbp without changing its value.

`plan(src, dst)` decides once, by arithmetic alone; `run(plan, shards)` carries it out.

- `boxes`: regions of index space, and pieces of shards in them
- `route`: who sends what to whom, in the fewest bytes, for any boxes
- `steps`: the steps of a plan, with the bytes of every rank
- `cost`, `moves`, `direct`, `search`: prices, and the best path on one placement
- `cross`: between placements; `plan`: both, cached and printable; `bound`: the least bytes
- `joins`, `virtual`, `launched`, `run`: the two executors; `crossing`: a plan in halves
"""

from .bound import lower_bound
from .cost import axis_cost, efficient_bytes
from .crossing import Crossing, crossing
from .plan import BoxingPlan, plan
from .run import run, start

__all__ = [
    "BoxingPlan",
    "Crossing",
    "axis_cost",
    "crossing",
    "efficient_bytes",
    "lower_bound",
    "plan",
    "run",
    "start",
]
