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
            batch_norm batch_norm_train cosine_similarity""",
        "the normalized input, which the gradient of the weight needs": "group_norm instance_norm",
        "a mask in the dtype of the input": "alpha_dropout",
        "integers, which torch has as Python numbers or copies": """
            getitem setitem masked_scatter grouped_rows grouped_sums""",
        "what is clamped from above is clamped from below first": "clamp",
        "a wider copy, in which it is computed": "prod vector_norm cumprod",
        "gates that torch keeps together": "gru_cell",
        "memory with gaps": "rotary",
        "inputs of a function of torch, which is run again in backward": """
            interpolate chain_matmul matrix_power affine_grid linalg.vecdot trapezoid
            view_as_real view_as_complex cartesian_prod""",
        "inputs, for gradients of gradients": "rnn_tanh rnn_relu gru lstm",
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
