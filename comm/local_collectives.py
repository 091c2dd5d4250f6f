"""The collectives of `flow.comm`: checked on all ranks, run, and written into tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..distributed import collectives
from ..distributed.json_values import encode, to_text
from ..distributed.point_to_point import transfer
from ..distributed.world import world
from ..engine.convert import read_device
from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor
from ..engine.values import from_torch
from ..errors import (
    MixedTensorsError,
    OnefoldError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    RankMismatch,
    ShapeError,
    user_line,
)

_Form = tuple[tuple[int, ...], torch.dtype]
_Ranks = Sequence[int] | None

# How two tensors are combined, by the name of the reduction; "mean" divides their sum.
_COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "product": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}


def all_reduce(tensor: Tensor, op: str = "sum", ranks: _Ranks = None) -> None:
    """Write the sum of the ranks' tensors into each of them, or what else `op` names.

    `op` is one of sum, mean, product, max, min, and, or, xor.
    """
    team = _team(ranks)
    _agree("all_reduce", team, lambda: (_form(tensor), _known(op)))
    _write(tensor, _reduced(tensor, op, team))


def reduce(tensor: Tensor, dst: int, op: str = "sum", ranks: _Ranks = None) -> None:
    """Write the sum of the ranks' tensors into that of rank `dst`; others keep theirs."""
    _alone_or_launched("reduce")
    team = _team(ranks)
    _agree("reduce", team, lambda: (_form(tensor), _peer(dst, team), _known(op)))
    total = _reduced(tensor, op, team)
    if team.is_at(dst):
        _write(tensor, total)


def broadcast(tensor: Tensor, src: int, ranks: _Ranks = None) -> None:
    """Write rank `src`'s tensor into those of the others."""
    team = _team(ranks)
    _agree("broadcast", team, lambda: (_form(tensor), _peer(src, team)))
    if world().launched:
        given = _value(tensor)
        mine = given if team.is_at(src) else None
        shape, dtype = _form(tensor)
        got = collectives.broadcast(mine, shape, dtype, given.device, src, team.ranks)
        if mine is None:
            _write(tensor, got)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, ranks: _Ranks = None) -> None:
    """Write the ranks' tensors into `tensor_list`, in the order of the ranks.

    The i-th tensor of the list has the shape and dtype of rank i's; they may differ in shape.
    """
    team = _team(ranks)
    _agree("all_gather", team, lambda: _forms_with(tensor_list, tensor, "tensor_list", team))
    _write_all(tensor_list, _gathered(tensor, [x.shape for x in tensor_list], team))


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, ranks: _Ranks = None
) -> None:
    """Write the ranks' tensors, which are alike, one after the other into `output_tensor`.

    Its shape is the input's with the first dim times the number of ranks, or with that number in
    front, or another of as many elements, in which they are in the same order.
    """
    team = _team(ranks)
    _agree(
        "all_gather_into_tensor", team, lambda: _joined(output_tensor, input_tensor, "output", team)
    )
    parts = _gathered(input_tensor, [input_tensor.shape] * len(team.ranks), team)
    _write(output_tensor, torch.stack(parts).reshape(output_tensor.shape))


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int = 0,
    ranks: _Ranks = None,
) -> None:
    """Write the ranks' tensors, which are alike, into rank `dst`'s `gather_list`.

    Other ranks pass no list.
    """
    team = _team(ranks)

    def check() -> tuple[_Form, int]:
        return _list_there(gather_list, tensor, dst, "gather_list", team), _peer(dst, team)

    _agree("gather", team, check)
    if not world().launched:
        _write_all(gather_list or (), [_value(tensor)] * len(team.ranks))
        return
    given = _value(tensor)
    here = team.ranks if team.is_at(dst) else ()
    froms = [(rank, *_form(tensor), given.device) for rank in here]
    _write_all(gather_list or (), transfer([(dst, given)], froms))


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int = 0,
    ranks: _Ranks = None,
) -> None:
    """Write the i-th tensor of rank `src`'s `scatter_list` into rank i's `tensor`.

    All are alike. Other ranks pass no list.
    """
    _alone_or_launched("scatter")
    team = _team(ranks)

    def check() -> tuple[_Form, int]:
        return _list_there(scatter_list, tensor, src, "scatter_list", team), _peer(src, team)

    _agree("scatter", team, check)
    if not world().launched:
        _write_all([tensor], [_value(x) for x in scatter_list or ()])
        return
    given = _value(tensor)
    parts = scatter_list if scatter_list and team.is_at(src) else ()
    sends = [(rank, _value(x)) for rank, x in zip(team.ranks, parts, strict=False)]
    _write_all([tensor], transfer(sends, [(src, *_form(tensor), given.device)]))


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    ranks: _Ranks = None,
) -> None:
    """Send the i-th input to rank i; what rank i sent here is written into the i-th output."""
    _alone_or_launched("all_to_all")
    team = _team(ranks)

    def check() -> tuple[list[_Form], list[_Form]]:
        outs = _forms(output_tensor_list, "outputs", team)
        return outs, _forms(input_tensor_list, "inputs", team)

    gathered = _meet("all_to_all", team, check)
    for rank, (outs, _) in enumerate(gathered):
        for peer, (_, ins) in enumerate(gathered):
            if outs[peer] != ins[rank]:
                raise RankMismatch(
                    f"all_to_all: rank {team.ranks[peer]} sends {_text(ins[rank])} to rank "
                    f"{team.ranks[rank]}, which expects {_text(outs[peer])} from it; shapes and "
                    "dtypes must be the same"
                )
    _write_all(output_tensor_list, _exchanged(input_tensor_list, output_tensor_list, team))


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: str = "sum", ranks: _Ranks = None
) -> None:
    """Write the sum of the ranks' i-th inputs into rank i's `output`."""
    _alone_or_launched("reduce_scatter")
    team = _team(ranks)

    def check() -> tuple[list[_Form], str]:
        return _forms_with(input_list, output, "input_list", team), _known(op)

    _agree("reduce_scatter", team, check)
    _write(output, _combined(_exchanged(input_list, [output] * len(team.ranks), team), op))


