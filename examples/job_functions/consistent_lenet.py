"""The consistent view: the program of one device, on several; data parallelism by itself.

python examples/job_functions/consistent_lenet.py --devices 4
"""

from __future__ import annotations

from job_training import BATCH, options, train

import onefold.job as flow
import onefold.job.typing as tp


def lenet(images: flow.Blob) -> flow.Blob:
    initializer = flow.truncated_normal(0.1)
    features = images
    for number, filters in enumerate((32, 64), 1):
        features = flow.layers.conv2d(
            features,
            filters,
            5,
            padding="SAME",
            activation=flow.nn.relu,
            kernel_initializer=initializer,
            name=f"conv{number}",
        )
        features = flow.nn.max_pool2d(features, ksize=2, strides=2, padding="SAME")
    rows = flow.reshape(features, [features.shape[0], -1])
    hidden = flow.layers.dense(
        rows, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    hidden = flow.nn.dropout(hidden, rate=0.5)  # only where the job trains
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")


@flow.global_function(type="train")
def train_job(
    images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
    labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
) -> tp.Numpy:
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, lenet(images))
    schedule = flow.optimizer.CosineScheduler(
        0.1, steps=400, alpha=0.1, warmup=flow.optimizer.warmup.linear(10, 0.1)
    )
    clipping = flow.optimizer.grad_clipping.by_global_norm(5.0)
    flow.optimizer.SGD(schedule, momentum=0, grad_clipping=clipping).minimize(loss)
    return loss


@flow.global_function()
def predict_job(images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float)) -> tp.Numpy:
    return lenet(images)


def main(argv: list[str] | None = None) -> tuple[list[float], float]:
    return train(options(__doc__, epochs=1, argv=argv), train_job, predict_job)


if __name__ == "__main__":
    main()
