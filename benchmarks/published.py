"""Published times of training steps, next to those that the simulator predicts.

    python benchmarks/published.py           # prints the tables, writes results/published.json
    python benchmarks/published.py --only 22B
    python benchmarks/published.py --only "weak scaling"

One layer of Korthikanti et al. (2022, table 4) is what the efficiencies in
`graph/hardware/a100-80.toml` were fitted to. The steps of whole models in table 5, those of Qi
et al., "Zero bubble pipeline parallelism" (2023, tables 4 and 9), and those in
`published_tables.py` are predicted with the files of their machines and no other number, for the
steps that Onefold itself would run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import mean

import megatron_gpt
import timing
from megatron_gpt import GPT, Job
from published_tables import TABLES

import onefold as flow
from onefold.nn import Graph

MACHINE = "a100-80"
UPDATE = ("sgd", "learning_rate", "flatten_gradients", "unflatten_gradients", "boxing")

LAYER = Job(1, 6144, 64, 8, 1, 4, 1)
SPLIT = replace(LAYER, sequence=True)
LAYERS = {  # milliseconds
    "tensor, forward": (LAYER, False, 7.7),
    "tensor": (LAYER, True, 7.7 + 11.9),
    "tensor, all again": (replace(LAYER, again="all"), True, 7.7 + 19.5),
    "tensor, attention again": (replace(LAYER, again="attention"), True, 7.7 + 13.2),
    "sequence, forward": (SPLIT, False, 7.2),
    "sequence": (SPLIT, True, 7.2 + 11.8),
    "sequence, attention again": (replace(SPLIT, again="attention"), True, 7.2 + 13.1),
}

MODELS = {  # with the seconds of a step, all computed again and attention alone
    "22B": (Job(48, 6144, 64, 8, 1, 4, 1), 1.42, 1.10),
    "175B": (Job(96, 12288, 96, 8, 8, 1, 64, chunks=3), 18.13, 13.75),
    "530B": (Job(105, 20480, 128, 8, 35, 1, 280, chunks=3), 49.05, 37.83),
    "1T": (Job(128, 25600, 160, 8, 64, 1, 512), 94.42, 71.49),
}

ZERO_BUBBLE = {  # with the samples per second of each GPU, by micro-batches: 1F1B
    "1.5B": (Job(22, 2304, 24, 1, 8, 6, 1), {24: 11.8, 32: 12.5, 64: 13.6}),
    "6.2B": (Job(30, 4096, 32, 1, 8, 3, 1), {24: 3.50, 32: 3.70, 64: 4.03}),
    "14.6B": (Job(46, 5120, 40, 1, 16, 1, 1), {48: 1.40, 64: 1.49, 128: 1.64}),
    "28.3B": (Job(62, 6144, 48, 1, 32, 1, 1), {96: 0.76, 128: 0.80, 256: 0.90}),
}


def layer_seconds(job: Job, trains: bool) -> float:
    """The predicted time of one layer, without its update."""
    with flow.planning(job.ranks) as cluster:
        graph = megatron_gpt.one_layer(job, cluster, trains)
        line = graph.simulate(MACHINE, memory=False).timeline
    last = max(i for i, task in enumerate(line.tasks) if task.name not in UPDATE)
    return max(line.ends[: last + 1])


def step_of(job: Job, machine: str = MACHINE, kind: type[GPT] = GPT) -> tuple[float, Graph]:
    """The predicted time of a step, and its graph."""
    with flow.planning(job.ranks) as cluster:
        graph = megatron_gpt.training(job, cluster, kind)
        return graph.simulate(machine, memory=False).step_time, graph


def jobs_of(model: str) -> Iterable[tuple[str, Job, float]]:
    """The jobs of a model in MODELS, with the published seconds of a step."""
    job, everything, attention = MODELS[model]
    yield f"{model}, all again", replace(job, again="all"), everything
    yield f"{model}, attention again", replace(job, again="attention", sequence=True), attention


def zero_bubble_jobs(model: str) -> Iterable[tuple[str, Job, float]]:
    """The same of a model in ZERO_BUBBLE."""
    plain, published = ZERO_BUBBLE[model]
    for count, rate in published.items():
        job = replace(plain, micro_batches=count, spare=1, length=1024)
        yield f"{model}, {count} micro-batches", job, job.samples / (job.ranks * rate)


def row(published: float, predicted: float) -> dict[str, float]:
    return {
        "published": published,
        "predicted": predicted,
        "error": predicted / published - 1,
    }


def table(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    print(f"\n{title:36}{'published':>12}{'predicted':>12}{'error':>8}")
    for name, each in rows.items():
        times = f"{each['published']:12.2f}{each['predicted']:12.2f}"
        print(f"{name:36}{times}{100 * each['error']:+7.1f}%")
    print(f"{'mean error':60}{100 * mean(abs(each['error']) for each in rows.values()):7.1f}%")


def main() -> None:
    options = timing.options(__doc__)
    names = (*MODELS, *ZERO_BUBBLE, *TABLES)
    options.add_argument(
        "--only", choices=names, help="predict this model or table, and write no results"
    )
    only = options.parse_args().only
    layers = {
        name: row(published, 1e3 * layer_seconds(job, trains))
        for name, (job, trains, published) in LAYERS.items()
    }
    table("one layer of 22B, milliseconds", layers)
    found: timing.Results = {"layer": layers}
    parts = (
        ("steps, seconds", "steps", MODELS, jobs_of),
        ("zero bubble's 1F1B, seconds", "zero bubble", ZERO_BUBBLE, zero_bubble_jobs),
    )
    for title, key, models, jobs in parts:
        rows = {
            name: row(published, step_of(job)[0])
            for model in models
            if only in (None, model)
            for name, job, published in jobs(model)
        }
        if rows:
            table(title, rows)
        found[key] = rows
    for key, each in TABLES.items():
        if only in (None, key):
            found[key] = {
                name: row(published, step_of(job, each.machine, each.kind)[0])
                for name, (job, published) in each.rows.items()
            }
            table(f"{each.title} on {each.machine}, seconds", found[key])
    if only is None:
        print(f"\nwritten to {timing.save('published', found)}")


if __name__ == "__main__":
    main()
