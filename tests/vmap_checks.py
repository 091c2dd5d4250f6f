"""Compares a function that vmap calls once for all rows with one that it calls for each row."""

from unittest import mock

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

import onefold as flow
from onefold.func.batching import Rows
from onefold.testing.sample_checks import cotangent, difference
from onefold.testing.samples import Random


def by_rows():
    """A block in which vmap calls functions for each row."""
    return mock.patch.object(Rows, "in_chunks", return_value=None)


class Calls:
    """A block that records how vmap calls functions."""

    def __enter__(self):
        self.refusals, self.looped = [], set()
        at_once = Rows.at_once

        def call(rows, out_dims):
            found = at_once(rows, out_dims)
            if found is None:
                self.refusals.append(rows.batching.refusal or "an error")
            self.looped.update(rows.batching.looped)
            return found

        self._patch = mock.patch.object(Rows, "at_once", call)
        self._patch.start()
        return self

    def __exit__(self, *exc):
        self._patch.stop()


ROWS = 3


def rows_of(sample):
    """For each tensor of a sample, its values for several rows."""
    tensors = [
        leaf
        for leaf in tree_leaves((sample.args, sample.kwargs))
        if isinstance(leaf, Random | torch.Tensor)
    ]
    return [
        torch.stack(
            [
                leaf.draw(np.random.default_rng([sample.seed, place, row]))
                if isinstance(leaf, Random)
                else leaf.clone()
                for row in range(ROWS)
            ]
        )
        for place, leaf in enumerate(tensors)
    ]


def mixes(count):
    """in_dims for so many tensors: all have rows, or the first, or all but the first."""
    found = [(0,) * count]
    if count > 1:
        found += [(0, *(None,) * (count - 1)), (None, *(0,) * (count - 1))]
    return found


def function_of(sample, inner):
    """The sample as a function of its tensors; with `inner` also the gradients for them."""

    def call(*tensors):
        if not inner:
            return tuple(sample.run(list(tensors)))
        floats = [i for i, x in enumerate(tensors) if x.meta.is_floating]

        def of_floats(*given):
            filled = list(tensors)
            for i, x in zip(floats, given, strict=True):
                filled[i] = x
            return tuple([y for y in sample.run(filled) if y.meta.is_floating])

        made, pull = flow.func.vjp(of_floats, *[tensors[i] for i in floats])
        seeds = [
            flow.tensor(cotangent(y.shape, y.dtype, sample.seed + i)) for i, y in enumerate(made)
        ]
        return (*made, *pull(tuple(seeds)))

    return call


def results(sample, values, in_dims, inner):
    """The results of a sample for rows, and the gradients of what has any, as torch tensors."""
    args = [
        flow.tensor(value if dim is not None else value[0])
        for value, dim in zip(values, in_dims, strict=True)
    ]
    leaves = [x for x in args if sample.grad and not inner and x.meta.is_floating]
    for x in leaves:
        x.requires_grad_()
    made = flow.vmap(function_of(sample, inner), in_dims)(*args)
    ends = [(i, y) for i, y in enumerate(made) if y.requires_grad]
    found = [y.detach().to_torch() for y in made]
    if leaves and ends:
        seeds = [flow.tensor(cotangent(y.shape, y.dtype, sample.seed + i)) for i, y in ends]
        grads = flow.autograd.grad([y for _, y in ends], leaves, seeds, allow_unused=True)
        found += [None if g is None else g.to_torch() for g in grads]
    return found


def differences(sample, in_dims, inner):
    """In what the results of one call and of a call for each row differ, or ""; and the calls."""
    values = rows_of(sample)
    with by_rows():
        try:
            wanted = results(sample, values, in_dims, inner)
        except (RuntimeError, ValueError):
            return "", None  # rows of different shapes, or without a gradient
    with Calls() as calls:
        found = results(sample, values, in_dims, inner)
    texts = [
        difference(
            one,
            other,
            max(sample.tol, 1e-6 if one is not None and one.dtype is torch.float32 else 1e-9),
        )
        for one, other in zip(found, wanted, strict=True)
    ]
    return "; ".join(filter(None, texts)), calls


def close(found, wanted):
    """Assert that pytrees of tensors, of torch or of onefold, are close."""
    found, wanted = tree_leaves(found), tree_leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), 1e-6, 1e-9)
