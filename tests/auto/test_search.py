"""The search for strategies: what it finds is the best there is, trains as one device, and fits."""

import copy
import re
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from strategy_training import adamw, from_code, layouts, on_one_device, trained
from transformer_models import GPTBlock, LanguageModel, loss_of

import onefold as flow
from onefold import nn
from onefold.auto.candidates import Space, divisors
from onefold.auto.memory_saving import MemorySaving
from onefold.auto.model_units import shortened, units_of
from onefold.auto.search_arguments import task_of
from onefold.auto.stage_sums import balanced
from onefold.auto.strategy_search import _Search
from onefold.auto.table_choice import table_for
from onefold.errors import OnefoldError, OnefoldTypeError, OnefoldValueError
from onefold.graph import hardware
from onefold.graph.memory.memory_plan import MemoryPlan
from onefold.parallel import COLUMN, REPLICATE, ROW, Plan, Rule, tensor_parallel

pytestmark = pytest.mark.filterwarnings("ignore::onefold.PipelineWarning")

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)
H100 = hardware.read("h100")
# Slow enough that small models are not launches alone, and all of its memory is theirs.
SLOW = replace(
    H100,
    name="slow",
    peak={dtype: rate / 1e5 for dtype, rate in H100.peak.items()},
    memory_bandwidth=H100.memory_bandwidth / 1e5,
    launch=1e-7,
    context_bytes=0,
    communicator_bytes=0,
    links=tuple(
        replace(link, bandwidth=link.bandwidth / 1e5, latency=1e-7, launch=1e-7)
        for link in H100.links
    ),
)


def gpt():
    return LanguageModel(GPTBlock, vocabulary=32, width=16)


def mlp():
    sizes = [16, 64, 64, 64, 8]
    layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    return nn.Sequential(*[each for layer in layers for each in (layer, nn.GELU())])


def distance(model, x, y):
    return ((model(x) - y) ** 2).mean()


TOKENS = flow.empty(8, 6, dtype=flow.int64, device="meta")
FEW = flow.empty(2, 6, dtype=flow.int64, device="meta")
MODELS = {
    "small GPT": (gpt, (FEW, FEW), loss_of),
    "GPT": (gpt, (TOKENS, TOKENS), loss_of),
    "MLP": (mlp, (flow.empty(8, 16), flow.empty(8, 8)), distance),
}


def search(name, size, **more):
    build, batch, loss = MODELS[name]
    return flow.auto.search(
        build, batch, loss=loss, size=size, device="cpu", **{"hardware": SLOW, **more}
    )


def searching(name, size, memory=None, schedules=("1f1b",), machine=SLOW, amp=None):
    build, batch, loss = MODELS[name]
    task = task_of(build, batch, loss, flow.optim.AdamW, amp, "cpu")
    return _Search(task, size, machine, memory, None, schedules, 1, True, 1e9)


# Bytes of a rank, such that a part of the model alone fits.
BUDGETS = {"GPT": 45_000, "MLP": 90_000}


@pytest.mark.parametrize(
    ("name", "size", "memory"),
    [("small GPT", 2, None), ("small GPT", 2, 75_000), ("MLP", 4, 90_000)],
)
def test_the_search_is_brute_force_over_the_candidates(name, size, memory):
    every = searching(name, size, memory)
    estimates = every.choices.estimates(every.choices.space(size))
    estimates += every.choices.searched_estimates(estimates)
    found = [(each, every._repaired(each)) for each in estimates]
    assert not every.failed
    fitting = [(estimate, priced) for estimate, priced in found if priced is not None]
    for estimate, priced in fitting:
        assert estimate.bound <= priced.seconds * (1 + 1e-6)
        assert estimate.least <= priced.memory
    best = min(priced.seconds for _, priced in fitting)
    result = search(name, size, memory=memory, schedules=("1f1b",), thorough=True, time_limit=1e9)
    assert result.seconds == pytest.approx(best, rel=1e-9)
    assert result.optimal and result.lower_bound == result.seconds
    assert result.candidates == len(estimates)
    assert memory is None or result.memory <= memory


