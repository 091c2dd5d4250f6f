"""torch.distributed.pipelining: stages in processes of their own, and the schedules that run them.

An `nn.Graph` with `set_stage` runs the same schedules in one program for all ranks.
"""

from .pipe import Pipe, build_stage, pipeline
from .pipeline_schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from .pipeline_stage import PipelineStage
from .stage_tracing import SplitPoint, pipe_split

__all__ = [
    "Pipe",
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "SplitPoint",
    "build_stage",
    "pipe_split",
    "pipeline",
]
