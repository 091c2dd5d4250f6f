"""Recomputation: choices equal brute force, and a graph keeps and repeats what they say."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from strategy_training import TABLE
from transformer_models import GPTBlock, LanguageModel, LlamaBlock, loss_of

import onefold as flow
from onefold.auto import recomputation
from onefold.auto.measuring import Measuring
from onefold.auto.memory_saving import NOTHING, MemorySaving, saving_steps, seconds_to_free
from onefold.auto.recomputation import Activation, recomputations
from onefold.auto.search_arguments import task_of
from onefold.auto.strategy import Strategy
from onefold.auto.unit_activations import roots_of
from onefold.auto.unit_costs import UnitCost
from onefold.graph import hardware
from onefold.graph.memory_traffic import local_bytes

H100 = hardware.read("h100")


@st.composite
def lists_of_activations(draw):
    """Up to six activations; each reads some of those before it."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        named = draw(st.integers(0, 4)) > 0
        nbytes, rest = draw(st.integers(0, 9)), draw(st.integers(0, 4))
        reads = draw(st.sets(st.sampled_from(range(number)))) if number else set()
        whole = {place for place in reads if not found[place].rest}
        rest_read = {place for place in reads - whole if draw(st.booleans())}
        rest_read |= {place for place in reads if not found[place].needed}
        found.append(
            Activation(
                f"a{number}" if named else "",
                nbytes,
                rest,
                float(draw(st.integers(0, 9))),
                0.0,
                tuple(sorted(reads)),
                tuple(sorted(rest_read)),
            )
        )
    return tuple(found)


def brute_force(activations):
    """(seconds, freed) of every way to save some activations, and make what is needed again."""
    found = []
    whole = sum(each.nbytes for each in activations)
    for saved in product([False, True], repeat=len(activations)):
        if any(save and not each.name for save, each in zip(saved, activations, strict=True)):
            continue
        again = set()
        for number in reversed(range(len(activations))):
            each = activations[number]
            read = any(number in activations[other].reads for other in again)
            if not saved[number] and (each.needed or read):
                again.add(number)
        read = {place for number in again for place in activations[number].reads_rest}
        kept = sum(
            each.nbytes + each.rest * (number in read)
            for number, each in enumerate(activations)
            if saved[number]
        )
        found.append((sum(activations[number].seconds for number in again), whole - kept))
    return found


@settings(max_examples=300)
@given(lists_of_activations())
def test_choices_are_the_best_at_every_price(activations):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomputation, "_WORTH", 0.0)
        found = recomputations.__wrapped__(activations)
    all_ways = brute_force(activations)
    assert {(each.time, each.freed) for each in found} <= {*all_ways}
    before, last = (0, 0.0), 0.0
    for each in found:
        price = (each.time - before[1]) / (each.freed - before[0])
        assert each.freed > before[0] and price >= last * (1 - 1e-9)
        before, last = (each.freed, each.time), price
    ours = [(0.0, 0), *((each.time, each.freed) for each in found)]
    for price in np.geomspace(0.01, 100, 40):
        least = min(seconds - price * freed for seconds, freed in all_ways)
        assert min(seconds - price * freed for seconds, freed in ours) <= max(least, 0.0) + 1e-9


def test_the_check_by_brute_force_can_fail():
    up = Activation("up", 3, 0, 5.0, 0.0, ())
    down = Activation("down", 3, 0, 1.0, 0.0, (0,))
    assert sorted(brute_force((up, down))) == [(0.0, 0), (1.0, 3), (5.0, 3), (6.0, 6)]
    assert [each.saved for each in recomputations((up, down))] == [("up",), ()]


def test_what_hardly_saves_anything_is_left_out():
    large = Activation("large", 1000, 0, 5.0, 0.0, ())
    small = Activation("small", 1, 0, 0.001, 0.0, ())
    assert [each.freed for each in recomputations((large, small))] == [1001]


def test_nothing_is_kept_where_nothing_is_needed():
    assert recomputations(()) == ()
    assert recomputations((Activation("a", 0, 1, 1.0, 0.0, ()),)) == ()


# The plan of a graph.


def bytes_kept(program):
    """The bytes of rank 0 that forward makes and backward reads."""
    forward = [step for step in program.steps if not step.backward]
    roots = roots_of(program.steps)
    read = {v.number for s in program.steps if s.backward for v in s.reads()}
    read = {roots.get(number, number) for number in read}
    made = {v.number: v for s in forward if not s.aliases for v in s.outputs}
    return sum(local_bytes(made[n].meta, 0) for n in made.keys() & read)


