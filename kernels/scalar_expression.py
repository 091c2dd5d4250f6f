"""Scalar expressions: what an elementwise kernel does to each element, written once.

A torch function is the kernel on the CPU; `declare` says which Triton function does the same to one
element. A function that is an expression of others is written in Python, and both sides come from
its code: torch runs it with torch's functions, and `Source` is its text for Triton.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch

Function = Callable[..., object]
F = TypeVar("F", bound=Function)
Adapted = tuple[str, Sequence[Any]]  # a Triton function and its arguments: tensors and numbers
Adapt = Callable[..., Adapted]  # from the arguments of the torch function

UNSUPPORTED: Adapted = ("", ())  # Triton has no such function: torch does the work

_ADAPT: dict[Function, Adapt] = {}  # by the torch function
_TRITON: dict[Function, str] = {}  # of torch functions that need no adaptation
_TORCH: dict[str, Function] = {}  # the torch functions of expressions
_WRITTEN: dict[str, Function] = {}  # the expressions


class Source(NamedTuple):
    """A Triton function as text: its body uses other Triton functions by name.

    `takes` has a letter per argument, see `gpu/pointwise/triton_functions.py`.
    """

    parameters: tuple[str, ...]
    body: str
    takes: str


def declare(torchs: Function, triton: str | Adapt) -> None:
    """Say what computes a torch function in Triton: a function with the same arguments, or `Adapt`.

    Functions that torch and Triton have under one name need no declaration.
    """
    if isinstance(triton, str):
        _TRITON[torchs] = triton
        _ADAPT[torchs] = lambda *args: (triton, args)
    else:
        _ADAPT[torchs] = triton


def on_triton(triton: str | Adapt) -> Callable[[F], F]:
    """`declare`, as a decorator of a torch function."""

    def declared(torchs: F) -> F:
        declare(torchs, triton)
        return torchs

    return declared


def is_declared(torchs: Function) -> bool:
    """Whether something was declared of a function."""
    return torchs in _ADAPT


def adapt_of(torchs: Function) -> Adapt | None:
    """What was declared; for a function of the namespace `torch`, the Triton function's name."""
    found = _ADAPT.get(torchs)
    name = getattr(torchs, "__name__", "")
    if found is None and getattr(torch, name, None) is torchs:
        return lambda *args: (name, args)
    return found


def expression(
    torchs: Function | None = None, *, name: str = "", triton: Adapt | None = None
) -> Callable[[Function], Function]:
    """The torch function of an expression: a Python function of elements and numbers (a decorator).

    Its statements are assignments and one return; there are + - * /, comparisons, & | ~, and calls
    of elementwise functions. The dtype is what torch gives. Triton computes in this dtype, in
    float32 for narrower ones, and what is true or false in the common dtype of the arguments.

    `torchs` is torch's own function for the expression, where there is one, and `triton` says when
    Triton does something else. `name` is the Triton function's, by default that of the Python
    function without a leading underscore.
    """

    def made(function: Function) -> Function:
        called = name or function.__name__.removeprefix("_")
        found = torchs or _as_torch(function)
        if isinstance(found, FunctionType):
            found.__name__ = called
        _WRITTEN[called] = function
        declare(found, triton or called)
        _TORCH[called] = found
        return found

    return made


def _as_torch(function: Function) -> Function:
    """The same code, in which the names of ops are torch's functions."""
    assert isinstance(function, FunctionType)
    scope = function.__globals__
    ops = {name: getattr(scope.get(name), "__name__", "") for name in function.__code__.co_names}
    found = {name: torchs for name, op in ops.items() if (torchs := torch_named(op)) is not None}
    scope = {**scope, **found}
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    return made


def torch_named(name: str) -> Function | None:
    """The torch function of an op, by the op's name: torch's own, or that of an expression."""
    found: Function | None = getattr(torch, name or "no name", None)
    return found if callable(found) else _TORCH.get(name)


