"""Profiler: what a program does and how long it takes, and logs of communication and dispatch."""

from torch.profiler import (
    ProfilerAction as ProfilerAction,
    ProfilerActivity as ProfilerActivity,
    schedule as schedule,
    supported_activities as supported_activities,
    tensorboard_trace_handler as tensorboard_trace_handler,
)

from ..distributed.comm_log import CommLog as CommLog, comm as comm
from .averages import Average as Average, AverageList as AverageList
from .dispatch_log import DispatchLog as DispatchLog, OpCounts as OpCounts, dispatch as dispatch
from .event_recorder import record_function as record_function
from .events import Event as Event
from .profile import profile as profile
