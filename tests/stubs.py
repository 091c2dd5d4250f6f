"""Writes the stubs: what type checkers and editors see of names that are data when a program runs.

`python tests/stubs.py` (or `make stubs`) rewrites them from the signatures of the functions.
"""

import inspect
import re
import subprocess
import sys
import types
import typing
from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np
import stub_types
import torch
from source_tree import REPO

import onefold
from onefold.engine import dispatcher
from onefold.engine.argument_types import Number
from onefold.engine.dispatch_plan import ops
from onefold.engine.methods import INPLACE, INPLACE_OPERATORS, METHODS, OPERATORS
from onefold.engine.names import all_names, torch_forms
from onefold.engine.ops import PUBLIC, creation, torch_results
from onefold.engine.ops.namespaces import namespace
from onefold.engine.ops.pointwise import Elementwise
from onefold.engine.ops.torch_results import RESULTS
from onefold.engine.ops.typed_tensors import TensorType
from onefold.engine.placement import Placement
from onefold.engine.sbp import Sbp
from onefold.engine.tensor import Tensor
from onefold.nn import functional, table_layers

HEADER = '"""{}\n\nWritten by `make stubs`; do not edit.\n"""\n'
NAMES = all_names() | torch_forms()

# Where the names in stub_types.py come from; classes in annotations are added as they are met.
SOURCES = {
    "Any": "typing",
    "Callable": "collections.abc",
    "DeviceLike": "onefold.engine.argument_types",
    "Literal": "typing",
    "NamedTuple": "typing",
    "ValuesAndIndices": "onefold.engine.ops.argreduce",
    "Placement": Placement.__module__,
    "Sbp": Sbp.__module__,
    "ScalingType": "torch.nn.functional",
    "Self": "typing",
    "Sequence": "collections.abc",
    "SwizzleType": "torch.nn.functional",
    "Tensor": Tensor.__module__,
    "overload": "typing",
}


NONE = types.NoneType


def with_numbers(given):
    """Types of one argument, with numpy's numbers and Python's: what takes these takes those."""
    if set(typing.get_args(Number)) <= set(given):
        kept = [one for one in given if one not in (bool, int, float, NONE)]
        return [*kept, np.number[typing.Any], *{NONE}.intersection(given)]
    return given


def rendered(annotation):
    """A type as it is written; its name is remembered in SOURCES."""
    if annotation in (None, NONE):
        return "None"
    if annotation is ...:
        return "..."
    if annotation is typing.Any:
        return "Any"
    if isinstance(annotation, list):
        return f"[{', '.join(map(rendered, annotation))}]"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        named = dict.fromkeys(map(rendered, with_numbers(arguments)))
        return " | ".join(sorted(named, key="None".__eq__))
    if origin is not None:
        return f"{rendered(origin)}[{', '.join(map(rendered, arguments))}]"
    module, name = annotation.__module__, annotation.__qualname__
    if annotation is types.EllipsisType:
        module, name = "types", "EllipsisType"
    if module in ("torch", "numpy"):
        return f"{'np' if module == 'numpy' else module}.{name}"
    if module != "builtins":
        SOURCES[name] = module
    return name


class Text:
    """An annotation or a default value that a signature shows as it is written here."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def default(value):
    """How a stub shows a default value."""
    plain = value is None or isinstance(value, (bool, int, float, str, torch.dtype))
    return repr(value) if plain or value == () else "..."


def written(parameter):
    """A parameter with its type and default as text."""
    given = parameter.annotation
    annotation = "Any" if given is parameter.empty else rendered(given)
    if parameter.default is not parameter.empty:
        parameter = parameter.replace(default=Text(default(parameter.default)))
    return parameter.replace(annotation=Text(annotation))


def signature(function):
    """A function's signature with its types evaluated."""
    scope = {name: getattr(sys.modules[module], name) for name, module in SOURCES.items()}
    return inspect.signature(function, eval_str=True, locals=scope)


# What `**layout` of a creation takes.
LAYOUT = [one for one in signature(creation.tensor).parameters.values() if one.name != "data"]


def attributes(entry):
    """What an op's own entry takes after its tensors: the fields of the op's record."""
    return signature(ops[entry.__name__][0].attributes).parameters.values()


def core(value):
    """What a public function wraps, which knows where it was written; else the value itself."""
    return getattr(value, "__wrapped__", value)


