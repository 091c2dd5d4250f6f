"""The losses of examples/mnist.py over its whole run: every strategy and world against one rank.

    python benchmarks/mnist_losses.py

Each run is a program of its own, as a user starts it. The table and results/mnist_losses.json give
the largest relative difference from the single run over all steps, and the test accuracy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import save
from tqdm import tqdm

PROGRAM = Path(__file__).parent.parent / "examples" / "mnist.py"
STRATEGIES = ("dp", "mp", "pp", "mixed")
LIMIT = 1e-4


def train(strategy: str, ranks: int, launched: bool, more: list[str]) -> tuple[list[float], float]:
    """The loss of every step, and the accuracy, of one run of the example."""
    start = [sys.executable]
    if launched:
        start += ["-m", "onefold.distributed.launch", "--nproc_per_node", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        losses = Path(folder) / "losses.json"
        arguments = ["--strategy", strategy, "--ranks", str(ranks), "--losses", str(losses)]
        subprocess.run(
            [*start, str(PROGRAM), *arguments, "--picture", "", *more],
            check=True, timeout=1800, capture_output=True,
        )  # fmt: skip
        ran = json.loads(losses.read_text())
    return ran["losses"], ran["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--virtual", type=int, nargs="*", default=[2, 3, 4], help="virtual ranks")
    parser.add_argument("--launched", type=int, nargs="*", default=[1, 2, 4], help="processes")
    args, more = parser.parse_known_args()

    single, accuracy = train("single", 1, False, more)
    worlds = [(False, n) for n in args.virtual] + [(True, n) for n in args.launched]
    runs = [(s, launched, n) for launched, n in worlds for s in STRATEGIES]
    print(f"single: {len(single)} steps, accuracy {100 * accuracy:.2f}%")
    rows = []
    for strategy, launched, ranks in tqdm(runs, unit="run"):
        losses, accuracy = train(strategy, ranks, launched, more)
        assert len(losses) == len(single)
        apart = max(abs(a - b) / abs(b) for a, b in zip(losses, single, strict=True))
        world = f"{ranks} process{'es' * (ranks > 1)}" if launched else f"{ranks} virtual ranks"
        rows.append({"strategy": strategy, "world": world, "apart": apart, "accuracy": accuracy})
        tqdm.write(f"{strategy:6} {world:16} {apart:.1e}  accuracy {100 * accuracy:.2f}%")
    save("mnist_losses", {"steps": len(single), "runs": rows})
    worst = max(row["apart"] for row in rows)
    print(f"largest relative difference over {len(single)} steps: {worst:.1e} (limit {LIMIT:.0e})")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