STRATEGIES = {
    "GPT": (GPTBlock, Strategy(1, device="cpu")),
    "Llama": (LlamaBlock, Strategy(1, device="cpu")),
    "Llama, bfloat16": (LlamaBlock, Strategy(1, device="cuda", amp="bfloat16")),
    "GPT on two ranks, bfloat16": (
        GPTBlock,
        Strategy(2, tensor=2, table=TABLE, sequence_dim=1, device="cuda", amp="bfloat16"),
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_graphs_keep_and_repeat_what_a_choice_says(name):
    block, strategy = STRATEGIES[name]
    tokens = flow.empty(4, 16, dtype=flow.int64, device="meta")
    task = task_of(
        lambda: LanguageModel(block), (tokens, tokens), loss_of,
        lambda parameters: flow.optim.SGD(parameters, lr=0.1), strategy.amp and flow.bfloat16,
        strategy.device,
    )  # fmt: skip
    unit = Measuring(task, H100).measure(strategy, 4).units["blocks.0"]
    choices = recomputations(unit.activations)
    assert len(choices) > 2 and not choices[-1].saved

    def compiled(**more):
        with flow.planning(strategy.size):
            laid = replace(strategy, inputs=(0, 0), **more)
            return task.step(laid, task.build_model(), 4)._latest("test").program

    plain = bytes_kept(compiled())
    for choice in choices:
        program = compiled(recomputed=("blocks.0",), saved=(choice.saved,))
        assert plain - bytes_kept(program) == choice.freed
        assert any(step.recomputation for step in program.steps)


# What a mesh saves.


@settings(max_examples=100)
@given(st.lists(lists_of_activations(), min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_no_more_is_recomputed_than_necessary(lists, held, data):
    kept = [sum(each.nbytes for each in activations) for activations in lists]
    units = {
        f"unit {number}": UnitCost(kept=nbytes, activations=activations)
        for number, (nbytes, activations) in enumerate(zip(kept, lists, strict=True))
    }
    need = 100.0 + held * sum(kept)
    budget = data.draw(st.floats(90.0, need + 10))
    steps = saving_steps(units)
    saving = MemorySaving(units, need, held)
    saving.recompute(steps, budget)
    freed = sum(each.freed for each in saving.recomputed.values())
    seconds = sum(each.time for each in saving.recomputed.values())
    assert saving.need == pytest.approx(need - held * freed)
    assert seconds_to_free((need - budget) / held, steps) <= seconds + 1e-9 or saving.need > budget
    if saving.need > budget:
        assert freed == sum(step.freed for step in steps)
    elif saving.recomputed:
        last = max(step.price for step in steps if step.choice in saving.recomputed.values())
        assert all(
            step.price >= last - 1e-9
            for step in steps
            if step.choice.freed > saving.recomputed.get(step.name, NOTHING).freed
        )


def test_a_price_limits_what_is_recomputed():
    activations = (
        Activation("cheap", 10, 0, 1.0, 0.0, ()),
        Activation("dear", 10, 0, 100.0, 0.0, ()),
    )
    units = {"a": UnitCost(kept=20, activations=activations)}
    saving = MemorySaving(units, 20.0)
    saving.recompute(saving_steps(units), 5.0, price=1.0)
    assert saving.need == 10.0 and saving.recomputed["a"].saved == ("dear",)
    machine = replace(H100, host_bandwidth=1e12)
    units = {name: replace(units["a"], forward=1.0) for name in "abc"}
    saving = MemorySaving(units, 60.0, recomputed={"a": saving.recomputed["a"]})
    saving.offload(machine, 45.0)
    assert saving.offloaded == ("a", "b") and saving.copied(units) == 30 and saving.need == 30.0
    # Of three micro-batches two wait on the host; "c" is not to.
    saving = MemorySaving(units, 180.0, 3.0)
    saving.offload(machine, 1.0, on_its_way=1.0, staying=("c",))
    assert saving.offloaded == ("a", "b") and saving.need == 180.0 - 2 * 40.0
    assert saving.copied("a") == 20
    saving = MemorySaving(units, 60.0)
    saving.offload(machine, 1.0, on_its_way=1.0)
    assert saving.offloaded == () and saving.need == 60.0
