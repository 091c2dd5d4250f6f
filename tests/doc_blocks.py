"""Code blocks of a Markdown page: found, run in order, and compared with the output shown."""

import contextlib
import doctest
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>[^\n`]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=ticks) *$",
    re.MULTILINE | re.DOTALL,
)
_OUTPUT = ("text", "output")
_SCRIPT = re.compile(r"(?<![\w/.])(?:examples|benchmarks|tests)/[\w/.-]*\w")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    options: str  # what follows the language on the fence
    body: str
    line: int  # of the first line of the body
    follows: bool  # only blank lines stand between it and the block before


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    found = []
    end = 0
    for match in _FENCE.finditer(page):
        language, _, options = match["info"].strip().partition(" ")
        body = re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        line = page.count("\n", 0, match.start("body")) + 1
        follows = bool(found) and not page[end : match.start()].strip()
        found.append(Block(language, options.strip(), body, line, follows))
        end = match.end()
    return found


def examples(page: str) -> Iterator[tuple[Block, str | None]]:
    """The python blocks, each with the output shown directly below it, if any."""
    for block, after in itertools.pairwise([*blocks(page), None]):
        if block and block.language == "python":
            shown = after and after.follows and after.language in _OUTPUT
            yield block, after.body if after and shown else None


def output_faults(page: str, name: str) -> list[str]:
    """Run a page's python blocks as one program; where it prints other than the page shows.

    `...` in what is shown stands for any text. A block marked ```` ```python skip: reason ```` is
    for machines that tests cannot have; it is compiled and not run.
    """
    space: dict[str, object] = {"__name__": "__main__"}
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    faults = []
    for block, expected in examples(page):
        # Blank lines first, so that a traceback shows the line of the page.
        code = compile("\n" * (block.line - 1) + block.body, name, "exec")
        if block.options:
            if not re.fullmatch(r"skip: \w.+", block.options):
                faults.append(
                    f"{name}:{block.line}: write `python` or `python skip: reason`, "
                    f"not `python {block.options}`"
                )
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, space)
        if expected is not None and not checker.check_output(expected, out.getvalue(), flags):
            faults.append(
                f"{name}:{block.line}: the page shows\n{expected}\nbut the code printed\n"
                f"{out.getvalue()}"
            )
    return faults


def command_faults(page: str, targets: set[str], files: set[str]) -> Iterator[str]:
    """Shell commands on a page that name a make target or a script that does not exist.

    A script that a diff on the page adds exists.
    """
    diffs = [block.body for block in blocks(page) if block.language == "diff"]
    files = files.union(*[re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE) for diff in diffs])
    for block in blocks(page):
        if block.language not in {"bash", "console", "sh", "shell"}:
            continue
        for target in re.findall(r"^\$? ?make ([\w-]+)", block.body, re.MULTILINE):
            if target not in targets:
                yield f"line {block.line}: the Makefile has no target {target}"
        for script in _SCRIPT.findall(block.body):
            if script not in files:
                yield f"line {block.line}: there is no {script}"


def links(page: str) -> list[str]:
    """Relative targets of the page's links, without their #anchors."""
    text = _FENCE.sub("", page)
    found = re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", text)
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]
