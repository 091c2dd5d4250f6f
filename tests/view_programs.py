"""Random programs of views and writes to them, as data: for torch, the oracle, and for onefold."""

import torch

import onefold as flow

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
        except RuntimeError:  # what torch refuses is for tests of its own
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


def _view(choose, x):
    """The name and arguments of a view of `x`."""
    names = ["reshape", "flatten", "contiguous", "detach", "data", "unsqueeze", "squeeze", "expand"]
    if x.ndim:
        names += ["getitem"] * 4 + ["select", "narrow", "unbind", "split", "chunk", "tensor_split"]
        names += ["unflatten", "ravel", "unfold", "view", "transpose"]
    if x.ndim > 1:
        names += ["transpose", "permute", "movedim", "diagonal", "mT"]
    if x.ndim == 2:
        names += ["t", "T"]
    name = choose(names)
    dim = choose(list(range(x.ndim))) if x.ndim else 0
    size = x.shape[dim] if x.ndim else 1
    if name == "getitem":
        return name, _index(choose, x)
    if name in ("reshape", "view"):
        count = x.numel()
        if not count or choose([True, False]):
            return name, (-1,) if count else (0,)
        first = choose(_factors(count))
        return name, (first, choose(_factors(count // first)), -1)
    if name == "flatten":
        return name, ()
    if name == "unsqueeze":
        return name, (choose(list(range(x.ndim + 1))),)
    if name == "expand":
        return name, (2, *x.shape)
    if name == "select":
        return ("select", (dim, choose(list(range(size))))) if size else ("detach", ())
    if name == "narrow":
        start = choose(list(range(size + 1)))
        return name, (dim, start, choose(list(range(size - start + 1))))
    if name == "unbind":
        return name, (dim,)
    if name == "split":
        return name, (choose([1, 2, 3]), dim)
    if name in ("chunk", "tensor_split"):
        return name, (choose([2, 3]), dim)
    if name == "unflatten":
        return name, (dim, (choose(_factors(size)), -1)) if size else (dim, (1, 0))
    if name == "unfold":
        window = choose(list(range(1, size + 1))) if size else 0
        return (name, (dim, window, choose([1, 2]))) if size else ("detach", ())
    if name == "transpose":
        return name, (dim, choose(list(range(x.ndim))))
    if name == "permute":
        order = list(range(x.ndim))
        place = choose(order)
        return name, tuple(order[place:] + order[:place])
    if name == "movedim":
        return name, (dim, choose(list(range(x.ndim))))
    if name == "diagonal":
        return name, (choose([-1, 0, 1]), *((0, 1) if x.ndim == 2 else (dim, (dim + 1) % x.ndim)))
    return name, ()


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
