"""Calls of constructors and methods of modules, optimizers, schedules and distributions, and of
the functions of nn.utils and nn.init, from which bad input is made.
"""

import inspect
import warnings

import torch
from bad_input_calls import X, public
from module_database import DATABASE, name_of, settings

import onefold as flow
from onefold.testing.bad_input import Call, Made

nn, optim = flow.nn, flow.optim
LR = optim.lr_scheduler
ROWS = X.float()
IMAGE = torch.linspace(0.1, 0.9, 128).reshape(2, 4, 4, 4)


def calling(function, like=None, name=""):
    """The function, with the parameters of another (or without names for them)."""

    def call(*args, **kwargs):
        return function(*args, **kwargs)

    call.__name__ = name
    call.__signature__ = inspect.signature(call if like is None else like)
    return call


def without_first(function):
    """The signature of a function or class whose first argument is given."""
    found = inspect.signature(function)
    return found.replace(parameters=list(found.parameters.values())[1:])


# Modules.

# Of modules that torch's database lacks: the arguments of the constructor, and the inputs.
MODULES = {
    "AlphaDropout": ((0.3,), (ROWS,)),
    "ChannelShuffle": ((2,), (IMAGE,)),
    "CombinedMarginLoss": ((1.0, 0.0, 0.3), (ROWS, torch.tensor([0, 1, 2]))),
    "CosineSimilarity": ((1,), (ROWS, ROWS)),
    "CrossMapLRN2d": ((2,), (IMAGE,)),
    "Dropout": ((0.3,), (ROWS,)),
    "Dropout1d": ((0.3,), (IMAGE[0],)),
    "Dropout2d": ((0.3,), (IMAGE,)),
    "Dropout3d": ((0.3,), (IMAGE,)),
    "EmbeddingBag": ((5, 3), (torch.tensor([[1, 2], [3, 4]]),)),
    "FeatureAlphaDropout": ((0.3,), (IMAGE,)),
    "Flatten": ((1,), (IMAGE,)),
    "Fold": (((4, 4), (2, 2), 1, 0, 2), (torch.ones(2, 8, 4),)),
    "FusedBatchNorm2d": ((4,), (IMAGE,)),
    "FusedMLP": ((4, [3], 2), (ROWS,)),
    "Hardsigmoid": ((), (ROWS,)),
    "Identity": ((), (ROWS,)),
    "LazyLinear": ((3,), (ROWS,)),
    "MaxUnpool2d": ((2,), (IMAGE[0, :, :2, :2], torch.arange(16).reshape(4, 2, 2))),
    "PairwiseDistance": ((2.0,), (ROWS, ROWS)),
    "PixelShuffle": ((2,), (IMAGE,)),
    "PixelUnshuffle": ((2,), (IMAGE,)),
    "QuickGELU": ((), (ROWS,)),
    "RMSLayerNorm": ((4,), (ROWS,)),
    "RReLU": ((), (ROWS,)),
    "SquareReLU": ((), (ROWS,)),
    "SyncBatchNorm": ((4,), (IMAGE,)),
    "TripletMarginLoss": ((), (ROWS, ROWS, ROWS)),
    "Unflatten": ((1, (2, 2)), (ROWS,)),
    "Unfold": (((2, 2),), (IMAGE,)),
    "Upsample": ((None, 2), (IMAGE,)),
    "UpsamplingNearest2d": ((None, 2), (IMAGE,)),
}  # fmt: skip


def modules():
    """(the class's name, arguments and keywords of the constructor, of the call)"""
    for entry in DATABASE:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = entry.module_inputs_func(entry, "cpu", torch.float32, False, True)
        sample = next(iter(samples))
        given, inputs = sample.constructor_input, sample.forward_input
        if inputs is not None and name_of(entry) != "TransformerEncoder":
            yield name_of(entry), given.args, given.kwargs, inputs.args, inputs.kwargs
    for name, (args, inputs) in MODULES.items():
        yield name, args, {}, inputs, {}


