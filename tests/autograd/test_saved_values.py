"""The tape keeps what the wanted gradients need, and no more: every op, compared with torch."""

import pytest
import samples
import torch
from kept_values import choices, kept_by_torch, kept_on_tape

import onefold as flow
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import cotangent, difference, spread, value_of

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")

SAMPLES = [sample for sample in samples.load() if sample.grad and choices(sample.tensors())]
IDS = [f"{index}-{sample!r}"[:120] for index, sample in enumerate(SAMPLES)]

# Where more is kept than by torch, and why.
MORE = {
    name: reason
    for reason, names in {
        "one kernel makes all gradients from all inputs": """
            scaled_dot_product_attention attention_varlen multi_head_attention_forward
            linear_cross_entropy""",
        "inputs of a fused loss, where torch makes a difference and keeps that": """
            l1_loss mse_loss smooth_l1_loss""",
        "the sums of logits, in place of which torch has the logits' softmax": "cross_entropy",
        "statistics and scales that torch has in fewer pieces": """
            batch_norm batch_norm_train""",
        "the normalized input, which the gradient of the weight needs": "group_norm instance_norm",
        "a mask in the dtype of the input": "alpha_dropout",
        "integers, which torch has as Python numbers or copies": """
            getitem setitem masked_scatter grouped_rows grouped_sums""",
        "what is clamped from above is clamped from below first": "clamp",
        "a wider copy, in which it is computed": "prod vector_norm cumprod",
        "gates that torch keeps together": "gru_cell",
        "memory with gaps": "rotary",
        "inputs of a function of torch, which is run again in backward": """
            interpolate chain_matmul matrix_power native_channel_shuffle""",
        "inputs, for gradients of gradients": """
            affine_grid linalg.vecdot trapezoid cartesian_prod inverse native_group_norm
            rnn_tanh rnn_relu gru lstm""",
    }.items()
    for name in names.split()
}


def leaves_of(tensors, wanted):
    for index in wanted:
        tensors[index].requires_grad_()
    return [tensors[index] for index in sorted(wanted)]


def gradients(outputs, leaves, grad, make, seed):
    ends = [(i, y) for i, y in enumerate(outputs) if y.requires_grad]
    if not ends:
        return [None] * len(leaves)
    seeds = [make(cotangent(y.shape, y.dtype, seed + i)) for i, y in ends]
    return grad([y for _, y in ends], leaves, seeds, allow_unused=True)


def in_torch(sample, wanted):
    """The gradients for the wanted inputs, and the bytes that torch keeps for them."""
    tensors = sample.tensors()
    leaves = leaves_of(tensors, wanted)
    outputs, memory = kept_by_torch(lambda: sample.run_torch(tensors))
    return gradients(outputs, leaves, torch.autograd.grad, torch.clone, sample.seed), memory.total


def here(sample, wanted, make):
    tensors = make(sample.tensors())
    leaves = leaves_of(tensors, wanted)
    outputs = sample.run(tensors)
    total = kept_on_tape(outputs).total
    found = gradients(outputs, leaves, flow.autograd.grad, make_local, sample.seed)
    return found, total


def make_locals(values):
    return [make_local(value) for value in values]


def more_than_in_torch(sample):
    """The inputs of which the gradients keep more, with the bytes; checks the gradients, too."""
    found = []
    for wanted in choices(sample.tensors()):
        theirs, most = in_torch(sample, wanted)
        ours, total = here(sample, wanted, make_locals)
        for x, y in zip(ours, theirs, strict=True):
            text = difference(None if x is None else value_of(x), y, sample.tol)
            assert text == "", f"gradients of {wanted}: {text}"
        if total > most:
            found.append((wanted, total, most))
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_no_more_is_kept_than_in_torch(sample):
    found = more_than_in_torch(sample)
    assert found == [] or sample.name in MORE


