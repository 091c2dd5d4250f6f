"""Random programs of views and writes to them, as data: for torch, the oracle, and for onefold."""

import torch
from hypothesis import strategies as st

import onefold as flow
from onefold.testing.manual_layouts import make_global
from onefold.testing.strategies import nd_sbps, placements, shapes

UNSURE = ("expand", "unfold")  # torch writes to some such views where onefold raises


class Program:
    """Steps on a pool of tensors, whose first is the base.

    A step is ("view", i, name, args): more tensors; ("write", i, name, args); or ("drop", i).
    """

    def __init__(self, shape, steps):
        self.shape = shape
        self.steps = steps

    def __repr__(self):
        return f"Program({self.shape}, {self.steps})"


def draw_program(choose, shape, length=8, recorded=False):
    """A program that torch can run; `choose` takes a list of choices and returns one of them."""
    steps = []
    base = torch.arange(float(torch.Size(shape).numel()), dtype=torch.float64).reshape(shape)
    pool = [base.requires_grad_() * 1 if recorded else base]
    scale = torch.ones((), dtype=torch.float64, requires_grad=recorded)
    unsure = [False]
    for _ in range(length):
        alive = [i for i, x in enumerate(pool) if x is not None]
        i = choose(alive)
        kind = choose(["view", "view", "write", "write", *["drop"] * (len(alive) > 1)])
        if kind == "view":
            step = ("view", i, *_view(choose, pool[i]))
        elif kind == "write":
            if unsure[i]:
                continue
            step = ("write", i, *_write(choose, pool[i], recorded))
        else:
            step = ("drop", i)
        try:
            _run(step, pool, scale, _torch_tensor)
        except (RuntimeError, IndexError):  # what torch refuses is for tests of its own
            continue
        steps.append(step)
        unsure += [kind == "view" and (unsure[i] or step[2] in UNSURE)] * (len(pool) - len(unsure))
    return Program(shape, steps)


def run(program, base, scale, make, seen=None):
    """The pool of tensors that are left; `seen` hears of all of them after each write."""
    pool = [base]
    for step in program.steps:
        _run(step, pool, scale, make)
        if seen is not None and step[0] == "write":
            seen([x for x in pool if x is not None])
    return [x for x in pool if x is not None]


def _torch_tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def _run(step, pool, scale, make):
    kind, i, *rest = step
    if kind == "drop":
        pool[i] = None
    elif kind == "view":
        name, args = rest
        made = view(pool[i], name, args)
        pool.extend(made if isinstance(made, (tuple, list)) else [made])
    else:
        name, args = rest
        write(pool[i], name, args, scale, make)


def view(x, name, args):
    """One view of `x`, or several."""
    if name == "getitem":
        return x[args]
    if name == "data":
        return x.data
    if name in ("T", "mT"):
        return getattr(x, name)
    if name == "under no_grad":
        with torch.no_grad(), flow.no_grad():
            return view(x, *args)
    return getattr(x, name)(*args)


def write(x, name, args, scale, make):
    """One write to `x`."""
    if name == "setitem":
        index, value = args
        x[index] = value
    elif name == "copy_":
        x.copy_(make(args[0]))
    elif name == "add_ tensor":
        x.add_(make(args[0]))
    elif name == "mul_ scale":
        x.mul_(scale)
    elif name == "copy_ scale":
        x.copy_(make(args[0]) * scale)
    elif name == "under no_grad":
        with torch.no_grad(), flow.no_grad():
            write(x, *args, scale, make)
    else:
        getattr(x, name)(*args)


def _entry(choose, size):
    kind = choose(["int", "slice", "all"]) if size else "all"
    if kind == "int":
        return choose(list(range(-size, size)))
    if kind == "slice":
        start = choose(list(range(size)))
        return slice(start, choose(list(range(start, size + 1))), choose([1, 1, 2]))
    return slice(None)


def _index(choose, x):
    items = [_entry(choose, size) for size in x.shape[: choose(list(range(1, x.ndim + 1)))]]
    if choose([False, False, True]):
        items.insert(choose(list(range(len(items) + 1))), choose([None, ...]))
    return tuple(items)


def _factors(size):
    return [n for n in range(1, size + 1) if size % n == 0]


