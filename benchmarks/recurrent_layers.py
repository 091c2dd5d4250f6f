"""Recurrent layers and cells against torch's: forward and backward, one thread, one rank.

    python benchmarks/recurrent_layers.py    # prints rows, writes results/recurrent_layers.json

Both sides have the same weights and inputs, and their gradients must agree. They take turns; ratios
are medians over rounds, of the processor's time: other programs disturb it least.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import timing
import torch

import onefold as flow

# Layers: the options of each after its sizes; a cell has no length.
SIZES = [{"batch": 8, "length": 32, "hidden": 64}, {"batch": 32, "length": 128, "hidden": 256}]
MIDDLE = {"batch": 16, "length": 64, "hidden": 128}
CASES: list[tuple[str, dict[str, int], dict[str, Any]]] = [
    *(("LSTM", size, {}) for size in (SIZES[0], MIDDLE, SIZES[1])),
    ("LSTM", MIDDLE, {"num_layers": 2}),
    ("LSTM", MIDDLE, {"bidirectional": True}),
    *((name, size, {}) for name in ("GRU", "RNN") for size in SIZES),
    *(
        (f"{name}Cell", {"batch": batch, "hidden": hidden}, {})
        for name in ("LSTM", "GRU", "RNN")
        for batch, hidden in ((8, 64), (32, 256))
    ),
]
AGREE = 1e-4
LIMIT = 1.3  # what a layer or cell may take of torch's

Step = Callable[[], object]


def step_of(model: Any, x: Any, slope: Any) -> Step:
    """Forward and backward with the gradient of the output given."""
    x.requires_grad_()

    def step() -> None:
        model.zero_grad()
        x.grad = None
        y = model(x)
        (y[0] if isinstance(y, tuple) else y).backward(slope)

    return step


def candidates(name: str, size: dict[str, int], options: dict[str, Any]) -> dict[str, Step]:
    """The steps of both libraries, from the same weights; raises where gradients differ."""
    torch.manual_seed(0)
    hidden = size["hidden"]
    theirs = getattr(torch.nn, name)(hidden, hidden, **options)
    ours = getattr(flow.nn, name)(hidden, hidden, **options)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(*(size[key] for key in ("length", "batch") if key in size), hidden)
    slope = torch.randn(*x.shape[:-1], hidden * (2 if options.get("bidirectional") else 1))
    given = flow.from_torch(x.clone()), flow.from_torch(slope)
    steps = {"torch": step_of(theirs, x, slope), "onefold": step_of(ours, *given)}
    for step in steps.values():
        step()
    pairs = [*zip(theirs.parameters(), ours.parameters(), strict=True), (x, given[0])]
    for a, b in pairs:
        torch.testing.assert_close(b.grad.to_torch(), a.grad, rtol=AGREE, atol=AGREE)
    return steps


def measure(
    name: str, size: dict[str, int], options: dict[str, Any], rounds: int, seconds: float
) -> timing.Results:
    """The row of one layer or cell."""
    steps = candidates(name, size, options)
    found, ratio = timing.compare(steps, rounds, seconds, clock=time.process_time)
    return {
        "layer": name,
        "size": size,
        "options": options,
        "us": {side: [t.median, t.low, t.high] for side, t in found.items()},
        "onefold/torch": ratio("onefold", "torch"),
    }


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("--layer", help="only those of this name, such as LSTM")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each turn, about")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, size, options in CASES:
        if args.layer not in (None, name):
            continue
        row = measure(name, size, options, args.rounds, args.seconds)
        rows.append(row)
        times = "  ".join(f"{side} {us[0]:9.1f} us" for side, us in row["us"].items())
        ratio = f"{row['onefold/torch']:.2f} (limit {LIMIT})"
        print(f"{name:9} {times}  {ratio}  {size} {options or ''}", flush=True)
    if rows and args.layer is None:
        print(f"written to {timing.save('recurrent_layers', rows)}")


if __name__ == "__main__":
    main()