def reduce_scatter_tensor(
    output_tensor: Tensor, input_tensor: Tensor, op: str = "sum", ranks: _Ranks = None
) -> None:
    """Sum the ranks' inputs and write the i-th of equal parts into rank i's `output_tensor`.

    The shape of the input is the output's with the first dim times the number of ranks, or with
    that number in front, or another of as many elements, in the same order.
    """
    _alone_or_launched("reduce_scatter_tensor")
    team = _team(ranks)

    def check() -> tuple[tuple[_Form, _Form], str]:
        return _joined(input_tensor, output_tensor, "input", team), _known(op)

    _agree("reduce_scatter_tensor", team, check)
    count = len(team.ranks)
    sends = list(_value(input_tensor).reshape(count, *output_tensor.shape))
    if world().launched:
        sends = collectives.exchange(sends, [output_tensor.shape] * count, team.ranks)
    _write(output_tensor, _combined(sends, op))


def barrier(ranks: _Ranks = None) -> None:
    """Return when every rank has called this."""
    if world().launched:
        collectives.barrier(_team(ranks).ranks)


def send(input: Tensor, dst: int, send_meta: bool = True) -> None:
    """Send a tensor to rank `dst`, which calls `recv`.

    With `send_meta` its shape and dtype are sent first; without, the other rank must name them.
    """
    given = _value(input)
    _other(dst, "send", "dst")
    if send_meta:
        meta = to_text(encode(_form(input))).encode()
        length = torch.tensor([len(meta)], device="cpu")
        # One by one, as they are received.
        transfer([(dst, length)], [])
        transfer([(dst, torch.frombuffer(bytearray(meta), dtype=torch.uint8))], [])
    transfer([(dst, given)], [])


