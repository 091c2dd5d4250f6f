"""The changes that a page shows: the diffs of a section, and the commands that test them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from doc_blocks import blocks

_FILE = re.compile(r"^--- (.*)\n\+\+\+ b/(.*)\n((?:(?!--- ).*\n?)*)", re.MULTILINE)


@dataclass
class Change:
    """One section of a page."""

    title: str
    diffs: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def changes(page: str) -> list[Change]:
    """The sections that show a change: their diffs, and the lines of the `sh` blocks behind."""
    found = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        change = Change(section.partition("\n")[0])
        for block in blocks(section):
            if block.language == "diff":
                change.diffs.append(block.body)
            elif block.language == "sh" and change.diffs:
                change.commands += block.body.strip().splitlines()
        if change.diffs:
            found.append(change)
    return found


def apply(root: Path, diff: str) -> list[str]:
    """Change the files under `root` as a diff says; their names.

    A hunk needs no line numbers. Raises ValueError unless the lines that it keeps and removes are
    in the file exactly once, and for a new file that exists.
    """
    names = []
    for old_name, name, hunks in _FILE.findall(diff):
        path = root / name
        if path.exists() == (old_name == "/dev/null"):
            raise ValueError(f"{name} {'exists' if path.exists() else 'does not exist'}")
        text = path.read_text() if path.exists() else ""
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = [line or " " for line in hunk.splitlines()]
            old = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
            new = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
            count = text.count(old) if path.exists() else 1
            if count != 1:
                raise ValueError(f"{name} has these lines {count} times:\n{old}")
            text = text.replace(old, new) if path.exists() else new
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        names.append(name)
    return names
