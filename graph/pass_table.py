"""The passes that a program goes through, in order: one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..engine.meta import Meta
from .graph_config import GraphConfig
from .ir import Program, verify
from .micro_batches import unroll
from .passes.accumulate_embedding_grads import accumulate_embedding_grads
from .passes.accumulate_products import accumulate_products, gradients
from .passes.boxing_chains import merge_boxings
from .passes.cse import eliminate_common
from .passes.dead_code import eliminate_dead
from .passes.delay_partials import delay_partials
from .passes.fold_ones import fold_ones
from .passes.fuse_add import fuse_add
from .passes.fuse_chains import fuse_chains
from .passes.fuse_channel_sums import fuse_channel_sums
from .passes.fuse_cross_entropy import fuse_cross_entropy
from .passes.fuse_dropout import fuse_dropout
from .passes.fuse_norms import fuse_norms
from .passes.hoist_pointwise import hoist_pointwise
from .passes.in_place import in_place
from .passes.join_attention_grads import join_attention_grads
from .passes.keep_dropout_masks import keep_dropout_masks
from .passes.layout_search import search_layouts
from .passes.low_parameters import read_low_parameters
from .passes.offload_activations import offload_activations
from .passes.overlap import overlap_communication
from .passes.recompute_pointwise import recompute_pointwise
from .passes.recompute_slopes import recompute_slopes
from .passes.save_activations import save_activations
from .passes.update_in_backward import update_in_backward
from .stages.assign_stages import assign_stages
from .stages.partition import added
from .update import Updates, add_updates, align
from .zero import Zero

# What a pass rewrites: the program of one micro-batch; then that of a call, which is there only
# without stages; then what ends a call: the same program, or with stages what is done after them.
Part = Literal["micro-batch", "call", "end"]


@dataclass(frozen=True)
class Compilation:
    """The facts that passes may depend on."""

    config: GraphConfig = field(default_factory=GraphConfig)
    ranks: Sequence[frozenset[int]] = ()  # of each stage
    metas: Sequence[Meta] = ()  # of a call's inputs
    whole: frozenset[int] = frozenset()  # the inputs that micro-batches get no part of
    zero: Zero = field(default_factory=lambda: Zero(None))
    updates: Updates | None = None
    chosen: frozenset[str] = frozenset()  # the parameters whose layouts are chosen, by name
    read_later: frozenset[int] | None = None  # see `add_updates`
    in_place: bool = True  # whether memory counts more than the time of small steps

    @property
    def exact(self) -> bool:
        """Whether every bit of every result stays, as without the search for layouts."""
        return not self.config.layout_search


@dataclass(frozen=True)
class Pass:
    """A row: a function, its arguments besides the program, and the condition to run it."""

    run: Callable[..., Program]
    given: Callable[[Compilation], dict[str, Any]] = lambda _: {}
    when: Callable[[Compilation], bool] = lambda _: True
    of: Part = "micro-batch"


def _exact(compilation: Compilation) -> dict[str, Any]:
    return {"exact": compilation.exact}


def _choices(compilation: Compilation) -> dict[str, Any]:
    config = compilation.config
    return {
        "parameters": compilation.chosen,
        "ignore_asked": config.layouts_ignored,
        "micro_batches": config.micro_batches,
        "axis": config.searched_axis,
    }


def _updates_in_backward(compilation: Compilation) -> bool:
    return compilation.updates is not None and compilation.config.updates_in_backward


# Those without a `when` change no bit of any result.
PASSES: tuple[Pass, ...] = (
    Pass(assign_stages, lambda c: {"ranks": c.ranks}),
    Pass(eliminate_common),
    Pass(fold_ones),
    Pass(save_activations),
    Pass(eliminate_dead),
    Pass(search_layouts, _choices, when=lambda c: c.config.layout_search),
    Pass(merge_boxings, _exact),
    Pass(delay_partials, _exact),
    Pass(eliminate_common),
    Pass(eliminate_dead),
    Pass(fuse_add, when=lambda c: c.config.fuses_add),
    Pass(lambda program, zero: zero.rewrite(program), lambda c: {"zero": c.zero}),
    Pass(read_low_parameters, when=lambda c: c.updates is not None),
    Pass(
        accumulate_products,
        lambda c: {"added": added if c.ranks else gradients},
        when=lambda c: c.config.micro_batches > 1,
    ),
    Pass(fuse_cross_entropy),
    Pass(accumulate_embedding_grads),
    Pass(recompute_pointwise),
    Pass(recompute_slopes),
    Pass(hoist_pointwise),
    Pass(fuse_chains),
    Pass(fuse_channel_sums),
    Pass(fuse_dropout),
    Pass(fuse_norms),
    Pass(join_attention_grads),
    Pass(keep_dropout_masks),
    Pass(offload_activations, when=lambda c: bool(c.ranks)),
    Pass(
        unroll,
        lambda c: {"metas": c.metas, "count": c.config.micro_batches, "whole": c.whole},
        of="call",
    ),
    Pass(align, lambda c: {"layouts": c.zero.update_layouts()}, of="end"),
    Pass(overlap_communication, of="call"),
    Pass(offload_activations, of="call"),
    Pass(
        add_updates,
        lambda c: {
            "updates": c.updates,
            "layouts": c.zero.update_layouts(),
            "read_later": c.read_later,
            "in_turns": c.config.updates_in_backward,
        },
        when=lambda c: c.updates is not None,
        of="end",
    ),
    Pass(update_in_backward, when=_updates_in_backward, of="end"),
    Pass(in_place, when=lambda c: c.in_place, of="end"),
)


def rewritten(program: Program, compilation: Compilation, *parts: Part) -> Program:
    """The program after the passes of these parts, verified after each."""
    for each in rows(compilation, *parts):
        program = each.run(program, **each.given(compilation))
        verify(program)
    return program


def rows(compilation: Compilation, *parts: Part) -> Iterator[Pass]:
    """The passes of these parts, in order."""
    return (each for each in PASSES if each.of in parts and each.when(compilation))