@pytest.mark.parametrize("name", MORE)
def test_no_exception_is_stale(name):
    assert any(more_than_in_torch(sample) for sample in SAMPLES if sample.name == name)


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_some_gradients_of_global_tensors(sample, world):
    """A gradient for some of the inputs needs nothing that is not there."""
    placement, values = Placement("cpu", [0, 1]), sample.tensors()
    layouts = next(iter(spread(values, placement, 1, sample.seed)))

    def make(values):
        pairs = zip(values, layouts, strict=True)
        return [make_global(value, placement, sbp, sample.seed) for value, sbp in pairs]

    def make_seed(value):
        return make_global(value, placement, (broadcast,), sample.seed)

    for wanted in choices(values, most=3):
        theirs, _ = in_torch(sample, wanted)
        tensors = make(sample.tensors())
        leaves = leaves_of(tensors, wanted)
        outputs = sample.run(tensors)
        ours = gradients(outputs, leaves, flow.autograd.grad, make_seed, sample.seed)
        for x, y in zip(ours, theirs, strict=True):
            text = difference(None if x is None else value_of(x), y, sample.tol)
            assert text == "", f"gradients of {wanted}: {text}"


# Writes to inputs and results.

CHANGED = {
    name: reason
    for reason, names in {
        "the fused kernel reads its inputs, where torch has copies or what it made of them": """
            scaled_dot_product_attention multi_head_attention_forward cross_entropy
            l1_loss smooth_l1_loss rms_norm""",
        "products read their operands as they are, torch sometimes a copy": """
            einsum tensordot matmul""",
        "the gradient reads the result": "erfinv lp_pool1d lp_pool2d lp_pool3d",
        "the gradient reads the input": "tanhshrink inverse",
        "a function of torch is run again in backward": """
            interpolate matrix_power""",
        "gradients of gradients read the inputs": """
            cartesian_prod trapezoid rnn_tanh rnn_relu gru lstm""",
    }.items()
    for name in names.split()
}
TORCHS = [(sample, i) for sample, i in zip(SAMPLES, IDS, strict=True) if sample.torch is None]


def after_a_write(sample, wanted, where, make, run):
    """The gradients for the wanted inputs, one tensor having been changed before backward."""
    leaves = leaves_of(tensors := make(sample.tensors()), wanted)
    tensors = [x.clone() if x.requires_grad else x for x in tensors]
    outputs = run(list(tensors))
    kind, index = where
    written = (tensors if kind == "input" else outputs)[index]
    written.logical_not_() if written.dtype == torch.bool else written.mul_(3)
    ends = [y for y in outputs if y.requires_grad]
    if not ends:
        return []
    sum((y * y.detach().conj()).sum().abs() for y in ends).backward()
    return [x.grad for x in leaves]


def surprises(sample):
    """The writes that are no error in torch, but are one here, or give another gradient."""
    values, found = sample.tensors(), []
    count = len(sample.run_torch(sample.tensors()))
    places = [("input", i) for i in range(len(values))] + [("result", i) for i in range(count)]
    for wanted in choices(values, most=3):
        for where in places:
            try:
                theirs = after_a_write(sample, wanted, where, list, sample.run_torch)
            except (RuntimeError, TypeError):
                continue
            try:
                ours = after_a_write(sample, wanted, where, make_locals, sample.run)
            except flow.OnefoldError as error:
                found.append((wanted, where, str(error)))
                continue
            for x, y in zip(ours, theirs, strict=True):
                text = difference(None if x is None else value_of(x), y, 1e3 * sample.tol)
                found += [(wanted, where, text)] * bool(text)
    return found


@pytest.mark.parametrize("sample", [s for s, _ in TORCHS], ids=[i for _, i in TORCHS])
def test_inputs_and_results_may_change_where_they_may_in_torch(sample):
    assert surprises(sample) == [] or sample.name in CHANGED


@pytest.mark.parametrize("name", CHANGED)
def test_no_exception_of_writes_is_stale(name):
    assert any(surprises(sample) for sample, _ in TORCHS if sample.name == name)
