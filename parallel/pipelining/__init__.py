"""torch.distributed.pipelining: stages in processes of their own, and the schedules that run them.

An `nn.Graph` with `set_stage` runs the same schedules in one program for all ranks.
"""

from .chunk_specs import TensorChunkSpec as TensorChunkSpec
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

__all__ = [
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
]
