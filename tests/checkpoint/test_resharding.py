"""Saved under one strategy, loaded under every other: the same bits."""

import pytest
from launched import run_ranks
from strategy_runs import STRATEGIES, Run, assert_same

import onefold as flow
from onefold.distributed.world import virtual_world

FOUR = ("dp4", "tp4", "2x2", "pp2xdp2", "zero3")
EVERY = sorted(set(STRATEGIES) - {"dp2", "tp2"})


def trained(strategy, steps=2, **options):
    run = Run(strategy, **options)
    for number in range(steps):
        run.step(number)
    return run


@pytest.mark.parametrize("saved", EVERY)
def test_every_strategy_under_every_other(world, tmp_path, saved):
    first = trained(saved)
    wanted = first.values()
    flow.checkpoint.save(tmp_path, first.state(), step=2)
    flow.checkpoint.verify(tmp_path)
    for other in EVERY:
        second = trained(other, 1, seed=5)
        flow.checkpoint.load(tmp_path, second.state())
        assert_same(second.values(), wanted)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("strategy", FOUR)
def test_a_run_goes_on_bit_for_bit(world, tmp_path, strategy, graph):
    first = trained(strategy, 3, graph=graph)
    flow.checkpoint.save(tmp_path, first.state(), step=3)
    losses = [first.step(number) for number in range(3, 6)]
    second = Run(strategy, seed=9, graph=graph)
    assert flow.checkpoint.load(tmp_path, second.state()) == {"step": 3}
    assert [second.step(number) for number in range(3, 6)] == losses
    assert_same(second.values(), first.values())


def test_graphs_under_other_strategies(world, tmp_path):
    first = trained("2x2", graph=True)
    wanted = first.values()
    flow.checkpoint.save(tmp_path, first.state(), step=2)
    for other in FOUR:
        second = Run(other, seed=3, graph=True)
        flow.checkpoint.load(tmp_path, second.state())
        assert_same(second.values(), wanted)


def test_two_processes_save_and_one_loads(tmp_path):
    def program(strategy):
        run = trained(strategy)
        flow.checkpoint.save(tmp_path / strategy, run.state(), step=2)
        values = run.values()
        again = Run("tp2" if strategy == "dp2" else "dp2", seed=4)
        flow.checkpoint.load(tmp_path / strategy, again.state())
        assert_same(again.values(), values)
        return values

    for strategy in ("dp2", "tp2"):
        wanted, other = run_ranks(2, program, strategy)
        assert_same(other, wanted)
        for one in ("one", "dp4"):
            with virtual_world():
                run = Run(one, seed=8)
                flow.checkpoint.load(tmp_path / strategy, run.state())
                assert_same(run.values(), wanted)