# Links that are slower still, and groups of two ranks that are near each other.
FAR = replace(
    SLOW,
    name="far",
    links=tuple(
        replace(link, bandwidth=link.bandwidth / 30, ranks=2 if near else link.ranks)
        for near, link in zip((True, False), SLOW.links, strict=True)
    ),
)


@pytest.mark.parametrize(
    ("name", "size", "machine", "amp", "every", "close"),
    [
        ("GPT", 4, SLOW, None, 13, 0.75),
        ("GPT", 4, FAR, None, 11, 0.5),
        ("MLP", 8, FAR, flow.bfloat16, 11, 0.15),
    ],
)
def test_bounds_are_below_and_near_what_is_simulated(name, size, machine, amp, every, close):
    schedules = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v")
    found = searching(name, size, None, schedules, machine, amp)
    estimates = found.choices.estimates(found.choices.space(size))
    estimates = [*estimates[::every], *found.choices.searched_estimates(estimates)[:3]]
    priced = [(estimate.bound, found._repaired(estimate)) for estimate in estimates]
    ratios = [bound / each.seconds for bound, each in priced if each is not None]
    assert len(ratios) > 5 and not found.failed
    assert max(ratios) <= 1 + 1e-6
    assert min(ratios) > close


@pytest.mark.parametrize(("name", "size"), [("GPT", 4), ("MLP", 4), ("GPT", 8), ("MLP", 8)])
def test_the_strategy_trains_as_one_device(name, size, world):
    build, _, loss = MODELS[name]
    flow.manual_seed(0)
    model = build().double()
    batch = {
        "GPT": (flow.randint(0, 32, (8, 6)), flow.randint(0, 32, (8, 6))),
        "MLP": (flow.randn(8, 16).double(), flow.randn(8, 8).double()),
    }[name]
    wanted = on_one_device(copy.deepcopy(model), batch, loss)
    strategy = search(name, size, memory=BUDGETS[name]).strategy
    one, other = copy.deepcopy(model), copy.deepcopy(model)
    step = strategy.graph(strategy.apply(one), loss, adamw(one))
    losses = trained(step, strategy.place(*batch))
    np.testing.assert_allclose(losses, wanted, rtol=1e-8)
    assert from_code(strategy, other, batch, loss) == (losses, layouts(one))


class Step(nn.Graph):
    """A step as examples have it."""

    def __init__(self, model, loss, micro_batches=1, zero=0):
        super().__init__()
        self.model, self.loss = model, loss
        self.add_optimizer(flow.optim.AdamW(model.parameters()))
        self.config.set_gradient_accumulation_steps(micro_batches)
        if zero:
            self.config.enable_zero(True, stage=zero)

    def build(self, *batch):
        loss = self.loss(self.model, *batch)
        loss.backward()
        return loss