def recv(
    src: int,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The tensor that rank `src` sends here by `send`, written into `out` if given.

    Give both `shape` and `dtype`, for `send(..., send_meta=False)`, or neither.
    """
    _other(src, "recv", "src")
    if (shape is None) != (dtype is None):
        raise OnefoldValueError(
            f"recv: got shape={shape} and dtype={dtype}; give both, where the other rank calls "
            "send(..., send_meta=False), or neither"
        )
    if out is not None:
        _value(out)
    on = read_device(device) if out is None else out.shards[0].device
    if shape is None or dtype is None:
        (length,) = transfer([], [(src, (1,), torch.int64, torch.device("cpu"))])
        (meta,) = transfer([], [(src, (int(length),), torch.uint8, torch.device("cpu"))])
        shape, dtype = collectives.read_object(meta)
    assert shape is not None
    assert dtype is not None
    (got,) = transfer([], [(src, tuple(shape), dtype, on)])
    if out is None:
        return from_torch(got)
    if _form(out) != (tuple(shape), dtype):
        raise ShapeError(
            f"recv: rank {src} sent {_text((tuple(shape), dtype))}, but out is {_text(_form(out))}"
        )
    _write(out, got)
    return out


# The ranks, and what they agree on.


class _Team(NamedTuple):
    """The ranks of a collective, and which of them this process is."""

    ranks: tuple[int, ...]
    place: int

    def is_at(self, rank: int) -> bool:
        """Whether this process is that rank; one that owns all ranks is rank 0 here."""
        return self.ranks[self.place] == rank


def _team(ranks: _Ranks) -> _Team:
    """The ranks given, or all; OnefoldValueError if this process is not among them."""
    here = world()
    if ranks is None:
        return _Team(tuple(range(here.size)), here.rank or 0)
    given = tuple(ranks)
    own = here.rank if here.launched else given[0] if given else None
    if own not in given or len(set(given)) < len(given) or not set(given) <= {*range(here.size)}:
        raise OnefoldValueError(
            f"got the ranks {list(given)}, but they must be different ones of 0 to "
            f"{here.size - 1}, with rank {here.rank or 0}, which calls this, among them"
        )
    return _Team(given, given.index(own))


def _known(op: str) -> str:
    if op not in _COMBINE:
        raise OnefoldValueError(f"op must be one of {', '.join(_COMBINE)}, but got {op!r}")
    return op


def _meet(what: str, team: _Team, check: Callable[[], Any]) -> list[Any]:
    """What `check` gives on every rank; its error on any of them is raised on all."""
    if not world().launched:
        return [check()] * len(team.ranks)
    facts, problem = None, None
    try:
        facts = check()
    except OnefoldError as error:
        problem = error
    gathered = collectives.gather_objects((what, facts, problem, user_line()), team.ranks)
    for rank, (name, _, found, line) in zip(team.ranks, gathered, strict=True):
        if name != gathered[0][0]:
            raise RankMismatch(
                f"rank {team.ranks[0]} called {gathered[0][0]} at {gathered[0][3]}, but rank "
                f"{rank} {name} at {line}"
            )
        if found is not None:
            raise type(found)(f"{what}: on rank {rank}, at {line}: {found}")
    return [theirs for _, theirs, *_ in gathered]


def _agree(what: str, team: _Team, check: Callable[[], Any]) -> None:
    """Raise RankMismatch on every rank unless `check` gives the same on all."""
    gathered = _meet(what, team, check)
    for rank, theirs in zip(team.ranks, gathered, strict=True):
        if theirs != gathered[0]:
            raise RankMismatch(
                f"{what}: every rank must pass the same shapes, dtypes and ranks, but rank "
                f"{team.ranks[0]} passed {gathered[0]} and rank {rank} {theirs}"
            )


def _alone_or_launched(what: str) -> None:
    if not world().launched and world().size > 1:
        raise OnefoldRuntimeError(
            f"{what}: the result differs from rank to rank, but this process owns all "
            f"{world().size} ranks, and a local tensor is the same on each of them. Use a global "
            "tensor and to_global, or start the program with `python -m "
            "onefold.distributed.launch`"
        )


def _other(rank: int, what: str, name: str) -> None:
    _peer(rank, _team(None))
    if not world().launched or rank == world().rank:
        raise OnefoldRuntimeError(
            f"{what}: {name}={rank} is this process itself; a message goes to another process of "
            "a launched job"
        )


def _peer(rank: object, team: _Team) -> int:
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world().size:
        raise OnefoldValueError(f"got rank {rank!r}, but the job has ranks 0 to {world().size - 1}")
    if rank not in team.ranks:
        raise OnefoldValueError(f"got rank {rank}, which is not one of {list(team.ranks)}")
    return rank


# Tensors: their checks, values and changes.


def _value(x: Tensor) -> torch.Tensor:
    _form(x)
    return x.shards[0].detach()


def _form(x: object) -> _Form:
    if not isinstance(x, Tensor):
        raise OnefoldTypeError(f"got {type(x).__name__}, but tensors must be onefold Tensors")
    if x.is_global:
        raise MixedTensorsError(
            f"got a global tensor, {x.meta!r}, but flow.comm works on local ones: a global tensor "
            "communicates by to_global, and to_local() gives this rank's part"
        )
    return tuple(x.shape), x.dtype


def _text(form: _Form) -> str:
    return f"{str(form[1]).removeprefix('torch.')}{list(form[0])}"


def _forms(tensors: Sequence[Tensor] | Tensor, name: str, team: _Team) -> list[_Form]:
    if isinstance(tensors, Tensor) or len(tensors) != len(team.ranks):
        raise OnefoldValueError(
            f"{name} must be a list of {len(team.ranks)} tensors, one for each rank, but got "
            f"{'a tensor' if isinstance(tensors, Tensor) else len(tensors)}"
        )
    return [_form(x) for x in tensors]


def _forms_with(tensors: Sequence[Tensor], own: Tensor, name: str, team: _Team) -> list[_Form]:
    """The list's shapes and dtypes, of which this rank's is that of its own tensor."""
    forms = _forms(tensors, name, team)
    if forms[team.place] != _form(own):
        raise ShapeError(
            f"{name}[{team.place}] is {_text(forms[team.place])}, but this rank's tensor is "
            f"{_text(_form(own))}"
        )
    return forms


def _list_there(
    tensors: Sequence[Tensor] | None, own: Tensor, there: int, name: str, team: _Team
) -> _Form:
    """The form of the rank's tensor, which the list on rank `there` has in every place."""
    if world().launched and not team.is_at(_peer(there, team)):
        if tensors:
            raise OnefoldValueError(f"{name} is for rank {there}; leave it out on this one")
    elif any(form != _form(own) for form in _forms(tensors or (), name, team)):
        raise ShapeError(f"every tensor of {name} must be like the other one, {_text(_form(own))}")
    return _form(own)


def _joined(whole: Tensor, part: Tensor, name: str, team: _Team) -> tuple[_Form, _Form]:
    """The forms of a tensor that holds one part per rank, and of the part."""
    (shape, dtype), (size, kind) = _form(whole), _form(part)
    count = len(team.ranks)
    allowed = [(count, *size), *([(size[0] * count, *size[1:])] if size else [])]
    if math.prod(shape) != count * math.prod(size) or dtype != kind:
        raise ShapeError(
            f"{name}_tensor is {_text((shape, dtype))}, but for {count} ranks and parts "
            f"{_text((size, kind))} it must have shape {' or '.join(map(str, allowed))}, or "
            "another of as many elements"
        )
    return _form(whole), _form(part)


def _write(x: Tensor, value: torch.Tensor) -> None:
    with no_grad():
        x.copy_(from_torch(value))


def _write_all(tensors: Sequence[Tensor], values: Sequence[torch.Tensor]) -> None:
    for x, value in zip(tensors, values, strict=True):
        _write(x, value)


def _reduced(x: Tensor, op: str, team: _Team) -> torch.Tensor:
    """The values of all ranks, combined."""
    if not world().launched:
        return _combined([_value(x)] * len(team.ranks), op)
    if op in ("sum", "max", "min"):
        return collectives.all_reduce(_value(x), team.ranks, op)
    return _combined(collectives.all_gather(_value(x), team.ranks, [x.shape] * len(team.ranks)), op)


def _combined(values: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    total = functools.reduce(_COMBINE[op], values)
    return total / len(values) if op == "mean" else total


def _gathered(x: Tensor, shapes: Sequence[Sequence[int]], team: _Team) -> list[torch.Tensor]:
    if world().launched:
        return collectives.all_gather(_value(x), team.ranks, shapes)
    return [_value(x)] * len(team.ranks)


def _exchanged(sends: Sequence[Tensor], outs: Sequence[Tensor], team: _Team) -> list[torch.Tensor]:
    values = [_value(x) for x in sends]
    if not world().launched:
        return values
    return collectives.exchange(values, [x.shape for x in outs], team.ranks)
