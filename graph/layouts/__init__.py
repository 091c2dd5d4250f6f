"""The best layouts of a whole program: a graph of costs, and its exact minimum.

- `cost_network`: nodes with a few states each, and costs of states and of pairs of states
- `cost_tables`, `domination`, `elimination`: its exact minimum, or a lower bound where the tables
  would be too large; `memory_budget`: the minimum among choices that fit a budget
- `layout_costs`: the seconds of ops and of boxings, by layouts alone
- `cost_graph`, `layout_tables`: the network of a program, by the signatures of its ops
- `best_layouts`: the layouts of parameters, inputs and ops that take the least time
"""

from .best_layouts import LayoutChoice as LayoutChoice, best_layouts as best_layouts
from .cost_graph import CostGraph as CostGraph, Freedom as Freedom, Training as Training
from .elimination import Solver as Solver
from .layout_costs import LayoutCosts as LayoutCosts, ModeledCosts as ModeledCosts
