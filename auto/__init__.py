"""Automatic parallelism: the strategy for a model, found before there is a cluster."""

from .search import search as search
from .search_result import Priced as Priced, Result as Result
from .strategy import Strategy as Strategy, TrainingStep as TrainingStep, load as load
