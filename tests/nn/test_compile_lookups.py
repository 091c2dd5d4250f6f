"""What a compiled function finds without writing its name, or in several steps: changes count."""

import importlib
import sys
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import lru_cache, partialmethod
from types import ModuleType, SimpleNamespace

import pytest

import onefold as flow
from onefold import nn

package, config = ModuleType("package_of_user"), ModuleType("package_of_user.config")
package.config = config
config.scale, config.options, config.scaled = 2.0, SimpleNamespace(gain=2.0), lambda x: x * 2.0


class Amount:
    """An object with a number, which is read in many ways."""

    default = 2.0

    def __init__(self):
        self.number = 2.0

    def read(self):
        return self.number

    def __mul__(self, x):
        return x * self.number

    def __len__(self):
        return int(self.number)

    def __iter__(self):
        return iter([self.number])

    def __enter__(self):
        return self.number

    def __exit__(self, *_):
        pass

    def __bool__(self):
        return self.number > 3

    def __contains__(self, x):
        return x < self.number

    def __lt__(self, x):
        return self.number < x


class Inherited(Amount):
    def read(self):
        return super().read()


class Base(nn.Module):
    gain = 1.0

    def __init__(self):
        super().__init__()
        self.number = 2.0

    def __iter__(self):
        return iter([self.number])

    def forward(self, x):
        return x * self.number


class Derived(Base):
    def forward(self, x):
        return super().forward(x) * self.gain


class Iterated(Base):
    def forward(self, x):
        return next(x * number for number in self)


class Stored:
    def __get__(self, owner, kind=None):
        return owner.stored


class Described:
    number = Stored()

    def __init__(self):
        self.stored = 2.0


@dataclass
class Fields:
    number: float = 2.0


