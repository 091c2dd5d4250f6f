"""What holds for every file of the repository: sizes, names, nothing of the author's machine."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

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

# Names that are the same in several folders because Python asks for them.
PYTHON_NAMES = {"__init__.py", "__main__.py"}

# Words for which the field has a term, and the term.
BANNED_FILES = {
    "added": "addmm",
    "arrange": "pad_repeat, flip_repeat",
    "blend": "elementwise_nary",
    "borders": "padding",
    "changes": "mutations",
    "classloss": "cross_entropy",
    "common": "cse",
    "cut": "partition",
    "device_number": "device_scalar",
    "early": "overlap",
    "ending": "epilogue",
    "flow": "layout_graph",
    "folds": "reductions",
    "lazy": "prologue",
    "moment": "variance",
    "movement": "copy, boxing_calls",
    "nest": "pytree",
    "not_offered": "unsupported",
    "on_the_way": "async_boxing",
    "order": "sort, argreduce",
    "places": "scatter_gather",
    "read_index": "index_parsing",
    "runs": "segment_reduce",
    "smooth": "special_functions",
    "table": "coverage",
    "tape": "launch_trace, autograd_tape",
    "twin": "kernels",
    "unused": "dead_code",
    "words": "philox",
    "works": "wait",
}
BANNED_NAMES = {
    "Ended": "FusedEpilogue",
    "Lazy": "Prologue",
    "NotNoted": "NotTraceable",
    "NotOffered": "Unsupported",
    "Shadow": "FakeTensor",
    "Step": "BoxingStep, ProgramStep, ExpressionStep, CallStep, StepDecay",
    "assert_twin": "assert_matches_reference",
    "class_loss": "cross_entropy",
    "device_number": "device_scalar",
    "drop_unused": "eliminate_dead",
    "nest": "tree",
    "on_diagonal": "diag_embed",
    "pad_back": "pad_grad",
    "share_common": "eliminate_common",
    "shadow": "fake",
    "start_early": "overlap_communication",
    "to_be_folded": "as_prologue",
    "twin": "triton_kernel",
    "twins": "triton_kernels",
    "windows_back": "unfold_grad",
}

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


def repeated_names(files):
    """File names that stand in more than one folder, with their paths."""
    places = defaultdict(list)
    for file in files:
        places[file.name].append(file.as_posix())
    return {
        name: paths for name, paths in places.items() if len(paths) > 1 and name not in PYTHON_NAMES
    }


def word_faults(name, text):
    """Identifiers for which the field has another term."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string.strip("_") in BANNED_NAMES:
            term = BANNED_NAMES[token.string.strip("_")]
            yield f"{name}:{token.start[0]}: {token.string}: write {term}"


def read(files):
    return ((file, (REPO / file).read_text(errors="replace")) for file in files)


def test_no_file_names_a_machine_or_leaves_work():
    assert [fault for file, text in read(FILES) for fault in text_faults(file, text)] == []


def test_files_and_functions_are_short():
    assert [fault for file, text in read(WITHOUT_TESTS) for fault in size_faults(file, text)] == []


def test_every_module_says_what_it_is():
    assert [fault for file, text in read(PYTHON) for fault in docstring_faults(file, text)] == []


def test_file_names_are_unique():
    """A name alone tells which file is meant, in an editor, a traceback or a review."""
    assert repeated_names(WITHOUT_TESTS) == {}


def test_files_have_the_names_of_the_field():
    named = {file.stem: file.as_posix() for file in WITHOUT_TESTS}
    assert {named[word]: term for word, term in BANNED_FILES.items() if word in named} == {}


def test_identifiers_are_the_terms_of_the_field():
    package = [file for file in WITHOUT_TESTS if file.parts[0] not in NOT_PACKAGE]
    assert [fault for file, text in read(package) for fault in word_faults(file, text)] == []


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


def test_a_repeated_name_is_noticed():
    files = [Path(name) for name in ("a/plan.py", "b/plan.py", "a/__init__.py", "b/__init__.py")]
    assert repeated_names(files) == {"plan.py": ["a/plan.py", "b/plan.py"]}


def test_a_banned_word_is_noticed():
    text = "x = 1  # no twin\n_twin = x.shadow\ntwinned = 2\n"
    assert list(word_faults("f", text)) == [
        "f:2: _twin: write triton_kernel",
        "f:2: shadow: write fake",
    ]


def test_a_missing_docstring_is_noticed():
    assert list(docstring_faults("x", "a = 1\n")) == ["x: no docstring"]
    assert list(docstring_faults("x", "")) == []
