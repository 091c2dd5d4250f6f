"""Simulator: what a call of a compiled graph takes on machines that are described by data."""

from .simulation import Simulation as Simulation, simulate as simulate