def module_calls(placement):
    for name, args, kwargs, inputs, named in modules():
        kind, theirs = getattr(nn, name), getattr(torch.nn, name, None)
        if placement is None:
            yield Call(f"nn.{name}", kind, args, kwargs, theirs)
        given = {key: settings(value) for key, value in kwargs.items()}
        module = kind(*map(settings, args), **given)
        if placement is not None and not name.startswith("Lazy"):
            module.to_global(placement, (flow.sbp.broadcast,) * placement.ndim)
        call = calling(module, module.forward, name)
        # The errors of what a module calls name that.
        yield Call(f"nn.{name}()", call, inputs, named, placement=placement, names=OPS)
    if placement is None:
        yield from methods_of_modules()


OPS = sorted({name for space in (flow, nn.functional) for name, _ in public(space)})

# Methods of every module, and arguments.
METHODS = {
    "add_module": (("child", Made(lambda: nn.Linear(1, 1))), {}),
    "apply": ((Made(lambda: lambda module: None),), {}),
    "buffers": ((), {}),
    "children": ((), {}),
    "cuda": None,
    "eval": ((), {}),
    "get_buffer": (("0.running_mean",), {}),
    "get_parameter": (("1.weight",), {}),
    "get_submodule": (("1",), {}),
    "load_state_dict": ((Made(lambda: model().state_dict()),), {}),
    "named_modules": ((), {}),
    "named_parameters": ((), {}),
    "parameters": ((), {}),
    "register_buffer": (("rows", ROWS), {}),
    "register_forward_hook": ((Made(lambda: lambda *args: None),), {}),
    "register_forward_pre_hook": ((Made(lambda: lambda *args: None),), {}),
    "register_module": (("child", Made(lambda: nn.Linear(1, 1))), {}),
    "register_parameter": (("rows", Made(lambda: nn.Parameter(flow.ones(2)))), {}),
    "requires_grad_": ((), {}),
    "set_submodule": (("1", Made(lambda: nn.Linear(4, 3))), {}),
    "state_dict": ((), {}),
    "to": ((torch.float64,), {}),
    "to_empty": ((), {"device": "cpu"}),
    "to_global": ((flow.placement("cpu", [0, 1]), flow.sbp.broadcast), {}),
    "train": ((), {}),
    "type": ((torch.float64,), {}),
    "zero_grad": ((), {}),
}


def model():
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


def methods_of_modules():
    for name, given in METHODS.items():
        if given is not None:
            method = getattr(nn.Module, name)

            def call(*args, name=name, **kwargs):
                module = model()
                return unchanged(module.state_dict, getattr(module, name), *args, **kwargs)

            call.__name__ = name
            call.__signature__ = without_first(method)
            yield Call(f"Module.{name}", call, *given, names=[method.__name__])


class Changed(Exception):
    """A call failed, and has left something behind."""


def unchanged(state, function, *args, **kwargs):
    """Call the function; if that fails, `state()` must still be what it was."""
    before = str(state())
    try:
        return function(*args, **kwargs)
    except flow.OnefoldError as error:
        if str(state()) != before:
            raise Changed(f"from {before} to {state()}"[:200]) from error
        raise


# Optimizers.


def weights():
    """Parameters with gradients."""
    made = [nn.Parameter(flow.ones(3, 4)), nn.Parameter(flow.ones(2, 2))]
    for param in made:
        param.grad = flow.ones(*param.shape)
    return made


def optimizers():
    for name in optim.__all__:
        kind = getattr(optim, name)
        if isinstance(kind, type) and kind is not optim.Optimizer:
            yield name, kind


