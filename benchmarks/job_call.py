"""A call of a job against a call of the same nn.Graph that is fed with the same numpy arrays.

    python benchmarks/job_call.py          # prints the table, writes results/job_call.json

One thread, virtual devices. Both take numpy arrays, train a network of two layers with SGD, and
give the losses as a numpy array. With a width of 8 there is little but overhead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import timing
import torch

import onefold as flow
import onefold.job.typing as tp
from onefold import job

BATCH, FEATURES = 100, 784
WIDTHS = (8, 512)
DEVICES = (1, 2)

Call = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of images and their labels: the losses


def of_job(width: int, devices: int) -> Call:
    """The job; its variables begin with zeros."""
    job.clear_default_session()
    job.config.gpu_device_num(devices)

    @job.global_function(type="train")
    def train(
        x: tp.Numpy.Placeholder((BATCH, FEATURES)),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=job.int32),
    ) -> tp.Numpy:
        start = job.truncated_normal(0.1)
        hidden = job.layers.dense(
            x, width, activation=job.nn.relu, kernel_initializer=start, name="hidden"
        )
        logits = job.layers.dense(hidden, 10, kernel_initializer=start, name="output")
        loss = job.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        job.optimizer.SGD(job.optimizer.CosineScheduler(0.1, 1000), momentum=0).minimize(loss)
        return loss

    return train


class Step(flow.nn.Graph):
    """The same step as an nn.Graph."""

    def __init__(self, width: int, placement: flow.placement) -> None:
        super().__init__()
        layout = {"placement": placement, "sbp": flow.sbp.broadcast}
        self.model = flow.nn.Sequential(
            flow.nn.Linear(FEATURES, width, **layout),
            flow.nn.ReLU(),
            flow.nn.Linear(width, 10, **layout),
        )
        optimizer = flow.optim.SGD(self.model.parameters(), lr=0.1)
        schedule = flow.optim.lr_scheduler.CosineDecayLR(optimizer, 1000)
        self.add_optimizer(optimizer, lr_sch=schedule)

    def build(self, x: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
        logits = self.model(x)
        losses = flow.nn.functional.cross_entropy(logits, labels.to(torch.int64), reduction="none")
        losses.mean().backward()
        return losses


def of_graph(width: int, devices: int) -> Call:
    """The graph, fed with numpy arrays."""
    placement = flow.placement("cpu", list(range(devices)))
    graph = Step(width, placement)
    split = flow.sbp.split(0)

    def call(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
        given = [flow.tensor(array, placement=placement, sbp=split) for array in (x, labels)]
        return graph(*given).numpy()

    return call


def main() -> None:
    timing.options(__doc__).parse_args()
    torch.set_num_threads(1)
    source = np.random.default_rng(0)
    x = source.normal(size=(BATCH, FEATURES)).astype(np.float32)
    labels = source.integers(0, 10, size=BATCH).astype(np.int32)
    rows = []
    print(f"{'devices':>7} {'width':>5} {'graph us':>9} {'job us':>9} {'job/graph':>9}")
    for devices in DEVICES:
        for width in WIDTHS:
            calls = {"job": of_job(width, devices), "graph": of_graph(width, devices)}
            candidates = {name: partial(call, x, labels) for name, call in calls.items()}
            found, ratio = timing.compare(candidates, rounds=15, seconds=0.2)
            row = {
                "devices": devices,
                "width": width,
                "graph us": found["graph"].median,
                "job us": found["job"].median,
                "job/graph": ratio("job", "graph"),
            }
            rows.append(row)
            print(f"{devices:7d} {width:5d} {row['graph us']:9.0f} {row['job us']:9.0f} "
                  f"{row['job/graph']:9.2f}")  # fmt: skip
    print(f"\nwritten to {timing.save('job_call', rows)}")


if __name__ == "__main__":
    main()
