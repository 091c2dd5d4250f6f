"""Simulator: what a call of a compiled graph takes on machines that are described by data."""

from .graph_layouts import graph_layouts as graph_layouts
from .hardware_costs import HardwareCosts as HardwareCosts
from .simulation import Simulation as Simulation, simulate as simulate
