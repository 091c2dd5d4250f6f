"""Write-after-read hazards of wgmma in PTX: registers that change while it may still read them.

wgmma runs asynchronously to the instructions that follow it. Until `wgmma.wait_group` says that it
is done, its registers must stay as they are (PTX ISA, `wgmma.wait_group`). ptxas does not look, and
results are wrong on some runs. Triton 3.6 and 3.7 make such code where a first operand is loaded
from shared memory, reshaped, and multiplied in a loop (its issue 9433).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_LABEL = re.compile(r"^(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")
_WAIT = re.compile(r"\bwgmma\.wait_group\S*\s+(\d+)")
_OPERAND = re.compile(r"\{([^}]*)\}")
_WRITES = re.compile(r"^\s*(?:@!?%p\d+\s+)?[a-z][\w.:]*\s+(\{[^}]*\}|%r\d+)\s*,")
_REGISTER = re.compile(r"%r\d+")


def hazards(ptx: str) -> list[str]:
    """The instructions that write a register which an unfinished wgmma may read.

    Each loop is followed twice, so that what one step leaves unfinished meets the next one.

    >>> from onefold.kernels.aot.wgmma_hazards import hazards
    >>> loop = '''
    ... $L1:
    ... ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r9];
    ... wgmma.mma_async.sync {%r5, %r6}, {%r1, %r2}, %rd1, p, 1, 1, 1;
    ... wgmma.commit_group.sync.aligned;
    ... wgmma.wait_group.sync.aligned 1;
    ... @%p1 bra $L1;
    ... '''
    >>> hazards(loop)
    ['ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r9];']
    >>> hazards(loop.replace("aligned 1", "aligned 0"))
    []
    """
    lines = ptx.splitlines()
    labels = {label[1]: at for at, line in enumerate(lines) if (label := _LABEL.match(line))}
    found: dict[str, None] = {}
    for at, line in enumerate(lines):
        back = _BRANCH.search(line)
        if back and labels.get(back[1], at) < at:
            found |= dict.fromkeys(_hazards(lines[labels[back[1]] : at] * 2))
    return list(found)


def _hazards(lines: Sequence[str]) -> Iterator[str]:
    groups: list[set[str]] = []  # of registers that are read, the oldest first
    given: set[str] = set()  # in no group yet
    for line in lines:
        if "wgmma.mma_async" in line:
            for operand in _OPERAND.findall(line)[1:]:  # the first is the sum
                given |= set(_REGISTER.findall(operand))
        elif "wgmma.commit_group" in line:
            groups.append(given)
            given = set()
        elif waits := _WAIT.search(line):
            groups = groups[max(len(groups) - int(waits[1]), 0) :]
        elif (writes := _WRITES.match(line)) and not given.union(*groups).isdisjoint(
            _REGISTER.findall(writes[1])
        ):
            yield line.strip()
