"""A schedule as a picture: a row per rank, a bar per action, drawn with matplotlib.

    python -m onefold.graph.schedules.picture 1f1b --stages 4 --micro-batches 8 out.png

matplotlib is no dependency of onefold, so nothing else in the package imports this file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import gcd
from pathlib import Path

from ...errors import OnefoldTypeError, OnefoldValueError
from .actions import Action, Kind, Schedule
from .diagram import diagram
from .named_schedules import SCHEDULES, make
from .simulate import Timeline, Times, simulate

try:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pictures of schedules need matplotlib; install it with: pip install matplotlib",
        name=error.name,
    ) from error

Color = tuple[float, float, float]

# From the first stage of a rank to its last. Printed grey, F is the lightest and W the darkest,
# whatever the stage.
COLORS: dict[Kind, tuple[Color, Color]] = {
    "F": ((0.74, 0.87, 0.97), (0.64, 0.81, 0.94)),
    "B": ((0.98, 0.64, 0.35), (0.90, 0.53, 0.25)),
    "I": ((0.35, 0.68, 0.40), (0.20, 0.55, 0.30)),
    "W": ((0.45, 0.25, 0.60), (0.30, 0.12, 0.45)),
}
NAMES: dict[Kind, str] = {
    "F": "forward",
    "B": "backward",
    "I": "backward, input's gradient",
    "W": "backward, weights' gradients",
}
DPI = 120
_INCHES_PER_DIGIT = 0.08
_ROW = 0.4  # inches
_COLUMNS = 200  # of a text that is still worth reading


def draw(timeline: Timeline, path: str | Path, rows: Sequence[str] | None = None) -> None:
    """Draw a timeline into a PNG file: time goes to the right, idle time is white.

    Bars carry the number of their micro-batch where it fits. Where ranks have several stages, the
    later ones are darker. `rows` are the names of the rows, by default "rank 0" and so on. Raises
    OSError when the file cannot be written.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> from onefold.graph.schedules.simulate import Times, simulate
    >>> draw(simulate(make("1f1b", stages=4, micro_batches=8), Times()), "1f1b.png")
    """
    figure = picture(timeline, rows)
    FigureCanvasAgg(figure)  # draws without a display
    figure.savefig(path, dpi=DPI, format="png")


def picture(timeline: Timeline, rows: Sequence[str] | None = None) -> Figure:
    """The same as a figure of matplotlib, whose only axes hold one bar for each action."""
    schedule = timeline.schedule
    shortest = min((end - start for start, end in timeline.spans.values() if end > start))
    digits = len(str(schedule.micro_batches - 1))
    width = timeline.makespan / shortest * (digits + 0.5) * _INCHES_PER_DIGIT
    width = min(max(width, 6.0), 40.0)
    figure = Figure(figsize=(width + 1.0, _ROW * len(schedule.ranks) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    for rank, actions in enumerate(schedule.ranks):
        for action in actions:
            _bar(axes, timeline, rank, action, width / timeline.makespan)
    ranks = list(range(len(schedule.ranks)))
    axes.set_yticks(ranks, [f"rank {rank}" for rank in ranks] if rows is None else list(rows))
    axes.set_ylim(len(schedule.ranks) - 0.5, -0.5)
    axes.set_xlim(0, timeline.makespan)
    axes.set_xlabel("time")
    axes.set_title(f"{title(timeline)}\n{bubble(timeline)}", fontsize=10)
    _legend(figure, schedule)
    return figure


def title(timeline: Timeline) -> str:
    """The name of the schedule and its sizes, as a title."""
    schedule = timeline.schedule
    return f"{schedule.name}: {schedule.stages} stages, {schedule.micro_batches} micro-batches"


def bubble(timeline: Timeline) -> str:
    """The idle time of the busiest rank, as text."""
    return (
        f"bubble: {timeline.bubble:.6g} of {timeline.cost:.6g} units of time "
        f"({timeline.bubble_rate:.1%})"
    )


def _bar(axes: Axes, timeline: Timeline, rank: int, action: Action, inches: float) -> None:
    """One action; a unit of time is so many inches wide."""
    start, end = timeline.spans[action]
    color = color_of(timeline.schedule, action)
    axes.barh(rank, end - start, left=start, height=0.9, color=color, edgecolor="w", linewidth=0.5)
    text = str(action.micro_batch)
    if (end - start) * inches >= len(text) * _INCHES_PER_DIGIT:
        ink = "black" if grey(color) > 0.5 else "white"
        middle = (start + end) / 2
        axes.text(middle, rank, text, ha="center", va="center", fontsize=7, color=ink)


def color_of(schedule: Schedule, action: Action) -> Color:
    """The color of an action: of its kind, darker for the later stages of its rank."""
    rank = schedule.rank_of[action.stage]
    stages = [stage for stage, its in enumerate(schedule.rank_of) if its == rank]
    part = stages.index(action.stage) / max(len(stages) - 1, 1)
    first, last = COLORS[action.kind]
    red, green, blue = (a + part * (b - a) for a, b in zip(first, last, strict=True))
    return red, green, blue


def grey(color: Color) -> float:
    """How light a color is when printed grey (ITU-R BT.601), from 0 to 1."""
    red, green, blue = color
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _legend(figure: Figure, schedule: Schedule) -> None:
    there = {action.kind for actions in schedule.ranks for action in actions}
    handles = [
        Patch(facecolor=COLORS[kind][0], label=name)
        for kind, name in NAMES.items()
        if kind in there
    ]
    several = len(set(schedule.rank_of)) < schedule.stages
    note = "the later stages of a rank are darker" if several else None
    figure.legend(
        handles=handles, title=note, loc="outside lower center", ncols=len(handles), fontsize=8,
        title_fontsize=8, frameon=False,
    )  # fmt: skip


# The command line.

_TIMES = {
    "forward": "time of a forward",
    "input_gradient": "time of the half of a backward that makes the input's gradient",
    "weight_gradient": "time of the other half; a whole backward takes both",
    "transfer": "time from rank to rank",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m onefold.graph.schedules.picture",
        description="Draw a pipeline schedule as a PNG, or print it.",
        epilog="Times are of one stage and one micro-batch, in any one unit.",
    )
    parser.add_argument("name", help=f"the schedule: {', '.join(SCHEDULES)}")
    parser.add_argument("path", nargs="?", help="the PNG file to write")
    parser.add_argument("--text", action="store_true", help="print the schedule instead")
    ranks = "default: one for each stage; half as many where ranks have several"
    for name, default, text in (
        ("--stages", 4, "default 4"), ("--micro-batches", 8, "default 8"), ("--ranks", None, ranks),
    ):  # fmt: skip
        parser.add_argument(name, type=int, default=default, metavar="N", help=text)
    for name, text in _TIMES.items():
        default = getattr(Times(), name)
        parser.add_argument(
            _option(name), type=float, default=default, metavar="TIME",
            help=f"{text}, default {default:g}",
        )  # fmt: skip
    return parser


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parse(arguments: Sequence[str] | None) -> tuple[str | None, Times, Timeline]:
    """The file (None: to be printed), the times, and the timeline that the options ask for.

    Ends with exit code 2 and a message for wrong ones.
    """
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    times = {name: getattr(options, name) for name in _TIMES}
    for name, value in times.items():
        if not 0 <= value < float("inf") or (name == "forward" and value == 0):
            least = "more than 0" if name == "forward" else "0 or more"
            parser.error(f"{_option(name)} must be {least}, not {value:g}")
    if options.text and options.path:
        parser.error(f"--text prints and writes no file; leave out --text or {options.path!r}")
    if not options.text:
        _check_path(parser, options.path)
    row = SCHEDULES.get(options.name)
    if options.ranks is None and row is not None and row.stages_per_rank is None:
        options.ranks = max(options.stages // 2, 1)
    try:
        schedule = make(options.name, options.stages, options.micro_batches, options.ranks)
    except (OnefoldTypeError, OnefoldValueError) as error:
        parser.error(str(error))
    return options.path, Times(**times), simulate(schedule, Times(**times))


def _check_path(parser: argparse.ArgumentParser, path: str | None) -> None:
    if path is None:
        parser.error("name the PNG file to write, or pass --text to print the schedule")
    if Path(path).suffix.lower() != ".png":
        parser.error(f"the picture is a PNG file, so name it so: {Path(path).with_suffix('.png')}")
    if not Path(path).parent.is_dir():
        parser.error(f"there is no folder {str(Path(path).parent)!r} for {path!r}")


def _unit(times: Times, timeline: Timeline) -> float:
    """The time per column: what all times are multiples of, or the shortest if that is tiny."""
    own = (times.forward, times.input_gradient, times.weight_gradient)
    common = gcd(*(round(100 * time) for time in (*own, times.transfer))) / 100
    if common and timeline.makespan / common <= _COLUMNS:
        return common
    return min(time for time in own if time)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw or print what the command line asks for."""
    path, times, timeline = _parse(arguments)
    if path is None:
        unit = _unit(times, timeline)
        text = [title(timeline), f"one column per {unit:g}", diagram(timeline, unit)]
    else:
        draw(timeline, path)
        text = [title(timeline), f"drawn in {path}"]
    sys.stdout.write("\n".join([*text, bubble(timeline), ""]))


if __name__ == "__main__":
    main()