def triton_names() -> set[str]:
    """The Triton functions that were declared by name."""
    return {*_TRITON.values(), *_WRITTEN}


@cache
def source_of(name: str) -> Source | None:
    """The Triton text of an expression; None where no expression has the name.

    Raises ValueError for what expressions cannot hold.
    """
    function = _WRITTEN.get(name)
    if function is None:
        return None
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef), f"{name} is no function made by def"
    assert tree.name == function.__name__, f"the file of {name} has changed since it was imported"
    parameters = tuple([argument.arg for argument in (*tree.args.args, *tree.args.kwonlyargs)])
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    to_triton = _ToTriton(name, parameters, function.__globals__)
    lines = [ast.unparse(to_triton.visit(line)) for line in body]
    takes = ("c" if _is_true_or_false(tree.body[-1]) else "r") * len(parameters)
    return Source(parameters, "\n".join(lines), takes)


def _is_true_or_false(line: ast.stmt) -> bool:
    value = line.value if isinstance(line, ast.Return) else None
    return isinstance(value, ast.Compare) or (
        (isinstance(value, ast.BinOp) and isinstance(value.op, (ast.BitAnd, ast.BitOr)))
        or (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Invert))
    )


class _ToTriton(ast.NodeTransformer):
    """Python statements of tensors as statements of Triton."""

    def __init__(self, name: str, parameters: Sequence[str], scope: dict[str, object]) -> None:
        self.name = name
        self.known = set(parameters)  # and what is assigned
        self.scope = scope

    def _refuse(self, node: ast.AST) -> NoReturn:
        raise ValueError(
            f"{self.name}: `{ast.unparse(node)}` cannot be in an expression; there are "
            "assignments and one return, + - * /, comparisons, & | ~, and calls of "
            "elementwise functions"
        )

    def visit(self, node: ast.AST) -> Any:
        if not all(isinstance(part, _ALLOWED) for part in (node, getattr(node, "op", node))):
            self._refuse(node)
        if isinstance(node, ast.expr) and not self._depends(node):
            return ast.Constant(self._number(node))
        return super().visit(node)

    def _depends(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Name) and n.id in self.known for n in ast.walk(node))

    def _number(self, node: ast.expr) -> float | int:
        value = eval(compile(ast.Expression(node), self.name, "eval"), self.scope)
        if not isinstance(value, (int, float)):
            self._refuse(node)
        return value

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        (target,) = node.targets
        if not isinstance(target, ast.Name):
            self._refuse(node)
        node.value = self.visit(node.value)
        self.known.add(target.id)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Triton's own division is not exact; numbers are divided as torch does."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        divide = "div"
        if isinstance(node.left, ast.Constant):
            divide = "number_div"
        elif isinstance(node.right, ast.Constant):
            divide = "div_number"
        return ast.Call(ast.Name(divide), [node.left, node.right], [])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Triton's own minus loses the sign of zeros."""
        self.generic_visit(node)
        minus = isinstance(node.op, ast.USub)
        return ast.Call(ast.Name("neg"), [node.operand], []) if minus else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) != 1:
            self._refuse(node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called, given = node.func, list(node.args)
        if isinstance(called, ast.Name):
            name = getattr(self.scope.get(called.id), "__name__", called.id)
        elif isinstance(called, ast.Attribute):  # torch.exp(x) or x.exp()
            name = called.attr
            if self._depends(called.value):
                given.insert(0, called.value)
        if node.keywords or not isinstance(called, (ast.Name, ast.Attribute)):
            self._refuse(node)
        torchs = torch_named(name)
        name = "tl.where" if name == "where" else _TRITON.get(torchs, name) if torchs else name
        return ast.Call(ast.Name(name), [self.visit(argument) for argument in given], [])


_ALLOWED = (
    ast.Assign, ast.Return, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr,
    ast.UnaryOp, ast.USub, ast.Invert, ast.Compare, ast.cmpop, ast.Call, ast.Attribute, ast.Name,
    ast.Constant, ast.expr_context,
)  # fmt: skip
