"""What is kept for backward: the memory that torch's autograd saves, and that of the tape."""

from itertools import product

import torch

from onefold.engine.autograd_tape import Node, Output
from onefold.engine.tensor import Tensor


class Memory(dict):
    """The bytes of each piece of memory, by its address."""

    def add(self, tensor):
        storage = tensor.untyped_storage()
        if storage.nbytes():
            self[storage.data_ptr()] = storage.nbytes()

    @property
    def total(self):
        return sum(self.values())


def kept_by_torch(function):
    """What the function returns, and the memory that torch saves for its gradient."""
    memory, saved = Memory(), []  # a tensor that lives on keeps its address

    def pack(tensor):
        saved.append(tensor)
        memory.add(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = function()
    memory.saved = saved
    return made, memory


def of_torchs_graph(outputs):
    """The tensors that the nodes of torch's graph below these outputs keep."""
    seen, left = set(), [y.grad_fn for y in outputs if y.grad_fn is not None]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                saved = getattr(node, name)
                parts = saved if isinstance(saved, (tuple, list)) else [saved]
                yield from (part for part in parts if isinstance(part, torch.Tensor))
        left += [parent for parent, _ in node.next_functions if parent is not None]


def kept_on_tape(outputs):
    """The memory that the nodes below these tensors keep, also in graphs of torch."""
    memory, seen, left = Memory(), set(), [y.node for y in outputs if y.node is not None]
    while left:
        edge = left.pop()
        if edge in seen:
            continue
        seen.add(edge)
        if isinstance(edge, Output):
            left.append(edge.node)
        if not isinstance(edge, Node):
            continue
        tensors = [shard for x in edge.args if isinstance(x, Tensor) for shard in x.shards]
        if edge.out is not None:
            several = isinstance(edge.meta, tuple)
            parts = [part for part in edge.out if part] if several else [edge.out]
            tensors += [shard for part in parts for shard in part]
        for shard in tensors:
            record = vars(shard).get("record")
            for kept in [shard] if record is None else of_torchs_graph(record.outputs):
                memory.add(kept)
        left += [parent for parent in edge.parents if parent is not None]
    return memory


def choices(values, most=5):
    """The sets of positions of floating tensors, each of which may be what needs gradients.

    Of more than so many tensors each alone, and all together.
    """
    floating = [i for i, x in enumerate(values) if x.is_floating_point() or x.is_complex()]
    if len(floating) > most:
        return [*[{i} for i in floating], set(floating)]
    chosen = product((False, True), repeat=len(floating))
    found = [{i for i, takes in zip(floating, each, strict=True) if takes} for each in chosen]
    return [each for each in found if each]
