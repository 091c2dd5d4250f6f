"""Published times of training steps that no number of a hardware file was fitted to.

Each row is a job and the seconds of one step. Where a source gives flop/s or tokens per second,
the seconds follow from its own formula.

The sources are Narayanan et al., "Efficient large-scale language model training on GPU clusters
using Megatron-LM" (2021, tables 1 and 2), with the micro-batches and chunks of `examples/sc21` in
the repository of Megatron-LM; the benchmarks of MPT in the repository llm-foundry of MosaicML
(2023); the recipes for GPT-3 and Nemotron-4 in the repository dgxc-benchmarking of NVIDIA (2024 and
2025); "The Llama 3 herd of models" (2024, section 3.3.2 and table 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from megatron_gpt import GPT, Job
from rotary_gpt import RotaryGPT, RotaryJob

import onefold as flow

A100, H100 = "a100-80", "h100"


@dataclass(frozen=True)
class Table:
    """Rows by name, and the machine that they were measured on."""

    title: str
    machine: str
    rows: dict[str, tuple[Job, float]]
    kind: type[GPT] = GPT


def megatron(job: Job, ranks: int, samples: int, rate: float) -> tuple[Job, float]:
    """A row of Narayanan et al.: `rate` Tflop/s of each GPU, which computes all again."""
    data = ranks // (job.tensor * job.stages)
    job = replace(job, data=data, micro_batches=samples // (data * job.micro_batch), again="all")
    width, length = job.width, job.length
    terms = 1 + length / (6 * width) + job.vocabulary / (16 * job.layers * width)
    return job, 96 * samples * length * job.layers * width**2 * terms / (ranks * rate * 1e12)


BIG = Job(105, 20480, 128, 8, 35, 1, 1, chunks=3)
WEAK_SCALING = {
    "1.7B": megatron(Job(24, 2304, 24, 1, 1, 16, 1), 32, 512, 137),
    "3.6B": megatron(Job(30, 3072, 32, 2, 1, 16, 1), 64, 512, 138),
    "7.5B": megatron(Job(36, 4096, 32, 4, 1, 16, 1), 128, 512, 142),
    "18.4B": megatron(Job(40, 6144, 48, 8, 1, 8, 1), 256, 1024, 135),
    "39.1B": megatron(Job(48, 8192, 64, 8, 2, 4, 1), 512, 1536, 138),
    "76.1B": megatron(Job(60, 10240, 80, 8, 4, 2, 1, chunks=3), 1024, 1792, 140),
    "145.6B": megatron(Job(80, 12288, 96, 8, 8, 2, 1, chunks=2), 1536, 2304, 148),
    "310.1B": megatron(Job(96, 16384, 128, 8, 16, 1, 1, chunks=2), 1920, 2160, 155),
    "529.6B": megatron(BIG, 2520, 2520, 163),
    "1008B": megatron(Job(128, 25600, 160, 8, 64, 1, 1), 3072, 3072, 163),
    "529.6B, 560 ranks": megatron(BIG, 560, 2240, 171),
    "529.6B, 1120 ranks": megatron(BIG, 1120, 2240, 167),
    "529.6B, 2240 ranks": megatron(BIG, 2240, 2240, 159),
}

MPT = {  # layers, width, heads
    "7B": (32, 4096, 32),
    "13B": (40, 5120, 40),
    "30B": (48, 7168, 56),
    "70B": (80, 8192, 64),
}


def mpt(*rows: tuple[str, int, int, int, int, bool, int]) -> dict[str, tuple[Job, float]]:
    """Rows of llm-foundry: the model, its length, ranks, the micro-batch, how many, again, rate.

    All ranks work on parts of the batch and on all of the weights, which are split between uses.
    """
    found = {}
    for model, length, ranks, micro_batch, count, again, rate in rows:
        job = Job(
            *MPT[model], 1, 1, micro_batch, count, length=length, vocabulary=50368, data=ranks,
            again="all" if again else "", zero=3, half=flow.bfloat16, dropout=0.0, fused=True,
        )  # fmt: skip
        found[f"{model}, {length} tokens, {ranks} ranks"] = job, job.samples * length / rate
    return found


MPT_A100 = mpt(
    ("7B", 1024, 8, 64, 2, True, 34857),
    ("7B", 2048, 8, 6, 2, False, 37130),
    ("7B", 4096, 8, 16, 2, True, 29472),
    ("7B", 8192, 8, 8, 2, True, 25655),
    ("13B", 1024, 8, 40, 3, True, 18647),
    ("13B", 2048, 8, 2, 3, False, 18097),
    ("13B", 4096, 8, 10, 3, True, 16482),
    ("13B", 8192, 8, 5, 3, True, 14362),
    ("30B", 1024, 8, 6, 21, True, 7571),
    ("30B", 2048, 8, 3, 21, True, 7330),
    ("30B", 4096, 8, 1, 21, True, 6513),
    ("30B", 8192, 8, 1, 21, True, 4594),
    ("70B", 2048, 32, 2, 16, True, 11962),
    ("70B", 2048, 64, 8, 4, True, 26274),
)
MPT_H100 = mpt(
    ("7B", 1024, 8, 64, 2, True, 81628),
    ("7B", 2048, 8, 6, 1, False, 85144),
    ("7B", 4096, 8, 16, 2, True, 68893),
    ("7B", 8192, 8, 8, 2, True, 55481),
    ("13B", 1024, 8, 40, 3, True, 44019),
    ("13B", 2048, 8, 2, 1, False, 38336),
    ("13B", 2048, 16, 2, 1, False, 76280),
    ("13B", 2048, 32, 2, 1, False, 153960),
    ("13B", 2048, 64, 2, 1, False, 307209),
    ("13B", 4096, 8, 10, 3, True, 37740),
    ("30B", 1024, 8, 6, 21, True, 16672),
    ("30B", 2048, 8, 3, 21, True, 16022),
    ("30B", 2048, 16, 10, 3, True, 36209),
    ("30B", 2048, 32, 14, 3, True, 73860),
    ("30B", 4096, 8, 1, 21, True, 14419),
    ("30B", 8192, 8, 1, 21, True, 11072),
    ("70B", 2048, 32, 2, 16, True, 28242),
    ("70B", 2048, 64, 8, 4, True, 66523),
)

LOW = Job(96, 12288, 96, 4, 8, 1, 64, chunks=12, sequence=True, zero=1, half=flow.bfloat16)
GPT3 = {
    f"{ranks} ranks": (replace(LOW, data=ranks // 32, fused=True), seconds)
    for ranks, seconds in {128: 8.309, 256: 8.408, 512: 8.42, 1024: 8.453, 2048: 8.49}.items()
}

SPLIT = RotaryJob(96, 18432, 96, 8, 8, 1, 16, chunks=12, sequence=True, zero=1, length=4096)
LARGE = replace(SPLIT, vocabulary=256000, hidden=73728, gated=False)
SMALL = replace(
    LARGE, layers=32, width=6144, heads=48, hidden=24576,
    tensor=4, stages=1, chunks=1, micro_batch=4, micro_batches=4,
)  # fmt: skip
SMALL_STEPS = {16: 2.812, 64: 2.845, 256: 2.852, 1024: 2.895, 2048: 2.887}
LARGE_STEPS = {128: 4.61, 256: 4.67, 512: 4.7, 1024: 4.73, 2048: 4.84}
NEMOTRON = {
    f"{name}, {ranks} ranks": (replace(job, data=ranks // (job.tensor * job.stages)), seconds)
    for name, job, steps in (("15B", SMALL, SMALL_STEPS), ("340B", LARGE, LARGE_STEPS))
    for ranks, seconds in steps.items()
}


def llama(data: int, micro_batches: int, rate: float) -> tuple[Job, float]:
    """A row of Llama 3 405B: `rate` Tflop/s of each GPU.

    They are counted as in Chowdhery et al., "PaLM" (2022), which the source cites: 6 for each
    parameter and token, and all of attention. A part of the model is one layer; the first is the
    embedding, and the last the loss.
    """
    job = RotaryJob(
        126, 16384, 128, 8, 16, 1, micro_batches, chunks=8, sequence=True, spare=1, length=8192,
        vocabulary=128256, data=data, zero=1, hidden=53248,
    )  # fmt: skip
    flop = 6 * 405.9e9 + 12 * job.layers * job.width * job.length
    return job, job.samples * job.length * flop / (job.ranks * rate * 1e12)


LLAMA = {"8192 ranks": llama(64, 32, 430), "16384 ranks": llama(128, 16, 400)}

TABLES = {
    "weak scaling": Table("Megatron-LM of 2021", A100, WEAK_SCALING),
    "mpt": Table("MPT, ZeRO 3", A100, MPT_A100),
    "gpt-3, h100": Table("GPT-3 175B", H100, GPT3),
    "nemotron, h100": Table("Nemotron-4", H100, NEMOTRON, RotaryGPT),
    "llama, h100": Table("Llama 3 405B", H100, LLAMA, RotaryGPT),
    "mpt, h100": Table("MPT, ZeRO 3", H100, MPT_H100),
}
