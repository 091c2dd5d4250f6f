"""Signatures: the legal layouts of an op on one mesh axis, and the language that declares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from .meta import Meta
from .sbp import Sbp, broadcast, partial_sum, short, split


@dataclass(frozen=True, slots=True)
class Signature:
    """One legal (input sbps -> output sbps) of an op on one axis."""

    inputs: tuple[Sbp, ...]
    outputs: tuple[Sbp, ...]
    shares_work: bool = field(init=False)  # whether each rank does only a part of the work

    def __post_init__(self) -> None:
        shares = any(sbp.kind == "S" for sbp in (*self.inputs, *self.outputs))
        object.__setattr__(self, "shares_work", shares)

    def __repr__(self) -> str:
        return f"{short(self.inputs)} -> {short(self.outputs)}"


@dataclass(frozen=True, slots=True)
class Axis:
    """The mesh axis of a rule: its size, and how earlier axes have split the inputs."""

    parts: int
    ragged: tuple[frozenset[int], ...] = ()  # per input: dims whose sizes differ between ranks
    whole: tuple[tuple[int, ...], ...] = ()  # per input: the logical shape


Rule = Sequence[Signature]
BROADCAST = "all"


@lru_cache(maxsize=256)
def all_broadcast(num_inputs: int, num_outputs: int = 1) -> Signature:
    """The signature that is always legal."""
    return Signature((broadcast,) * num_inputs, (broadcast,) * num_outputs)


@lru_cache(maxsize=4096)
def from_spec(spec: str, linear: str = "") -> tuple[Signature, ...]:
    """The signatures of an einsum-like spec.

    A letter in the output can be split; a letter only in inputs contracts to a partial sum; a
    starred letter must stay whole; inputs that lack a split letter are broadcast. `linear` says
    how partial sums pass: "each" (any one input, the others broadcast), "all" (all inputs
    together), or the positions of inputs which pass alone, as in "0" or "0 1".

    >>> from_spec("m k, k n -> m n", linear="each")
    ((S0, B) -> (S0), (B, S1) -> (S1), (S1, S0) -> (P), (P, B) -> (P), (B, P) -> (P))
    """
    left, right = spec.split("->")
    inputs = [term.split() for term in left.split(",")]
    outputs = [term.split() for term in right.split(",")]
    starred = {word[:-1] for term in inputs + outputs for word in term if word.endswith("*")}
    bare_inputs = [[word.rstrip("*") for word in term] for term in inputs]
    bare_outputs = [[word.rstrip("*") for word in term] for term in outputs]
    letters = dict.fromkeys(word for term in bare_outputs + bare_inputs for word in term)
    found: list[Signature] = []
    for letter in letters:
        if letter in starred:
            continue
        ins = tuple(_split_at(term, letter) for term in bare_inputs)
        outs = tuple(_split_at(term, letter) for term in bare_outputs)
        if all(sbp is broadcast for sbp in outs):
            outs = (partial_sum,) * len(outs)  # contracted
        elif any(sbp is broadcast for sbp in outs):
            continue  # an output without the letter would need a reduction of its own
        found.append(Signature(ins, outs))
    return (*found, *partials(len(inputs), linear, len(outputs)))


def with_bias(rule: Rule, dim: int) -> Rule:
    """`rule` with one more input, a bias along `dim` that is added to the output.

    The bias is split where the output is split along `dim`, and partial where the output is.
    """
    of_bias = {split(dim): split(0), partial_sum: partial_sum}
    return [Signature((*s.inputs, of_bias.get(s.outputs[0], broadcast)), s.outputs) for s in rule]


def _split_at(term: list[str], letter: str) -> Sbp:
    return split(term.index(letter)) if letter in term else broadcast


def partials(num_inputs: int, linear: str, num_outputs: int = 1) -> tuple[Signature, ...]:
    """The signatures by which partial sums pass through a linear op (see `from_spec`)."""
    if not linear:
        return ()
    outs = (partial_sum,) * num_outputs
    if linear == "all":
        return (Signature((partial_sum,) * num_inputs, outs),)
    alone = range(num_inputs) if linear == "each" else [int(word) for word in linear.split()]
    return tuple(
        Signature(tuple(partial_sum if i == j else broadcast for j in range(num_inputs)), outs)
        for i in alone
    )


@lru_cache(maxsize=4096)
def pointwise(
    shapes: tuple[tuple[int, ...], ...],
    linear: str = "",
    num_outputs: int = 1,
    ones: frozenset[int] = frozenset(),
) -> tuple[Signature, ...]:
    """The signatures of an elementwise op on broadcasting inputs of these shapes.

    Each output dim can be split; an input that lacks the dim, or stretches there, is broadcast. Of
    the dims of size 1 those of `ones` are, which are counted from the end.
    """
    ndim = max(map(len, shapes), default=0)
    found: list[Signature] = []
    for dim in range(ndim):
        places = [dim - ndim + len(shape) for shape in shapes]
        sizes = [shape[at] if at >= 0 else 1 for at, shape in zip(places, shapes, strict=True)]
        stretches = any(size != 1 for size in sizes)
        if not stretches and dim - ndim not in ones:
            continue
        ins = tuple(
            broadcast if at < 0 or (size == 1 and stretches) else split(at)
            for at, size in zip(places, sizes, strict=True)
        )
        found.append(Signature(ins, (split(dim),) * num_outputs))
    return (*found, *partials(len(shapes), linear, num_outputs))


def pointwise_of(metas: Iterable[Meta], linear: str = "", num_outputs: int = 1) -> Rule:
    """`pointwise` for inputs of these metas.

    A dim of size 1 stays split where it is, as of a batch of one sample. No other is split, since
    one rank would do all of the work.
    """
    inputs = list(metas)
    shapes = tuple([tuple(meta.shape) for meta in inputs])
    ones = frozenset(
        [
            sbp.dim - meta.ndim
            for meta in inputs
            for sbp in meta.nd_sbp
            if sbp.kind == "S" and meta.shape[sbp.dim] == 1
        ]
    )
    return pointwise(shapes, linear, num_outputs, ones)
