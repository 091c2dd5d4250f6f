"""Automatic parallelism: the strategy for a model, found before there is a cluster."""

from .search_result import Priced as Priced, Result as Result
from .strategy import Strategy as Strategy, TrainingStep as TrainingStep, load as load
from .strategy_search import search as search
