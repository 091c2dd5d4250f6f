"""Samples of the elementwise ops: arithmetic, functions, activations, comparisons, casts."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from onefold.engine.names import names
from onefold.testing import Bo, I, Sample, T

C = torch.complex128
SHAPES = [(6, 4), (5, 3)]
PAIRS = [((6, 4), (6, 4)), ((5, 3), (3,)), ((6, 1), (4,)), ((), (4,)), ((0, 3), (3,))]


def functions(words: str, low: float, high: float, **kwargs: object) -> list[Sample]:
    """Functions of one tensor on a range on which they are smooth."""
    return [
        Sample(name, (T(*shape, low=low, high=high),), dict(kwargs))
        for name in words.split()
        for shape in SHAPES
    ]


def pairs(name: str, low: float = 0.5, high: float = 2.5, **kwargs: object) -> list[Sample]:
    """A function of two tensors, on broadcasting shapes."""
    return [
        Sample(name, (T(*a, low=low, high=high), T(*b, low=low, high=high)), dict(kwargs))
        for a, b in PAIRS
    ]


def numbers(name: str, *values: object, low: float = 0.5, high: float = 2.5) -> list[Sample]:
    """A function of a tensor and a number, on either side."""
    reference = getattr(torch, name)

    def first(number: object, x: torch.Tensor) -> torch.Tensor:
        return reference(torch.tensor(number, dtype=torch.result_type(x, number)), x)

    found = []
    for value in values:
        found.append(Sample(name, (T(5, 4, low=low, high=high), value), torch=reference))
        found.append(Sample(name, (value, T(5, 4, low=low, high=high)), torch=first))
    return found


def as_tensors(name: str) -> Callable[..., torch.Tensor]:
    """torch's function for operands of which one may be a number."""
    reference = getattr(torch, name)
    return lambda a, b: reference(*map(torch.as_tensor, (a, b)))


