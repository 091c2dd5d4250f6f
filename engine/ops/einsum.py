"""einsum, tensordot and inner: each pair of operands is contracted by one op."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod, sqrt
from typing import Any, NamedTuple

from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, ShapeError
from ...kernels import matmul_ref as kernels
from ..argument_types import Dims
from ..dispatcher import binary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs, Op, required
from ..out_tensors import give_to
from ..signature import Axis, Rule, from_spec
from ..tensor import Tensor
from .arithmetic import mul
from .dims import diagonal, permute, squeeze
from .matmul import dot
from .pointwise import conj_of
from .reduce import sum
from .result_shapes import alike, contracted

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ORDERED = "".join(sorted(LETTERS))


class ContractionAttributes(NamedTuple):
    """The equation, of single letters."""

    equation: str


class Contraction(Op):
    """y = the einsum of two operands, each letter of one being in the other or in the output"""

    name = "contraction"
    attributes = ContractionAttributes
    linear = "each"
    saves = ((1,), (0,))

    kernel = staticmethod(kernels.contraction)

    def deduce(self, a: Meta, b: Meta, attrs: ContractionAttributes) -> Meta | None:
        shape = contracted(a.shape, b.shape, attrs.equation) if alike(a, b) else None
        return None if shape is None else a.like(shape)

    def rule(self, axis: Axis, a: Meta, b: Meta, attrs: ContractionAttributes) -> Rule:
        spec = attrs.equation.replace(",", " , ").replace("->", " > ")
        words = " ".join(spec).split()
        return from_spec(" ".join(words).replace(">", "->"), self.linear)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        a, b = map(required, inputs)
        # Exact but for letters in all three terms, which it overrates by the root of their sizes.
        return 2.0 * sqrt(a.numel * b.numel * outputs[0].numel)

    def exact_flops(
        self, inputs: Sequence[Meta | None], outputs: Sequence[Meta], attrs: Sequence[object]
    ) -> float:
        sizes: dict[str, int] = {}
        terms = str(attrs[0]).split("->")[0].split(",")
        for term, meta in zip(terms, inputs, strict=True):
            for letter, size in zip(term, required(meta).shape, strict=True):
                sizes[letter] = size if size != 1 else sizes.get(letter, 1)
        return 2.0 * prod(sizes.values())

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor, attrs: ContractionAttributes
    ) -> Gradients:
        terms, out = attrs.equation.split("->")
        of_a, of_b = terms.split(",")
        da = needs[0] and _contraction(dy, conj_of(b), f"{out},{of_b}->{of_a}")
        return da, needs[1] and _contraction(dy, conj_of(a), f"{out},{of_a}->{of_b}")


_contraction = binary(Contraction())


@lru_cache(maxsize=1024)
def parse(equation: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The letters of each operand and of the output; an ellipsis becomes unused letters.

    >>> parse("...ij,jk", (3, 2))
    (('aij', 'jk'), 'aik')
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise OnefoldValueError(
            f"einsum(): the equation {equation!r} has {len(terms)} operands, but {len(ndims)} "
            "were given"
        )
    used = set(equation) & set(LETTERS)
    spare = [letter for letter in LETTERS if letter not in used]
    counts = [_ellipsis_dims(term, ndim) for term, ndim in zip(terms, ndims, strict=True)]
    most = max(counts)
    hidden = "".join(spare[:most])
    full = []
    for term, count in zip(terms, counts, strict=True):
        full.append(term.replace("...", hidden[most - count :]))
        _check_letters(full[-1])
    if arrow:
        out = right.replace("...", hidden)
        _check_letters(out)
        if len(set(out)) != len(out) or not set(out) <= set("".join(full)):
            raise OnefoldValueError(
                f"einsum(): each letter of the output {right!r} must occur in it once and be in "
                "an operand"
            )
    else:
        every = "".join(full)
        out = hidden + "".join(sorted(x for x in used if every.count(x) == 1))
    return tuple(full), out


def _ellipsis_dims(term: str, ndim: int) -> int:
    if term.count("...") > 1:
        raise OnefoldValueError(f"einsum(): the term {term!r} has more than one ellipsis")
    letters = len(term.replace("...", ""))
    if letters > ndim or ("..." not in term and letters != ndim):
        raise ShapeError(
            f"einsum(): the term {term!r} has {letters} letters, but its operand has {ndim} dims"
        )
    return ndim - letters


def _check_letters(term: str) -> None:
    for letter in term:
        if letter not in LETTERS:
            raise OnefoldValueError(
                f"einsum(): invalid subscript {letter!r}; subscripts are letters of the alphabet"
            )


@register_function
def einsum(equation: str | Tensor, *operands: Tensor | Sequence[Any]) -> Tensor:
    """Sums of products of the operands by an equation, as torch.einsum: "bij,bjk->bik".

    Instead of an equation, numbers may name the dims: `einsum(a, [0, 1], b, [2, 1], [0, 2])`.
    Operands are contracted from left to right. Any letter may be split; one that is summed gives
    partial sums. Raises OnefoldValueError for a malformed equation, ShapeError where sizes differ.

    Example: `einsum("ij,kj->ik", a, b)` is `a @ b.T`.
    """
    if isinstance(equation, Tensor):
        equation, operands = _of_numbers((equation, *operands))
    tensors: list[Tensor] = []
    for operand in operands:
        tensors += operand if isinstance(operand, Sequence) else [operand]
    if not tensors:
        raise OnefoldValueError("einsum(): must provide at least one operand")
    terms, out = parse(equation, tuple([tensor.ndim for tensor in tensors]))
    sizes = _sizes(terms, tensors)
    y, of_y = _prepared(tensors[0], terms[0], set("".join(terms[1:])) | set(out), sizes)
    for i in range(1, len(tensors)):
        later = set("".join(terms[i + 1 :])) | set(out)
        x, of_x = _prepared(tensors[i], terms[i], later | set(of_y), sizes)
        y, of_y = _summed(y, of_y, later | set(of_x))
        kept = "".join(letter for letter in dict.fromkeys(of_y + of_x) if letter in later)
        if i == len(tensors) - 1 and set(kept) == set(out):
            kept = out
        y = _contraction(y, x, f"{of_y},{of_x}->{kept}")
        of_y = kept
    return y if of_y == out else permute(y, tuple(of_y.index(letter) for letter in out))


def _of_numbers(given: tuple[Any, ...]) -> tuple[str, tuple[Tensor, ...]]:
    """The equation and operands of operands that are each followed by the numbers of their dims."""
    count = len(given) - len(given) % 2
    terms = [_letters(numbers) for numbers in given[1:count:2]]
    out = "->" + _letters(given[-1]) if len(given) % 2 else ""
    return ",".join(terms) + out, given[:count:2]


def _letters(numbers: Sequence[Any]) -> str:
    """The letters of the numbers of dims, 0 to 51; an ellipsis stays.

    >>> _letters([0, 27, ...])  # in the order in which letters of an output stand by default
    'Ab...'
    """
    if not isinstance(numbers, (list, tuple)):
        raise OnefoldTypeError(f"einsum(): expected a list of numbers of dims, but got {numbers!r}")
    bad = [x for x in numbers if x is not ... and not (type(x) is int and 0 <= x < len(LETTERS))]
    if bad:
        raise OnefoldValueError(
            f"einsum(): numbers of dims are integers in [0, {len(LETTERS)}), but got {bad[0]!r}"
        )
    return "".join("..." if x is ... else _ORDERED[x] for x in numbers)


def _sizes(terms: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, int]:
    """The size of each letter; dims of size 1 stretch to it."""
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        for letter, size in zip(term, tensor.shape, strict=True):
            if sizes.setdefault(letter, size) == 1:
                sizes[letter] = size
            elif size not in (1, sizes[letter]):
                raise ShapeError(
                    f"einsum(): letter {letter!r} has size {sizes[letter]} in one place and "
                    f"{size} in another"
                )
    return sizes


def _prepared(x: Tensor, term: str, needed: set[str], sizes: dict[str, int]) -> tuple[Tensor, str]:
    """`x` with repeated letters turned to diagonals, stretched dims dropped, unneeded summed."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(
                    f"einsum(): letter {letter!r} is repeated in a term, whose operand has sizes "
                    f"{x.shape[first]} and {x.shape[second]} there"
                )
            x = diagonal(x, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    stretched = [i for i, letter in enumerate(term) if x.shape[i] == 1 and sizes[letter] != 1]
    for i in reversed(stretched):
        x = squeeze(x, i)
        term = term[:i] + term[i + 1 :]
    return _summed(x, term, needed)


def _summed(x: Tensor, term: str, needed: set[str]) -> tuple[Tensor, str]:
    extra = tuple(i for i, letter in enumerate(term) if letter not in needed)
    if not extra:
        return x, term
    return sum(x, extra), "".join(letter for letter in term if letter in needed)


@register_function
def tensordot(
    a: Tensor, b: Tensor, dims: int | Sequence[Dims] = 2, *, out: Tensor | None = None
) -> Tensor:
    """Sum the products of a and b over `dims`: a count (last of a, first of b) or two lists.

    Raises ShapeError when the contracted dims differ.

    Example: `tensordot(a, b, 1)` of matrices is `a @ b`.
    """
    if out is not None:
        return give_to(out, tensordot(a, b, dims))
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise OnefoldRuntimeError(
                f"tensordot expects dims from 0 to {min(a.ndim, b.ndim)} for tensors of {a.ndim} "
                f"and {b.ndim} dims, but got dims={dims}"
            )
        of_a = list(range(a.ndim - dims, a.ndim))
        of_b = list(range(dims))
    else:
        of_a, of_b = [[d] if isinstance(d, int) else list(d) for d in dims]
    if len(of_a) != len(of_b):
        raise ShapeError(f"both dimension lists should have same length, but got {of_a} and {of_b}")
    left = list(LETTERS[: a.ndim])
    right = list(LETTERS[a.ndim : a.ndim + b.ndim])
    for i, j in zip(of_a, of_b, strict=True):
        right[j] = left[i]
    if a.ndim == b.ndim == len(of_a) == 1:
        return dot(a, b)  # whose dtype under autocast is another than that of a matrix product
    summed = {left[i] for i in of_a}
    kept = "".join(letter for letter in left + right if letter not in summed)
    return einsum(f"{''.join(left)},{''.join(right)}->{kept}", a, b)


@register_function
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of products over the last dim of both, for all pairs of the other dims.

    Example: `inner(a, b)` with a (2, 3) and b (4, 3) has shape (2, 4).
    """
    if out is not None:
        return give_to(out, inner(input, other))
    if input.ndim == 0 or other.ndim == 0:
        return mul(input, other)
    return tensordot(input, other, ([-1], [-1]))


@register_function
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The dot product of two vectors, the first of them conjugated.

    Example: `vdot(x, x)` is the squared length of x.
    """
    if out is not None:
        return give_to(out, vdot(input, other))
    return dot(conj_of(input), other)