def optimizer_calls(placement):
    if placement is not None:
        return
    for name, kind in optimizers():
        yield Call(
            f"optim.{name}",
            calling(lambda *args, kind=kind, **kwargs: trained(kind(*args, **kwargs)), kind, name),
            (Made(weights),), names=["step"],
        )  # fmt: skip
        options = dict(kind(weights()).param_groups[0])
        del options["params"]

        if kind is not optim.LBFGS:
            given = {"params": Made(weights), **options}
            words = [name, "add_param_group", "step"]
            yield Call(f"a group of {name}", of_groups(kind), (), given, names=words)
            yield Call(f"{name}.add_param_group", adding(kind), (), given, names=words)
        yield from loads(name, kind)
        for method in ("step", "zero_grad", "state_dict"):
            made = kind(weights())
            call = calling(getattr(made, method), name=method, like=getattr(made, method))
            yield Call(f"{name}.{method}", call, (), {}, names=[name])


def of_groups(kind):
    return lambda **group: trained(kind([group]))


def adding(kind):
    def call(**group):
        made = kind(weights())
        unchanged(made.state_dict, made.add_param_group, group)
        return trained(made)

    return call


def trained(made):
    """The optimizer, after two steps."""
    for _ in range(2):
        made.step(made.param_groups[0]["params"][0].sum)
    return made


def loads(name, kind):
    """Calls that load a state, in which each value is replaced."""
    before = kind(weights())
    trained(before)

    def load(state):
        made = trained(kind(weights()))
        unchanged(made.state_dict, made.load_state_dict, state)
        return trained(made)

    full = before.state_dict()
    group, slots = dict(full["param_groups"][0]), dict(full["state"].get(0, {}))
    more = {"names": [name, "load_state_dict", "step"]}
    yield Call(f"{name}.load_state_dict", load, (Made(lambda: full),), {}, **more)
    parts = {"state": Made(lambda: full["state"]), "param_groups": Made(lambda: [group])}
    yield Call(f"{name}.load_state_dict", lambda **parts: load(parts), (), parts, **more)
    yield Call(
        f"{name}.load_state_dict, a group",
        lambda **group: load({**full, "param_groups": [group]}), (), group, **more,
    )  # fmt: skip
    if slots and all(isinstance(key, str) for key in slots):
        yield Call(
            f"{name}.load_state_dict, of a parameter",
            lambda **slots: load({**full, "state": {**full["state"], 0: slots}}),
            (), {key: Made(lambda value=value: value) for key, value in slots.items()}, **more,
        )  # fmt: skip


# Learning rate schedules.


def sgd():
    return optim.SGD(weights(), lr=0.1, momentum=0.9)


def factor(step):
    return 0.9**step


SCHEDULES = {
    "ConstantLR": (),
    "CosineAnnealingLR": (5,),
    "CosineAnnealingWarmRestarts": (3,),
    "CosineDecayLR": (5,),
    "CyclicLR": (0.1, 0.5, 2),
    "ExponentialLR": (0.9,),
    "LambdaLR": (factor,),
    "LinearLR": (),
    "MultiStepLR": ([1, 3],),
    "MultiplicativeLR": (factor,),
    "OneCycleLR": (0.5, 8),
    "PolynomialLR": (5,),
    "ReduceLROnPlateau": (),
    "StepLR": (2,),
    "WarmupLR": (),
}


def schedule_calls(placement):
    if placement is not None:
        return
    for name, args in SCHEDULES.items():
        kind = getattr(LR, name)

        call = calling(stepping(kind), kind, name)
        yield Call(f"lr_scheduler.{name}", call, (Made(sgd), *args), names=["step"])
        made = stepping(kind)(sgd(), *args)
        state = made.state_dict()
        words = [name, "load_state_dict"]
        yield Call(f"{name}.load_state_dict", loading(made), (), state, names=words)
        yield Call(
            f"{name}.load_state_dict", calling(made.load_state_dict, made.load_state_dict),
            (Made(lambda state=state: state),), names=["load_state_dict", name],
        )  # fmt: skip
        yield Call(
            f"{name}.step", calling(made.step, made.step, "step"),
            [1.0] * (kind is LR.ReduceLROnPlateau), names=[name],
        )  # fmt: skip
    one = Made(lambda: [LR.StepLR(sgd(), 2)])
    yield Call("lr_scheduler.ChainedScheduler", LR.ChainedScheduler, (one,))
    shared = sgd()
    pair = Made(lambda: [LR.StepLR(shared, 2), LR.ConstantLR(shared)])
    yield Call("lr_scheduler.SequentialLR", LR.SequentialLR, (Made(lambda: shared), pair, [2]))


