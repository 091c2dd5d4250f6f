"""Every op equals torch: values, dtypes, shapes, gradients and double gradients, in any layout."""

import pytest
import samples
from operator_database import right_names

from onefold.engine.methods import INPLACE
from onefold.engine.names import all_names, names
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, short, split
from onefold.testing import Sample, T
from onefold.testing.sample_checks import compare, global_results, local_results, reference, spread

# Layouts that no signature fits are gathered with a warning; that is tested with the dispatcher.
pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")

SAMPLES = samples.load()
IDS = [f"{index}-{sample!r}"[:120] for index, sample in enumerate(SAMPLES)]
MESHES = ([0, 1], [0, 1, 2], [[0, 1], [2, 3]])
LAYOUTS = (4, 3, 3)  # per mesh

# Names that are no function of tensors alone: where they are tested.
NOT_SAMPLED = {
    name: place
    for place, some in {
        "utils/test_visualize.py": "tensor_html",
        "utils/test_jit_names.py": "range",
        "parallel/test_mesh_tensors.py": "device_mesh full_tensor placements redistribute",
        "engine/test_numpy_operands.py": "differs equals",
        "autograd": """
            backward register_hook register_post_accumulate_grad_hook retain_grad set_grad
            set_requires_grad""",
        "engine/test_convert.py": """
            box check_meta_consistency cpu cuda detach global_to_global is_contiguous
            local_to_global to to_consistent to_global to_local""",
        "engine/test_creation.py": """
            arange empty empty_like eye full full_like hann_window linspace logspace new_empty
            new_full new_ones new_tensor new_zeros normal ones ones_like rand rand_like randint
            randint_like randn randn_like randperm tensor tril_indices triu_indices zeros
            zeros_like""",
        "engine/test_inplace.py": """
            add_ assign_result check_change copy_ deep_copy div_ fill_ mul_ set_data set_result
            setitem_ sub_ zero_""",
        "engine/test_views.py": "detach_",
        "ops/test_torch_forms.py": """
            alpha_dropout_ celu_ dropout_ feature_alpha_dropout_ feature_dropout_ rrelu_ selu_
            threshold_""",
        "engine/test_copies.py": "reduce_tensor shallow_copy",
        "engine/test_random_inplace.py": """
            bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_
            random_ uniform_""",
        "engine/test_count_sampling.py": "binomial poisson",
        "engine/test_inplace_views.py": """
            as_strided_ fill_diagonal_ resize resize_as set_ slice_update squeeze_ swapaxes_
            swapdims_ t_ transpose_ unsqueeze_""",
        "engine/test_constructors.py": """
            as_tensor asarray empty_strided frombuffer init_tensor legacy_tensor new
            new_empty_strided scalar_tensor type""",
        "engine/test_tensor_attributes.py": """
            ccol_indices coalesce col_indices crow_indices data_ptr eig get_device indices
            is_complex is_conj is_floating_point is_neg is_nonzero is_pinned is_same_size is_set_to
            is_shared is_signed lstsq numel pin_memory record_stream result_type retains_grad
            index is_offloaded load offload
            row_indices share_memory_ solve sparse_dim storage storage_offset stride symeig to_dense
            to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr
            untyped_storage""",
        "autograd/test_hooks.py": "register_post_accumulate_grad_hook",
        "ops/test_float8.py": "_scaled_mm _scaled_mm_v2 scaled_mm",
        "engine/test_creation.py, of vectors": """
            bartlett_window blackman_window fft.fftfreq fft.rfftfreq hamming_window kaiser_window
            signal.windows.bartlett signal.windows.blackman signal.windows.cosine
            signal.windows.exponential signal.windows.gaussian signal.windows.general_cosine
            signal.windows.general_hamming signal.windows.hamming signal.windows.hann
            signal.windows.kaiser signal.windows.nuttall""",
        "engine/test_torch_functions.py": "give_to",
        "engine/test_values.py": """
            allclose describe equal item numpy to_bool to_format to_index to_torch tolist""",
    }.items()
    for name in some.split()
}


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_local(sample):
    wanted = reference(sample)
    for twice in (False, True):
        assert compare(local_results(sample, twice), wanted, sample.tol) == ""


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_global(sample):
    wanted = reference(sample)
    twice = True  # one layout per mesh also checks the double gradient
    for ranks, limit in zip(MESHES, LAYOUTS, strict=True):
        placement = Placement("cpu", ranks)
        for nd_sbps in spread(sample.tensors(), placement, limit, sample.seed):
            found = global_results(sample, placement, nd_sbps, twice)
            text = compare(found, wanted, sample.tol)
            assert text == "", f"{', '.join(map(short, nd_sbps))} on {ranks}: {text}"
            twice = False
        twice = True


def test_every_public_op_has_a_sample():
    sampled = {sample.name for sample in SAMPLES} | right_names()
    known = all_names()
    functions = {known[name] for name in sampled if name in known}
    missing = sorted(
        name
        for name, function in known.items()
        if name not in sampled
        and name not in NOT_SAMPLED
        and function not in functions
        and name.removesuffix("_") not in INPLACE  # tests/engine/test_inplace.py
    )
    assert missing == [], "add a sample to tests/samples, or a reason to NOT_SAMPLED"


def test_no_exception_is_stale():
    sampled = {sample.name for sample in SAMPLES}
    known = set(all_names())
    assert [name for name in NOT_SAMPLED if name in sampled or name not in known] == []


# The checks must be able to fail.

WRONG_VALUE = Sample("tanh", (T(6, 4),), call=lambda x: names.tanh(x) * 1.001)
WRONG_DTYPE = Sample("tanh", (T(6, 4),), call=lambda x: names.cast(names.tanh(x), float))
NO_GRADIENT = Sample("tanh", (T(6, 4),), call=lambda x: names.tanh(x).detach())
WRONG_GRADIENT = Sample("tanh", (T(6, 4),), call=lambda x: names.tanh(x) + (x - x.detach()))
WRONG_SECOND = Sample("mul", (T(4), T(4)), call=lambda a, b: a * b.detach() + a.detach() * b)


@pytest.mark.parametrize("sample", [WRONG_VALUE, NO_GRADIENT, WRONG_GRADIENT, WRONG_SECOND])
def test_a_wrong_op_is_noticed(sample):
    wanted = reference(sample)
    assert compare(local_results(sample), wanted, sample.tol) != ""
    placement = Placement("cpu", [0, 1])
    layout = [(split(0),)] + [(broadcast,)] * (len(sample.args) - 1)
    assert compare(global_results(sample, placement, layout, True), wanted, sample.tol) != ""
