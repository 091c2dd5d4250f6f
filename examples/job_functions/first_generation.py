"""The first generation's words: definitions as default values, futures, and config.train.

The view is mirrored there unless the configuration says another.

    python examples/job_functions/first_generation.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from job_training import BATCH, options, train

import onefold.job as flow


def mlp(images: flow.Blob) -> flow.Blob:
    initializer = flow.truncated_normal(0.1)
    rows = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(rows, 512, activation=flow.nn.relu, kernel_initializer=initializer)
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer)


def training() -> flow.FunctionConfig:
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    return config


@flow.global_function(training())
def train_job(
    images: Any = flow.MirroredTensorDef((BATCH, 1, 28, 28), dtype=flow.float),
    labels: Any = flow.MirroredTensorDef((BATCH,), dtype=flow.int32),
) -> Any:
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, mlp(images))
    flow.losses.add_loss(loss)
    return loss


@flow.global_function
def predict_job(images: Any = flow.MirroredTensorDef((BATCH, 1, 28, 28), dtype=flow.float)) -> Any:
    return mlp(images)


def main(argv: list[str] | None = None) -> tuple[list[float], float]:
    given = options(__doc__, epochs=5, argv=argv)
    flow.train.CheckPoint().init()

    def step(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        parts = (np.array_split(x, given.devices) for x in (images, labels))
        return np.concatenate(train_job(*parts).get().ndarray_list())

    def logits(images: np.ndarray) -> np.ndarray:
        return predict_job(np.array_split(images, given.devices)).get().ndarray()

    return train(given, step, logits)


if __name__ == "__main__":
    main()
