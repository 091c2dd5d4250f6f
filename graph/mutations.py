"""Mutations: in-place changes of a captured program to tensors from outside, and their undo."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..engine.tensor import Tensor

Content = tuple[Tensor, Any, bool, int, Any]  # a tensor, and its shards, shared, version, node


class Mutations:
    """The tensors from outside that were changed, and what they were before the capture."""

    def __init__(self) -> None:
        self._before: dict[int, Content] = {}

    def note(self, tensor: Tensor) -> None:
        """Hear that the tensor is about to change."""
        self._before.setdefault(id(tensor), _content(tensor))

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor, *_ in self._before.values()]

    def shards_before(self, tensor: Tensor) -> Any:
        """The shards that the tensor had before the capture."""
        found = self._before.get(id(tensor))
        return tensor.shards if found is None else found[1]

    def now(self) -> dict[int, Content]:
        """What the changed tensors are at this point of the program."""
        return {id(tensor): _content(tensor) for tensor in self.tensors()}

    def put_back(self, contents: dict[int, Content]) -> None:
        """Let all tensors from outside be what they were when `contents` were taken by `now`."""
        for tensor, shards, shared, version, node in (self._before | contents).values():
            tensor.shards, tensor.shared, tensor.version = shards, shared, version
            tensor.node = node

    def undo(self) -> None:
        """Give every tensor from outside back what it had before the capture."""
        self.put_back({})
        self._before.clear()


class Repeatable:
    """A function that finds, when it runs again, what it found at first, and leaves no changes."""

    def __init__(
        self,
        changes: Mutations,
        function: Callable[..., Any],
        block: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._mutations = changes
        self._function = function
        self._block = block  # in which it runs
        self._found = changes.now()
        self._ran = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._block():
            if not self._ran:
                self._ran = True
                return self._function(*args, **kwargs)
            now = self._mutations.now()
            self._mutations.put_back(self._found)
            try:
                return self._function(*args, **kwargs)
            finally:
                self._mutations.put_back(now)


def _content(tensor: Tensor) -> Content:
    return tensor, tensor.shards, tensor.shared, tensor.version, tensor.node
