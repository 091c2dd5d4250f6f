"""The stubs are what the generator writes, and type checkers find a user's mistakes with them."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import stubs
import torch
from language_server import Server
from source_tree import REPO, tracked_files
from torch_oracle import needs_this_torch

import onefold as flow
from onefold.engine.dispatch_plan import ops
from onefold.engine.dispatcher import unary
from onefold.engine.methods import INPLACE, INPLACE_OPERATORS, METHODS, OPERATORS
from onefold.engine.ops.pointwise import Elementwise

PROGRAM = Path(__file__).with_name("user_program.py")
needs_pyright = pytest.mark.skipif(
    not importlib.util.find_spec("pyright"), reason="pyright is not installed"
)
LINES = enumerate(PROGRAM.read_text().splitlines(), 1)
WRONG = [number for number, line in LINES if line.endswith("# wrong")]


def defined(file, inside=""):
    """The names that a stub defines or imports, at its top or in one of its classes."""
    body = ast.parse((REPO / file).read_text()).body
    if inside:
        [body] = [node.body for node in body if getattr(node, "name", "") == inside]
    for node in body:
        if isinstance(node, ast.ImportFrom):
            yield from (name.asname or name.name for name in node.names)
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.FunctionDef):
            yield node.name


@needs_this_torch  # from whose signatures some of them are made
def test_the_stubs_are_what_the_generator_writes():
    stale = [file for file, text in stubs.stubs().items() if (REPO / file).read_text() != text]
    assert stale == [], "run `make stubs` and commit what it writes"


def test_the_stubs_have_every_name():
    assert set(flow.__all__) <= set(defined("__init__.pyi"))
    assert set(dir(flow.nn.functional)) <= set(defined("nn/functional.pyi"))
    written = set(defined("engine/tensor_methods.pyi", "TensorMethods"))
    data = {*METHODS, *OPERATORS, *INPLACE_OPERATORS, *(f"{name}_" for name in INPLACE)}
    assert data == written and all(hasattr(flow.Tensor, name) for name in written)


def test_every_parameter_has_a_type():
    for name, function in stubs.NAMES.items():
        for parameter in stubs.signature(function).parameters.values():
            assert parameter.annotation is not Any, f"{name}: {parameter}"


def test_an_op_of_a_tensor_and_a_number_takes_both(monkeypatch):
    class SoftcapAttributes(NamedTuple):
        cap: float

    op = Elementwise("softcap", lambda x, cap: cap * torch.tanh(x / cap))
    op.taking(SoftcapAttributes)
    monkeypatch.setitem(ops, "softcap", [])
    monkeypatch.setitem(stubs.NAMES, "softcap", unary(op))
    head, doc = stubs.definition("softcap").splitlines()
    assert head == "def softcap(input: Tensor, cap: float, /) -> Tensor:"
    assert "softcap" in doc


def run(*command, cwd):
    """What a command prints, away from this process's import path."""
    here = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=300, cwd=cwd, check=False,
        env=here,
    )  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the repository: setuptools leaves a build folder where it builds."""
    folder = tmp_path_factory.mktemp("typed") / "clone"
    for file in tracked_files():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPO / file, folder / file)
    return folder


@pytest.fixture(scope="module", params=["editable", "wheel"])
def python(request, source, tmp_path_factory):
    """The interpreter of an environment where the package is installed in one of two ways."""
    folder = tmp_path_factory.mktemp(request.param)
    build = f"from setuptools import build_meta; build_meta.build_{request.param}({str(folder)!r})"
    built = run(sys.executable, "-c", build, cwd=source)
    assert built.returncode == 0, built.stderr
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    others = [entry for entry in sys.path if entry.endswith("site-packages")]  # torch is there
    (site / "zz_others.pth").write_text("\n".join(others))
    return folder / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy_cache")


def test_an_editable_install_is_a_folder_on_the_path(source, tmp_path):
    build = f"from setuptools import build_meta; build_meta.build_editable({str(tmp_path)!r})"
    assert run(sys.executable, "-c", build, cwd=source).returncode == 0
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        [name] = [name for name in held.namelist() if name.endswith(".pth")]
        folder = Path(held.read(name).decode().strip())
    assert (folder / "onefold").resolve() == source.resolve()
    assert (folder / "onefold" / "__init__.pyi").exists()


@pytest.mark.slow
def test_mypy_finds_the_mistakes(python, cache, tmp_path):
    shutil.copyfile(PROGRAM, tmp_path / "program.py")
    command = ("-m", "mypy", "--strict", "--cache-dir", cache, "--python-executable", python)
    said = run(sys.executable, *command, "program.py", cwd=tmp_path)
    found = {int(line) for line in re.findall(r"^program\.py:(\d+): error", said.stdout, re.M)}
    assert sorted(found) == WRONG, said.stdout + said.stderr


@needs_pyright
@pytest.mark.slow
def test_pyright_finds_the_mistakes(python, tmp_path):
    shutil.copyfile(PROGRAM, tmp_path / "program.py")
    command = ("-m", "pyright", "--outputjson", "--pythonpath", python)
    said = run(sys.executable, *command, "program.py", cwd=tmp_path)
    told = json.loads(said.stdout)["generalDiagnostics"]
    found = {one["range"]["start"]["line"] + 1 for one in told if one["severity"] == "error"}
    assert sorted(found) == WRONG, said.stdout


@needs_pyright
@pytest.mark.slow
def test_an_editor_completes_every_name(python, tmp_path):
    lines = ["flow.", "x = flow.ones(2)", "x.", "(x + 1).sum().", "flow.nn.functional."]
    text = "\n".join(["import onefold as flow", *lines])
    methods = {name for name in dir(flow.Tensor) if name[0] != "_"}
    wanted = [set(flow.__all__), methods, methods, set(dir(flow.nn.functional))]
    with Server(tmp_path, python) as server:
        offered = list(server.completions(text))
    for names, found in zip(wanted, offered, strict=True):
        assert names <= found, names - found
