"""Plans of tensor parallelism: tables that say, by names, how parameters are split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..distributed.comm_log import table
from ..engine.sbp import Sbp, broadcast, split
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError


@dataclass(frozen=True)
class Style:
    """How a layer takes part: the sbp of its matrices and vectors, and what its hooks do.

    With `replicates` its input is broadcast, and the gradient of the input is summed where that
    was. With `reduces` its output is summed.
    """

    name: str
    matrix: Sbp
    vector: Sbp
    replicates: bool = False
    reduces: bool = False

    def sbp(self, tensor: Tensor) -> Sbp:
        """The layout of one of the layer's parameters; numbers, such as a scale, are broadcast."""
        if tensor.ndim == 0:
            return broadcast
        return self.matrix if tensor.ndim > 1 else self.vector

    def __str__(self) -> str:
        return self.name


COLUMN = Style("column", split(0), split(0), replicates=True)
ROW = Style("row", split(1), broadcast, reduces=True)
VOCAB = Style("vocab", split(0), split(0), reduces=True)
REPLICATE = Style("replicate", broadcast, broadcast)


@dataclass(frozen=True)
class Rule:
    """The style of the parameters whose names match a pattern (of fnmatch).

    A rule that is not `optional` must match a parameter.
    """

    pattern: str
    style: Style
    optional: bool = False


class Plan:
    """Rules in order: the first whose pattern matches a parameter's name decides.

    It is made of rules, or of a dict from patterns to styles. `a + b` is a plan with the rules of
    `a` before those of `b`.

    >>> print(Plan({"up.*": COLUMN, "down.*": ROW}))
    pattern  style   matrix  vector
    up.*     column  S0      S0
    down.*   row     S1      B
    """

    def __init__(self, rules: Iterable[Rule] | Mapping[str, Style]) -> None:
        if isinstance(rules, Mapping):
            rules = [Rule(pattern, style) for pattern, style in rules.items()]
        self.rules = tuple(rules)
        for rule in self.rules:
            if not isinstance(getattr(rule, "style", None), Style):
                raise OnefoldTypeError(
                    "a plan has rules, such as Rule('*.up_proj.*', COLUMN), or is a dict from "
                    f"patterns to styles, but got {rule!r}"
                )

    def __add__(self, other: Plan) -> Plan:
        return Plan((*self.rules, *other.rules))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __str__(self) -> str:
        rows = [("pattern", "style", "matrix", "vector")]
        for rule in self.rules:
            style = rule.style
            rows.append((rule.pattern, style.name, style.matrix.short, style.vector.short))
        return table(rows)

    def styles(self, tensors: Mapping[str, Tensor]) -> dict[str, Style]:
        """The style of each parameter.

        Raises OnefoldValueError for parameters that no rule matches, and for rules that match no
        parameter and are not optional.
        """
        found: dict[str, Style] = {}
        used = set()
        for name in tensors:
            matching = [rule for rule in self.rules if fnmatchcase(name, rule.pattern)]
            used.update(matching)
            if matching:
                found[name] = matching[0].style
        without = [f"{name} {tuple(t.shape)}" for name, t in tensors.items() if name not in found]
        if without:
            raise OnefoldValueError(
                f"tensor_parallel: no rule of the plan matches {', '.join(without)}. Add a rule, "
                "such as Plan({'head.*': REPLICATE}) + plan; print(plan) shows the rules"
            )
        unused = [r.pattern for r in self.rules if r not in used and not r.optional]
        if unused:
            raise OnefoldValueError(
                f"tensor_parallel: no parameter matches {', '.join(map(repr, unused))}; the model "
                f"has {', '.join(tensors)}. Correct the pattern, or write Rule(..., optional=True)"
            )
        return found


def _optional(style: Style, names: str) -> list[Rule]:
    return [Rule(pattern, style, optional=True) for pattern in names.split()]


# Shoeybi et al., "Megatron-LM" (2019): a column-parallel layer, then a row-parallel one, so that
# attention and the feed-forward part each need one sum over ranks.
TRANSFORMER = Plan(
    [
        *_optional(REPLICATE, "*norm* *ln_* *.ln?.* *bias_k *bias_v"),
        # Positions and types are few, and every rank needs all of them.
        *_optional(REPLICATE, "*wpe.* *position*embed* *pos_emb* *token_type_embed*"),
        *_optional(VOCAB, "*wte.* *embed_tokens.* *tok_embed* *word_embed* *token_embed*"),
        # Attention: the heads are split.
        *_optional(COLUMN, "*q_proj.* *k_proj.* *v_proj.* *.wq.* *.wk.* *.wv.*"),
        *_optional(COLUMN, "*.query.* *.key.* *.value.*"),
        *_optional(COLUMN, "*in_proj_weight *in_proj_bias *[qkv]_proj_weight"),
        *_optional(COLUMN, "*c_attn.* *qkv.* *qkv_proj.* *query_key_value.*"),
        *_optional(ROW, "*o_proj.* *out_proj.* *.wo.* *attention.output.dense.*"),
        # The feed-forward part: the hidden features are split.
        *_optional(COLUMN, "*gate_proj.* *up_proj.* *c_fc.* *fc1.* *linear1.* *.w1.* *.w3.*"),
        *_optional(COLUMN, "*dense_h_to_4h.* *intermediate.dense.*"),
        *_optional(ROW, "*down_proj.* *c_proj.* *fc2.* *linear2.* *.w2.*"),
        *_optional(ROW, "*dense_4h_to_h.* *output.dense.*"),
        *_optional(COLUMN, "*lm_head.* output.weight"),
    ]
)