def signatures(name):
    """The (parameters, result) of a function: several where it has overloads."""
    if name in stub_types.OVERLOADS:
        return stub_types.OVERLOADS[name]
    if name in stub_types.SIGNATURES:
        return [stub_types.SIGNATURES[name]]
    found = signature(NAMES[name])
    result = "Any" if found.return_annotation is found.empty else rendered(found.return_annotation)
    *others, last = given = list(found.parameters.values())
    written_in = core(NAMES[name]).__globals__["__name__"]
    own = written_in == dispatcher.__name__  # an op's own entry
    takes_attributes = own and any(one.name.startswith("attr") for one in given)
    if takes_attributes:
        tensors = [one for one in given if not one.name.startswith("attr")]
        given = [*tensors, *attributes(NAMES[name])]
    if takes_attributes or (own and isinstance(ops[NAMES[name].__name__][0], Elementwise)):
        given = [
            one if one.kind is one.KEYWORD_ONLY else one.replace(kind=one.POSITIONAL_ONLY)
            for one in given
        ]
    elif last.name == "layout":
        given = [*others, *(one for one in LAYOUT if one.name not in found.parameters)]
    if result == "Any" and own:
        result = "Tensor"
    parameters = found.replace(parameters=list(map(written, given)), return_annotation=found.empty)
    return [(str(parameters)[1:-1], result)]


def documented(name):
    """The first line of a function's docstring, unless it is that of a whole family."""
    doc = NAMES[name].__doc__
    if not doc or doc == Elementwise.__doc__:
        return ""
    return inspect.cleandoc(doc).splitlines()[0].replace("\\", "\\\\").replace('"', "'")


def definition(name, attribute=None, change=None, note=""):
    """The stub of a function (as a method or operator with another name, if one is given)."""
    found = signatures(name)
    doc = "" if attribute and attribute.startswith("__") else documented(name)
    lines = []
    for parameters, result in found:
        if change is not None:
            parameters, result = change(parameters, result)
        if len(found) > 1:
            lines.append("@overload")
        lines.append(f"def {attribute or name}({parameters}) -> {result}:{note}")
        lines.append(f'    """{doc}"""' if doc else "    ...")
    return "\n".join(lines)


# In torch functions take `out=`, and methods do not.
OUT = re.compile(r"(, \*(?=, out[^,]*$))?, out: [\w\[\] |]+ \| None = None")


def as_method(parameters, result):
    """A function's signature with its first parameter as `self`."""
    _, _, rest = OUT.sub("", parameters).partition(", ")
    return ", ".join(filter(None, ["self", rest])), result


def as_operator(parameters, result):
    """The same for an operator, which is called with operands alone."""
    return as_method(parameters.partition(", *,")[0], result)


def as_inplace(parameters, result):
    """The same for what changes the tensor and returns it."""
    return as_method(parameters, result)[0], "Self"


def as_inplace_operator(parameters, result):
    """The same for an operator."""
    return as_operator(parameters, result)[0], "Self"


# A comparison of tensors gives a tensor, where object's gives a bool.
OVERRIDES = ("__eq__", "__ne__")


def says_all(name):
    """Whether an in-place function has a signature of its own; those of others are the op's."""
    return name in NAMES and "args" not in inspect.signature(NAMES[name]).parameters


def method(name, attribute):
    """The stub of a tensor's method or operator."""
    note = "  # type: ignore[override]" if attribute in OVERRIDES else ""
    if name.rstrip("_") in stub_types.METHODS:
        text, result = stub_types.METHODS[name.rstrip("_")]
        return f"def {attribute}({text}) -> {'Self' if name.endswith('_') else result}: ..."
    operator = attribute.startswith("__")
    if not name.endswith("_") or name == "setitem_":
        return definition(name, attribute, as_operator if operator else as_method, note)
    changed = as_inplace_operator if operator else as_inplace
    return definition(name if says_all(name) else name[:-1], attribute, changed)


def methods():
    """Every method and operator of a tensor that is data (engine/methods.py)."""
    named = {name: name for name in sorted(METHODS)}
    for attribute, name in {**named, **OPERATORS}.items():
        yield method(name, attribute)
    inplace = {f"{name}_": f"{name}_" for name in sorted(INPLACE)}
    operators = {operator: f"{name}_" for operator, name in INPLACE_OPERATORS.items()}
    for attribute, name in {**inplace, **operators}.items():
        yield method(name, attribute)


def imports(text, package):
    """The imports that a stub's text needs, in a package."""
    words = set(re.findall(r"\w+", re.sub(r'""".*"""', "", text)))
    lines = [f"import {module}" for module in ("builtins", "torch") if module in words]
    lines += ["import numpy as np"] * ("np" in words)
    by_module = {}
    for name in words & set(SOURCES):
        by_module.setdefault(SOURCES[name], []).append(name)
    for module, names in sorted(by_module.items()):
        lines.append(f"from {relative(module, package)} import {', '.join(sorted(names))}")
    return "\n".join(lines)


def relative(module, package):
    """A module's name as an import in `package` writes it: relative inside onefold."""
    if module.partition(".")[0] != "onefold":
        return module
    ours, theirs = package.split("."), module.split(".")
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    return "." * (len(ours) - shared + 1) + ".".join(theirs[shared:])


