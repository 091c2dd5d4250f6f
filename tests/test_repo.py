"""What holds for every file of the repository: sizes, and nothing of the author's machine."""

import ast
import re

import pytest
from source_tree import NOT_PACKAGE, REPO, tracked_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 90

# In pieces, so that this file does not name them either.
_ROOTS = "work farm root home,[a-z]+ Users,[A-Za-z]+ tmp,w opt,pypi".replace(",", "/").split()
MACHINE = re.compile(
    r"(?<![\w.])/(?:" + "|".join(_ROOTS) + r")\b/?"
    r"|\.\./" + "shared"
    r"|(?:pypi|pytorch|pythonhosted)\." + "org/(?:simple|whl|packages)"
)
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")

FILES = tracked_files()
PYTHON = [file for file in FILES if file.suffix == ".py"]
WITHOUT_TESTS = [file for file in PYTHON if file.parts[0] != "tests"]


def text_faults(name, text):
    """Lines that name a machine's paths or a package host, or say that work is left."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := MACHINE.search(line) or UNFINISHED.search(line):
            yield f"{name}:{number}: {found[0]}"


def size_faults(name, text):
    """A file or function that has outgrown one idea."""
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{name}: {lines} lines, at most {MAX_FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                place = f"{name}:{node.lineno} {node.name}"
                yield f"{place}: {length} lines, at most {MAX_FUNCTION_LINES}"


def docstring_faults(name, text):
    """A module whose docstring does not name its idea."""
    if text.strip() and not (ast.get_docstring(ast.parse(text)) or "").strip():
        yield f"{name}: no docstring"


def read(files):
    return ((file, (REPO / file).read_text(errors="replace")) for file in files)


def test_no_file_names_a_machine_or_leaves_work():
    assert [fault for file, text in read(FILES) for fault in text_faults(file, text)] == []


def test_files_and_functions_are_short():
    assert [fault for file, text in read(WITHOUT_TESTS) for fault in size_faults(file, text)] == []


def test_every_module_says_what_it_is():
    assert [fault for file, text in read(PYTHON) for fault in docstring_faults(file, text)] == []


def test_tests_are_collected():
    """A test file outside tests/, or with another name, would never run."""
    strays = [
        str(file)
        for file in PYTHON
        if (file.name.startswith("test_") or file.name.endswith("_test.py"))
        and (file.parts[0] != "tests" or file.name.endswith("_test.py"))
    ]
    assert strays == []
    assert "tests" in NOT_PACKAGE


@pytest.mark.parametrize(
    "line",
    [
        "see /" + "root" + "/notes",
        "open('/" + "work" + "/main/x')",
        "cd ../" + "shared",
        "--index https://download.pytorch." + "org/whl/cpu",
        "# TO" + "DO later",
    ],
)
def test_a_bad_line_is_noticed(line):
    assert len(list(text_faults("x", f"fine\n{line}\n"))) == 1


@pytest.mark.parametrize(
    "line",
    ["/" + "work" + "load/ b", "network/" + "root" + "/leaf", "TO" + "DOS", "pytorch.org/docs"],
)
def test_a_good_line_is_accepted(line):
    assert list(text_faults("x", line)) == []


def test_a_long_file_and_a_long_function_are_noticed():
    long = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
    assert list(size_faults("x", long)) == [
        f"x:1 f: {MAX_FUNCTION_LINES + 1} lines, at most {MAX_FUNCTION_LINES}"
    ]
    assert list(size_faults("x", "a = 1\n" * (MAX_FILE_LINES + 1))) == [
        f"x: {MAX_FILE_LINES + 1} lines, at most {MAX_FILE_LINES}"
    ]
    assert list(size_faults("x", "a = 1\n" * MAX_FILE_LINES)) == []


def test_a_missing_docstring_is_noticed():
    assert list(docstring_faults("x", "a = 1\n")) == ["x: no docstring"]
    assert list(docstring_faults("x", "")) == []
