"""Optimizer updates of many tensors in one launch, generated from the rule for an element.

A program finds its block in a pointer table. Numbers that change from step to step are read from
the device in float64. So a captured CUDA graph stays valid and nothing is recompiled.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from inspect import getsource, signature
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ... import adaptive_rules, update_rule_ref as reference, update_rules
from ...update_rule_ref import Numbers, Rule, per_tensor, shared, states_of
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.triton_functions import from_text
from .pointer_table import BLOCK, DTYPES, address_of, numbers_on, table_of, tensor_of, work_of

# Left to torch: complex gradients and parameters.


# What rules may use of torch.


@triton.jit
def _sqrt(x):
    return tl.sqrt(x)


@triton.jit
def _maximum(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _where(condition, x, y):
    return tl.where(condition, x, y)


_TORCH = ModuleType("torch")
vars(_TORCH).update(sqrt=_sqrt, maximum=_maximum, where=_where)


@Kernel
def _update(
    table, factors, rates, scale, found_inf, start: tl.int64,
    UPDATE_BLOCK: tl.constexpr, LISTS: tl.constexpr, DTYPE: tl.constexpr, MAXIMIZE: tl.constexpr,
    SCALED: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if CHECKED:  # noqa: SIM102 - a constant, then what is read
        if tl.load(found_inf) != 0.0:
            return
    WIDE: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    row, at, there, whole = work_of(table, start, LISTS, BLOCK)
    rate = None
    if rates is not None:
        rate = tl.load(rates + tensor_of(table, start)).to(WIDE)
    if whole:
        UPDATE_BLOCK(row, at, None, factors, rate, scale, DTYPE, WIDE, MAXIMIZE, SCALED, ALIGNED)
    else:
        UPDATE_BLOCK(row, at, there, factors, rate, scale, DTYPE, WIDE, MAXIMIZE, SCALED, ALIGNED)


_NAMES = {tl.float16: "float16", tl.bfloat16: "bfloat16"}
_PARAMETERS = (
    "row, at, mask, factors, rate, scale, DTYPE: tl.constexpr, WIDE: tl.constexpr, "
    "MAXIMIZE: tl.constexpr, SCALED: tl.constexpr, ALIGNED: tl.constexpr"
)


@cache
def block_update(
    rule: Rule,
    states: tuple[str, ...],
    numbers: tuple[str, ...],
    flags: tuple[tuple[str, bool], ...] = (),
    decayed: bool = False,
    rated: bool = False,
    copied: tl.dtype | None = None,
) -> Any:
    """The Triton function that updates a block of a tensor by a rule.

    Numbers lie in the given order, behind them weight decay if gradients are `decayed`. With
    `rated` each tensor has a learning rate of its own. `copied` is the dtype of copies of the
    parameters, which are the last list.
    """
    true = [flag for flag, value in flags if value]
    more = [*["decayed"] * decayed, *([] if copied is None else ["copied", str(copied)])]
    name = "_".join(["update", rule.__name__, *states, *true, *more])
    lines = [f"def {name}({_PARAMETERS}):"]
    for number in range(2 + len(states)):
        lines.append(f"    at{number} = address_of(row, {number}, DTYPE, ALIGNED) + at")
        lines.append(f"    x{number} = tl.load(at{number}, mask=mask).to(WIDE)")
    lines += [
        "    if SCALED:",
        "        x1 = x1 * tl.load(scale).to(WIDE)",
        "    if MAXIMIZE:",
        "        x1 = -x1",
    ]
    if decayed:
        lines.append(f"    x1 = x1 + tl.load(factors + {len(numbers)}).to(WIDE) * x0")
    given = dict.fromkeys(signature(rule).parameters, "None")
    given |= {state: f"x{number}" for number, state in enumerate((*list(given)[:2], *states))}
    given |= {each: f"tl.load(factors + {i}).to(WIDE)" for i, each in enumerate(numbers)}
    given |= {flag: str(value) for flag, value in flags}
    if rated:
        given["lr"] = "rate"
    lines.append(f"    found = rule({', '.join(given.values())})")
    function, written = _on_triton(rule, states)
    for number, place in enumerate(written):
        lines.append(f"    tl.store(at{place}, found[{number}].to(DTYPE), mask=mask)")
    if copied is not None:
        lines += [
            f"    there = address_of(row, {2 + len(states)}, tl.{_NAMES[copied]}, ALIGNED) + at",
            f"    tl.store(there, found[0].to(DTYPE).to(tl.{_NAMES[copied]}), mask=mask)",
        ]
    text = "\n".join(lines) + "\n"
    return triton.jit(from_text(text, name, address_of=address_of, rule=function))


def _on_triton(rule: Rule, states: tuple[str, ...]) -> tuple[Any, list[int]]:
    """The same code for Triton with its functions, and which lists are written with what it gives.

    Triton returns no None, so the function gives only what is kept.
    """
    (tree,) = ast.parse(textwrap.dedent(getsource(rule))).body
    assert isinstance(tree, ast.FunctionDef), rule
    last = tree.body[-1]
    assert isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple), rule
    names = [ast.arg(each.arg) for each in (*tree.args.args, *tree.args.kwonlyargs)]
    tree.args = ast.arguments([], names, None, [], [], None, [])
    tree.decorator_list, tree.returns = [], None
    kept, written = [last.value.elts[0]], [0]
    for state, value in zip(states_of(rule), last.value.elts[1:], strict=True):
        if state in states and ast.unparse(value) != "None":
            kept.append(value)
            written.append(2 + states.index(state))
    last.value.elts = kept
    made = from_text(f"{ast.unparse(ast.fix_missing_locations(tree))}\n", tree.name, torch=_TORCH)
    return triton.jit(made), written


def update_by_rule(
    rule: Rule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Mapping[str, Sequence[Tensor]],
    numbers: Numbers,
    *,
    weight_decay: float | None = None,
    maximize: bool = False,
    scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    copies: Sequence[Tensor] | None = None,
    memory: Tensor | None = None,
) -> None:
    dtype = params[0].dtype
    if dtype not in DTYPES:
        reference.update_by_rule(
            rule, params, grads, states, numbers, weight_decay=weight_decay, maximize=maximize,
            scale=scale, found_inf=found_inf, copies=copies, memory=memory,
        )  # fmt: skip
        return
    rates = per_tensor(numbers)
    flags = tuple([(name, x) for name, x in numbers.items() if isinstance(x, bool)])
    names = shared(numbers)
    decay = () if weight_decay is None else (weight_decay,)
    factors = memory
    if factors is None:
        factors = numbers_on(params[0].device, *names.values(), *decay)
    copied = [] if copies is None else [copies]
    table = table_of(params, grads, *states.values(), *copied)
    function = block_update(
        rule,
        tuple(states),
        tuple(names),
        flags,
        bool(decay),
        rates is not None,
        None if copies is None else DTYPES[copies[0].dtype],
    )
    _update.launch(
        (table.programs,),
        (table.data, factors, rates, scale, found_inf, table.start),
        (
            function, 2 + len(states) + len(copied), DTYPES[dtype], maximize, scale is not None,
            found_inf is not None, table.aligned, BLOCK,
        ),
        warps=8,
    )  # fmt: skip


_MOMENTS = ("exp_avg", "exp_avg_sq")
_LARGEST = (*_MOMENTS, "max_exp_avg_sq")
_MEANS = ("square_avg", "grad_avg", "momentum_buffer")
_SGD = update_rules.sgd, _MEANS[2:], ("lr", "momentum", "one_minus_dampening")
_NESTEROV = (("nesterov", True), ("first", False))
_OF_ADAM = ("one_minus_beta1", "beta2", "one_minus_beta2", "bias_correction2_rsqrt", "eps")
_ADAM = ("lr", *_OF_ADAM)
_OF_RMSPROP = ("lr", "alpha", "one_minus_alpha", "eps", "momentum")
_DIRECTION = update_rules.lamb_direction, (*_MOMENTS, "p"), (*_ADAM, "decay")
_MOMENTUM = update_rules.momentum, _MEANS[2:], ("beta", "decay"), (), False, True
_COMMON = ("one_minus_beta1", "beta2", "one_minus_beta2")
_NADAM = ("lr_gradient", "lr_average", *_COMMON, "bias_correction2", "eps")
_RADAM = ("lr", *_COMMON, "rectify", "eps")
_ETAS = ("etaminus", "etaplus", "smallest", "largest")
_SPARSE = ("lr", "one_minus_beta1", "one_minus_beta2", "eps")
_ADAPTIVE = (  # rule, states, numbers, flags, whether weight decay is added to gradients
    (adaptive_rules.adagrad, ("sum",), ("lr", "eps"), (), True),
    (adaptive_rules.adamax, ("exp_avg", "exp_inf"), ("lr", *_COMMON[:2], "eps"), (), True),
    (adaptive_rules.asgd, ("ax",), ("eta", "shrink", "mu"), (("averaging", True),), True),
    (adaptive_rules.nadam, _MOMENTS, _NADAM, (), True),
    (adaptive_rules.radam, _MOMENTS, _RADAM, (("rectified", True),), True),
    (adaptive_rules.rprop, ("prev", "step_size"), _ETAS, (), False),
    (adaptive_rules.sparse_adam, _MOMENTS, _SPARSE, (), False),
)
_MOVE = update_rules.move, (), (), (), False, True

CASES = [
    Case(
        _update,
        ("*i64", "*fp64", "*fp64" if rated else None, "*fp32", "*fp32", "i64?"),
        (
            block_update(rule, states, numbers, flags, decayed, rated),
            2 + len(states), dtype, False, True, True, aligned, BLOCK,
        ),
        warps=8,
    )
    for dtype, aligned, (rule, states, numbers, flags, decayed, rated) in (
        (tl.float32, True, (update_rules.adam, _MOMENTS, _ADAM, (), True, False)),
        (tl.bfloat16, True, (update_rules.adam, _LARGEST, _ADAM, (), True, False)),
        (tl.float32, True, (update_rules.adam, _MOMENTS, (*_ADAM, "decay"), (), False, False)),
        (tl.bfloat16, True, (update_rules.adam, _MOMENTS, (*_ADAM, "decay"), (), False, False)),
        (tl.float32, False, (update_rules.adam, _LARGEST, (*_ADAM, "decay"), (), False, False)),
        (tl.float32, True, (*_SGD, _NESTEROV, True, False)),
        (tl.bfloat16, True, (*_SGD, _NESTEROV, True, False)),
        (
            tl.float32, True,
            (update_rules.rmsprop, _MEANS[:1], _OF_RMSPROP, (("eps_in_root", True),), True, False),
        ),
        (
            tl.bfloat16, True,
            (update_rules.rmsprop, _MEANS, _OF_RMSPROP, (("eps_in_root", False),), True, False),
        ),
        *[(dtype, True, _MOMENTUM) for dtype in (tl.float32, tl.bfloat16)],
        *[(dtype, True, (*_DIRECTION, (), False, False)) for dtype in (tl.float32, tl.bfloat16)],
        *[(dtype, True, _MOVE) for dtype in (tl.float32, tl.bfloat16)],
        *[(tl.float32, True, (*rule, False)) for rule in _ADAPTIVE],
    )
]  # fmt: skip
CASES += [
    Case(
        _update,
        ("*i64", "*fp64", None, "*fp32", "*fp32", "i64?"),
        (
            block_update(rule, states, numbers, flags, decayed, copied=tl.bfloat16),
            3 + len(states), tl.float32, False, True, True, True, BLOCK,
        ),
        warps=8,
    )
    for rule, states, numbers, flags, decayed in (
        (update_rules.adam, _MOMENTS, (*_ADAM, "decay"), (), False),
        (*_SGD, _NESTEROV, True),
        (update_rules.rmsprop, _MEANS, _OF_RMSPROP, (("eps_in_root", False),), True),
        (adaptive_rules.nadam, _MOMENTS, _NADAM, (), True),
    )
]  # fmt: skip