def by_hand(name, size):
    """Strategies as people write them: data, tensor, ZeRO, stages, and the two in one."""
    build, batch, loss = MODELS[name]

    def inputs(*placed):
        return [
            flow.empty(*x.shape, dtype=x.dtype, placement=p, sbp=sbp)
            for x, (p, sbp) in zip(batch, placed, strict=True)
        ]

    every = flow.placement("cpu", range(size))
    found = dict(table_for(build(), None, units_of(build())).rules)
    styles = {"column": COLUMN, "row": ROW, "replicate": REPLICATE}
    table = {pattern: styles.get(style, REPLICATE) for pattern, style in found.items()}
    for zero in (0, 1, 2, 3):
        yield Step(build().to_global(every, B), loss, zero=zero), inputs((every, S0), (every, S0))
    model = tensor_parallel(build(), every, table)
    yield Step(model, loss), inputs((every, B), (every, B))
    halves = [flow.placement("cpu", ranks) for ranks in np.arange(size).reshape(2, size // 2)]
    for second in (S0, B):  # "pp" of two stages, and "mixed": the second tensor parallel
        for micro_batches in (2, 4):
            model = build()
            units = units_of(model).names
            for at, unit in enumerate(units):
                stage = at * 2 // len(units)
                module = model.get_submodule(unit).to_global(halves[stage], B)
                module.to(nn.graph.GraphModule).set_stage(stage, halves[stage])
            if second is B:
                front = dict.fromkeys(units[: (len(units) + 1) // 2], REPLICATE)
                rules = {**{f"{unit}.*": style for unit, style in front.items()}, **table}
                tensor_parallel(model, plan=Plan(Rule(*rule, True) for rule in rules.items()))
            yield (
                Step(model, loss, micro_batches),
                inputs((halves[0], S0), (halves[1], second)),
            )


@pytest.mark.parametrize(("name", "size"), [("GPT", 4), ("MLP", 4), ("MLP", 8)])
def test_no_strategy_written_by_hand_is_faster(name, size):
    best = search(name, size)
    times = []
    with flow.planning(size):
        for graph, inputs in by_hand(name, size):
            graph._compile(*inputs)
            times.append(graph.simulate(SLOW, memory=False).step_time)
    assert len(times) >= 5
    assert best.seconds <= min(times) * (1 + 1e-9)


@pytest.mark.parametrize(("size", "memory"), [(1, 80), (1, 4), (4, 80), (4, 2), (8, 4)])
def test_estimates_of_memory_are_near_what_plans_need(size, memory):
    tokens = flow.empty(64, 1024, dtype=flow.int64, device="meta")
    task = task_of(
        lambda: LanguageModel(GPTBlock, vocabulary=4096, width=1024), (tokens, tokens), loss_of,
        flow.optim.AdamW, flow.bfloat16, "cuda",
    )  # fmt: skip
    search = _Search(task, size, H100, memory * 2**30, None, ("1f1b", "zb-h1"), 8, False, 60.0)
    assert search.run().best
    needed = {strategy: priced.memory for strategy, priced in search.priced.items()}
    for strategy, found in (needed | search.unfit).items():
        estimate = search.estimates[strategy]
        plain = not strategy.recomputed and not strategy.layout_search
        assert estimate.memory == pytest.approx(found, rel=0.03 if plain else 0.2), strategy


def test_the_driver_and_communicators_take_memory():
    least = H100.context_bytes + H100.communicator_bytes
    assert search("MLP", 4, hardware=H100).memory > least > search("MLP", 4).memory


def test_an_arena_is_laid_out_for_the_best_alone(monkeypatch):
    wanted = search("GPT", 4)
    total, asked = MemoryPlan.total.fget, []

    def first_is_huge(plan):
        asked.append(plan)
        return 10**15 if len(asked) == 1 else total(plan)

    monkeypatch.setattr(MemoryPlan, "total", property(first_is_huge))
    other = search("GPT", 4)
    assert len(asked) == 2
    assert other.strategy != wanted.strategy
    assert other.seconds == min(p.seconds for p in (other.best, *wanted.runners_up))


# What it is made of.


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.integers(1, 8))
def test_runs_are_as_even_as_they_can_be(times, count):
    count = min(count, len(times))
    ends = balanced(times, count)
    assert len(ends) == count and ends[-1] == len(times) and ends == sorted(set(ends))

    def slowest(ends):
        starts = (0, *ends[:-1])
        return max(sum(times[a:b]) for a, b in zip(starts, ends, strict=True))

    cuts = combinations(range(1, len(times)), count - 1)
    least = min(slowest((*cut, len(times))) for cut in cuts)
    assert slowest(ends) <= least * (1 + 1e-6)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8))
def test_candidates_divide_ranks_and_batch(size, rows, layers):
    tensors = [n for n in (1, 2, 4) if size % n == 0]
    space = Space(size, rows, layers, tensors, "sequence", ("1f1b", "zb-v"), (0, 3))
    found = list(space.candidates())
    assert len(found) == len(set(found))
    for c in found:
        assert c.meshes * c.data * c.tensor == size
        assert c.data * c.rows * c.micro_batches == rows
        assert c.stages <= max(layers, 1)
        assert c.layouts == "table" or c.tensor > 1


@given(st.integers(1, 500))
def test_divisors(number):
    assert divisors(number) == [n for n in range(1, number + 1) if number % n == 0]


def test_a_smaller_model_stands_for_the_whole():
    model = nn.Sequential(
        nn.Embedding(8, 4), nn.Sequential(*[nn.Linear(4, 4) for _ in range(9)]), nn.Linear(4, 8)
    )
    units = units_of(model)
    assert units.names == ("0", *(f"1.{i}" for i in range(9)), "2")
    small = shortened(model, units)
    assert small.names == units.names and len(model[1]) == 3
    assert small.like["1.8"] == "1.1" and small.like["2"] == "2"
    assert small.whole["1.0"] == ("1.0",) and small.whole["1.2"] == ("1.8",)
    assert small.whole["1.1"] == units.names[1:-1] and "2" not in small.whole


WIDTH = 8192


class Wide(nn.Module):
    """Much work for each element that it keeps."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return flow.gelu(self.linear(x))


def deep():
    return nn.Sequential(*[Wide() for _ in range(16)])


def searched_deep(memory=None, device="cuda"):
    one_row = flow.empty(1, 2**15, WIDTH, device="meta")
    return flow.auto.search(
        deep,
        one_row,
        loss=lambda model, x: (model(x) ** 2).mean(),
        size=1,
        hardware=H100,
        memory=memory,
        amp=flow.bfloat16,
        device=device,
    )


def test_layers_are_offloaded_where_computing_hides_it(monkeypatch):
    whole = searched_deep()
    assert not whole.strategy.recomputed and not whole.strategy.offloaded
    memory = 0.9 * whole.memory
    found = searched_deep(memory)
    assert found.strategy.offloaded and found.memory <= memory
    assert "offloaded" in found.strategy.summary
    numbers = [int(name) for name in found.strategy.offloaded]
    assert max(b - a for a, b in pairwise(numbers)) >= 16 // len(numbers) - 1
    monkeypatch.setattr(MemorySaving, "offload", lambda self, hardware, budget: None)
    again = searched_deep(memory)
    assert again.strategy.recomputed and not again.strategy.offloaded
    assert whole.seconds <= found.seconds < again.seconds
    assert found.lower_bound <= found.seconds


def stages_of_deep(memory=None):
    """The search on links to the host that are fast, and its estimates for four stages and more."""
    x = flow.empty(8, 2**13, WIDTH, device="meta")
    task = task_of(
        deep, (x,), lambda model, x: (model(x) ** 2).mean(), flow.optim.AdamW, flow.bfloat16, "cuda"
    )
    machine = replace(H100, host_bandwidth=10 * H100.host_bandwidth)
    search = _Search(task, 4, machine, memory, None, ("1f1b", "interleaved"), 1, True, 1e9)
    estimates = search.choices.estimates(search.choices.space(4))
    return search, [each for each in estimates if each.candidate.meshes == 4]


def test_stages_offload_what_schedules_hide():
    search, estimates = stages_of_deep()
    whole = {each.candidate: search._repaired(each) for each in estimates}
    search, estimates = stages_of_deep(13 * 2**30)
    schedules = set()
    for estimate in estimates:
        found, before = search._repaired(estimate), whole[estimate.candidate]
        assert found.memory <= 13 * 2**30
        assert estimate.bound <= found.seconds * (1 + 1e-6)
        if found.strategy.offloaded:
            schedules.add(found.strategy.schedule)
            assert not found.strategy.recomputed and before.memory > found.memory
            assert found.seconds == pytest.approx(before.seconds, rel=1e-3)
            # The last stage's backward follows its forward.
            assert not set(found.strategy.offloaded) & set(found.strategy.parts[-1])
    assert schedules == {"1f1b", "interleaved"}


def test_on_cpus_the_host_has_no_other_memory():
    found = searched_deep(0.9 * searched_deep().memory, device="cpu")
    assert found.strategy.recomputed and not found.strategy.offloaded


class Counting(nn.Module):
    """Names its layers by number, so that none can be left out."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(8))

    def forward(self, x):
        for number in range(8):
            x = self.layers[number](x)
        return x


def test_a_model_that_counts_its_layers_is_searched_whole():
    x = flow.empty(8, 8)
    found = flow.auto.search(
        Counting, x, loss=lambda model, x: model(x).mean(), size=2, hardware=SLOW, device="cpu"
    )
    assert found.strategy.size == 2


class Pair(nn.Module):
    """Names that no table knows."""

    def __init__(self, width=8):
        super().__init__()
        self.gate = nn.Linear(width, 1)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        return x + self.gate(x) * self.inner(x)


def test_layers_that_are_alike_are_split_alike():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(*[Pair() for _ in range(9)]))
    table = table_for(model, None, units_of(model))
    assert table.rules == (
        ("1.*.inner.0.*", "column"),
        ("1.*.inner.2.*", "row"),
        ("*", "replicate"),
    )
    assert table.dims == (32,)
    plain = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])
    rules = table_for(plain, None, units_of(plain)).rules
    assert rules == (("0.*", "column"), ("1.*", "row"), ("*", "replicate"))
    # The pattern of the first would split a norm, too.
    plain.add_module("3", nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)))
    plain.add_module("4", nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)))
    rules = dict(table_for(plain, None, units_of(plain)).rules)
    assert rules.pop("*.0.*") == "column" and rules.pop("*") == "replicate"
    assert rules == {"0.*": "column", "1.*": "row", "3.2.*": "row", "4.1.*": "row"}


