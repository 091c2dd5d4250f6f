"""The decorator that turns a function into a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import overload

from ..errors import OnefoldTypeError, OnefoldValueError
from .function_config import FunctionConfig
from .job import Job
from .session import session


@overload
def global_function(
    type: Callable[..., object], function_config: FunctionConfig | None = None
) -> Job: ...
@overload
def global_function(
    type: str | FunctionConfig = "predict", function_config: FunctionConfig | None = None
) -> Callable[[Callable[..., object]], Job]: ...
def global_function(
    type: str | FunctionConfig | Callable[..., object] = "predict",
    function_config: FunctionConfig | None = None,
) -> Job | Callable[[Callable[..., object]], Job]:
    """Make a job of a function: `@flow.global_function(type="train", function_config=config)`.

    In the words of the first generation `@flow.global_function(config)`, or without parentheses.
    Raises OnefoldValueError for another type, OnefoldRuntimeError for a second job of a name.

    Example:
        @flow.global_function()
        def double(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
            return x + x
    """
    if inspect.isfunction(type):
        return _define(type, False, function_config)
    if isinstance(type, FunctionConfig):
        if function_config is not None:
            raise OnefoldTypeError("global_function got two function_configs")
        function_config, type = type, "predict"
    if type not in ("train", "predict"):
        raise OnefoldValueError(f"a job's type must be 'train' or 'predict', but got {type!r}")
    if function_config is not None and not isinstance(function_config, FunctionConfig):
        raise OnefoldTypeError(
            f"function_config must be made by flow.function_config(), but got {function_config!r}"
        )
    return lambda function: _define(function, type == "train", function_config)


def _define(function: Callable[..., object], trains: bool, config: FunctionConfig | None) -> Job:
    if not inspect.isfunction(function):
        raise OnefoldTypeError(f"a job is made of a function, but got {function!r}")
    job = Job(function, trains, config)
    session.define(job)
    return job
