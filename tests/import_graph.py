"""The package's imports, read with `ast`, and the rules that they keep."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from source_tree import PACKAGE, module_files, module_name

Rungs = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Import:
    """One import of one module: by whom, of what, where and how."""

    importer: str  # such as "engine.sbp"; "" is the root's __init__.py
    target: str  # the same for a module of the package, else the full external name
    internal: bool
    line: int
    local: bool  # inside a function or class
    typing_only: bool  # under `if TYPE_CHECKING:`
    absolute: bool = False  # a module of the package by its full name

    def __str__(self) -> str:
        return f"{show(self.importer)}:{self.line} imports {show(self.target)}"


def show(module: str) -> str:
    """A module's name for a message; the root's is empty otherwise."""
    return module or "__init__"


class _Reader(ast.NodeVisitor):
    """Collects the imports of one file, with what encloses each."""

    def __init__(self, name: str, is_package: bool, modules: frozenset[str]) -> None:
        self.name = name
        self.package = name.split(".") if name else []
        if not is_package:
            self.package.pop()
        self.modules = modules
        self.depth = 0
        self.typing = 0
        self.found: list[Import] = []

    def add(self, target: str, line: int, internal: bool, absolute: bool = False) -> None:
        self.found.append(
            Import(self.name, target, internal, line, self.depth > 0, self.typing > 0, absolute)
        )

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add_absolute(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level:
            assert node.module
            for alias in node.names:
                self.add_absolute(f"{node.module}.{alias.name}", node.lineno, of=node.module)
            return
        base = self.package[: len(self.package) - node.level + 1]
        base += node.module.split(".") if node.module else []
        for alias in node.names:
            submodule = ".".join([*base, alias.name])
            target = submodule if submodule in self.modules else ".".join(base)
            self.add(target, node.lineno, internal=True)

    def visit_Call(self, node: ast.Call) -> None:
        """`__import__` and `import_module` hide what they import: they count as local imports."""
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else ""
        called = function.id if isinstance(function, ast.Name) else called
        if called in {"__import__", "import_module"}:
            self.depth += 1
            self.add("importlib", node.lineno, internal=False)
            self.depth -= 1
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) not in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            self.generic_visit(node)
            return
        self.typing += 1
        for child in node.body:
            self.visit(child)
        self.typing -= 1
        for child in node.orelse:
            self.visit(child)

    def nested(self, node: ast.AST) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_FunctionDef = nested  # noqa: N815 - ast's name
    visit_AsyncFunctionDef = nested  # noqa: N815 - ast's name
    visit_ClassDef = nested  # noqa: N815 - ast's name

    def add_absolute(self, name: str, line: int, of: str | None = None) -> None:
        if name.split(".")[0] != PACKAGE:
            self.add(of or name, line, internal=False)
            return
        inside = name.removeprefix(PACKAGE).removeprefix(".")
        if inside not in self.modules:
            inside = (of or name).removeprefix(PACKAGE).removeprefix(".")
        self.add(inside, line, internal=True, absolute=True)


def read_imports(root: Path) -> list[Import]:
    """Every import statement of the package under `root`."""
    files = module_files(root)
    modules = frozenset(module_name(file) for file in files)
    found = []
    for file in files:
        reader = _Reader(module_name(file), file.name == "__init__.py", modules)
        reader.visit(ast.parse((root / file).read_text()))
        found += reader.found
    return found


def _heights(rungs: Rungs) -> dict[str, int]:
    return {name: height for height, rung in enumerate(rungs) for name in rung}


def _climbs(pairs: Iterable[tuple[Import, str, str]], rungs: Rungs) -> Iterator[str]:
    """Imports of a higher or equal rung, and the names that have none."""
    heights = _heights(rungs)
    unknown: set[str] = set()
    for item, lower, upper in pairs:
        if missing := {lower, upper} - heights.keys():
            unknown |= missing
        elif heights[upper] > heights[lower]:
            yield f"{item}: {upper} is above {lower}"
        elif heights[upper] == heights[lower] and upper != lower:
            yield f"{item}: {upper} and {lower} stand on one rung and may not know each other"
    for name in sorted(unknown):
        yield f"{name} has no rung; give it one in tests/test_layering.py"


def ladder_faults(imports: Sequence[Import], rungs: Rungs) -> Iterator[str]:
    """Imports that do not go down the ladder of top-level modules and folders.

    `if TYPE_CHECKING:` does not excuse them: an annotation is knowledge, too.
    """
    named = {name for rung in rungs for name in rung}

    def place(module: str) -> str:  # a module of a folder may stand on a rung of its own
        return module if module in named else show(module.split(".")[0])

    pairs = ((item, place(item.importer), place(item.target)) for item in imports if item.internal)
    return _climbs(pairs, rungs)


def folder_faults(imports: Sequence[Import], folder: str, rungs: Rungs) -> Iterator[str]:
    """The same for the modules inside one folder; a subfolder counts as one module.

    Annotations may look up here, except to the top rung, which nothing below it may know.
    """
    inside = f"{folder}."
    pairs = (
        (item, item.importer.split(".")[1], item.target.split(".")[1])
        for item in imports
        if item.internal and item.importer.startswith(inside) and item.target.startswith(inside)
    )
    known = (pair for pair in pairs if not pair[0].typing_only or pair[2] in rungs[-1])
    return _climbs(known, rungs)


def hidden_faults(
    imports: Sequence[Import], allowed: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    """Imports inside functions or classes, and entries of `allowed` that nothing uses.

    `allowed` maps (importer, external package) to the reason.
    """
    used = set()
    for item in imports:
        if not item.local:
            continue
        key = (item.importer, item.target.split(".")[0])
        if item.internal or key not in allowed:
            yield f"{item}: move the import to the top of the file"
        used.add(key)
    for key in allowed:
        if key not in used:
            yield f"{key} is allowed to import inside a function but does not: remove the entry"


def absolute_faults(imports: Sequence[Import]) -> Iterator[str]:
    """Imports of the package by its own name: inside it they are relative."""
    return (f"{item}: write it as a relative import" for item in imports if item.absolute)


def cycle_faults(imports: Sequence[Import]) -> Iterator[str]:
    """Rings of modules that import each other, each reported once."""
    edges: dict[str, set[str]] = {}
    for item in imports:
        if item.internal and not item.typing_only:
            edges.setdefault(item.importer, set()).add(item.target)
    done: set[str] = set()
    path: list[str] = []

    def walk(module: str) -> Iterator[str]:
        if module in path:
            ring = [*path[path.index(module) :], module]
            yield "import cycle: " + " -> ".join(map(show, ring))
        elif module not in done:
            path.append(module)
            for target in sorted(edges.get(module, ())):
                yield from walk(target)
            path.pop()
            done.add(module)

    for module in sorted(edges):
        yield from walk(module)