@pytest.mark.parametrize("make", [Pair, lambda: nn.Linear(8, 8)])
def test_a_smaller_model_is_measured_whatever_its_names_are(make):
    task = task_of(
        lambda: nn.Sequential(*[make() for _ in range(12)]), flow.empty(8, 8),
        lambda model, x: model(x).mean(), flow.optim.AdamW, None, "cpu",
    )  # fmt: skip
    choices = _Search(task, 4, SLOW, None, None, ("1f1b",), 1, False, 1e9).choices
    found = choices.estimates(choices.space(4))
    assert {each.candidate.tensor for each in found} == {1, 2, 4}
    assert len(choices.measuring._small) == 3


def test_the_result_prints():
    result = search("MLP", 4)
    lines = str(result).splitlines()
    assert lines[0] == f"on slow: {result.strategy.summary}"
    shown = [line for line in lines[8:] if line]
    assert len(shown) == min(8, 1 + len(result.runners_up))
    assert shown[0].startswith(result.strategy.summary)
    assert result.tokens_per_second == pytest.approx(8 / result.seconds)


# Bad input.


def fails(match, error=OnefoldValueError, **more):
    build, batch, loss = MODELS["MLP"]
    given = {"build_model": build, "batch": batch, "loss": loss, "size": 4, "device": "cpu"}
    with pytest.raises(error, match=match):
        flow.auto.search(**{**given, "hardware": SLOW, **more})


