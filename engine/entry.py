"""Entries: the source of the functions that run ops, one template specialized for each form of op.

Entries are the hottest code of a program. A function of `*tensors` costs 0.4 us more per call than
one with named parameters, so the source is generated for each form of op. What is known of the op
(what its gradient saves, whether it has several outputs) is decided when the source is generated.
Each source is compiled once, and is visible in tracebacks and debuggers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .saved_values import Saves, needed_for, saved_by_any


@dataclass(frozen=True)
class Form:
    """The properties of an op that the source of its entry depends on.

    The name of a parameter ends in "?" where None may be passed for a tensor, and in "#" where a
    Python value or None is, of which plans know the type only. Without names all tensors come in
    one tuple, `tensors`.
    """

    params: tuple[str, ...]
    attributes: int | None = None  # how many hashable attributes follow; None: any number
    numbers: tuple[int, ...] = ()  # which of them may be floats, of which 0.0 and -0.0 are equal
    several: bool = False  # whether there are several outputs
    saves: Saves | None = None  # as in Op, like the next four
    saves_output: bool | Saves = False
    one_gradient: bool = False
    aliases: bool = False
    makes_views: bool = False
    boxing: bool = False  # it has no kernel, and its plan knows whether the output aliases
    only_first: bool = False  # whether only the first output is returned
    out: bool = False  # whether it takes `out=`, as functions that users call do
    options: tuple[str, ...] = ()  # arguments by keyword, which `op.with_options` takes


_TEMPLATE = """\
def define(op, plans):
    def call({parameters}):
        {to_options}
        {to_out}
        if get_current() is not None:
            return get_current().run(call, op, {all})
        try:
            plan = plans[{key}]
        except KeyError:
            plan = None
        except (AttributeError, TypeError):
            {without_key}
        if plan is None:
            plan = prepare(op, call, plans, {key}, {tensors}, {attrs})
        {base}
        if not plan.direct:
            {tensors} = box_inputs(op, plan, {tensors})
            if plan.decomposed is not None:
                return {decomposed}
        {make}
        {run}
        {give}
    return call
"""

# The entry until its first call, so that importing the package compiles only short sources.
_FIRST_CALL = """\
def define(op, plans):
    def call({parameters}):
        compile_entry(call, op, plans)
        return call({passed})
    return call
"""

_TO_OUT = """\
if out is not None:
    return names.give_to(out, call({arguments}))"""
_TO_OPTIONS = """\
if {asked}:
    return op.with_options({arguments}, out, {options})"""
_RUN = "{made} = plan.run({shards})"
_RUN_AND_EXPLAIN = """\
try:
    {run_once}
except KERNEL_ERRORS as error:
    if waited(error, {given}):
        return call({arguments})
    raise failed(op, error, {given}) from error"""
# The call of `plan.run` takes 0.05 us more than that of the kernel itself.
_RUN_ON_ONE = """\
kernel = plan.kernel
if kernel is not None:
    y.shards = (kernel({only}),)
else:
    y.shards = plan.run({shards})"""

_GIVE_ONE = """\
y.meta = plan.meta
y.node = None
y.version = 0
y.shared = {shared}
{record}
{share}
return y"""
_GIVE_SEVERAL = """\
node = None
{record}
return {outputs}"""

# `from_shards`, inlined.
_GIVE_FIRST = """\
node = None
{record}
y = new(Tensor)
y.shards = shards[0]
y.meta = plan.meta
y.node = node
y.version = 0
y.shared = False
return (y,)"""

# `views.link`, inlined; `base` is the input before boxing.
_LINK = """\
y._base = base
y._step = plan.step
y._view = no_view
if not base.shared:  # so it has no links yet
    base.shared = True
    base._base = None
    base._view = ref(y)
    return y
try:
    last = base._view
except AttributeError:  # its memory is shared for another reason
    last = no_view
if last() is None:  # there was none, or it was used and dropped, as in most loops
    base._view = ref(y)