ARITHMETIC = [
    *pairs("add"),
    *pairs("add", alpha=0.5),
    *pairs("sub"),
    *pairs("sub", alpha=-2),
    *pairs("mul"),
    *pairs("div"),
    *pairs("pow"),
    *pairs("true_divide"),
    *pairs("rsub"),
    *numbers("add", 2, 0.5),
    *numbers("sub", 2, 0.5),
    *numbers("mul", 2, 0.5),
    *numbers("div", 2, 0.5),
    *numbers("pow", 2, 0.5, 3, 0, -1),
    *numbers("remainder", 0.7),
    *numbers("fmod", 0.7),
    Sample("sub", (2.0, T(6, 4)), {"alpha": 3}, torch=lambda a, b, alpha: a - alpha * b),
    Sample("pow", (0.0, T(6, 4, low=1.0)), torch=torch.pow),
    Sample("multiply", (T(6, 4), T(4))),
    Sample("subtract", (T(6, 4), T(4))),
    Sample("divide", (T(6, 4), T(4, low=1.0))),
    Sample("negative", (T(6, 4),)),
    Sample("div", (T(6, 4), T(4, low=0.3)), {"rounding_mode": "floor"}),
    Sample("div", (T(6, 4), T(4, low=0.3)), {"rounding_mode": "trunc"}),
    Sample("div", (T(6, 4), 0.3), {"rounding_mode": "trunc"}),
    Sample("div", (T(6, 4), 0.3), {"rounding_mode": "floor"}),
    Sample(
        "div",
        (2.0, T(6, 4, low=0.3)),
        {"rounding_mode": "floor"},
        torch=lambda a, b, rounding_mode: torch.div(
            torch.tensor(a, dtype=b.dtype), b, rounding_mode=rounding_mode
        ),
    ),
    Sample(
        "div",
        (2.0, T(6, 4, low=0.3)),
        {"rounding_mode": "trunc"},
        torch=lambda a, b, rounding_mode: torch.div(
            torch.tensor(a, dtype=b.dtype), b, rounding_mode=rounding_mode
        ),
    ),
    Sample("floor_divide", (I(6, 4, low=-9), I(4, low=1)), grad=False),
    Sample("floor_divide", (I(6, 4, low=-9), 2), grad=False),
    Sample("floor_divide", (7, I(6, 4, low=1)), torch=lambda n, x: n // x, grad=False),
    Sample("remainder", (T(6, 4), T(4, low=0.3))),
    Sample("fmod", (T(6, 4), T(6, 4, low=0.3))),
    Sample("remainder", (I(6, 4, low=-9), I(4, low=1))),
    Sample("add", (I(6, 4), I(4))),
    Sample("add", (I(5, 4), T(4))),
    Sample("mul", (I(5, 4), 2.5)),
    Sample("div", (I(6, 4), I(4, low=1))),
    Sample("float_power", (I(6, 4, low=1), T(4, dtype=torch.float32, low=0.0)), tol=1e-5),
    Sample("float_power", (T(6, 4, low=1.0), 2)),
    Sample("add", (T(6, 4, dtype=C), T(4))),
    Sample("mul", (T(6, 4, dtype=C), T(4))),
    Sample("mul", (T(6, 4, dtype=C), 2j)),
    Sample("div", (T(6, 4, dtype=C), T(4, dtype=C, low=1.0))),
    Sample("div", (2.0, T(6, 4, dtype=C, low=1.0)), torch=lambda n, x: n / x),
    Sample("square", (T(6, 4),)),
    Sample("square", (T(5, 3, dtype=C),)),
    Sample("positive", (T(6, 4),)),
    Sample("addcmul", (T(6, 4), T(6, 4), T(4))),
    Sample("addcmul", (T(5, 3), T(5, 1), T(3)), {"value": 0.5}),
    Sample("addcdiv", (T(6, 4), T(6, 4), T(4, low=1.0))),
    Sample("addcdiv", (T(5, 3), T(5, 3), T(5, 3, low=1.0)), {"value": -2.0}),
    Sample("lerp", (T(6, 4), T(4), T(6, 4, low=0.0))),
    Sample("lerp", (T(5, 3), T(3), 0.25)),
    *pairs("atan2"),
    Sample("arctan2", (T(6, 4), T(4))),
    *pairs("hypot"),
    *pairs("logaddexp"),
    *pairs("logaddexp2"),
    Sample("copysign", (T(6, 4), T(4))),
    Sample("copysign", (T(5, 3), -2.0)),
    Sample(
        "copysign",
        (2.0, T(5, 3)),
        torch=lambda n, x: torch.copysign(torch.tensor(n, dtype=x.dtype), x),
    ),
    Sample("heaviside", (I(6, 4, low=-1, high=2), I(4)), grad=False),
    Sample(
        "heaviside",
        (torch.tensor([[0.0, -1.0], [2.0, 0.0], [0.0, 0.0]], dtype=torch.float64), T(2)),
        grad=False,
    ),
    Sample("xlogy", (T(6, 4), T(4, low=0.5))),
    Sample("xlogy", (T(5, 3), 2.0)),
    Sample("xlogy", (2.0, T(5, 3, low=0.5))),
]

FUNCTIONS = [
    *functions("neg exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf erfc", -1.2, 1.2),
    *functions("sinc deg2rad rad2deg frac floor ceil trunc round sign sgn abs fix", -2.4, 2.4),
    *functions("log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma", 0.5, 2.5),
    *functions("asin acos atanh erfinv", -0.9, 0.9),
    *functions("acosh", 1.5, 3.0),
    *functions("logit", 0.1, 0.9),
    *functions("logit", -0.2, 1.2, eps=0.1),
    *functions("round", -2.4, 2.4, decimals=1),
    Sample("polygamma", (2, T(6, 4, low=0.5))),
    Sample("absolute", (T(6, 4),)),
    Sample("arcsin", (T(6, 4, low=-0.9, high=0.9),)),
    Sample("arccos", (T(6, 4, low=-0.9, high=0.9),)),
    Sample("arctan", (T(6, 4),)),
    Sample("arcsinh", (T(6, 4),)),
    Sample("arccosh", (T(6, 4, low=1.5),)),
    Sample("arctanh", (T(6, 4, low=-0.9, high=0.9),)),
    Sample("nan_to_num", (torch.tensor([math.nan, math.inf, -math.inf, 2.0]),), {"posinf": 9.0}),
    Sample("exp", (T(),)),
    Sample("exp", (T(0, 3),)),
    Sample("exp", (I(6, 4, high=3),)),
    Sample("exp", (T(6, 4, dtype=C),)),
    Sample("tanh", (T(6, 4, dtype=C),)),
    Sample("logaddexp", (T(6, 4, dtype=C), T(4, dtype=C))),
    Sample("sin", (T(6, 4, dtype=C),)),
    Sample("abs", (T(6, 4, dtype=C),)),
    Sample("sgn", (T(6, 4, dtype=C),)),
    Sample("conj", (T(6, 4, dtype=C),), torch=torch.conj_physical),
    Sample("conj_physical", (T(6, 4, dtype=C),)),
    Sample("resolve_conj", (T(6, 4, dtype=C),)),
    Sample("conj", (T(6, 4),)),
    Sample("real", (T(6, 4, dtype=C),)),
    Sample("real", (T(6, 4),)),
    Sample("imag", (T(6, 4, dtype=C),)),
    Sample("angle", (T(6, 4, dtype=C),)),
    Sample("angle", (T(6, 4),)),
    *[
        Sample(name, (torch.tensor([[math.nan, math.inf], [-math.inf, 2.0], [0.0, -1.0]]),))
        for name in "isnan isinf isposinf isneginf isfinite signbit".split()
    ],
    *[Sample(name, (T(6, 4),), grad=False) for name in "isnan signbit logical_not".split()],
    Sample("logical_not", (Bo(5, 3),)),
    Sample("bitwise_not", (I(6, 4),)),
    Sample("bitwise_not", (Bo(5, 3),)),
]

ACTIVATIONS = [
    *functions("relu sigmoid tanh silu mish hardswish hardsigmoid softsign tanhshrink", -4.0, 4.0),
    *functions("relu6 selu leaky_relu elu celu softplus hardtanh", -4.0, 8.0),
    *functions("hardshrink softshrink gelu", -3.0, 3.0),
    *functions("gelu", -3.0, 3.0, approximate="tanh"),
    *functions("leaky_relu", -3.0, 3.0, negative_slope=0.2),
    *functions("elu", -3.0, 3.0, alpha=0.7),
    # torch rounds 1 / alpha to float32 in the gradient.
    Sample("celu", (T(6, 4), 0.7), tol=1e-7),
    *functions("softplus", -3.0, 3.0, beta=2.0, threshold=3.0),
    *functions("hardtanh", -3.0, 3.0, min_val=-0.5, max_val=2.0),
    *functions("hardshrink softshrink", -3.0, 3.0, lambd=1.0),
    Sample("logsigmoid", (T(6, 4),), torch=F.logsigmoid),
    Sample("log_sigmoid", (T(5, 3),), torch=F.logsigmoid),
    Sample("threshold", (T(6, 4), 0.1, 20.0)),
    Sample("prelu", (T(6, 4), T(4))),
    Sample("prelu", (T(5, 3, 2), T(1))),
    Sample("prelu", (T(5, 3, 2), T(3))),
    Sample("relu", (T(0, 3),)),
    Sample("relu", (T(),)),
    Sample("relu", (I(6, 4, low=-5),)),
    Sample("sigmoid", (I(6, 4, low=-5),)),
    Sample("sigmoid", (T(6, 4, dtype=C),)),
    Sample("tanhshrink", (T(6, 4, dtype=C),)),
]

COMPARISONS = [
    *[Sample(name, (I(6, 4, high=3), I(4, high=3))) for name in "eq ne lt le gt ge".split()],
    *[Sample(name, (I(5, 3, high=3), 1)) for name in "eq ne lt le gt ge".split()],
    *[
        Sample(name, (1, I(5, 3, high=3)), torch=as_tensors(name))
        for name in "eq ne lt le gt ge".split()
    ],
    *[
        Sample(name, (I(6, 4, high=3), I(4, high=3)))
        for name in "not_equal less less_equal greater greater_equal".split()
    ],
    *[
        Sample(f"{kind}_{name}", (Bo(6, 4), Bo(4)))
        for kind in ("logical", "bitwise")
        for name in ("and", "or", "xor")
    ],
    *[
        Sample(f"{kind}_{name}", args, torch=as_tensors(f"{kind}_{name}"))
        for kind in ("logical", "bitwise")
        for name in ("and", "or", "xor")
        for args in ((I(5, 3), 6), (6, I(5, 3)))
    ],
    Sample("bitwise_and", (I(6, 4), I(4))),
    *[
        Sample(f"bitwise_{way}_shift", args)
        for way in ("left", "right")
        for args in ((I(6, 4), I(4, high=4)), (I(5, 3), 2), (40, I(5, 3, high=4)))
    ],
    Sample("isclose", (T(6, 4), T(4)), {"atol": 0.5}, grad=False),
    Sample("isclose", (T(5, 3), T(3)), {"rtol": 0.9, "equal_nan": True}, grad=False),
]

CHOICES = [
    Sample("where", (Bo(6, 4), T(6, 4), T(6, 4))),
    Sample("where", (Bo(5, 1), T(3), T(5, 3))),
    Sample("where", (Bo(6, 4), T(4), 0.0)),
    Sample("where", (Bo(6, 4), T(6, 4), 2.5)),
    Sample("where", (Bo(5, 3), 0, T(5, 3))),
    Sample("where", (Bo(5, 3), -1.5, T(3))),
    Sample("where", (Bo(6, 4), 1.0, 0.0)),
    Sample("where", (Bo(6, 4), I(6, 4), 1.5)),
    Sample("masked_fill", (T(6, 4), Bo(6, 4), 0.0)),
    Sample("masked_fill", (T(5, 3), Bo(3), -math.inf)),
    Sample("masked_fill", (T(6, 4), Bo(6, 1), T())),
    Sample("masked_fill", (I(6, 4), Bo(6, 1), 3)),
    *[
        Sample(name, args)
        for name in ("maximum", "minimum", "fmax", "fmin")
        for args in ((T(6, 4), T(4)), (T(5, 3), T(5, 3)), (I(6, 4, high=3), I(6, 4, high=3)))
    ],
    Sample("clamp", (T(6, 4), -0.5, 0.5)),
    Sample("clamp", (T(5, 3),), {"min": 0}),
    Sample("clamp", (T(5, 3),), {"max": 0.25}),
    Sample("clamp", (I(6, 4), 2, 5.5)),
    Sample("clamp", (I(6, 4), 2, 5)),
    Sample("clamp", (T(6, 4), T(4, low=-1.0), T(6, 4, low=0.0))),
    Sample("clamp", (T(5, 3),), {"min": T(3)}),
    Sample("clip", (T(6, 4), -1, 1)),
    Sample("clamp_min", (T(6, 4), 0.1)),
    Sample("clamp_max", (T(6, 4), 0.1)),
    Sample("clamp_min", (T(6, 4), T(4))),
    Sample("clamp_max", (T(5, 3), T(5, 3))),
]


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (x.real if x.is_complex() and not dtype.is_complex else x).to(dtype)


CAST_NAMES = "half bfloat16 float double bool byte char short int long cfloat cdouble".split()
CASTS = [
    *[
        Sample("cast", (source, dtype), torch=cast, tol=1e-6)
        for source in (T(6, 4), T(5, 3, dtype=torch.float32), I(6, 4), T(6, 4, dtype=C), Bo(5, 3))
        for dtype in (torch.float64, torch.float32, torch.int64, torch.int32, C)
    ],
    Sample("type_as", (I(6, 4), T(4))),
    *[
        Sample(name, (T(6, 4, low=0.0),), torch=getattr(torch.Tensor, name), tol=1e-2, grad=False)
        for name in CAST_NAMES
    ],
    Sample("clone", (T(6, 4),)),
    Sample("clone", (T(5, 3),)),
    Sample("clone", (I(5, 3),)),
    Sample("clone", (T(2, 4, 3, 2),), {"memory_format": torch.channels_last}),
    Sample("clone", (T(4, 3, 2, 2, 3),), {"memory_format": torch.channels_last_3d}),
]

WHOLE = [
    Sample(
        "constant_like",
        (T(6, 4),),
        torch=torch.ones_like,
        call=names.ones_like_whole,
        grad=False,
    ),
    Sample("ones_like_whole", (T(5, 3),), torch=torch.ones_like, grad=False),
]

SAMPLES = [*ARITHMETIC, *FUNCTIONS, *ACTIVATIONS, *COMPARISONS, *CHOICES, *CASTS, *WHOLE]
