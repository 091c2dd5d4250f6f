"""Calls of every public function, method and module, from which bad input is made."""

import inspect
import warnings
from functools import cache

import samples
import torch
from operator_database import DATABASE
from torch.utils._pytree import tree_map_only

import onefold as flow
from onefold.engine.ops import ALIASES
from onefold.engine.placement import Placement
from onefold.nn.functional import RENAMED
from onefold.testing.bad_input import Call
from onefold.testing.samples import Random

TWO = Placement("cpu", [0, 1])
# What no call may do. What is accepted though torch refuses it is only counted.
NOT_REFUSED = frozenset("changed escaped hangs unnamed".split())
SPACES = {
    "": (flow, torch),
    "nn.functional": (flow.nn.functional, torch.nn.functional),
    "linalg": (flow.linalg, torch.linalg),
    "fft": (flow.fft, torch.fft),
    "special": (flow.special, torch.special),
}


def public(space):
    names = getattr(space, "__all__", None) or dir(space)
    for name in names:
        if name.startswith("_"):
            continue
        value = getattr(space, name)
        if inspect.isroutine(value) and getattr(value, "__module__", "").startswith("onefold"):
            yield name, value


@cache
def known():
    """name -> (args, kwargs) of a valid call with torch tensors."""
    found = {}
    for sample in samples.load():
        values = iter(sample.tensors())
        args, kwargs = tree_map_only(
            (Random, torch.Tensor),
            lambda _, given=values: next(given),
            (sample.args, sample.kwargs),
        )
        if sample.call is None:
            found.setdefault(sample.name, (args, kwargs))
    for entry in DATABASE:
        name = entry.name
        short = name.rpartition(".")[2]
        if short in found or not entry.dtypes:
            continue
        dtype = (
            torch.float64
            if torch.float64 in entry.dtypes
            else torch.float32
            if torch.float32 in entry.dtypes
            else min(entry.dtypes, key=str)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                sample = next(iter(entry.sample_inputs("cpu", dtype, requires_grad=False)))
            except Exception:  # noqa: BLE001  (the database is not complete)
                continue
        found[short] = ((sample.input, *sample.args), sample.kwargs)
        for alias in entry.aliases:
            found.setdefault(alias.name.rpartition(".")[2], found[short])
    return found


X = torch.linspace(0.1, 0.9, 12, dtype=torch.float64).reshape(3, 4)
N = torch.arange(12).reshape(3, 4)
EXTRA = {
    "as_strided_": ((X, (2, 2), (1, 2)), {}),
    "clamp_": ((X, 0.2, 0.5), {}),
    "clip_": ((X, 0.2, 0.5), {}),
    "clamp_max_": ((X, 0.5), {}),
    "clamp_min_": ((X, 0.5), {}),
    "addmv_": ((X[:, 0], X, X[0]), {}),
    "gcd_": ((N, N), {}),
    "lcm_": ((N, N), {}),
    "ldexp_": ((X, N), {}),
    "xlogy_": ((X, X), {}),
    "index_add_": ((X, 0, torch.tensor([0, 1]), X[:2]), {}),
    "index_put_": ((X, (torch.tensor([0, 1]),), X[:2]), {}),
    "lerp_": ((X, X, 0.3), {}),
    "masked_fill_": ((X, X > 0.5, 2.0), {}),
    "fill_": ((X, 2.0), {}),
    "div_": ((X, X), {}),
    "threshold_": ((X, 0.5, 2.0), {}),
    "as_tensor": (([1.0, 2.0],), {}),
    "asarray": (([1.0, 2.0],), {}),
    "tensor": (([1.0, 2.0],), {}),
    **{f"{name}_window": ((5,), {}) for name in "bartlett blackman hamming hann kaiser".split()},
    "dropout1d": ((X[None],), {"training": False}),
    "ger": ((X[0], X[1]), {}),
    "is_same_size": ((X, X), {}),
    "manual_seed": ((3,), {}),
    "rand": ((2, 3), {}),
    "randperm": ((4,), {}),
    "result_type": ((X, 1), {}),
    "slice_update": ((X, X[:2], [(0, 2, 1)]), {}),
    "from_numpy": ((X.numpy(),), {}),
    "from_torch": ((X,), {}),
    "fftfreq": ((5,), {}),
    "rfftfreq": ((5,), {}),
    "gumbel_softmax": ((X,), {}),
    "upsample": ((X[None],), {"size": 3}),
    "native_channel_shuffle": ((X.reshape(1, 4, 3), 2), {}),
    "grouped_mm": None,
    "quantize_fp8": None,
    "ctc_greedy_decoder": None,
    "visualize_layout": ((X,), {}),
    "vmap": None,
}
RANDOM = {
    "rand",
    "randn",
    "empty",
    "dropout",
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "uniform",
    "exponential",
    "cauchy",
    "geometric",
    "log_normal",
    "fractional",
    "rrelu",
    "gumbel",
    "new_empty",
    "randint",
    "randperm",
    "seed",
    "resize",
}


def base(name):
    if name in EXTRA:
        return EXTRA[name]
    if name in known():
        return known()[name]
    return ((X,), {})


# Not tried, or not held to it, for these reasons.
EXCEPTIONS = {
    "inference_mode": "a class that is a decorator too, and asks its argument for its truth value",
    "requires_grad_": "torch asks its argument for its truth value, too",
    "set_default_tensor_type": "it changes the default of all calls that follow",
    "set_rng_state": "it changes the random numbers of all calls that follow",
    "visualize_layout": "it draws, with a library that reads its own arguments",
    "native_batch_norm": "the running mean is updated before the running variance is read",
    "is_autocast_enabled": "the words are torch's, without the name",
    "get_autocast_dtype": "the words are torch's, without the name",
    **dict.fromkeys(("compile", "load", "save"), "it takes files or functions, which have no junk"),
    "record_stream": "a stream of a device, which this machine may not have",
}
# So many repetitions are right, and take as long in torch.
ENDLESS = tuple(
    f" with 2**70 as {name}" for name in
    "max_iter n_power_iterations ns_steps num_decoder_layers num_encoder_layers num_layers".split()
)  # fmt: skip
# Of arguments that many functions have, and that are refused in words of their own.
OTHER_WORDS = (" as out",)
OTHER_NAMES = {"true_divide": "div"} | dict(pair.split("=") for pair in ALIASES)


def calls(placement=None):
    """A valid call of every public function and tensor method, on global tensors if placed."""
    for space, (ours, theirs) in SPACES.items():
        for name, function in public(ours):
            if name not in EXCEPTIONS and base(name) is not None:
                full = f"{space}.{name}" if space else name
                yield call_of(full, function, base(name), theirs, placement)
    for name in dir(flow.Tensor):
        function = getattr(flow.Tensor, name)
        given = base(name) if name in EXTRA or name in known() else base(name.rstrip("_"))
        if name.startswith("_") or name in EXCEPTIONS or given is None:
            continue
        if inspect.isroutine(function):
            args, kwargs = given
            if not args or not isinstance(args[0], torch.Tensor):
                args = (X, *args)
            yield call_of(f"Tensor.{name}", function, (args, kwargs), torch.Tensor, placement)


def call_of(full, function, given, theirs, placement):
    name = full.rpartition(".")[2]
    return Call(
        full,
        function,
        *given,
        getattr(theirs, name, None),
        placement=placement,
        random=any(word in name for word in RANDOM),
        names=[
            OTHER_NAMES.get(each, each).rpartition(".")[2]
            for each in (name, name.rstrip("_"), full, RENAMED.get(name, name))
        ],
        method=theirs is torch.Tensor,
    )