def stepping(kind):
    def call(optimizer, *args, **kwargs):
        made = kind(optimizer, *args, **kwargs)
        for _ in range(3):
            made.step(*([1.0] * (kind is LR.ReduceLROnPlateau)))
        return made

    return call


def loading(made):
    return lambda **state: unchanged(made.state_dict, made.load_state_dict, state)


# Distributions.

HALF = torch.full((3, 4), 0.5)
DISTRIBUTIONS = {
    "Bernoulli": (HALF,),
    "Categorical": (HALF,),
    "Normal": (ROWS, HALF),
    "Uniform": (ROWS, ROWS + 1),
}
# Of these the constructors alone: their values are of other sets.
MORE_DISTRIBUTIONS = {
    **dict.fromkeys("Chi2 ContinuousBernoulli Dirichlet Exponential Geometric".split(), (HALF,)),
    **dict.fromkeys("HalfCauchy HalfNormal OneHotCategorical Poisson".split(), (HALF,)),
    **dict.fromkeys("Beta FisherSnedecor Gamma InverseGamma Kumaraswamy".split(), (HALF, HALF)),
    **dict.fromkeys("NegativeBinomial Pareto Weibull".split(), (HALF, HALF)),
    **dict.fromkeys("Cauchy Gumbel Laplace LogNormal LogisticNormal".split(), (ROWS, HALF)),
    "VonMises": (ROWS, HALF),
    "Binomial": (3, HALF),
    "GeneralizedPareto": (ROWS, HALF, ROWS),
    "LKJCholesky": (3, HALF),
    "LowRankMultivariateNormal": (ROWS, torch.ones(3, 4, 2), HALF),
    "Multinomial": (3, HALF),
    "MultivariateNormal": (ROWS, torch.eye(4)),
    "RelaxedBernoulli": (torch.tensor(1.0), HALF),
    "RelaxedOneHotCategorical": (torch.tensor(1.0), HALF),
    "StudentT": (HALF, ROWS, HALF),
    "Wishart": (5.0, torch.eye(4)),
}
ASKED = {
    "sample": ((2,),),
    "rsample": ((2,),),
    "log_prob": (HALF > 0.7,),
    "cdf": (HALF,),
    "icdf": (HALF,),
    "enumerate_support": (),
    "expand": ((2, 3, 4),),
}


def distribution_calls(placement):
    space = flow.distributions
    for name, args in {**DISTRIBUTIONS, **MORE_DISTRIBUTIONS}.items():
        kind = getattr(space, name)
        yield Call(
            f"distributions.{name}", kind, args, {}, getattr(torch.distributions, name),
            placement=placement,
        )  # fmt: skip
        if placement is None and name in DISTRIBUTIONS:
            for method, given in ASKED.items():
                made = kind(*map(flow.tensor, args))
                call = calling(getattr(made, method), getattr(made, method), method)
                given = [x.float() if isinstance(x, torch.Tensor) else x for x in given]
                yield Call(f"{name}.{method}", call, given, names=[name])
    normal = Made(lambda: space.Normal(0.0, 1.0))
    yield Call("distributions.kl_divergence", space.kl_divergence, (normal, normal))


# Functions of nn.init and nn.utils.


def init_calls(placement):
    for name, function in public(nn.init):
        args = {"calculate_gain": ("relu",), "constant_": (ROWS, 2.0), "sparse_": (ROWS, 0.5)}
        given = args.get(name, (IMAGE if "dirac" in name else ROWS,))
        if name.endswith("_") or name == "calculate_gain":
            yield Call(f"nn.init.{name}", function, given, placement=placement)


def linear():
    return nn.Linear(4, 3)


def pruned():
    made = linear()
    return nn.utils.prune.random_unstructured(made, "weight", 0.5)


def frozen(kind, size):
    return kind(*size).eval()


