"""The wheel holds every module of the package and nothing else, and works where it is installed."""

import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from source_tree import (
    NOT_PACKAGE,
    OPTIONAL,
    PACKAGE,
    REPO,
    full_name,
    module_files,
    tracked_files,
)

PIP = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check")


def pip(*arguments):
    done = subprocess.run(
        [*PIP, *map(str, arguments)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def expected_files():
    """Modules, stubs, py.typed, and what lies next to the modules in a folder of the package."""
    data = [
        file
        for file in tracked_files()
        if len(file.parts) > 1 and file.parts[0] not in NOT_PACKAGE and file.parts[0][0] != "."
    ]
    stubs = [file for file in tracked_files() if file.suffix == ".pyi" and len(file.parts) == 1]
    root = (Path("py.typed"), *stubs)
    return sorted({f"{PACKAGE}/{file.as_posix()}" for file in (*root, *module_files(), *data)})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # Built from a copy: setuptools leaves a build folder, and takes what an old one holds.
    for file in tracked_files():
        (folder / "source" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPO / file, folder / "source" / file)
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder)
    pip("wheel", *options, folder / "source")
    [built] = folder.glob("*.whl")
    return built


def test_every_folder_of_the_package_is_a_package():
    folders = {file.parent for file in module_files()}
    assert [str(folder) for folder in folders if not (REPO / folder / "__init__.py").exists()] == []


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    held = sorted(name for name in names if not name.split("/")[0].endswith(".dist-info"))
    assert held == expected_files(), "see `packages` and `package-data` in pyproject.toml"


def test_wheel_works_where_it_is_installed(wheel, tmp_path):
    target = tmp_path / "site"
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    found = [full_name(file) for file in module_files() if file.stem != "__main__"]
    modules = [name for name in found if name not in OPTIONAL or find_spec(OPTIONAL[name])]
    program = f"""
import importlib, sys
sys.path.insert(0, {str(target)!r})
for name in {modules!r}:
    module = importlib.import_module(name)
    assert module.__file__.startswith({str(target)!r}), module.__file__
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