@pytest.mark.parametrize(
    ("more", "match", "error"),
    [
        ({"size": 0}, "size must be at least 1", OnefoldValueError),
        ({"size": "4"}, "size must be an integer", OnefoldTypeError),
        ({"hardware": "abacus"}, "unknown hardware 'abacus'", OnefoldValueError),
        ({"build_model": 3}, "build_model must be a function", OnefoldTypeError),
        ({"build_model": lambda: 3}, "must return an onefold.nn.Module", OnefoldTypeError),
        ({"loss": None}, "loss must be a function", OnefoldTypeError),
        ({"batch": 3}, "batch must be a tensor or several", OnefoldTypeError),
        ({"batch": (flow.ones(2), 3)}, "must be tensors, but has 3", OnefoldTypeError),
        ({"batch": (flow.ones(2), flow.ones(3))}, r"got \(2,\), \(3,\)", OnefoldValueError),
        ({"batch": flow.ones(())}, "but one is a number", OnefoldValueError),
        ({"schedules": ("2f2b",)}, "unknown schedule '2f2b'", OnefoldValueError),
        ({"amp": flow.float64}, "float16 or bfloat16", OnefoldValueError),
        ({"simulations": 0}, "simulations must be at least 1", OnefoldValueError),
        ({"memory": -1}, "memory must be a positive number", OnefoldValueError),
        ({"size": 37}, r"37 ranks cannot share a batch .* \(1 would\)", OnefoldValueError),
    ],
)
def test_bad_arguments(more, match, error):
    fails(match, error, **more)


