"""The mirrored view: every device has its own entry of a list, and the same variables.

python examples/job_functions/mirrored_mlp.py
"""

from __future__ import annotations

import numpy as np
from job_training import BATCH, options, train

import onefold.job as flow
import onefold.job.typing as tp


def mlp(images: flow.Blob) -> flow.Blob:
    initializer = flow.truncated_normal(0.1)
    rows = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(
        rows, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")


def mirrored() -> flow.FunctionConfig:
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.default_logical_view(flow.scope.mirrored_view())
    return config


# In a list every array may be smaller than declared: here it is a device's part of the batch.
@flow.global_function(type="train", function_config=mirrored())
def train_job(
    images: tp.ListNumpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
    labels: tp.ListNumpy.Placeholder((BATCH,), dtype=flow.int32),
) -> tp.ListNumpy:
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, mlp(images))
    schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(schedule, momentum=0).minimize(loss)
    return loss


@flow.global_function(function_config=mirrored())
def predict_job(
    images: tp.ListNumpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
) -> tp.ListNumpy:
    return mlp(images)


def main(argv: list[str] | None = None) -> tuple[list[float], float]:
    given = options(__doc__, epochs=5, argv=argv)

    def step(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        parts = (np.array_split(x, given.devices) for x in (images, labels))
        return np.concatenate(train_job(*parts))

    def logits(images: np.ndarray) -> np.ndarray:
        return np.concatenate(predict_job(np.array_split(images, given.devices)))

    return train(given, step, logits)


if __name__ == "__main__":
    main()