LINEAR = Made(linear)
CONV, NORM2 = Made(lambda: nn.Conv2d(4, 4, 1).eval()), Made(lambda: nn.BatchNorm2d(4).eval())
NORM1 = Made(lambda: nn.BatchNorm1d(3).eval())
PADDED = torch.ones(3, 2, 4)
PRUNE, RNN = nn.utils.prune, nn.utils.rnn
MASK = torch.ones(3, 4)


def packed():
    return RNN.pack_padded_sequence(flow.ones(3, 2, 4), flow.tensor([3, 2]))


UTILS = {
    "": {
        "clip_grad_norm_": (Made(weights), 1.0),
        "clip_grad_value_": (Made(weights), 1.0),
        "clip_grads_with_norm_": (Made(weights), 1.0, Made(lambda: flow.tensor(3.0))),
        "get_total_norm": (Made(weights),),
        "parameters_to_vector": (Made(weights),),
        "vector_to_parameters": (torch.ones(16), Made(weights)),
        "fuse_conv_bn_eval": (CONV, NORM2),
        "fuse_linear_bn_eval": (LINEAR, NORM1),
        "convert_conv2d_weight_memory_format": (CONV, torch.channels_last),
        "skip_init": (nn.Linear, 2, 3),
        "spectral_norm": (LINEAR,),
        "weight_norm": (LINEAR,),
        "remove_spectral_norm": (Made(lambda: nn.utils.spectral_norm(linear())),),
        "remove_weight_norm": (Made(lambda: nn.utils.weight_norm(linear())),),
    },
    "parametrizations": dict.fromkeys(("orthogonal", "spectral_norm", "weight_norm"), (LINEAR,)),
    "parametrize": {
        "register_parametrization": (LINEAR, "weight", Made(nn.Tanh)),
        "remove_parametrizations": (
            Made(lambda: nn.utils.parametrizations.weight_norm(linear())), "weight"
        ),
        "is_parametrized": (LINEAR,),
        "type_before_parametrizations": (LINEAR,),
    },
    "prune": {
        "identity": (LINEAR, "weight"),
        "random_unstructured": (LINEAR, "weight", 0.5),
        "l1_unstructured": (LINEAR, "weight", 0.5),
        "random_structured": (LINEAR, "weight", 0.5, 1),
        "ln_structured": (LINEAR, "weight", 0.5, 2, 1),
        "custom_from_mask": (LINEAR, "weight", MASK),
        "global_unstructured": (Made(lambda: [(linear(), "weight")]), PRUNE.L1Unstructured),
        "remove": (Made(pruned), "weight"),
        "is_pruned": (Made(pruned),),
    },
    "rnn": {
        "pack_padded_sequence": (PADDED, torch.tensor([3, 2])),
        "pad_packed_sequence": (Made(packed),),
        "pad_sequence": (Made(lambda: [flow.ones(2, 3), flow.ones(1, 3)]),),
        "pack_sequence": (Made(lambda: [flow.ones(2, 3), flow.ones(1, 3)]),),
        "unpad_sequence": (PADDED, torch.tensor([3, 2])),
        "unpack_sequence": (Made(packed),),
    },
    "stateless": {
        "functional_call": (LINEAR, Made(dict), Made(lambda: flow.ones(2, 4))),
    },
}  # fmt: skip
OPTIONS = {"global_unstructured": {"amount": 0.5}}


def util_calls(placement):
    if placement is not None:
        return
    for part, functions in UTILS.items():
        space = getattr(nn.utils, part) if part else nn.utils
        for name, args in functions.items():
            full = f"nn.utils.{part}.{name}" if part else f"nn.utils.{name}"
            yield Call(full, getattr(space, name), args, OPTIONS.get(name))


def object_calls(placement=None):
    """Valid calls of all that is no function of tensors, on global tensors if placed."""
    for calls in (module_calls, optimizer_calls, schedule_calls, distribution_calls, init_calls,
                  util_calls):  # fmt: skip
        yield from calls(placement)