def _shape(choose, x):
    count = x.numel()
    if not count or choose([True, False]):
        return (-1,) if count else (0,)
    first = choose(_factors(count))
    return first, choose(_factors(count // first)), -1


def _part(choose, size):
    start = choose(list(range(size + 1)))
    return start, choose(list(range(size - start + 1)))


def _rolled(choose, x):
    place = choose(list(range(x.ndim)))
    return (*range(place, x.ndim), *range(place))


# The arguments of each view, drawn for a tensor and one of its dims.
ALWAYS = {
    "reshape": lambda choose, x, dim: _shape(choose, x),
    "flatten": lambda choose, x, dim: (),
    "contiguous": lambda choose, x, dim: (),
    "detach": lambda choose, x, dim: (),
    "data": lambda choose, x, dim: (),
    "squeeze": lambda choose, x, dim: (),
    "unsqueeze": lambda choose, x, dim: (choose(list(range(x.ndim + 1))),),
    "expand": lambda choose, x, dim: (2, *x.shape),
}
WITH_DIMS = {
    "getitem": lambda choose, x, dim: _index(choose, x),
    "select": lambda choose, x, dim: (dim, choose(list(range(max(x.shape[dim], 1))))),
    "narrow": lambda choose, x, dim: (dim, *_part(choose, x.shape[dim])),
    "unbind": lambda choose, x, dim: (dim,),
    "split": lambda choose, x, dim: (choose([1, 2, 3]), dim),
    "chunk": lambda choose, x, dim: (choose([2, 3]), dim),
    "tensor_split": lambda choose, x, dim: (choose([2, 3]), dim),
    "unflatten": lambda choose, x, dim: (dim, (choose(_factors(x.shape[dim]) or [1]), -1)),
    "ravel": lambda choose, x, dim: (),
    "unfold": lambda choose, x, dim: (
        dim, choose(list(range(1, max(x.shape[dim], 1) + 1))), choose([1, 2, 3]),
    ),
    "view": lambda choose, x, dim: _shape(choose, x),
    "transpose": lambda choose, x, dim: (dim, choose(list(range(x.ndim)))),
    "permute": lambda choose, x, dim: _rolled(choose, x),
    "movedim": lambda choose, x, dim: (dim, choose(list(range(x.ndim)))),
}  # fmt: skip
WITH_TWO_DIMS = {
    "diagonal": lambda choose, x, dim: (choose([-1, 0, 1]), dim, (dim + 1) % x.ndim),
    "mT": lambda choose, x, dim: (),
}
MATRIX = {"t": lambda choose, x, dim: (), "T": lambda choose, x, dim: ()}
OFTEN = ["getitem", "getitem", "getitem"]


def _view(choose, x):
    """The name and arguments of a view of `x`, which torch may refuse."""
    views = ALWAYS | (WITH_DIMS if x.ndim else {}) | (WITH_TWO_DIMS if x.ndim > 1 else {})
    views |= MATRIX if x.ndim == 2 else {}
    name = choose([*views, *OFTEN * bool(x.ndim)])
    return name, views[name](choose, x, choose(list(range(x.ndim))) if x.ndim else 0)


def _values(choose, shape):
    count = torch.Size(shape).numel()
    start = choose([-2, 1, 5])
    return (torch.arange(count, dtype=torch.float64) * 3 % 7 + start).reshape(tuple(shape)).tolist()


def _write(choose, x, recorded):
    """The name and arguments of a write to `x`."""
    names = ["add_", "mul_", "fill_", "zero_", "copy_", "add_ tensor", "neg_", "clamp_"]
    if x.ndim:
        names += ["setitem"] * 3
    if recorded:
        names = ["add_", "mul_", "fill_", "mul_ scale", "mul_ scale", "copy_ scale", "add_ tensor"]
        names += ["under no_grad"]
    name = choose(names)
    number = choose([-1.0, 2.0, 3.0])
    if name == "setitem":
        return name, (_index(choose, x), number)
    if name in ("copy_", "add_ tensor", "copy_ scale"):
        return name, (_values(choose, x.shape),)
    if name == "clamp_":
        return name, (-3.0, 4.0)
    if name in ("add_", "mul_", "fill_"):
        return name, (number,)
    if name == "under no_grad":
        return name, ("add_", (number,))
    return name, ()


@st.composite
def cases(draw, recorded=False):
    """A program, with the placement and the layout of its base."""
    shape = draw(shapes(1, 3, 0, 5))
    program = draw_program(lambda choices: draw(st.sampled_from(choices)), shape, 10, recorded)
    placement = draw(placements(max_ranks=4))
    return program, placement, draw(nd_sbps(shape, placement.ndim))


def base_of_case(program, placement, nd_sbp):
    count = torch.Size(program.shape).numel()
    value = torch.arange(float(count), dtype=torch.float64).reshape(program.shape)
    return make_global(value, placement, nd_sbp)


def maker(placement):
    """What makes the tensors of a program there: whole ones on every rank."""
    layout = {"placement": placement, "sbp": [flow.sbp.broadcast] * placement.ndim}
    return lambda values: flow.tensor(values, dtype=flow.float64, **layout)
