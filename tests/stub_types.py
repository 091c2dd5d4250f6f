"""What the stubs say where the arguments of a function decide."""

NUMBER = "complex | np.number[Any]"
OPERAND = f"Tensor | {NUMBER}"
INTS = "int | Sequence[int]"
DEVICE = "DeviceLike | None"

# Functions whose result depends on their arguments, as (parameters, result) of each overload.
OUT = "*, out: Tensor | None = None"
_ALONG = "dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None"
_OF_ALL = [(f"input: Tensor, {OUT}", "Tensor"), (f"input: Tensor, {_ALONG}", "ValuesAndIndices")]
_OF_TWO = [(f"input: Tensor, dim: Tensor, {OUT}", "Tensor")]
_POOL = (
    f"input: Tensor, kernel_size: {INTS}, stride: {INTS} | None = None, padding: {INTS} = 0, "
    f"dilation: {INTS} = 1, ceil_mode: bool = False"
)
_POOLED = [
    (f"{_POOL}, return_indices: Literal[False] = False", "Tensor"),
    (f"{_POOL}, *, return_indices: Literal[True]", "tuple[Tensor, Tensor]"),
]
_AT_LEAST = [("input: Tensor, /", "Tensor"), ("*tensors: Any", "tuple[Tensor, ...]")]
_PLACE = f"device: {DEVICE} = None, dtype: torch.dtype | None = None"
OVERLOADS = {
    "atleast_1d": _AT_LEAST,
    "atleast_2d": _AT_LEAST,
    "atleast_3d": _AT_LEAST,
    "max": _OF_ALL + _OF_TWO,
    "max_pool1d": _POOLED,
    "max_pool2d": _POOLED,
    "max_pool3d": _POOLED,
    "median": _OF_ALL,
    "min": _OF_ALL + _OF_TWO,
    "nanmedian": _OF_ALL,
    "nonzero": [
        (f"input: Tensor, *, as_tuple: Literal[False] = False, {OUT[3:]}", "Tensor"),
        ("input: Tensor, *, as_tuple: Literal[True]", "tuple[Tensor, ...]"),
    ],
    "stride": [("self: Tensor", "tuple[int, ...]"), ("self: Tensor, dim: int", "int")],
    "type": [
        ("self: Tensor, dtype: None = None", "str"),
        ("self: Tensor, dtype: Any, non_blocking: bool = False", "Tensor"),
    ],
    "where": [
        ("condition: Tensor", "tuple[Tensor, ...]"),
        (f"condition: Tensor, input: {OPERAND}, other: {OPERAND}, {OUT}", "Tensor"),
    ],
}

# Methods whose parameters are not the function's without its first, as (parameters, result).
METHODS = {"polygamma": ("self, n: int", "Tensor")}

# Functions whose parameters are read by hand, as (parameters, result).
_SCALES = "Tensor | Sequence[Tensor]"
_RECIPE = "ScalingType | Sequence[ScalingType]"
_SWIZZLE = "SwizzleType | Sequence[SwizzleType] | None"
SIGNATURES = {
    "scaled_mm": (
        f"mat_a: Tensor, mat_b: Tensor, scale_a: {_SCALES}, scale_recipe_a: {_RECIPE}, "
        f"scale_b: {_SCALES}, scale_recipe_b: {_RECIPE}, swizzle_a: {_SWIZZLE} = None, "
        f"swizzle_b: {_SWIZZLE} = None, bias: Tensor | None = None, "
        "output_dtype: torch.dtype | None = torch.bfloat16, "
        "contraction_dim: Sequence[int] = (), use_fast_accum: bool = False",
        "Tensor",
    ),
    "reshape": (f"input: Tensor, *shape: {INTS}", "Tensor"),
    "to": (
        f"self: Tensor, *args: torch.dtype | DeviceLike | Tensor | None, {_PLACE}, "
        "non_blocking: bool = False, copy: bool = False, "
        "memory_format: torch.memory_format | None = None",
        "Tensor",
    ),
    "view": (f"input: Tensor, *shape: {INTS}", "Tensor"),
}
