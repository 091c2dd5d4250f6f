"""Writes docs/ops.md: what each public op takes of layouts, its gradient, and what runs it on cuda.

`python tests/ops_page.py` (or `make ops`) rewrites the page from the rules of the ops: those of
the op calls that the first sample of each function makes.
"""

import sys
import warnings
from itertools import chain, islice, repeat
from pathlib import Path

import op_table
import operator_database as database
import samples
import torch

from onefold.engine.meta import Meta
from onefold.engine.names import all_names, find_name
from onefold.engine.op import Op
from onefold.engine.ops import NOT_PUBLIC
from onefold.engine.ops.creation import tensor
from onefold.engine.ops.recorded_graph import Recorded
from onefold.engine.ops.torch_op import TorchOp
from onefold.engine.signature import Axis
from onefold.engine.tensor import Tensor
from onefold.errors import OnefoldError
from onefold.testing.recording import record
from onefold.testing.samples import flat, word

PAGE = Path(__file__).parent.parent / "docs" / "ops.md"
HEADER = """\
# Ops

Every op that takes tensors, and how it can be laid out. `make ops` writes this page from the rules
of the ops, and a test fails when it is stale.

- **Call**: the call that the row describes. Where smaller ops do the work, they follow in
  parentheses.
- **Layouts**: the layouts of inputs and outputs that need no communication, for one mesh axis. `S0`
  is split along dim 0, `B` is broadcast, `P` is a partial sum, `PMAX` and `PMIN` are partial
  extrema. All inputs broadcast is always possible and is left out. Inputs in any other layout are
  moved first. "in parts" means that the op has smaller ops for split inputs, which combine what the
  ranks find. For a call of several ops, the layouts are theirs.
- **Gradient**: "yes" where it is made of ops, so that it can be differentiated again in every
  layout; "torch's" where it is torch's own for the function; otherwise "no".
- **On cuda**: "Triton", "torch" for functions that are torch's on every device, or "view" where no
  data is touched.
- **Checked**: how far the op agrees with torch in every sample of torch's own operator database,
  under random uneven layouts. A dash means that the database cannot tell.

"""
COLUMNS = ("Call", "Layouts", "Gradient", "On cuda", "Checked")
PARTS = 2
LOOKED_AT = 12  # samples of torch's


def page():
    """The text of the page."""
    checked = stages()
    lines = [
        HEADER,
        f"| {' | '.join(COLUMNS)} |\n",
        f"|{'---|' * len(COLUMNS)}\n",
    ]
    for name, run in sorted(calls().items()):
        found = observed(run)
        if found is not None:
            columns = (*described(*found), checked.get(name, "-"))
            lines.append(f"| {' | '.join(columns)} |\n")
    return "".join(lines)


def stages():
    """How far each function comes in torch's database: its worst entry."""
    table = database.TABLE.read()
    found = {}
    for entry in database.DATABASE:
        stage, _ = table.get(database.name_of(entry), (database.STAGES[-1], ""))
        name = entry.name.removeprefix("nn.functional.")
        if stage == database.STAGES[0]:  # its values are random, or it is not called as torch does
            continue
        found[name] = min(found.get(name, stage), stage, key=database.STAGES.index)
    return found


def calls():
    """For each op, a function that calls it once and returns its arguments as text."""
    found = {}
    for sample in samples.load():
        if sample.call is None or sample.name in all_names():
            found.setdefault(sample.name, of_sample(sample))
    for entry in database.DATABASE:
        name = entry.name.removeprefix("nn.functional.")
        if name not in found and find_name(name) is not None and entry.dtypes:
            found[name] = of_entry(entry, name)
    return {name: run for name, run in found.items() if name not in NOT_PUBLIC and name[0] != "_"}


def of_sample(sample):
    def run(leaves):
        return repr(sample), sample.run([ours(value, leaves) for value in sample.tensors()])

    return run


def of_entry(entry, name):
    def run(leaves):
        torch.manual_seed(0)
        sample = plainest(entry)
        words = [word(value) for value in (sample.input, *sample.args)]
        words += [f"{key}={word(value)}" for key, value in sample.kwargs.items()]
        made = find_name(name)(
            *ours((sample.input, *sample.args), leaves), **ours(sample.kwargs, leaves)
        )
        return f"{name}({', '.join(words)})", flat(made, Tensor)

    return run


def plainest(entry):
    """The first sample of an entry with a matrix or more, of which a layout tells something."""
    inputs = entry.sample_inputs("cpu", database.dtype_of(entry), requires_grad=False)
    found = list(islice(inputs, LOOKED_AT))
    matrices = [
        sample
        for sample in found
        if isinstance(sample.input, torch.Tensor)
        and min(sample.input.shape[:2], default=0) > 1
        and sample.input.ndim > 1
    ]
    return [*matrices, *found][0]


def ours(value, leaves):
    """The value with tensors of ours in the place of torch's.

    `leaves` tells in turn of those of real numbers whether they require gradients.
    """
    if isinstance(value, torch.Tensor):
        x = tensor(value)
        return x.requires_grad_(next(leaves)) if x.is_floating_point() else x
    if isinstance(value, dict):
        return {key: ours(part, leaves) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(ours(part, leaves) for part in value)
    return value


def observed(run):
    """What is observed with gradients of all inputs, or of the first, if torch has no others."""
    found = observed_with(lambda: run(repeat(True)))
    return found or observed_with(lambda: run(chain((True,), repeat(False))))


def observed_with(run):
    """(the call as text, its outputs, the ops that it calls, what ran them), if there are any."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with record() as recorder:
                text, outputs = run()
            calls = recorder.calls.values()
            made = [x for x in calls if x.tensors and not isinstance(x.op, Recorded)]
            if not made:
                return None
            rows = ran(run)
    except (OnefoldError, TypeError, AttributeError, ValueError):
        return None
    return text, outputs, made, rows


def ran(run):
    """What ran the ops of a call. Random numbers are Triton's on cuda, and not drawn without."""
    with op_table.recording() as work:
        try:
            run()
        except AssertionError as error:
            if "no tensor on a GPU" not in str(error):
                raise
            return {"random": op_table.Row(("random_kernels",), ())}
    return work.rows()


def described(text, outputs, made, work):
    """The columns of an op, but the last."""
    ops = dict.fromkeys(call.op.name for call in made)
    only = len(made) == 1
    by = "" if only else f" ({', '.join(ops)})"
    layouts = rule_of(made[0]) if only else "those of its ops"
    return f"`{text}`{by}", layouts, gradient(outputs, made), runner(work)


def rule_of(call):
    """The layouts of a call on an axis of two ranks, as text."""
    metas = call.with_tensors(Meta.of(x.shape, x.dtype) for x in call.tensors)
    whole = tuple(tuple(x.shape) for x in call.tensors)
    rule = call.op.rule(Axis(PARTS, whole=whole), *metas, *call.op.attribute_args(call.attrs))
    found = [*map(str, rule), *["in parts"] * (type(call.op).decompose is not Op.decompose)]
    return "; ".join(found) or "broadcast only"


def gradient(outputs, made):
    if not any(output.requires_grad for output in outputs):
        return "no"
    return "torch's" if any(isinstance(call.op, TorchOp) for call in made) else "yes"


def runner(work):
    if any(row.torch for row in work.values()):
        return "torch"
    return "Triton" if any(row.triton for row in work.values()) else "view"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"written to {PAGE}\n")