class Applied(flow.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * fields.number

    @staticmethod
    def backward(ctx, dy):
        return dy * fields.number


@flow.library.custom_op("t_lookups::scale", mutates_args=())
def scale(x: flow.Tensor) -> flow.Tensor:
    return x * fields.number


class Fixed:
    def times(self, x, by):
        return x * by * fields.number

    once = partialmethod(times, by=1.0)


amount, fixed, hooked = Amount(), Fixed(), nn.Identity()
hooked.register_forward_hook(lambda module, args, y: y * fields.number)
within_other = flow.compile(lambda x: x * fields.number)
inherited, replaced, described, fields = Inherited(), Amount(), Described(), Fields()
derived, gained, iterated = Derived(), Derived(), Iterated()


def entered(x):
    with amount as number:
        return x * number


def of_function(x):
    return x * of_function.number


# The imports of a program stand in its functions, those of this repository do not.
exec(
    """
def imported(x):
    import package_of_user.config as found

    return x * found.scale


def imported_by_name(x):
    from package_of_user.config import scale

    return x * scale


def of_installed(x):
    return installed_by_user.scaled(x) * 2
""",
    within := {"__name__": __name__},
)
of_function.number = 2.0
# What is called, and the attribute that is set to another value afterwards.
LOOKUPS = {
    "by an operator": (lambda x: amount * x, amount, "number", 5.0),
    "by len": (lambda x: x * len(amount), amount, "number", 5.0),
    "by a loop": (lambda x: next(x * number for number in amount), amount, "number", 5.0),
    "by a block": (entered, amount, "number", 5.0),
    "by a condition": (lambda x: x * 2 if amount else x, amount, "number", 5.0),
    "by membership": (lambda x: x * 2 if 3 in amount else x, amount, "number", 5.0),
    "by a comparison": (lambda x: x * 2 if amount < 3 else x, amount, "number", 5.0),
    "by super": (lambda x: x * inherited.read(), inherited, "number", 5.0),
    "by a descriptor": (lambda x: x * described.number, described, "stored", 5.0),
    "by a Function": (lambda x: Applied.apply(x) * 2, fields, "number", 5.0),
    "by a custom op": (lambda x: flow.ops.t_lookups.scale(x) * 2, fields, "number", 5.0),
    "by a partialmethod": (lambda x: fixed.once(x) * 2, fields, "number", 5.0),
    "by a hook of a layer": (lambda x: hooked(x) * 2, fields, "number", 5.0),
    "by another compiled function": (lambda x: within_other(x) * 2, fields, "number", 5.0),
    "by asdict": (lambda x: x * asdict(fields)["number"], fields, "number", 5.0),
    "by super of a layer": (derived, derived, "number", 5.0),
    "by a loop of a layer": (iterated, iterated, "number", 5.0),
    "hides one of a layer's class": (gained, gained, "gain", 5.0),
    "hides one of the class": (lambda x: x * inherited.default, inherited, "default", 5.0),
    "hides one of a base": (lambda x: x * Inherited.default, Inherited, "default", 5.0),
    "a method of an object": (lambda x: x * replaced.read(), replaced, "read", lambda: 5.0),
    "a method of a class": (lambda x: x * amount.read(), Amount, "read", lambda self: 5.0),
    "of a function": (of_function, of_function, "number", 5.0),
    "of a module in a module": (lambda x: x * package.config.scale, config, "scale", 5.0),
    "of an object in a module": (lambda x: x * config.options.gain, config.options, "gain", 5.0),
    "an object in a module": (
        lambda x: x * config.options.gain, config, "options", SimpleNamespace(gain=5.0),
    ),
    "a function in a module": (lambda x: config.scaled(x) * 2, config, "scaled", lambda x: x * 5),
    "of an imported module": (within["imported"], config, "scale", 5.0),
    "imported by name": (within["imported_by_name"], config, "scale", 5.0),
}  # fmt: skip


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_change_of_what_is_looked_up(lookup, world, monkeypatch):
    function, owner, name, value = LOOKUPS[lookup]
    for module in (package, config):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    compiled = flow.compile(function)
    x = flow.ones(2)
    before = function(x).tolist()
    for _ in range(2):
        assert compiled(x).tolist() == before
    monkeypatch.setattr(owner, name, value, raising=False)
    changed = function(x).tolist()
    assert changed != before
    for _ in range(2):
        assert compiled(x).tolist() == changed


def test_names_that_are_not_read_cause_no_capture(world, monkeypatch):
    compiled = flow.compile(lambda x: derived(x) * config.scale * amount.read())
    x = flow.ones(2)
    compiled(x)
    program = compiled.program
    monkeypatch.setattr(config, "unread", 1.0, raising=False)
    for owner in (derived, amount, Amount, fields):
        monkeypatch.setattr(owner, "unread", 1.0, raising=False)
    compiled(x)
    assert compiled.program is program


INSTALLED = """
class Options:
    def __init__(self):
        self._scale = 2.0
    @property
    def scale(self):
        return self._scale

table = {"scale": 2.0}

def scaled(x):
    return x * table["scale"]
"""


def test_of_installed_packages_only_objects_are_followed(world, monkeypatch, tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_by_user.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(folder)
    installed = importlib.import_module("installed_by_user")
    options, x = installed.Options(), flow.ones(2)
    monkeypatch.setitem(within, "installed_by_user", installed)
    function = within["of_installed"]
    compiled = flow.compile(lambda x: function(x) * options.scale)
    assert compiled(x).tolist() == [8, 8]
    program = compiled.program
    installed.table["unread"] = 1.0
    assert compiled(x).tolist() == [8, 8]
    assert compiled.program is program
    options._scale = 3.0
    assert compiled(x).tolist() == [12, 12]


def test_code_and_defaults_of_functions_that_are_replaced():
    def helper(x, by=2.0, *, more=0.0):
        return x * by + more

    @flow.compile
    def run(x):
        return helper(x) + 1

    def other(x, by=2.0, *, more=0.0):
        return x - by + more

    def eager(x):
        return helper(x) + 1

    x = flow.ones(3)
    assert run(x).tolist() == eager(x).tolist() == [3.0] * 3
    for name, value in (
        ("__defaults__", (5.0,)),
        ("__kwdefaults__", {"more": 0.5}),
        ("__code__", other.__code__),
    ):
        setattr(helper, name, value)
        assert run(x).tolist() == eager(x).tolist(), name
    compiled = flow.compile(other)
    assert compiled(x).tolist() == [-1.0] * 3
    other.__code__ = (lambda x, by=2.0, *, more=0.0: x * 9).__code__
    assert compiled(x).tolist() == [9.0] * 3


def test_classes_that_a_closure_has():
    class Scale:
        value = 2.0

        @staticmethod
        def of(x):
            return x * 3.0

        @classmethod
        def scaled(cls, x):
            return x * cls.value

    kinds = [Scale]

    def run(x, kind=Scale):
        return Scale.of(x) + kind.scaled(x) + x * kinds[0].value

    def replace_method():
        Scale.of = staticmethod(lambda x: x * 5.0)

    def replace_code():
        Scale.scaled.__func__.__code__ = (lambda cls, x: x - cls.value).__code__

    compiled, x = flow.compile(run), flow.ones(3)
    assert compiled(x).tolist() == [7.0] * 3
    for change in (lambda: setattr(Scale, "value", 4.0), replace_method, replace_code):
        change()
        assert compiled(x).tolist() == run(x).tolist()
    program = compiled.program
    compiled(x)
    assert compiled.program is program


def test_context_variables_and_functions_whose_results_are_kept():
    factor, numbers = ContextVar("factor", default=2.0), [3.0]

    @lru_cache
    def number(index):
        return numbers[index]

    def run(x):
        return x * factor.get() + number(0)

    compiled, x = flow.compile(run), flow.ones(3)
    assert compiled(x).tolist() == [5.0] * 3
    token = factor.set(4.0)
    assert compiled(x).tolist() == run(x).tolist() == [7.0] * 3
    factor.reset(token)
    numbers[0] = 1.0
    number.cache_clear()
    assert compiled(x).tolist() == run(x).tolist() == [3.0] * 3
