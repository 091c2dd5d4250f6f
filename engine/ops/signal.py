"""The windows of signals, under the names of `torch.signal`."""

from __future__ import annotations

from types import SimpleNamespace

from .namespaces import namespace

windows = SimpleNamespace(**namespace("signal.windows"))