def test_a_model_with_placements_is_refused(world):
    where = flow.placement("cpu", [0, 1])
    fails(
        "0.weight is global",
        build_model=lambda: nn.Sequential(nn.Linear(16, 8, placement=where, sbp=B)),
    )


def test_a_model_that_cannot_be_captured_says_why():
    fails("strategy can be compiled|value of", OnefoldError, loss=lambda m, x, y: m(x).sum().item())


def test_a_model_that_fits_nowhere():
    message = (
        r"fits on 4 ranks of slow in no way .* Each has 9\.8 KiB; the nearest plan needs "
        r"[\d.]+ KiB, [\d.]+ KiB more: .*\d+ ranks would do|More ranks alone"
    )
    fails(message, memory=10_000)


def test_the_nearest_plan_is_the_one_that_needs_least():
    """What a search with a little less memory says is needed is no more than what was found."""
    needed = search("MLP", 2).memory
    with pytest.raises(OnefoldValueError) as failed:
        search("MLP", 2, memory=needed // 8)
    said = re.search(r"nearest plan needs ([\d.]+) KiB", str(failed.value))
    assert float(said.group(1)) <= needed / 2**10 + 0.1


def test_a_batch_in_one_piece_is_tried_where_its_parts_do_not_fit():
    """With ZeRO 3 a batch that is cut has sums of gradients, one that is not has none."""
    every = searching("MLP", 4, memory=1.0)
    found = every.choices.estimates(every.choices.space(4))
    cuts = {(e.candidate.data, e.candidate.tensor, e.candidate.micro_batches) for e in found}
    whole = {(data, tensor) for data, tensor, count in cuts if count == 1}
    assert {(4, 1), (2, 2), (1, 4)} <= whole
    assert (1, 4, 8) in cuts and (1, 4, 4) not in cuts


def test_nothing_is_changed(world):
    state = flow.get_rng_state()
    search("MLP", 8)
    assert flow.get_rng_state() == state
    assert flow.ones(2).tolist() == [1.0, 1.0]


def test_the_page_of_a_result_has_all_that_was_compared(tmp_path):
    budget = 2**30 + 12345
    found = flow.auto.search(
        gpt, (TOKENS, TOKENS), loss=loss_of, size=4, hardware=SLOW, memory=budget
    )
    page = tmp_path / "plan.html"
    found.report(page, memory=False)
    data = page.read_text()
    assert f'"memory_bytes":{budget}' in data.replace(" ", "")
    assert len(found.runners_up) > 1
    for priced in (found.best, *found.runners_up):
        assert priced.name in data and priced.description in data
        assert f"{priced.name}, {priced.description}".rstrip(", ") == priced.strategy.summary
    with pytest.raises(OnefoldValueError, match="report: "):
        found.report(tmp_path / "nowhere" / "plan.html")
