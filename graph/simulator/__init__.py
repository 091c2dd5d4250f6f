"""Simulator: what a call of a compiled graph takes on machines that are described by data."""

from .hardware_costs import HardwareCosts as HardwareCosts
from .simulation import Simulation as Simulation, simulate as simulate
