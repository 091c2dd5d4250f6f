"""Whether functions keep to the runtime scalars that they declare.

In the interpreter each function is traced again with other numbers: it must stay the same.
"""

from math import inf, nan

from onefold.kernels.gpu.launch import trace_cache
from onefold.kernels.gpu.launch.launch_trace import Launch

FAR = 7919  # a number far from the size of any dim


def apply():
    """Check every trace that is made from now on."""
    trace_cache._recorded = checked(trace_cache._recorded)


def checked(record):
    def recorded(function, args, scalars):
        replay = record(function, args, scalars)
        left = [i for i in sorted(scalars) if i < len(args) and type(args[i]) in (int, float)]
        for place in left if replay is not None else ():
            for value in probes(args[place]):
                given = [*args[:place], value, *args[place + 1 :]]
                other = trace_cache._replay(function, given, left)
                assert what(replay) == what(other), f"{function} reads argument {place}"
        return replay

    return recorded


def probes(value):
    """Numbers of the same type with which a function may do something else."""
    if type(value) is int:
        return [value + FAR, -FAR - value]
    near = value / 2 + 0.125
    return [near if near != value and abs(near) < inf else 0.375, inf, nan]


def what(replay):
    """All that a trace recorded."""
    steps = [
        (step.kernel, step.grid, [(type(x), repr(x)) for x in step.all_args], step.options)
        if isinstance(step, Launch)
        else step
        for step in replay.steps
    ]
    return replay.places, steps, replay.guarded, replay.several, replay.results
