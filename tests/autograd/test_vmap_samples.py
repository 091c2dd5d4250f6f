"""vmap calls every sample of the ops once for all rows, with the results of a call for each."""

from collections import Counter
from unittest import mock

import pytest
import samples
from vmap_checks import differences, mixes, rows_of

import onefold as flow
from onefold.func import batching_rules
from onefold.testing.samples import Sample, T

SAMPLES = [sample for sample in samples.load() if rows_of(sample)]

# Ops that some samples run row by row.
LOOPED = set(
    """
    _embedding_bag add_at affine_grid affine_grid_backward cartesian_prod
    cartesian_prod_backward cat conv_tbc conv_tbc_backward cross_entropy cross_entropy_grad
    embedding embedding_grad fake_quantize_per_channel_affine fake_quantize_per_tensor_affine
    first_index fold gated gated_grad gather grouped_rows grouped_sums gru gru_backward
    index_reduce layer_norm_and_low_copy layer_norm_input_grad
    layer_norm_with_stats_and_low_copy linalg.multi_dot linalg.multi_dot_backward linear
    linear_cross_entropy linear_cross_entropy_with_grads linear_cross_entropy_with_input_grad
    lstm lstm_backward matmul_nt_widened matmul_widened max_unpool1d max_unpool2d max_unpool3d
    max_unpool_take median mm_nt_widened mm_tn_widened mm_widened nanmedian native_group_norm
    native_group_norm_backward nll_loss nll_loss_grad packed_attention paged_attention place
    quantize_fp8 rms_norm_and_low_copy rnn_relu rnn_relu_backward rnn_tanh rnn_tanh_backward
    rotary rows_tn_widened scaled_matmul searchsorted target_weights trapezoid
    trapezoid_backward vander
    """.split()
)
# Functions of which the number of elements of the result, or what they check, depends on values.
READ = {"getitem", "masked_scatter", "one_hot", "setitem"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sample", SAMPLES, ids=repr)
def test_rows_at_once(sample):
    # Gradients inside the function, or outside of it: there are too many samples for both.
    every, *others = mixes(len(rows_of(sample)))
    kinds = [(every, sample.grad and sample.seed % 2 == 0)]
    if others:
        kinds.append((others[sample.seed // 2 % 2], False))
    for in_dims, inner in kinds:
        text, calls = differences(sample, in_dims, inner)
        assert not text, (in_dims, inner)
        if calls is not None:
            assert not calls.refusals or sample.name in READ
            assert calls.looped <= LOOPED


def test_most_samples_have_rules():
    looped = Counter()
    for sample in SAMPLES[::7]:
        _, calls = differences(sample, mixes(len(rows_of(sample)))[0], False)
        looped[calls is not None and not calls.looped and not calls.refusals] += 1
    assert looped[True] > 0.9 * looped.total()


def test_a_wrong_rule_is_found():
    def wrong(call):
        return flow.zeros(call.size, *call.shape, dtype=call.metas[0].dtype)

    sample = Sample("sum", (T(4, 3), 0), grad=False)
    assert differences(sample, (0,), False)[0] == ""
    with mock.patch.dict(batching_rules.RULES, {"sum": wrong}):
        assert "differs by" in differences(sample, (0,), False)[0]


def test_results_of_another_shape_are_not_taken():
    def wrong(call):
        return flow.zeros(call.size, *call.shape, 1, dtype=call.metas[0].dtype)

    sample = Sample("sum", (T(4, 3), 0), grad=False)
    with mock.patch.dict(batching_rules.RULES, {"sum": wrong}):
        text, calls = differences(sample, (0,), False)
    assert (text, calls.looped) == ("", {"sum"})
