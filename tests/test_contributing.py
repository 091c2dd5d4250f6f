"""The changes that CONTRIBUTING.md shows are applied to a copy of the repository and tested."""

import os
import shutil
import subprocess
import sys

import pytest
from contributing import Change, apply, changes
from source_tree import PACKAGE, REPO

CHANGES = changes((REPO / "CONTRIBUTING.md").read_text())


@pytest.fixture
def copy(tmp_path):
    """A copy of the repository, which is the package where its parent is on the path."""
    # With its compiled modules, which are valid while the times of files are kept.
    ignored = shutil.ignore_patterns(".*", "build", "dist")
    return shutil.copytree(REPO, tmp_path / PACKAGE, ignore=ignored)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.title)
def test_a_change_that_is_shown_works(copy, change):
    changed = [name for diff in change.diffs for name in apply(copy, diff)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    env |= {"PYTHONPATH": str(copy.parent), "PATH": f"{copy}:{env['PATH']}"}
    for name, module in (("pytest", "-m pytest -p no:cacheprovider -q"), ("python", "")):
        (copy / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (copy / name).chmod(0o755)
    ruff = f'"{sys.executable}" -m ruff'
    files = " ".join(changed)
    lint = [f"{ruff} check -q {files}", f"{ruff} format -q --check {files}"]
    for command in (*lint, *change.commands):
        done = subprocess.run(
            command, shell=True, cwd=copy, env=env, capture_output=True, text=True, timeout=400,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_every_change_is_tested():
    assert len(CHANGES) >= 2
    assert all(change.diffs and change.commands for change in CHANGES)


# The reader of changes itself.

PAGE = """
## One

```diff
--- a/x.py
+++ b/x.py
@@
 a = 1
+b = 2
-c = 3
--- /dev/null
+++ b/new/y.py
@@
+d = 4
```

```sh
pytest tests
```

## Two

No change.
"""


def test_a_page_is_read_and_applied(tmp_path):
    (change,) = changes(PAGE)
    assert (change.title, change.commands) == ("One", ["pytest tests"])
    (tmp_path / "x.py").write_text("first\na = 1\nc = 3\nlast\n")
    for diff in change.diffs:
        apply(tmp_path, diff)
    assert (tmp_path / "x.py").read_text() == "first\na = 1\nb = 2\nlast\n"
    assert (tmp_path / "new/y.py").read_text() == "d = 4\n"


@pytest.mark.parametrize("text", ["a = 1\n", "a = 1\nc = 3\na = 1\nc = 3\n"])
def test_a_place_that_is_not_there_once_is_an_error(tmp_path, text):
    (tmp_path / "x.py").write_text(text)
    (change,) = changes(PAGE)
    assert isinstance(change, Change)
    with pytest.raises(ValueError, match=r"x\.py has these lines [02] times"):
        apply(tmp_path, change.diffs[0])


def test_a_file_that_is_not_there_or_is_no_new_one_is_an_error(tmp_path):
    (change,) = changes(PAGE)
    with pytest.raises(ValueError, match=r"x\.py does not exist"):
        apply(tmp_path, change.diffs[0])
    (tmp_path / "x.py").write_text("a = 1\nc = 3\n")
    (tmp_path / "new").mkdir()
    (tmp_path / "new/y.py").write_text("")
    with pytest.raises(ValueError, match=r"new/y\.py exists"):
        apply(tmp_path, change.diffs[0])
