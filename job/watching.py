"""watch and watch_diff: functions that get the values of blobs or of their gradients in
every call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ..errors import OnefoldTypeError
from .blob import Blob
from .results import Result, typed
from .tracing import tracing


def watch(blob_watched: Blob, handler_or_prompt: Callable[..., object] | str | None = None) -> None:
    """Call a function with the value of a blob in every call of the job, or print it.

    The function's argument is annotated tp.Numpy or tp.ListNumpy; without an annotation it gets
    what has `.numpy()` and `.numpy_list()`.
    """
    _watch("watch", blob_watched, handler_or_prompt, False)


def watch_diff(
    blob_watched: Blob, handler_or_prompt: Callable[..., object] | str | None = None
) -> None:
    """Call a function with the gradient of a blob in every call of the job, or print it."""
    _watch("watch_diff", blob_watched, handler_or_prompt, True)


def _watch(who: str, blob: Blob, handler: Callable[..., object] | str | None, diff: bool) -> None:
    job = tracing(who)
    if not isinstance(blob, Blob):
        raise OnefoldTypeError(f"{who} needs a blob, but got {type(blob).__name__}")
    if handler is None or isinstance(handler, str):
        job.watch(blob, _printer(handler or ""), diff)
        return
    if not callable(handler):
        raise OnefoldTypeError(f"{who} needs a function or a text, but got {handler!r}")
    parameters = list(inspect.signature(handler, eval_str=True).parameters.values())
    annotation = parameters[0].annotation if parameters else inspect.Parameter.empty
    if annotation is inspect.Parameter.empty:
        job.watch(blob, handler, diff)
        return
    name = getattr(handler, "__name__", "a watch")
    job.watch(blob, lambda result: handler(typed(result, annotation, name)), diff)


def _printer(prompt: str) -> Callable[[Result], None]:
    def show(result: Result) -> None:
        print(prompt, result.ndarray(), flush=True)  # noqa: T201 (what it is asked for)

    return show
