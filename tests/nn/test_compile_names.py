"""What a compiled function finds behind names: changes between calls count as in eager mode."""

import sys
from collections import UserDict, deque
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import onefold as flow
from onefold import nn

settings = ModuleType("settings")  # a module of the user's
settings.scale, settings.table = 1.0, {"shift": 1.0}


def shifted(x):
    return x + settings.table["shift"]


settings.shifted = shifted


class Options:
    scale = 1.0


class Net(nn.Module):
    offset = 0.0

    def __init__(self):
        super().__init__()
        self.config = {"scale": 1.0, "on": True, "nested": [1.0, {"power": 2}]}
        self.tensors = [flow.ones(3), flow.ones(3)]
        self.options = SimpleNamespace(scale=1.0, inner=SimpleNamespace(shift=0.0))

    def forward(self, x):
        y = x * self.config["scale"] ** self.config["nested"][1]["power"] + self.tensors[0]
        if self.config["on"]:
            y = y * self.tensors[1]
        y = y * self.options.scale + self.options.inner.shift
        return settings.shifted(y * settings.scale * Options.scale + self.offset)


CHANGES = {
    "a number in a dict": lambda net: net.config.update(scale=3.0),
    "a branch": lambda net: net.config.update(on=False),
    "deep in containers": lambda net: net.config["nested"][1].update(power=3),
    "a tensor in a list": lambda net: net.tensors.__setitem__(0, flow.ones(3) * 5),
    "a tensor in place": lambda net: net.tensors[1].mul_(4),
    "an object's attribute": lambda net: setattr(net.options, "scale", 2.0),
    "an object in an object": lambda net: setattr(net.options.inner, "shift", 2.0),
    "another object": lambda net: setattr(net, "options", SimpleNamespace(**vars(net.options))),
    "an attribute of the class": lambda net: setattr(Net, "offset", Net.offset + 1),
    "an attribute of another class": lambda net: setattr(Options, "scale", Options.scale + 1),
    "a module's number": lambda net: setattr(settings, "scale", settings.scale + 1),
    "what a module's function reads": lambda net: settings.table.update(shift=5.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("of_module", [True, False])
def test_changes_between_calls(change, of_module, world):
    net = Net()
    net.config["scale"] = 2.0
    compiled = flow.compile(net) if of_module else flow.compile(lambda x: net(x) * 2)
    factor = 1 if of_module else 2
    x = flow.arange(3).float()
    for _ in range(2):
        assert compiled(x).tolist() == (net(x) * factor).tolist()
    CHANGES[change](net)
    for _ in range(2):
        assert compiled(x).tolist() == (net(x) * factor).tolist()


HELD = {
    "set": ({1}, lambda held: 2.0 if 1 in held else 3.0, lambda held: held.clear()),
    "deque": (deque([2.0]), lambda held: held[0], lambda held: held.append(held.popleft() + 1)),
    "bytearray": (bytearray(b"a"), lambda held: float(held[0]), lambda held: held.reverse()),
    "array": (np.array([2.0]), lambda held: float(held[0]), lambda held: held.fill(3)),
    "tensor of torch": (torch.ones(2), lambda held: float(held[0]), lambda held: held.fill_(3)),
}


class Holding(nn.Module):
    def __init__(self, held, read):
        super().__init__()
        self.held, self.read = held, read

    def forward(self, x):
        return x * self.read(self.held)


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("where", ["attribute", "closure", "list"])
def test_containers_and_arrays_that_change_in_place(kind, where, world):
    held, read, change = HELD[kind]
    held = type(held)(held) if kind in ("set", "deque", "bytearray") else held * 1
    if kind == "bytearray":
        held += b"b"
    net = Holding([held], lambda x: read(x[0])) if where == "list" else Holding(held, read)
    function = (lambda x: x * read(held)) if where == "closure" else net
    compiled = flow.compile(function)
    x = flow.ones(2)
    for _ in range(2):
        assert compiled(x).tolist() == function(x).tolist()
    before = function(x).tolist()
    change(held)
    assert function(x).tolist() != before
    for _ in range(2):
        assert compiled(x).tolist() == function(x).tolist()


class Scale:
    """An object that is called, with an attribute behind a property."""

    base = 1.0

    def __init__(self):
        self._factor = 1.0

    @property
    def factor(self):
        return self._factor

    @classmethod
    def common(cls):
        return cls.base

    def __call__(self, x):
        return x * self.factor * self.common()


@dataclass(slots=True)
class Slotted:
    shift: float = 0.0


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self._gain = 1.0
        self.scale = Scale()
        self.slotted = Slotted()
        self.table = UserDict(shift=0.0)
        self.list = [Slotted()]
        self.number = 2.0
        self.function = self.added

    def added(self, x):
        return x + self.number

    def forward(self, x):
        y = self.scale(x * self._gain) + self.slotted.shift + self.table["shift"]
        return self.function(y) + self.list[0].shift


READ = {
    "a private attribute": lambda net: setattr(net, "_gain", 3.0),
    "behind a property": lambda net: setattr(net.scale, "_factor", 3.0),
    "of the class of an object": lambda net: setattr(Scale, "base", Scale.base + 1),
    "in slots": lambda net: setattr(net.slotted, "shift", 3.0),
    "in slots of an item": lambda net: setattr(net.list[0], "shift", 3.0),
    "in a wrapped dict": lambda net: net.table.update(shift=3.0),
    "by a method that is an attribute": lambda net: setattr(net, "number", 3.0),
}


@pytest.mark.parametrize("change", READ)
@pytest.mark.parametrize("of_module", [True, False])
def test_attributes_behind_objects(change, of_module, world):
    net = Reading()
    function = net if of_module else (lambda x: net(x) * 2)
    compiled = flow.compile(function)
    x = flow.ones(3)
    before = function(x).tolist()
    assert compiled(x).tolist() == before
    READ[change](net)
    assert function(x).tolist() != before
    for _ in range(2):
        assert compiled(x).tolist() == function(x).tolist()


def test_an_object_of_a_global_name(world):
    scale = Scale()
    compiled = flow.compile(lambda x: scale(x))  # noqa: PLW0108 (which finds it in a cell)
    x = flow.ones(3)
    assert compiled(x).tolist() == scale(x).tolist()
    scale._factor = 4.0
    assert compiled(x).tolist() == scale(x).tolist()


def test_what_is_not_read_may_change(world):
    net = Net()
    net.history = []
    compiled = flow.compile(net)
    x = flow.ones(3)
    first = compiled(x).tolist()
    program = compiled._compiled.program
    net.history.append(1)
    net.other = 3
    sys.modules[__name__].unread = 4
    assert compiled(x).tolist() == first
    assert compiled._compiled.program is program


def test_a_long_chain_of_objects(world):
    net = Net()
    for _ in range(3000):
        net.options = SimpleNamespace(scale=1.0, inner=net.options)
    net.options.inner.shift = 1.0
    compiled = flow.compile(net)
    x = flow.ones(3)
    compiled(x)
    net.options.inner.shift = 2.0
    assert compiled(x).tolist() == net(x).tolist()