def shadowed(text, names):
    """`text` with builtins that `names` hide written out."""
    hidden = "|".join(sorted({"bool", "complex", "float", "int"} & set(names)))
    return re.sub(rf"(?<![.\w])(?<!def )({hidden})\b", r"builtins.\1", text)


def results_stub():
    lines = ["RESULTS: dict[str, type[tuple[Tensor, ...]]]"]
    for kind in RESULTS.values():
        lines.append(f"class {kind.__name__}(NamedTuple):")
        lines += [f"    {field}: Tensor" for field in kind._fields]
    body = "\n".join(lines)
    doc = HEADER.format(inspect.cleandoc(torch_results.__doc__))
    return f"{doc}\nfrom typing import NamedTuple\nfrom ..tensor import Tensor\n\n{body}\n"


def torch_type(annotation):
    """A type in torch's signatures as one in ours."""
    if annotation is torch.Tensor:
        return Tensor
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(torch_type, arguments))]  # noqa: UP007
    return annotation


def hint_of(parameter, hints):
    """The type of a parameter, with None where that is the default."""
    known = torch_type(hints.get(parameter.name, typing.Any))
    optional = parameter.default is None and known is not typing.Any
    return typing.Union[known, None] if optional else known  # noqa: UP007


def constructor(layer):
    """The parameters of torch's class of a layer's name."""
    hints = typing.get_type_hints(layer.of_torch.__init__)
    given = [
        written(each.replace(annotation=hint_of(each, hints)))
        for each in inspect.signature(layer.of_torch).parameters.values()
    ]
    return str(inspect.Signature(given))[1:-1]


def layers_stub():
    tables = [f"{name}: dict[str, type[TableLayer]]" for name in ("LAYERS", "BASES")]
    lines = ["class TableLayer(Module): ...", *tables]
    for name, layer in table_layers.LAYERS.items():
        inputs = list(inspect.signature(layer.forward).parameters.values())[1:]
        several = "return_indices" in inspect.signature(layer).parameters
        tensors = ", ".join(
            f"{each.name}: Tensor" if each.default is each.empty else f"{each.name}: Any = None"
            for each in inputs
        )
        lines += [
            f"class {name}(TableLayer):",
            f'    """{layer.__doc__}"""\n',
            f"    def __init__(self, {constructor(layer)}) -> None: ...",
            f"    def forward(self, {tensors}) -> {'Any' if several else 'Tensor'}: ...",
        ]
    body = "\n".join(lines)
    doc = HEADER.format(inspect.cleandoc(table_layers.__doc__))
    return f"{doc}\n{imports(body, 'onefold.nn')}\nfrom .module import Module\n\n{body}\n"


def namespace_stub(prefix):
    body = "\n".join(definition(f"{prefix}.{leaf}", leaf) for leaf in namespace(prefix))
    doc = HEADER.format(inspect.cleandoc(getattr(onefold, prefix).__doc__))
    names = exported(namespace(prefix))
    more = "from .errors import LinAlgError as LinAlgError\n" * (prefix == "linalg")
    return "\n".join([doc, more, imports(body, "onefold"), names, body]) + "\n"


def function(name):
    """The stub of a public function; an in-place one gives the tensor that it changed."""
    if name.endswith("_") and not says_all(name):
        return definition(
            name[:-1], name, lambda parameters, result: (OUT.sub("", parameters), "Tensor")
        )
    return definition(name)


def functions_stub():
    body = shadowed("\n".join(map(function, PUBLIC)), PUBLIC)
    doc = HEADER.format("Every op that users call, by its name.")
    return f"{doc}\n{imports(body, 'onefold.engine.ops')}\n\n{body}\n"


def methods_stub():
    body = shadowed("\n".join(methods()), METHODS)
    doc = HEADER.format("The methods and operators of Tensor that call an op.")
    lines = body.replace("\n", "\n    ")
    text = f"class TensorMethods:\n    {lines}\n"
    return f"{doc}\n{imports(body, 'onefold.engine')}\n\n{text}"


def exported(names):
    """The `__all__` of a stub: it re-exports what has another name where it comes from."""
    return f"__all__ = {sorted(names)!r}"


def own_function(name):
    """The stub of a function of nn.functional that is not the op of its name."""
    function = functional.OWN[name]
    found = signature(function)
    given = found.replace(
        parameters=list(map(written, found.parameters.values())), return_annotation=found.empty
    )
    result = Tensor if found.return_annotation is found.empty else found.return_annotation
    doc = inspect.cleandoc(function.__doc__).splitlines()[0].replace('"', "'")
    return f'def {name}{given} -> {rendered(result)}:\n    """{doc}"""'