else:
    add_view(base, ref(y))"""

# The tape keeps only a meta and attributes of a view op, which are in the plan.
_RECORD_VIEW = """\
if {any_node} and is_grad_enabled() and plan.differentiable:
    node = y.node = new(Node)
    node.seq = next(sequence)
    node.op = op
    node.parents = {nodes}
    node.args = plan.kept
    node.out = None
    node.meta = plan.meta"""

# `record` and `Node.__init__`, inlined for this number of tensors (saves 0.15 us).
_RECORD = """\
if {any_node} and is_grad_enabled() and plan.differentiable:
    {to_node} = new(Node)
    node.seq = next(sequence)
    node.op = op
    node.parents = {nodes}
    node.args = {saved}
    node.out = {saved_output}
    node.meta = plan.{meta}
    if get_saved_hooks():
        node.pack()"""
_RECORD_PACKED = """\
if is_grad_enabled() and plan.differentiable:
    nodes = [None if t is None else t.node for t in tensors]
    if nodes.count(None) != len(nodes):
        {node} = record(op, plan, {tensors}, {made})"""

_SHARE = """\
if plan.aliases:
    {first}.shared = y.shared = True"""


@cache
def first_source(form: Form) -> str:
    """The source of an entry that compiles the one of `source` when it is first called.

    Both have the same parameters and closure, so the entry can then take over the other code.
    """
    texts = _named(form) if form.params else _packed(form)
    parameters, passed = texts["arguments"], texts["arguments"]
    parameters += _keywords(form)
    for name in ("out",) * form.out + form.options:
        passed += f", {name}={name}"
    return _FIRST_CALL.format(parameters=parameters, passed=passed)


@cache
def source(form: Form) -> str:
    """The source of a function `define(op, plans)` that returns the entry of an op.

    Example: `print(source(Form(("a", "b"))))`.
    """
    texts = _named(form) if form.params else _packed(form)
    texts["made"] = "shards" if form.several else "y.shards"
    texts["node"] = "node" if form.several else "y.node"
    texts["to_node"] = "node" if form.several else "y.node = node"
    texts["meta"] = "metas" if form.several else "meta"
    texts["saved_output"] = _saved_output(form, texts["made"])
    outputs = "outputs_of_one" if form.one_gradient else "outputs"
    texts["outputs"] = f"{outputs}(plan, shards, node)"
    texts["shared"] = str(form.makes_views)
    texts["decomposed"] = f"plan.decomposed({texts['arguments']})"
    if form.makes_views:
        for name in ("outputs", "decomposed"):
            texts[name] = f"link_all({texts[name]}, base, plan.steps)"
    texts["parameters"] = texts["arguments"] + _keywords(form)
    texts["asked"] = " or ".join([f"{each} is not None" for each in form.options])
    texts["options"] = ", ".join(form.options)
    many = form.several or not form.params
    parts = {
        "to_options": _TO_OPTIONS if form.options else "",
        "to_out": _TO_OUT if form.out else "",
        "make": "" if form.several else "y = new(Tensor)",
        "run": _RUN if form.boxing else _RUN_AND_EXPLAIN,
        "run_once": _RUN if many else _RUN_ON_ONE,
        "record": _record(form),
        "give": _GIVE_FIRST if form.only_first else _GIVE_SEVERAL if form.several else _GIVE_ONE,
        "share": _LINK if form.makes_views else _SHARE if form.boxing or form.aliases else "",
        "base": f"base = {texts['first']}" if form.makes_views else "",
    }
    text = _TEMPLATE
    for name in (
        "to_options",
        "to_out",
        "base",
        "make",
        "run",
        "run_once",
        "give",
        "record",
        "share",
    ):
        text = _with_block(text, name, parts[name])
    return text.format(**texts)


def _keywords(form: Form) -> str:
    """The parameters that are passed by keyword."""
    return ", *, out=None" * form.out + "".join([f", {each}=None" for each in form.options])


def _record(form: Form) -> str:
    if not form.params:
        return _RECORD_PACKED
    return _RECORD_VIEW if form.makes_views and not form.several else _RECORD


def _saved_output(form: Form, made: str) -> str:
    """The source of what `kept_outputs` returns; of several outputs the last is among the kept."""
    saves = form.saves_output
    if isinstance(saves, bool):
        return made if saves else "None"
    if not form.several:
        return _if_needed(form, saves, 0, made, "None")
    count = saved_by_any(saves)[-1] + 1
    return _tuple([_if_needed(form, saves, i, f"shards[{i}]", "None") for i in range(count)])


def _if_needed(form: Form, saves: Saves, position: int, value: str, otherwise: str) -> str:
    """The source of a value that is saved if a gradient that needs it is wanted."""
    needed = needed_for(saves, position)
    tensors = [index for index, param in enumerate(form.params) if param[-1] != "#"]
    if needed is None or set(tensors) <= set(needed):
        return value
    needs = [_needs(form.params[index]) for index in needed if index in tensors]
    return f"({value} if {' or '.join(needs)} else {otherwise})" if needs else otherwise


def _needs(param: str) -> str:
    """The source of whether the tensor of a parameter needs a gradient."""
    name = param.rstrip("?")
    there = f"{name}.node is not None"
    return f"({name} is not None and {there})" if param[-1] == "?" else there


def _with_block(text: str, name: str, block: str) -> str:
    """`text` with the line `{name}` replaced by a block, indented as the line is."""
    lines = []
    for line in text.splitlines():
        if line.strip() != f"{{{name}}}":
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += [indent + part for part in block.splitlines()]
    return "\n".join(lines) + "\n"


def _named(form: Form) -> dict[str, str]:
    """The parts of the source of an entry whose parameters have names."""
    plain = [param.rstrip("?#") for param in form.params]
    tensors = [name for name, param in zip(plain, form.params, strict=True) if param[-1] != "#"]
    key, shards, only, nodes, saved, any_node = [], [], [], [], [], []
    for index, (name, param) in enumerate(zip(plain, form.params, strict=True)):
        if param[-1] == "#":
            key.append(f"type({name})")
            shards.append(name)
            only.append(name)
            nodes.append("None")
            saved.append(name)
            continue
        absent = f"None if {name} is None else " if param[-1] == "?" else ""
        key.append(f"{absent}{name}.meta")
        shards.append(f"{absent}{name}.shards")
        only.append(f"{absent}{name}.shards[0]")
        nodes.append(f"{absent}{name}.node")
        kept = name
        if form.saves is not None:
            kept = _if_needed(form, form.saves, index, name, f"{name}.meta")
        saved.append(name if kept == name else f"{absent}{kept}")
        any_node.append(_needs(param))
    while nodes[-1] == "None":  # gradients are asked for tensors
        nodes.pop()
    attributes = _attributes(form)
    attrs = _tuple(attributes)
    if attributes:
        key += _attribute_keys(form)
        saved.append("plan.attrs")
        retry = f"return call({', '.join(plain)}, *hashable(op, {_tuple(tensors)}, {attrs}))"
    else:
        retry = f"return override(op, {_tuple(tensors)})"
    given = [*plain, *attributes]
    return {
        "first": plain[0],
        "all": _tuple(given),
        "given": _tuple(given),
        "arguments": ", ".join(given),
        "tensors": _tuple(plain),
        "attrs": attrs,
        "key": _tuple(key),
        "without_key": retry,
        "shards": ", ".join(shards),
        "only": ", ".join(only),
        "any_node": any_node[0] if len(any_node) == 1 else f"({' or '.join(any_node)})",
        "nodes": _tuple(nodes),
        "saved": _tuple(saved),
    }


def _packed(form: Form) -> dict[str, str]:
    """The parts of the source of an entry that takes its tensors in one tuple."""
    attributes = _attributes(form)
    attrs = _tuple(attributes)
    key = ["*[None if t is None else t.meta for t in tensors]"]
    key += _attribute_keys(form)
    return {
        "first": "tensors[0]",
        "arguments": ", ".join(["tensors", *attributes]),
        "all": _tuple(["tensors", *attributes]),
        "given": _tuple(["*tensors", *attributes]),
        "tensors": "tensors",
        "attrs": attrs,
        "key": _tuple(key),
        "without_key": f"return call(tensors, *hashable(op, tensors, {attrs}))",
        "shards": "*[None if t is None else t.shards for t in tensors]",
    }


def _attributes(form: Form) -> list[str]:
    """The parameters for attributes. Named ones are 0.07 us faster than one tuple."""
    if form.attributes is None:
        return ["*attrs"]
    return [f"attr{i}" for i in range(form.attributes)]


def _attribute_keys(form: Form) -> list[str]:
    """The parts of the key for attributes. Zeros differ by their texts, which take 0.09 us."""
    if form.attributes is None:
        return ["attrs"]
    return [
        f"{name} or ({name} is not None and repr({name}))" if index in form.numbers else name
        for index, name in enumerate(_attributes(form))
    ]


def _tuple(texts: list[str]) -> str:
    return f"({', '.join(texts)},)" if len(texts) == 1 else f"({', '.join(texts)})"
