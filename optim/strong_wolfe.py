"""A line search for steps that satisfy the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

Evaluate = Callable[[float], tuple[float, torch.Tensor]]

DECREASE = 1e-4  # of the value, as a part of what the slope promises
CURVATURE = 0.9  # the part of the slope that may be left
NARROW = 1e-9  # the bracket's width, times the largest step of a parameter, that ends the search


class Point(NamedTuple):
    """A point on the line: how far along, the value there, the gradient, and the slope."""

    t: float
    value: float
    gradient: torch.Tensor
    slope: float


def strong_wolfe(
    evaluate: Evaluate, start: Point, direction: torch.Tensor, t: float, most: int
) -> tuple[Point, int]:
    """A point along a direction, first tried at `t`, and how often `evaluate` was called.

    Nocedal and Wright, "Numerical optimization" (2006), algorithms 3.5 and 3.6, with the cubic
    interpolation of minFunc, as torch's LBFGS has them. At most about `most` evaluations.
    """

    def at(t: float) -> Point:
        value, gradient = evaluate(t)
        return Point(t, value, gradient, float(gradient.dot(direction)))

    def is_low(point: Point) -> bool:
        return point.value <= start.value + DECREASE * point.t * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE * start.slope

    before, now, rounds = start, at(t), 0
    ends: list[Point] = []
    while rounds < most:
        if not is_low(now) or (rounds > 1 and now.value >= before.value):
            ends = [before, now]
            break
        if is_flat(now):
            return now, rounds + 1
        if now.slope >= 0:
            ends = [before, now]
            break
        bounds = now.t + 0.01 * (now.t - before.t), now.t * 10
        before, now = now, at(_cubic(before, now, bounds))
        rounds += 1
    if rounds == most:
        ends = [start, now]
    low, high = (0, 1) if ends[0].value <= ends[1].value else (1, 0)
    longest = float(direction.abs().max())
    stuck = False
    while rounds < most and abs(ends[1].t - ends[0].t) * longest >= NARROW:
        t, stuck = _inside(_cubic(ends[0], ends[1]), ends, stuck)
        now = at(t)
        rounds += 1
        if not is_low(now) or now.value >= ends[low].value:
            ends[high] = now
            low, high = (0, 1) if ends[0].value <= ends[1].value else (1, 0)
            continue
        flat = is_flat(now)
        if not flat and now.slope * (ends[high].t - ends[low].t) >= 0:
            ends[high] = ends[low]
        ends[low] = now
        if flat:
            break
    return ends[low], rounds + 1


def _inside(t: float, ends: list[Point], stuck: bool) -> tuple[float, bool]:
    """A trial that is not too near to an end, and whether it is near to one."""
    first, last = min(ends[0].t, ends[1].t), max(ends[0].t, ends[1].t)
    margin = 0.1 * (last - first)
    if min(last - t, t - first) >= margin:
        return t, False
    if not stuck and first < t < last:
        return t, True
    return (last - margin if abs(t - last) < abs(t - first) else first + margin), False


def _cubic(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two values and slopes is least, within bounds."""
    if bounds is None:
        bounds = (a.t, b.t) if a.t <= b.t else (b.t, a.t)
    first, last = (a, b) if a.t <= b.t else (b, a)
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    d2 = math.sqrt(square) if square >= 0 else 0.0
    below = last.slope - first.slope + 2 * d2
    if not square >= 0 or not below:
        return (bounds[0] + bounds[1]) / 2.0
    least = last.t - (last.t - first.t) * ((last.slope + d2 - d1) / below)
    return min(max(least, bounds[0]), bounds[1])
