"""Byte pair encoding: tokens for the pieces of text that are frequent, learned from the text.

The first 256 tokens are the bytes. Every further token stands for the pair of tokens that was
the most frequent when it was added. Source: Sennrich et al., "Neural machine translation of rare
words with subword units" (2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

Tokens: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int32]]"
Pair: TypeAlias = tuple[int, int]

BYTES = 256
END = 0  # ends a file; no text has this byte, and no pair contains it


def learn(text: bytes, size: int) -> list[Pair]:
    """The pairs of a vocabulary of `size` tokens, in the order in which they were added."""
    tokens = of_bytes(text)
    pairs: list[Pair] = []
    for new in range(BYTES, size):
        left, right = tokens[:-1], tokens[1:]
        inside = (left != END) & (right != END)
        counts = np.bincount((left * size + right)[inside], minlength=1)
        if counts.max() < 2:
            break  # nothing is repeated
        first, second = divmod(int(counts.argmax()), size)
        pairs.append((first, second))
        tokens = merged(tokens, pairs[-1], new)
    return pairs


def encode(text: bytes, pairs: Sequence[Pair]) -> Tokens:
    """The tokens of a text; the pairs are merged in the order in which they were learned."""
    tokens = of_bytes(text)
    for new, pair in enumerate(pairs, BYTES):
        tokens = merged(tokens, pair, new)
    return tokens


def decode(tokens: Iterable[int], pairs: Sequence[Pair]) -> bytes:
    """The text of tokens."""
    known = [bytes([byte]) for byte in range(BYTES)]
    for first, second in pairs:
        known.append(known[first] + known[second])
    return b"".join(known[token] for token in tokens)


def of_bytes(text: bytes) -> Tokens:
    return np.frombuffer(text, dtype=np.uint8).astype(np.int32)


def merged(tokens: Tokens, pair: Pair, new: int) -> Tokens:
    """The tokens with `new` in every place of the pair, from left to right."""
    first, second = pair
    at = np.flatnonzero((tokens[:-1] == first) & (tokens[1:] == second))
    if first == second:
        at = every_other(at)
    keep = np.ones(len(tokens), dtype=bool)
    keep[at + 1] = False
    found = tokens.copy()
    found[at] = new
    return found[keep]


def every_other(at: np.ndarray) -> np.ndarray:
    """The 1st, 3rd, ... place of each run of places: in "aaa" two pairs of "aa" overlap."""
    index = np.arange(len(at))
    begins = np.diff(at, prepend=-2) != 1
    first = np.maximum.accumulate(np.where(begins, index, 0))
    return at[(index - first) % 2 == 0]
