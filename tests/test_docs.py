"""Every code block of the pages and every example of the docstrings does what it shows."""

import doctest
import importlib
import inspect
import re

import numpy as np
import pytest
import torch
from doc_blocks import blocks, command_faults, examples, links, output_faults
from source_tree import OPTIONAL, REPO, full_name, module_files, tracked_files

import onefold

FILES = tracked_files()
PAGES = [
    file.as_posix()
    for file in FILES
    if file.suffix == ".md" and (len(file.parts) == 1 or file.parts[0] == "docs")
]
PATHS = {path.as_posix() for file in FILES for path in (file, *file.parents)}
TARGETS = set(re.findall(r"^([\w-]+):", (REPO / "Makefile").read_text(), re.MULTILINE))

# `python -m` programs run when imported.
MODULES = [full_name(file) for file in module_files() if file.stem != "__main__"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_first_pages_exist():
    assert {"README.md", "CONTRIBUTING.md"} <= set(PAGES)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("page", PAGES)
def test_page_shows_what_its_code_prints(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a page may write files
    assert output_faults((REPO / page).read_text(), page) == []


@pytest.mark.parametrize("page", PAGES)
def test_page_names_commands_that_exist(page):
    assert list(command_faults((REPO / page).read_text(), TARGETS, PATHS)) == []


@pytest.mark.parametrize("page", PAGES)
def test_page_links_to_files_that_exist(page):
    folder = (REPO / page).parent
    assert [link for link in links((REPO / page).read_text()) if not (folder / link).exists()] == []


def path_faults(page):
    """Files and folders that a page names in backticks and that do not exist."""
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.py))`", page)
    return [path for path in named if "/" in path and path.rstrip("/") not in PATHS]


@pytest.mark.parametrize("page", PAGES)
def test_page_names_files_that_exist(page):
    assert path_faults((REPO / page).read_text()) == []


def test_the_architecture_page_names_every_layer():
    page = (REPO / "docs/architecture.md").read_text()
    folders = {file.parts[0] for file in module_files() if len(file.parts) > 1}
    assert [folder for folder in sorted(folders) if f"{folder}/" not in page] == []


class Finder(doctest.DocTestFinder):
    """Finds the examples of functions with a boundary (`engine/boundaries.py`), too."""

    def _from_module(self, module, value):
        return super()._from_module(module, inspect.unwrap(value))


def docstring_failures(module):
    """Run a module's examples; they may use flow (or onefold), torch and np at once."""
    report = []
    space = {"flow": onefold, "onefold": onefold, "torch": torch, "np": np, **vars(module)}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in Finder().find(module, globs=space):
        if test.examples:
            runner.run(test, out=report.append)
    return "".join(report)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, tmp_path, monkeypatch):
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    failures = docstring_failures(module)
    assert not failures, failures


# The checks themselves.

PAGE = """
# Title

```python
x = 1
print("a", x)
```

```text
a 1
```

Names live on from block to block.

```python
print(x + 1)
```
{between}
```output
{shown}
```

```text
a diagram
```
"""


def test_a_page_is_run_as_one_program():
    page = PAGE.format(between="", shown="2")
    assert [block.line for block in blocks(page)] == [5, 10, 16, 20, 24]
    assert [shown for _, shown in examples(page)] == ["a 1\n", "2\n"]
    assert output_faults(page, "page") == []
    assert output_faults(PAGE.format(between="", shown="..."), "page") == []


def test_a_page_without_code_is_accepted():
    assert output_faults("# Title\n\n```text\na diagram\n```\n", "page") == []
    assert output_faults("", "page") == []


def test_a_wrong_output_is_noticed():
    page = PAGE.format(between="", shown="3")
    wrong = "page:16: the page shows\n3\n\nbut the code printed\n2\n"
    assert output_faults(page, "page") == [wrong]
    page = page.replace("a 1", "a 2")
    assert [fault[:8] for fault in output_faults(page, "page")] == ["page:5: ", "page:16:"]


def test_output_after_prose_belongs_to_no_block():
    page = PAGE.format(between="Some words.", shown="3")
    assert [shown for _, shown in examples(page)] == ["a 1\n", None]


def test_an_indented_block_is_run():
    page = "1. Do\n\n   ```python\n   if True:\n       print(1)\n   ```\n   ```text\n   1\n   ```\n"
    assert output_faults(page, "page") == []
    (fault,) = output_faults(page.replace("   1\n", "   2\n"), "page")
    assert "the page shows\n2\n" in fault


def test_an_error_in_a_block_is_raised():
    with pytest.raises(ZeroDivisionError):
        output_faults("```python\n1 / 0\n```\n", "page")


def test_a_skipped_block_needs_a_reason_and_must_compile():
    assert output_faults("```python skip: needs two GPUs\n1 / 0\n```\n", "page") == []
    (fault,) = output_faults("```python skip\n1 / 0\n```\n", "page")
    assert "write `python` or `python skip: reason`, not `python skip`" in fault
    with pytest.raises(SyntaxError):
        output_faults("```python skip: needs two GPUs\n1 /\n```\n", "page")


def test_a_missing_target_script_or_link_is_noticed():
    page = "```bash\nmake demo\nmake tea\npython examples/a.py\n```\n[a](b.md#c) [d](https://e)"
    assert list(command_faults(page, {"demo"}, {"examples"})) == [
        "line 2: the Makefile has no target tea",
        "line 2: there is no examples/a.py",
    ]
    assert links(page) == ["b.md"]
    assert len(list(command_faults(f"{page}\n{ADDED}", {"demo"}, {"examples"}))) == 1


ADDED = """
```diff
--- /dev/null
+++ b/examples/a.py
@@
+print(1)
```
"""


def test_a_missing_file_is_noticed():
    page = "`engine/op.py`, `engine/ops/`, `engine/gone.py`, `gone/`, `x.py`, `a/b`, `kernels/*.py`"
    assert path_faults(page) == ["engine/gone.py", "gone/"]


@pytest.mark.parametrize(("shown", "fails"), [("2", False), ("3", True)])
def test_a_wrong_docstring_is_noticed(tmp_path, monkeypatch, shown, fails):
    name = f"doctest_sample_{shown}"
    (tmp_path / f"{name}.py").write_text(
        f'def f():\n    """One.\n\n    >>> 1 + 1\n    {shown}\n    >>> torch.ones(1).item()\n'
        '    1.0\n    """\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    failures = docstring_failures(importlib.import_module(name))
    assert bool(failures) == fails
    assert ("Expected:\n    3\nGot:\n    2" in failures) == fails
