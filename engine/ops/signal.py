"""Windows of signals: the functions of `torch.signal.windows`."""

from __future__ import annotations

from types import SimpleNamespace

from .namespaces import namespace

windows = SimpleNamespace(**namespace("signal.windows"))
