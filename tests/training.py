"""Training in step with torch: the same parameters and gradients, for each optimizer and layout."""

import numpy as np
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

STEPS = 20
SHAPES = [(5, 4), (7,), (), (3, 2, 2), (0, 3)]
SCALAR = 2  # the shape that cannot be split
# Name: (ranks, layout of the parameters, layout of the gradients)
LAYOUTS = {
    "local": (None, "", ""),
    "broadcast": ([0, 1], "(B)", "(P)"),
    "split": ([0, 1, 2], "(S0)", "(S0)"),
    "split, gradients partial": ([2, 0, 1], "(S0)", "(P)"),
    "partial": ([0, 1], "(P)", "(B)"),
    "partial, gradients too": ([0, 1], "(P)", "(P)"),
    "mesh": ([[0, 3], [1, 2]], "(S0, B)", "(P, P)"),
    "nested": ([[0, 1], [2, 3]], "(S0, S0)", "(B, S0)"),
}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def _values(seed, dtype, shapes=SHAPES):
    random = np.random.default_rng(seed)
    return [torch.from_numpy(np.asarray(random.standard_normal(s))).to(dtype) for s in shapes]


def _laid(value, layout, text, seed=0):
    ranks = LAYOUTS[layout][0]
    if ranks is None:
        return make_local(value.clone())
    nd_sbp = parse(text)
    if value.ndim == 0:
        nd_sbp = tuple(flow.sbp.broadcast if sbp.is_split else sbp for sbp in nd_sbp)
    return make_global(value, flow.placement("cpu", ranks), nd_sbp, seed)


def parameters(layout, dtype=torch.float32, shapes=SHAPES):
    """Fresh parameters in a layout, always of the same values."""
    sbp = LAYOUTS[layout][1]
    return [flow.nn.Parameter(_laid(v, layout, sbp)) for v in _values(0, dtype, shapes)]


def gradients(step, layout, params):
    """The gradients of a step, in a layout that they might have after backward."""
    values = _values(100 + step, params[0].dtype, [tuple(param.shape) for param in params])
    return [_laid(v, layout, LAYOUTS[layout][2], step) for v in values]


def assert_same_training(name, options, layout, dtype, shapes=SHAPES):
    """Onefold's optimizer and torch's agree after each of 20 steps on some parameters.

    One parameter gets no gradient in every third step.
    """
    params = parameters(layout, dtype, shapes)
    theirs = [v.clone().requires_grad_() for v in _values(0, dtype, shapes)]
    ours_optimizer = getattr(flow.optim, name)(params, **options)
    optimizer = getattr(torch.optim, name)(theirs, **options)
    metas = [param.meta for param in params]
    tol = TOLERANCE[dtype]
    for step in range(STEPS):
        grads = gradients(step, layout, params)
        values = _values(100 + step, dtype, shapes)
        for i, param in enumerate(params):
            skipped = i == 1 and step % 3 == 0
            param.grad = None if skipped else grads[i]
            theirs[i].grad = None if skipped else values[i]
        ours_optimizer.step()
        optimizer.step()
        for i, param in enumerate(params):
            assert param.meta is metas[i] and param.is_leaf
            assert param.grad is None or param.grad.meta is param.meta
            found = value_of(param.detach())
            torch.testing.assert_close(
                found,
                theirs[i].detach(),
                rtol=tol,
                atol=tol,
                msg=lambda m, i=i, step=step: f"parameter {i} after step {step}: {m}",
            )


def assert_formula(formula, name, options, layout, dtype):
    """The optimizer does in ten steps what the formula says, in float64, of whole tensors."""
    more = {"eps_in_root": True} if name == "RMSprop" else {}
    params = parameters(layout, dtype)
    params[1].data = flow.zeros_like(params[1].detach())  # a norm of 0 has a rule of its own
    metas = [param.meta for param in params]
    optimizer = getattr(flow.optim, name)(params, **options, **more)
    wanted = [value_of(param.detach()).double() for param in params]
    kept = [{} for _ in params]
    for step in range(10):
        for i, grad in enumerate(gradients(step, layout, params)):
            params[i].grad = None if i == 3 and step % 3 == 0 else grad
            if params[i].grad is not None:
                g = value_of(grad).double()
                wanted[i] = formula(wanted[i], g, kept[i], **options)
        optimizer.step()
        for i, param in enumerate(params):
            found = value_of(param.detach()).double()
            tol = 20 * TOLERANCE[dtype]
            torch.testing.assert_close(found, wanted[i], rtol=tol, atol=tol)
            assert param.meta is metas[i]
