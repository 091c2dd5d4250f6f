"""Mixed parallelism: a hidden layer in data parallelism, an output layer split over the devices.

python examples/job_functions/mixed_mlp.py
python -m onefold.distributed.launch --nproc_per_node 2 examples/job_functions/mixed_mlp.py
"""

from __future__ import annotations

from job_training import BATCH, options, train

import onefold.job as flow
import onefold.job.typing as tp


def mlp(images: flow.Blob) -> flow.Blob:
    initializer = flow.truncated_normal(0.1)
    rows = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(
        rows, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    return flow.layers.dense(
        hidden,
        10,
        kernel_initializer=initializer,
        model_distribute=flow.distribute.split(axis=0),  # each device has some of the outputs
        name="output",
    )


@flow.global_function(type="train")
def train_job(
    images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float),
    labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
) -> tp.Numpy:
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, mlp(images))
    schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(schedule, momentum=0).minimize(loss)
    return loss


@flow.global_function()
def predict_job(images: tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float)) -> tp.Numpy:
    return mlp(images)


def main(argv: list[str] | None = None) -> tuple[list[float], float]:
    return train(options(__doc__, epochs=5, argv=argv), train_job, predict_job)


if __name__ == "__main__":
    main()
