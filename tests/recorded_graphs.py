"""A stand-in for CUDA's stream capture on the CPU: what was captured runs again, into its results.

As with CUDA graphs, results lie at fixed addresses, and what is there of an earlier replay is lost.
For what is no op of torch: kernels of Triton, and communication.
"""

from contextlib import nullcontext

from recorded_ops import distinct, spoil

from onefold.graph.cuda_graphs import stream_capture
from onefold.kernels import staging


class Recorder:
    """In place of `CudaCapturer`; `captures` and `replays` count."""

    device_type = "cpu"

    def __init__(self):
        self.captures = self.replays = 0

    def renew(self):
        pass

    def capture(self, function, static):
        self.captures += 1
        before = [(x, x.clone()) for x in static]
        token = staging._copies.set(None)  # kernels run here, and read what the host has
        result = function()
        staging._copies.reset(token)
        for x, value in before:  # a capture computes nothing
            distinct(x).copy_(distinct(value))
        known = {x.untyped_storage().data_ptr() for x in static}
        made = [x for _, shards in result for x in shards]
        own = [x for x in made if x.untyped_storage().data_ptr() not in known]
        for x in own:
            spoil(x)

        def replay():
            self.replays += 1
            for x in own:
                spoil(x)
            for (_, shards), (_, new) in zip(result, function(), strict=True):
                for x, value in zip(shards, new, strict=True):
                    if x.data_ptr() != value.data_ptr():
                        distinct(x).copy_(distinct(value))

        return replay, result

    def outside(self, device):
        return nullcontext

    def finished(self, device):
        return lambda: True


def recording(monkeypatch):
    """The recorder that captures on the CPU during a test."""
    recorder = Recorder()
    monkeypatch.setattr(
        stream_capture, "capturer", lambda kind: recorder if kind == "cpu" else None
    )
    return recorder
