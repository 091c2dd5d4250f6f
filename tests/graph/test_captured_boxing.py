"""What CUDA graphs may communicate, as data: the boxings of segments, and their order."""

import pytest

import onefold as flow
from onefold import nn, sbp
from onefold.graph.async_boxing import split_boxings
from onefold.graph.cuda_graphs.captured_boxing import MESSAGES, TORN, boxings, checksum
from onefold.graph.cuda_graphs.segments import RULES, Where, segments_of, summary

B, P, S0, S1 = sbp.broadcast, sbp.partial_sum, sbp.split(0), sbp.split(1)
PAIR = flow.placement("cpu", [0, 1])
OTHERS = flow.placement("cpu", [2, 3])
CAPTURED = Where("cpu", launched=True, between="")


def steps_of(build, *given):
    """The steps as a process of a launched world runs them."""
    graph = nn.Graph.trace(build)
    graph._compile(*given)
    return split_boxings(graph.program)


def kinds(steps, where=CAPTURED):
    return [segment.collectives for segment in segments_of(steps, where) if segment.captured]


@pytest.mark.parametrize(
    ("src", "dst", "kind"),
    [
        (P, B, "all_reduce"),
        (S0, B, "all_gather"),
        (P, S0, "reduce_scatter"),
        (S0, S1, "all_to_all"),
    ],
)
def test_collectives_are_captured(src, dst, kind, world):
    x = flow.ones(4, 4, placement=PAIR, sbp=B).to_global(sbp=src)
    steps = steps_of(lambda x: flow.relu(x.to_global(sbp=dst)) * 2, x)
    assert kinds(steps) == [[kind]]
    (text,) = summary(steps, segments_of(steps, CAPTURED)).splitlines()
    assert text.endswith(f", with 1 {kind}")
    assert summary(steps, segments_of(steps, Where("cpu"))) == text.removesuffix(f", with 1 {kind}")


def test_the_order_is_that_in_which_they_begin(world):
    """The first ends last: its result is needed at the end."""

    def build(x, y):
        first, second = x.to_global(sbp=B), y.to_global(sbp=B)
        return flow.relu(second).sum() + first.sum()

    x = flow.ones(4, 4, placement=PAIR, sbp=S0)
    steps = steps_of(build, x, x.to_global(sbp=B).to_global(sbp=P))
    found = boxings(steps)
    assert [each.kinds for each in found] == [["all_gather"], ["all_reduce"]]
    assert found[0].begin < found[1].begin <= found[1].end
    assert found[0].ranks == {0, 1}


def test_messages_between_placements_are_not_captured(world):
    x = flow.ones(4, 4, placement=PAIR, sbp=S0)
    steps = steps_of(lambda x: flow.relu(flow.relu(x).to_global(placement=OTHERS, sbp=B)), x)
    before, moved, after = segments_of(steps, CAPTURED)
    assert (before.captured, after.captured) == (True, True)
    assert moved.reasons == (MESSAGES,)


def test_what_begins_in_a_graph_ends_in_it(world):
    """The draw between the two ends is not captured, and so neither are they."""

    def build(x, y):
        whole = x.to_global(sbp=B)
        return nn.functional.dropout(flow.relu(y), 0.5).sum() + whole.sum()

    x = flow.ones(4, 4, placement=PAIR, sbp=S0)
    steps = steps_of(build, x, x)
    (boxing, *_) = boxings(steps)
    assert any(step.name == "dropout" for step in steps[boxing.begin : boxing.end])
    on_host = Where("cpu", launched=True, draws_in_memory=False, between="")
    segments = segments_of(steps, on_host)
    for end in boxing.begin, boxing.end:
        (segment,) = [each for each in segments if end in each.steps]
        assert TORN in segment.reasons
    assert all(not each.communication for each in segments if not each.captured)
    assert kinds(steps)[0][0] == "all_gather"


def test_the_checksum_tells_orders_apart(world):
    x = flow.ones(4, 4, placement=PAIR, sbp=S0)
    one = boxings(steps_of(lambda x: flow.relu(x.to_global(sbp=B)), x))
    two = boxings(steps_of(lambda x: flow.relu(x.to_global(sbp=S1)), x))
    sums = {checksum(each) for each in ([one], [two], [one, two], [two, one], [one + two])}
    assert len(sums) == 5
    assert checksum([one]) == checksum([[*one]])


def test_the_option_is_named_where_it_is_off(world):
    x = flow.ones(4, 4, placement=PAIR, sbp=S0)
    steps = steps_of(lambda x: flow.relu(flow.relu(x).to_global(sbp=B)), x)
    _, moved, _ = segments_of(steps, Where("cpu", launched=True))
    (text,) = moved.reasons
    assert text.startswith(RULES[0][1]) and "enable_cuda_graph(communication=True)" in text


def test_the_setting():
    config = nn.Graph.trace(lambda x: x).config
    config.enable_cuda_graph(communication=True)
    assert (config.cuda_graph, config.captures_communication) == (True, True)
    config.enable_cuda_graph(False, communication=True)
    assert (config.cuda_graph, config.captures_communication) == (False, False)
    with pytest.raises(flow.errors.OnefoldTypeError, match="communication must be True or False"):
        config.enable_cuda_graph(communication="nccl")
    assert (config.cuda_graph, config.captures_communication) == (False, False)