def functional_stub():
    ops = sorted(functional.FUNCTIONS - set(functional.OWN))
    lines = [
        f"from ..engine.ops.functions import {functional.RENAMED.get(name, name)} as {name}"
        for name in ops
    ]
    body = "\n".join(map(own_function, sorted(functional.OWN)))
    lines += [imports(body, "onefold.nn"), "FUNCTIONS: list[str]", "RENAMED: dict[str, str]"]
    lines += ["OWN: dict[str, Any]", exported(functional.FUNCTIONS), body]
    types = "ScalingType as ScalingType, SwizzleType as SwizzleType"
    imported = ["from typing import Any", f"from torch.nn.functional import {types}"]
    text = "\n".join([*imported, *lines])
    return HEADER.format("The functions behind the layers.") + "\n" + text + "\n"


def root_line(name):
    """How the root's stub offers a public name."""
    value = getattr(onefold, name)
    if name in PUBLIC:
        return f"from .engine.ops.functions import {name} as {name}"
    if inspect.ismodule(value):
        package, _, module = value.__name__.rpartition(".")
        return f"from {relative(package, 'onefold')} import {module} as {name}"
    if value is None:
        return f"{name}: None"
    if isinstance(value, float):
        return f"from math import {name} as {name}"
    if isinstance(value, (torch.dtype, TensorType)):
        return f"{name}: {type(value).__name__}"
    if value is getattr(torch, name, None):
        return f"from torch import {name} as {name}"
    value = core(value)
    if isinstance(value, type) or (isinstance(value, Callable) and value.__module__ != "onefold"):
        there = name if isinstance(value, types.MethodType) else value.__qualname__
        return f"from {relative(value.__module__, 'onefold')} import {there} as {name}"
    if isinstance(value, Callable):
        text = str(inspect.signature(value, eval_str=True)).replace("typing.", "")
        return f"def {name}{shadowed(text, onefold.__all__)}: ..."
    return f"{name}: {type(value).__name__}"


def path_stub(path):
    """The stub of an import path that leads to another module (compat/import_paths.py)."""
    module = import_module(f"onefold.{path}")
    package = f"onefold.{path}".rpartition(".")[0]
    doc = HEADER.format(inspect.cleandoc(module.__doc__).splitlines()[0])
    return f"{doc}\nfrom {relative(module.__name__, package)} import *\n"


def root_stub():
    lines = sorted(map(root_line, onefold.__all__), key=lambda line: not line.startswith("from"))
    found = {name: getattr(onefold, name).__name__ for name in onefold.ON_DEMAND}
    modules = {
        name: path.removeprefix("onefold.")
        for name, path in found.items()
        if path.startswith("onefold.")
    }
    of_torch = [root_line(name) for name in found if name not in modules]
    on_demand = [
        f"from {relative(package, 'onefold')} import {module}" + f" as {name}" * (name == module)
        for name, path in modules.items()
        for package, _, module in [f"onefold.{path}".rpartition(".")]
        if name == module or path not in modules
    ]
    # A stub exports no import by another name that is not in `__all__`.
    renamed = [
        f"{name} = {module}"
        for name, path in modules.items()
        for module in [path.rpartition(".")[2]]
        if name not in (path, module)
    ]
    kind = "from .engine.ops.typed_tensors import TensorType"
    body = "\n".join([*on_demand, *of_torch, kind, *lines, *renamed, "__version__: str"])
    doc = HEADER.format(inspect.cleandoc(onefold.__doc__).splitlines()[0])
    return f"{doc}\nimport builtins\n{body}\n{exported(onefold.__all__)}\n"


# Import paths (compat/import_paths.py) in packages; a stub named random would hide that of Python.
PATHS = "autograd signal utils.data.dataloader utils.data.dataset utils.data.sampler".split()

STUBS = {
    "__init__.pyi": root_stub,
    "engine/ops/functions.pyi": functions_stub,
    "engine/ops/torch_results.pyi": results_stub,
    "engine/tensor_methods.pyi": methods_stub,
    "nn/functional.pyi": functional_stub,
    "nn/table_layers.pyi": layers_stub,
    **{f"{path.replace('.', '/')}.pyi": partial(path_stub, path) for path in PATHS},
    **{f"{prefix}.pyi": partial(namespace_stub, prefix) for prefix in ("fft", "linalg", "special")},
}


def formatted(file, text):
    """`text` as ruff formats it, with its imports sorted."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", file, "-"],
            input=text, capture_output=True, text=True, cwd=REPO, timeout=60, check=True,
        )  # fmt: skip
        text = done.stdout
    return text


def stubs():
    """The text of every stub by its file."""
    return {file: formatted(file, make()) for file, make in STUBS.items()}


if __name__ == "__main__":
    for file, text in stubs().items():
        (REPO / file).write_text(text)
